//! The program: parses, calls, prints. One file per subcommand below [`cmd`]; no logic of its own.
//!
//! Exit codes: 0 it worked; 1 it ran and the answer is no (a measurement failed, a comparison crossed its limit);
//! 2 it was asked for something that cannot be (bad arguments, bad plan, unreadable file); 130 interrupted.

mod cmd;
mod output;
mod progress;
mod ui;

use std::process::{Command, ExitCode};

use clap::Parser;

use crate::cmd::Run;
use crate::ui::{Colour, Ui};

/// Measures, chooses and uses the ways two Linux processes can talk.
#[derive(Parser)]
#[command(name = "crossway", version, propagate_version = true, subcommand_required = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto)]
    color: Colour,
    /// Tell more of what is done (twice: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// This program as a tipcd.
fn tipcd() -> Command {
    // Not by its path, which a build may have replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("tipcd");
    command
}

fn main() -> ExitCode {
    ui::quiet_on_closed_pipe();
    let cli = Cli::parse();
    // Where no tipcd serves, this program is one for as long as it runs; nothing is started before a mechanism asks.
    crossway_mech::mechanisms::tipc_node::start_by(tipcd, std::env::temp_dir());
    let ui = Ui::new(cli.color);
    ui::start_tracing(cli.verbose, &ui);
    match cli.command.run(&ui) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("crossway: {}", ui::causes(&error));
            ExitCode::from(ui::EXIT_UNUSABLE)
        }
    }
}
