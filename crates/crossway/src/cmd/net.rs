//! `crossway net`: several hosts on this machine.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use crossway_netlab::{
    HostSpec, ImpairedBy, Impairment, Lab, Link, Network, Offloads, Rate, Topology, parse_duration,
    parse_share,
};

use super::Run;
use crate::ui::Ui;

/// Makes hosts on this machine that are joined by shaped links, and runs commands on them
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Net {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Makes a network; it stays until taken down
    Up(Up),
    /// Takes networks down and ends the processes on their hosts
    Down(Down),
    /// Lists the networks that are up
    List(ListNetworks),
    /// Runs a command on a host
    Exec(Exec),
}

#[derive(clap::Args)]
struct Up {
    /// Names of the hosts: two make a direct link, more hang on a switch
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "a,b",
        default_value_if("guests", clap::builder::ArgPredicate::IsPresent, None)
    )]
    hosts: Vec<String>,
    /// Further hosts that are places for guests: crossway guest up --net NETWORK/HOST
    #[arg(long, value_delimiter = ',')]
    guests: Vec<String>,
    /// Rate of each link each way: 100mbit, 1gbit ...; unshaped if left out
    #[arg(long)]
    rate: Option<Rate>,
    /// Largest IP packet, bytes
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Segmentation and checksum offloads
    #[arg(long, default_value = "off")]
    offloads: Switch,
    /// Share of frames dropped: 1%
    #[arg(long, value_parser = |text: &str| parse_share("loss", text), default_value = "0%")]
    loss: f64,
    /// Share of frames sent twice
    #[arg(long, value_parser = |text: &str| parse_share("duplicate", text), default_value = "0%")]
    duplicate: f64,
    /// Share of frames that overtake others
    #[arg(long, value_parser = |text: &str| parse_share("reorder", text), default_value = "0%")]
    reorder: f64,
    /// Every frame waits so long: 1ms, 250us
    #[arg(long, value_parser = |text: &str| parse_duration("delay", text), default_value = "0us")]
    delay: Duration,
    /// Plus or minus up to so much
    #[arg(long, value_parser = |text: &str| parse_duration("jitter", text), default_value = "0us")]
    jitter: Duration,
    /// Seed of the draws that impair
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Name of the network; made up if left out
    #[arg(long)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(clap::Args)]
struct Down {
    /// Name of the network
    #[arg(required_unless_present = "all")]
    name: Vec<String>,
    /// All that are up, those of running measurements included
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

#[derive(clap::Args)]
struct ListNetworks {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Exec {
    /// The host, as network/host; the network may be left out if only one is up
    host: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// The process that is the switch of an impaired network
#[derive(clap::Args)]
pub(crate) struct NetSwitch {
    /// Name of the network
    name: String,
}

impl Run for NetSwitch {
    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        crossway_netlab::run_network_switch(&self.name)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Run for Net {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Up(args) => args.run(ui),
            Action::Down(args) => args.run(),
            Action::List(args) => args.run(ui),
            Action::Exec(args) => args.run(),
        }
    }
}

impl Up {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let offloads = match self.offloads {
            Switch::On => Offloads::On,
            Switch::Off => Offloads::Off,
        };
        let impairment = Impairment {
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            delay: self.delay,
            jitter: self.jitter,
            seed: self.seed,
        };
        let topology = Topology {
            name: self.name,
            hosts: self
                .hosts
                .iter()
                .map(|name| HostSpec::namespace(name))
                .chain(self.guests.iter().map(|name| HostSpec::tap(name)))
                .collect(),
            link: Link { rate: self.rate, mtu_bytes: self.mtu, offloads, impairment },
        };
        let network = Lab::up_to_stay(&topology)?;
        if self.json {
            ui.print_json(&network)?;
        } else {
            print_table(std::slice::from_ref(&network));
            let host = &network.hosts[0].name;
            println!("run there: crossway net exec {}/{host} -- COMMAND", network.name);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Down {
    fn run(self) -> anyhow::Result<ExitCode> {
        let names = if self.all {
            crossway_netlab::list()?.into_iter().map(|n| n.name).collect()
        } else {
            self.name
        };
        names.iter().try_for_each(|name| crossway_netlab::down(name))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ListNetworks {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let networks = crossway_netlab::list()?;
        if self.json {
            ui.print_json(&networks)?;
        } else if networks.is_empty() {
            println!("no network is up; make one with: crossway net up");
        } else {
            print_table(&networks);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Exec {
    fn run(self) -> anyhow::Result<ExitCode> {
        let (network, host) = match self.host.split_once('/') {
            Some((network, host)) => (crossway_netlab::find(network)?, host),
            None => (only_network()?, self.host.as_str()),
        };
        let (program, arguments) =
            self.command.split_first().expect("clap requires a command of one word at least");
        let status = network.host(host)?.command(program).args(arguments).status()?;
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        Ok(ExitCode::from(code as u8))
    }
}

fn only_network() -> anyhow::Result<Network> {
    let mut networks = crossway_netlab::list()?;
    let names: Vec<_> = networks.iter().map(|n| n.name.as_str()).collect();
    match networks.len() {
        0 => anyhow::bail!("no network is up; make one with: crossway net up"),
        1 => Ok(networks.remove(0)),
        _ => anyhow::bail!("say which network: NETWORK/HOST, with {}", names.join(" or ")),
    }
}

fn print_table(networks: &[Network]) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["host", "IPv4", "IPv6", "CPUs", "link", "until"]);
    for network in networks {
        let link = &network.link;
        let rate = link.rate.map_or("unshaped".to_owned(), |rate| rate.to_string());
        let offloads = match link.offloads {
            Offloads::On => "offloads on",
            Offloads::Off => "offloads off",
        };
        let impaired = match network.impaired_by {
            ImpairedBy::Nobody => "",
            ImpairedBy::Netem => ", impaired by netem",
            ImpairedBy::Crossway => ", impaired by crossway",
        };
        let until = match network.owner {
            Some(owner) => format!("process {} ends", owner.pid),
            None => "taken down".to_owned(),
        };
        for host in &network.hosts {
            let shared = if network.cpus_shared { " (shared)" } else { "" };
            table.add_row([
                format!("{}/{}", network.name, host.name),
                host.ipv4.to_string(),
                host.ipv6.to_string(),
                format!("{}{shared}", crossway_sys::topology::format_cpu_list(&host.cpus)),
                format!("{rate}, MTU {}, {offloads}{impaired}", link.mtu_bytes),
                until.clone(),
            ]);
        }
    }
    println!("{table}");
}
