//! `crossway linx node`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crossway_linx::{LinkAddress, LinkSettings, Settings, Transport};
use crossway_sys::eventfd::EventFd;
use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(clap::Args)]
pub(super) struct Node {
    /// Transport of signals between endpoints of this host: uds, fifo or shm
    #[arg(long, value_name = "TRANSPORT", default_value_t = Transport::Uds)]
    transport: Transport,
    /// Size of the buffer between two endpoints in bytes, for each direction
    #[arg(long, value_name = "BYTES", default_value_t = Settings::default().channel_bytes)]
    channel_bytes: usize,
    /// Permissions of the node's directory in octal, applied if the node creates it; they decide who may use the node
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = octal)]
    mode: u32,
    /// Group of the node's directory, by name or number, applied if the node creates it; with --mode 770, its members
    /// may use the node
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u32>,
    /// Name that this node proposes to other nodes for their links to it [default: node]
    #[arg(long)]
    name: Option<String>,
    /// Accept connections from other nodes at this address, IP:PORT or tipc:TYPE:INSTANCE (may be repeated). Anyone who
    /// can reach it can use the node's endpoints
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<LinkAddress>,
    /// Connect to another node by a link called NAME (may be repeated); if several addresses are given, the next one is
    /// used when one fails
    #[arg(long, value_name = "NAME=ADDRESS,...", value_parser = link)]
    link: Vec<LinkSettings>,
    /// Link to all nodes in the TIPC cluster that were started with the same TYPE, a TIPC service type of 64 or larger.
    /// The links are named after the nodes, so each node needs a different --name
    #[arg(long, value_name = "TYPE", requires = "name", value_parser = clap::value_parser!(u32).range(64..))]
    cluster: Option<u32>,
    /// Milliseconds without traffic after which a connection is closed; if no other address answers, the link is down
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=600_000))]
    link_timeout: u64,
}

fn link(word: &str) -> Result<LinkSettings, String> {
    let (name, addresses) =
        word.split_once('=').ok_or("expected NAME=IP:PORT or NAME=tipc:TYPE:INSTANCE")?;
    crossway_linx::check_name(name).map_err(|error| error.to_string())?;
    let addresses = addresses.split(',').map(str::parse).collect::<Result<_, _>>()?;
    Ok(LinkSettings { name: name.to_owned(), addresses })
}

fn octal(word: &str) -> Result<u32, String> {
    match u32::from_str_radix(word, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("expected an octal mode, e.g. 750".to_owned()),
    }
}

/// Resolves a group, given by its name in /etc/group or by its number.
fn group(word: &str) -> Result<u32, String> {
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").map_err(|e| format!("/etc/group: {e}"))?;
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(word)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| format!("there is no group '{word}' in /etc/group; give its number"))
}

impl Node {
    pub(super) fn run(self, dir: &Path) -> anyhow::Result<ExitCode> {
        let settings = Settings {
            transport: self.transport,
            channel_bytes: self.channel_bytes,
            mode: self.mode,
            group: self.group,
            name: self.name.unwrap_or_else(|| Settings::default().name),
            listen: self.listen,
            links: self.link,
            cluster: self.cluster,
            link_timeout: Duration::from_millis(self.link_timeout),
            ..Settings::default()
        };
        let stop = EventFd::new()?;
        let told = EventFd::from_fd(stop.duplicate()?);
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                let _ = told.signal();
            }
        });
        let mut node = crossway_linx::Node::bind(dir, settings)?;
        println!("serving in {}", dir.display());
        for address in node.listens_at() {
            println!("listening at {address}");
        }
        node.run(&stop)?;
        Ok(ExitCode::SUCCESS)
    }
}
