//! `crossway net`: several virtual hosts on this machine.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use crossway_netlab::{
    HostSpec, ImpairedBy, Impairment, Lab, Link, Network, Offloads, Rate, Topology, parse_duration,
    parse_share,
};
use crossway_sys::start;

use super::Run;
use crate::args;
use crate::table::Grid;
use crate::ui::Ui;

/// Create virtual hosts on this machine, joined by links with a set rate, delay and loss, and run commands on them
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Net {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Create a network, which exists until `crossway net down`
    Up(Up),
    /// Take networks down and end the processes on their hosts: with SIGTERM, and after two seconds with SIGKILL
    Down(Down),
    /// List the networks that are up
    List(ListNetworks),
    /// Run a command on a virtual host, in place of this process
    Exec(Exec),
}

#[derive(clap::Args)]
struct Up {
    /// Names of the hosts, separated by commas; two are joined by a direct link, more by a switch
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "a,b",
        default_value_if("guests", clap::builder::ArgPredicate::IsPresent, None)
    )]
    hosts: Vec<String>,
    /// Names of hosts to which guests can be attached (crossway guest up --net NETWORK/HOST), separated by commas; with
    /// this option, --hosts has no default
    #[arg(long, value_delimiter = ',')]
    guests: Vec<String>,
    /// Rate of each link in each direction, e.g. 100mbit, 1gbit [default: unlimited]
    #[arg(long)]
    rate: Option<Rate>,
    /// MTU: largest IP packet in bytes
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Segmentation and checksum offloads of the interfaces
    #[arg(long, default_value = "off")]
    offloads: Switch,
    /// Fraction of frames to drop, with the percent sign, e.g. 1%
    #[arg(long, value_parser = |text: &str| parse_share("loss", text), default_value = "0%")]
    loss: f64,
    /// Fraction of frames to send twice, e.g. 1%
    #[arg(long, value_parser = |text: &str| parse_share("duplicate", text), default_value = "0%")]
    duplicate: f64,
    /// Fraction of frames to reorder, e.g. 1%
    #[arg(long, value_parser = |text: &str| parse_share("reorder", text), default_value = "0%")]
    reorder: f64,
    /// Delay added to every frame, e.g. 1ms, 250us
    #[arg(long, value_parser = |text: &str| parse_duration("delay", text), default_value = "0us")]
    delay: Duration,
    /// Random variation of the delay, plus or minus, e.g. 100us
    #[arg(long, value_parser = |text: &str| parse_duration("jitter", text), default_value = "0us")]
    jitter: Duration,
    /// Seed of the random numbers for loss, duplication, reordering and jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Name of the network [default: a generated one]
    #[arg(long)]
    name: Option<String>,
    /// Print the description of the network as JSON
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
    /// Names of the networks
    #[arg(required_unless_present = "all", add = args::networks())]
    name: Vec<String>,
    /// Take down all networks that are up, including those of running measurements
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

#[derive(clap::Args)]
struct ListNetworks {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Exec {
    /// Host on which to run the command, NETWORK/HOST; NETWORK may be omitted if only one network is up
    #[arg(add = args::hosts())]
    host: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Run as the switch of an impaired network
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
            print_table(ui, std::slice::from_ref(&network));
            let host = &network.hosts[0].name;
            println!(
                "run a command on a host: crossway net exec {}/{host} -- COMMAND",
                network.name
            );
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
            println!("no network is up; create one with: crossway net up");
        } else {
            print_table(ui, &networks);
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
        let mut command = network.host(host)?.command(program);
        // The command takes this process's place, so that signals, exit status and terminal are its own.
        start::pass_on(&mut command);
        let error = command.args(arguments).exec();
        let tool = command.get_program().to_string_lossy();
        Err(error).with_context(|| format!("cannot run {tool}, which enters the network namespace"))
    }
}

fn only_network() -> anyhow::Result<Network> {
    let mut networks = crossway_netlab::list()?;
    let names: Vec<_> = networks.iter().map(|n| n.name.as_str()).collect();
    match networks.len() {
        0 => anyhow::bail!("no network is up; create one with: crossway net up"),
        1 => Ok(networks.remove(0)),
        _ => anyhow::bail!(
            "several networks are up: name one as NETWORK/HOST, where NETWORK is {}",
            names.join(" or ")
        ),
    }
}

fn print_table(ui: &Ui, networks: &[Network]) {
    let mut grid = Grid::of_text(["host", "IPv4", "IPv6", "CPUs", "link", "removed when"]);
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
            grid.row([
                format!("{}/{}", network.name, host.name),
                host.ipv4.to_string(),
                host.ipv6.to_string(),
                format!("{}{shared}", crossway_sys::topology::format_cpu_list(&host.cpus)),
                format!("{rate}, MTU {}, {offloads}{impaired}", link.mtu_bytes),
                until.clone(),
            ]);
        }
    }
    println!("{}", grid.text(ui));
}
