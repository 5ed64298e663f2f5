//! The `crossway` program: parses the command line, calls the library crates and prints. It contains no other logic;
//! each subcommand has its own file below `cmd`.
//!
//! Exit codes: 0 success; 1 the command ran, but the answer is negative (a measurement failed, nothing could be
//! measured, a comparison exceeded its limit); 2 the request cannot be met (bad arguments, bad plan, unreadable file);
//! 130 interrupted.

/// Writes a line to standard error, like the standard library's macro of this name, which panics if nobody reads the
/// line any more: `crossway measure ... 2>&1 | head` must not end a measurement.
macro_rules! eprintln {
    ($($part:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}\n", format_args!($($part)*)),
        );
    }};
}

mod args;
mod cmd;
mod examples;
mod libraries;
mod output;
mod own;
mod pcap;
mod progress;
mod table;
mod ui;

use std::error::Error;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

use clap::error::ContextKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use crossway_lab::catalogue;
use crossway_lab::contender::Folders;
use crossway_lab::env::Build;
use crossway_sys::heap::LimitedHeap;

use crate::cmd::Run;
use crate::ui::{Colour, Ui};

/// Measure, choose and use mechanisms for communication between Linux processes
#[derive(Parser)]
#[command(name = "crossway", version, propagate_version = true, subcommand_required = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
    /// When to colour the output
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto)]
    color: Colour,
    /// Print more details (-vv for all)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Also use the contenders declared in this TOML file (may be repeated); the commands in it run with your
    /// privileges
    #[arg(long = "contender", global = true, value_name = "FILE")]
    contenders: Vec<PathBuf>,
}

/// What `--version` says.
static VERSION: LazyLock<String> = LazyLock::new(|| Build::this().to_string());

/// The environment variable by which a completion script requests completions from this program.
pub(crate) const COMPLETE: &str = "CROSSWAY_COMPLETE";

/// Returns the definition of the command line, with examples in the help of every command.
pub(crate) fn command() -> clap::Command {
    taking_negative(examples::with_examples(Cli::command()))
}

/// Makes options take `-3` as a value, so that an error message concerns the value and not an unknown option `-3`.
fn taking_negative(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| {
            let option = !arg.is_positional() && arg.get_action().takes_values();
            if option { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(taking_negative)
}

/// Returns the command that runs this program as a tipcd.
fn tipcd() -> Command {
    // Not by path: a build may have replaced the file there since this process started.
    let mut command = Command::new("/proc/self/exe");
    command.arg("tipcd");
    command
}

/// Reads the declarations of the contenders. Those that others may write to are left out, with a note.
fn declare(cli: &Cli, ui: &Ui) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let files: Vec<PathBuf> =
        cli.contenders.iter().cloned().chain(cli.command.contender_files()).collect();
    let declared = Folders::of_user(&program).load(&files)?;
    declared.left_out.iter().for_each(|why| ui.note(why));
    catalogue::declare(declared.contenders)?;
    Ok(())
}

/// Adds an example of a number to an error that only says that a digit is invalid.
fn explained(error: clap::Error) -> clap::Error {
    let no_number = error.source().is_some_and(|source| source.is::<ParseIntError>());
    let of = |kind| error.get(kind).map(ToString::to_string);
    match (of(ContextKind::InvalidValue), of(ContextKind::InvalidArg)) {
        (Some(value), Some(option)) if no_number => command().error(
            error.kind(),
            format!("invalid value '{value}' for '{option}': write a whole number such as 1000, without a unit"),
        ),
        _ => error,
    }
}

#[global_allocator]
static HEAP: LimitedHeap = LimitedHeap { program: "crossway", status: ui::EXIT_UNUSABLE };

/// Runs the program.
pub fn main() -> ExitCode {
    if let Err(error) = crossway_sys::start::settle() {
        eprintln!("crossway: {error}");
        return ExitCode::from(ui::EXIT_UNUSABLE);
    }
    ui::report_what_the_library_panics_at();
    // If a shell started this program to complete a command line, answer it and exit.
    clap_complete::CompleteEnv::with_factory(command).var(COMPLETE).complete();
    let matches = command()
        .long_version(VERSION.as_str())
        .try_get_matches()
        .unwrap_or_else(|error| explained(error).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Where no tipcd is running, mechanisms that need one start this program as a tipcd, for as long as it runs;
    // nothing starts before a mechanism needs it.
    crossway_mech::mechanisms::tipc_node::start_by(tipcd, None);
    let ui = Ui::new(cli.color, cli.verbose);
    ui::start_tracing(cli.verbose, &ui);
    if cli.command.needs_contenders()
        && let Err(error) = declare(&cli, &ui)
    {
        eprintln!("crossway: {}", ui::causes(&error));
        return ExitCode::from(ui::EXIT_UNUSABLE);
    }
    let result = cli.command.run(&ui);
    crossway_mech::mechanisms::tipc_node::end();
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("crossway: {}", ui::causes(&error));
            ExitCode::from(ui::EXIT_UNUSABLE)
        }
    }
}
