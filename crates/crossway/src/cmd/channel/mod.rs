//! `crossway channel`.

mod talk;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use crossway_channel::{Directory, Options, Policy, Profile, Transport};

use super::Run;
use crate::ui::Ui;

/// How long to wait for another process to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Connect two programs by a name; channels use the best transport and switch without losing messages
///
/// One program listens on a name, another connects to it; neither needs to know where the other runs or which transport carries
/// the messages. Names are looked up in the directory CROSSWAY_CHANNEL_DIR, or by default in a directory of the user's.
#[derive(clap::Args)]
pub(crate) struct Channel {
    /// Directory of names [default: CROSSWAY_CHANNEL_DIR, else the user's]
    #[arg(long, global = true, value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Listen on a name and print received messages, one per line
    Listen(talk::Listen),
    /// Connect to a name and send each line of standard input as a message
    Send(talk::Send),
    /// Show the channels of all listeners: transport, rates, and why they last switched
    Top(top::Top),
    /// Ask the channels of a name to switch to a transport now
    Switch {
        /// Name of the channels
        name: String,
        /// The transport: shm-spin, shm-futex, shm-eventfd or uds-seqpacket
        transport: Transport,
    },
}

/// Transports that a channel may use, and how it chooses.
#[derive(clap::Args)]
struct Allowed {
    /// Use this transport and no other
    #[arg(long, value_name = "TRANSPORT")]
    pin: Option<Transport>,
    /// Never use this transport (may be repeated)
    #[arg(long, value_name = "TRANSPORT")]
    forbid: Vec<Transport>,
    /// CPU time that each end may spend waiting, in percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    cpu_budget: f64,
    /// Do not switch, only report what would be switched
    #[arg(long)]
    dry_run: bool,
    /// File with the cost of messages on this machine [default: CROSSWAY_CHANNEL_PROFILE, else built-in rough figures]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print each switch and its reason to standard error
    #[arg(long)]
    explain: bool,
}

impl Allowed {
    fn policy(&self) -> anyhow::Result<Policy> {
        let mut policy = Policy {
            pin: self.pin,
            forbid: self.forbid.clone(),
            cpu_budget: self.cpu_budget / 100.0,
            dry_run: self.dry_run,
            ..Policy::default()
        };
        if let Some(path) = &self.profile {
            policy.profile = Profile::read(path)?;
        }
        Ok(policy)
    }
}

impl Run for Channel {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let directory = self.directory.map_or_else(Directory::of_user, Directory::at);
        let options = Options { directory: directory.clone(), ..Options::default() };
        match self.what {
            What::Listen(listen) => listen.run(options),
            What::Send(send) => send.run(options),
            What::Top(top) => top.run(ui, &directory),
            What::Switch { name, transport } => {
                let asked = crossway_channel::ask_for(&directory, &name, transport, ANSWER)?;
                let whole = (asked > 0).then_some(asked).with_context(|| {
                    let place = directory.path().display();
                    format!("no channel '{name}' is open in {place}; list the open ones with: crossway channel top")
                })?;
                println!("channels asked to use {transport}: {whole}");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
