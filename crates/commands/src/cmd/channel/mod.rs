//! `crossway channel`.

mod check;
mod profile;
mod talk;
mod top;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use crossway_channel::{
    Directory, Hosts, Key, MAX_LOSSY_MESSAGE, Network, Options, Policy, Profile, TipcBackend,
    Transport,
};

use super::Run;
use crate::args;
use crate::ui::Ui;

/// Maximum time to wait for an answer from another process.
const ANSWER: Duration = Duration::from_secs(2);

/// Connect programs by named channels, which use the best transport and can switch to another without losing messages
///
/// One program listens on a name and another connects to it; neither needs to know where the other runs or which
/// transport carries the messages. Listeners on this host register their names in a directory. Names on other hosts are
/// found in a list of names and addresses (--hosts) or in TIPC's name table (--tipc).
#[derive(clap::Args)]
pub(crate) struct Channel {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Listen on a name and print received messages, one per line
    Listen(talk::Listen),
    /// Connect to a name and send each line of standard input as a message
    Send(talk::Send),
    /// Send numbered messages to a listener that echoes them, and check that each comes back once and in order
    Check(check::Check),
    /// Show the channels of all listeners on this host: transport, rates, and why they last switched
    ///
    /// Repeats every second, or as --interval-s says, until it is ended with Ctrl-C, also in a pipe or a file; --once
    /// prints once.
    Top(top::Top),
    /// Compute from a run's records what messages cost on this machine; channels choose their transport by these costs
    Profile(profile::Write),
    /// Generate a key for connections between hosts
    ///
    /// To use the key, give its file to the other subcommands with --key.
    Key {
        /// Write the new key to this file, readable only by its owner, instead of printing it
        file: Option<PathBuf>,
    },
    /// Ask all open channels of a name to switch to another transport
    ///
    /// This is a single switch: the policy goes on to choose, and switches back when another transport is cheaper. To
    /// keep a transport, let a program pin it (`crossway channel listen NAME --pin TRANSPORT`).
    Switch {
        /// Name of the channels
        name: String,
        /// Transport to switch to: shm-spin, shm-futex, shm-eventfd or uds-seqpacket; between hosts tcp, or udp if both
        /// ends allow loss. A channel whose listener was found in TIPC's name table stays on tipc
        #[arg(value_parser = switchable)]
        transport: Transport,
        #[command(flatten)]
        place: Place,
    },
}

/// Where the listeners on this host are found.
#[derive(clap::Args)]
struct Place {
    /// Directory in which listeners on this host register their names [default: $CROSSWAY_CHANNEL_DIR, or
    /// crossway-channel in $XDG_RUNTIME_DIR, or crossway-channel-UID in /tmp]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Place {
    fn directory(&self) -> Directory {
        self.directory.clone().map_or_else(Directory::of_user, Directory::at)
    }
}

/// Parses a transport to which channels can switch on request.
fn switchable(name: &str) -> Result<Transport, String> {
    match name.parse() {
        Ok(Transport::Tipc) => {
            Err("channels do not switch to tipc on request; they use it if their listener \
            was found in TIPC's name table"
                .to_owned())
        }
        Ok(transport) => Ok(transport),
        Err(error) => Err(format!("{error}")),
    }
}

/// How channels are opened: where names are found, how other hosts are reached, and which transports are used.
#[derive(clap::Args)]
struct Opening {
    #[command(flatten)]
    place: Place,
    /// File with a name and a TCP address per line; use the same file on all hosts. A listener accepts connections at
    /// each address that is listed for its name and belongs to its host [default: $CROSSWAY_CHANNEL_HOSTS]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// TIPC name table for publishing the names of listeners and for finding names on other hosts: `kernel`, the path
    /// of a tipcd's socket, or `auto`: the kernel's name table if the kernel has TIPC, otherwise that of the tipcd at
    /// its default path [default: $CROSSWAY_CHANNEL_TIPC]
    #[arg(long, value_name = "WHERE")]
    tipc: Option<String>,
    /// File with the key that encrypts connections between hosts; all hosts need the same key [default:
    /// $CROSSWAY_CHANNEL_KEY]
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    key: Option<PathBuf>,
    /// Allow connections between hosts without encryption and authentication
    #[arg(long)]
    plain: bool,
    /// Use only this transport: shm-spin, shm-futex, shm-eventfd or uds-seqpacket; between hosts tcp, udp or tipc
    #[arg(long, value_name = "TRANSPORT")]
    pin: Option<Transport>,
    /// Prefer this transport even if another is cheaper; only the listening end's preference counts
    #[arg(long, value_name = "TRANSPORT", conflicts_with = "pin")]
    prefer: Option<Transport>,
    /// Never use this transport (may be repeated)
    #[arg(long, value_name = "TRANSPORT")]
    forbid: Vec<Transport>,
    /// CPU time that each end may spend on waiting, in percent of one CPU; below 100, it limits the use of shm-spin. The smaller value of the two ends applies
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0, value_parser = args::number)]
    cpu_budget: f64,
    /// Allow messages between hosts to be lost: they travel by UDP if the other end allows loss, too. No message may
    /// then exceed 1400 bytes [default: $CROSSWAY_CHANNEL_LOSSY]
    #[arg(long)]
    lossy: bool,
    /// Do not switch; only report the switches that would be made (only at the listening end, which chooses)
    #[arg(long)]
    dry_run: bool,
    /// File with the costs of messages on this machine, written by `crossway channel profile`; only the listening end's
    /// file counts [default: $CROSSWAY_CHANNEL_PROFILE, or rough built-in figures]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print each switch and the reason for it to standard error
    #[arg(long)]
    explain: bool,
}

impl Opening {
    fn options(&self) -> anyhow::Result<Options> {
        let policy = self.policy()?;
        let mut options = Options {
            directory: self.place.directory(),
            network: Some(self.network()?),
            ..Options::default()
        };
        if policy.lossy {
            options.max_message = options.max_message.min(MAX_LOSSY_MESSAGE);
        }
        Ok(Options { policy, ..options })
    }

    fn policy(&self) -> anyhow::Result<Policy> {
        let default = Policy::default();
        let mut policy = Policy {
            pin: self.pin,
            prefer: self.prefer,
            forbid: self.forbid.clone(),
            cpu_budget: self.cpu_budget / 100.0,
            lossy: self.lossy || default.lossy,
            dry_run: self.dry_run,
            ..default
        };
        let named = std::env::var_os("CROSSWAY_CHANNEL_PROFILE").filter(|path| !path.is_empty());
        let named = named.map(PathBuf::from);
        if let Some(path) = self.profile.clone().or(named) {
            policy.profile = Profile::read(&path)?;
        }
        Ok(policy)
    }

    /// Returns the settings for connections between hosts. Options override environment variables.
    fn network(&self) -> anyhow::Result<Network> {
        let mut network = Network::of_environment()?;
        if let Some(path) = &self.hosts {
            network.hosts = Hosts::read(path)?;
        }
        if let Some(place) = &self.tipc {
            network.tipc = Some(TipcBackend::named(place));
        }
        if let Some(path) = &self.key {
            network.key = Some(Key::read(path)?);
        }
        if self.plain {
            (network.plain, network.key) = (true, None);
        }
        Ok(network)
    }
}

/// Prints a new key, or writes it to a file that does not exist yet.
fn make_key(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let key = format!("{}\n", Key::generate()?.to_hex());
    match file {
        None => print!("{key}"),
        Some(path) => OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| file.write_all(key.as_bytes()))
            .with_context(|| {
                format!(
                    "cannot write the key to {}; name a file that does not exist yet",
                    path.display()
                )
            })?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Run for Channel {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Listen(listen) => listen.run(),
            What::Send(send) => send.run(),
            What::Profile(write) => write.run(ui),
            What::Check(check) => check.run(ui),
            What::Top(top) => top.run(ui),
            What::Key { file } => make_key(file.as_deref()),
            What::Switch { name, transport, place } => {
                let directory = place.directory();
                let asked = crossway_channel::ask_for(&directory, &name, transport, ANSWER)?;
                let whole = (asked > 0).then_some(asked).with_context(|| {
                    let place = directory.path().display();
                    format!("no channel '{name}' is open in {place}; list the open ones with: crossway channel top")
                })?;
                println!("channels asked to switch to {transport}: {whole}");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
