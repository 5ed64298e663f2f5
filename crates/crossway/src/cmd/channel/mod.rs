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

/// How long another process may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Channels by name, which use the best transport now and switch without loss
///
/// A program listens on a name, another connects to it; where they are and how their messages pass is not their concern. The host's
/// directory of names is CROSSWAY_CHANNEL_DIR, else a folder of the user's.
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
    /// Listens on a name and prints what is received, a line per message
    Listen(talk::Listen),
    /// Connects to a name and sends standard input, a message per line
    Send(talk::Send),
    /// Shows the channels of all listeners: transport, rates, and why they switched last
    Top(top::Top),
    /// Asks the channels of a name to use a transport now
    Switch {
        /// The name
        name: String,
        /// shm-spin, shm-futex, shm-eventfd or uds-seqpacket
        transport: Transport,
    },
}

/// What a channel may use.
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
    /// Only say what would be switched
    #[arg(long)]
    dry_run: bool,
    /// What messages cost on this machine [default: CROSSWAY_CHANNEL_PROFILE, else round figures]
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
                    format!("no channel '{name}' is open in {place}; see crossway channel top")
                })?;
                println!("{whole} asked to use {transport}");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
