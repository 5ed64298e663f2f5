//! `crossway linx node`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crossway_linx::{LinkAddress, LinkSettings, Settings, Transport};
use crossway_sys::eventfd::EventFd;
use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(clap::Args)]
pub(super) struct Node {
    /// By what signals go between endpoints of this host: uds, fifo or shm
    #[arg(long, value_name = "TRANSPORT", default_value_t = Transport::Uds)]
    transport: Transport,
    /// Room between two endpoints in bytes, each way
    #[arg(long, value_name = "BYTES", default_value_t = Settings::default().channel_bytes)]
    channel_bytes: usize,
    /// Who may use the node: the mode of its directory, in octal, if it is made now
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = octal)]
    mode: u32,
    /// The group of its directory, if it is made now: a name or a number; with --mode 770 its members may use the node
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u32>,
    /// What nodes that this one dials call their links to it
    #[arg(long, default_value = "node")]
    name: String,
    /// Lets other nodes dial at this address (repeatable), IP:PORT or tipc:TYPE:INSTANCE; whoever can reach it can use the node's endpoints
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<LinkAddress>,
    /// Dials another node and calls the link NAME (repeatable); when one address fails, the next takes over
    #[arg(long, value_name = "NAME=ADDRESS,...", value_parser = link)]
    link: Vec<LinkSettings>,
    /// Gives up a connection over which nothing was heard for so long, and then the link
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=600_000))]
    link_timeout: u64,
}

fn link(word: &str) -> Result<LinkSettings, String> {
    let (name, addresses) =
        word.split_once('=').ok_or("give NAME=IP:PORT or NAME=tipc:TYPE:INSTANCE")?;
    crossway_linx::check_name(name).map_err(|error| error.to_string())?;
    let addresses = addresses.split(',').map(str::parse).collect::<Result<_, _>>()?;
    Ok(LinkSettings { name: name.to_owned(), addresses })
}

fn octal(word: &str) -> Result<u32, String> {
    match u32::from_str_radix(word, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("give a mode as chmod takes it, e.g. 750".to_owned()),
    }
}

/// A group's number, from its name in /etc/group or as it is.
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
            name: self.name,
            listen: self.listen,
            links: self.link,
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
