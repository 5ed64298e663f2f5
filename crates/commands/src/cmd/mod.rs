//! The subcommands, one file each. To add one, write a file with a `clap::Args` struct that implements [`Run`], a `mod`
//! line and a line in `commands!`. The struct's doc comment is the command's help.

mod advise;
mod agent;
mod aside;
mod channel;
mod compare;
mod completions;
mod contender;
mod doctor;
mod env;
mod export;
mod faults;
mod guest;
mod limits;
mod linx;
mod list;
mod man;
mod measure;
mod net;
mod observe;
mod profile;
mod rank;
mod report;
mod rerun;
mod role;
mod run;
mod tipc;
mod tipcd;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::ui::Ui;

/// A subcommand with parsed arguments. An error becomes one line on standard error and exit code 2.
pub(crate) trait Run {
    /// Runs the subcommand; returns its exit code.
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode>;
}

macro_rules! commands {
    ($($(#[$meta:meta])* $module:ident :: $name:ident),* $(,)?) => {
        /// The subcommands, in the order of the help text.
        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $($(#[$meta])* $name($module::$name),)*
        }

        impl Run for Command {
            fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
                match self {
                    $(Command::$name(args) => args.run(ui),)*
                }
            }
        }
    };
}

impl Command {
    /// Returns whether the subcommand needs the contenders' declarations. The other subcommands do not read them, so
    /// that a bad declaration cannot make them fail.
    pub(crate) fn needs_contenders(&self) -> bool {
        match self {
            Command::Measure(_)
            | Command::Advise(_)
            | Command::Rerun(_)
            | Command::List(_)
            | Command::Doctor(_)
            | Command::Faults(_)
            | Command::Profile(_) => true,
            Command::ContenderCommand(command) => command.needs_contenders(),
            _ => false,
        }
    }

    /// Returns the declaration files among the subcommand's arguments.
    pub(crate) fn contender_files(&self) -> Vec<PathBuf> {
        match self {
            Command::ContenderCommand(command) => command.files(),
            _ => Vec::new(),
        }
    }
}

commands! {
    measure::Measure,
    advise::Advise,
    rerun::Rerun,
    list::List,
    doctor::Doctor,
    #[command(name = "contender")]
    contender::ContenderCommand,
    env::Env,
    limits::Limits,
    observe::Observe,
    profile::Profile,
    faults::Faults,
    net::Net,
    guest::Guest,
    agent::Agent,
    tipcd::Tipcd,
    tipc::Tipc,
    channel::Channel,
    #[command(name = "run")]
    run::RunUnmodified,
    linx::Linx,
    report::Report,
    compare::Compare,
    rank::Rank,
    export::Export,
    completions::Completions,
    man::Man,
    #[command(hide = true)]
    role::Role,
    #[command(hide = true)]
    role::Reaper,
    #[command(hide = true)]
    faults::FaultWorker,
    #[command(hide = true)]
    net::NetSwitch,
    #[command(hide = true)]
    guest::GuestInit,
    #[command(hide = true)]
    guest::GuestKeeper,
}
