//! The program: parses, calls, prints. One file per subcommand below [`cmd`]; no logic of its own.
//!
//! Exit codes: 0 success; 1 it ran and the answer is no (a measurement failed, nothing could be measured, a comparison crossed its
//! limit); 2 the request cannot be met (bad arguments, bad plan, unreadable file); 130 interrupted.

mod args;
mod cmd;
mod examples;
mod output;
mod progress;
mod table;
mod ui;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser};
use crossway_lab::catalogue;
use crossway_lab::contender::Folders;

use crate::cmd::Run;
use crate::ui::{Colour, Ui};

/// Measure, choose and use the ways in which two Linux processes can communicate
#[derive(Parser)]
#[command(name = "crossway", version, propagate_version = true, subcommand_required = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto)]
    color: Colour,
    /// Print more detail (-vv for everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Also use the contenders that this file declares; its commands run with your rights
    #[arg(long = "contender", global = true, value_name = "FILE")]
    contenders: Vec<PathBuf>,
}

/// The variable by which a completion script calls this program.
pub(crate) const COMPLETE: &str = "CROSSWAY_COMPLETE";

/// The command line's definition, with examples in every command's help.
pub(crate) fn command() -> clap::Command {
    examples::with_examples(Cli::command())
}

/// This program as a tipcd.
fn tipcd() -> Command {
    // Not by its path, which a build may have replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("tipcd");
    command
}

/// Reads the contenders' declarations.
fn declare(cli: &Cli) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let files: Vec<PathBuf> =
        cli.contenders.iter().cloned().chain(cli.command.contender_files()).collect();
    catalogue::declare(Folders::of_user(&program).load(&files)?)?;
    Ok(())
}

fn main() -> ExitCode {
    ui::quiet_on_closed_pipe();
    // A shell that completes a command line asks this program for what could come next.
    clap_complete::CompleteEnv::with_factory(command).var(COMPLETE).complete();
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    // Where no tipcd serves, this program is one for as long as it runs; nothing is started before a mechanism asks.
    crossway_mech::mechanisms::tipc_node::start_by(tipcd, std::env::temp_dir());
    let ui = Ui::new(cli.color, cli.verbose);
    ui::start_tracing(cli.verbose, &ui);
    if cli.command.needs_contenders()
        && let Err(error) = declare(&cli)
    {
        eprintln!("crossway: {}", ui::causes(&error));
        return ExitCode::from(ui::EXIT_UNUSABLE);
    }
    match cli.command.run(&ui) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("crossway: {}", ui::causes(&error));
            ExitCode::from(ui::EXIT_UNUSABLE)
        }
    }
}
