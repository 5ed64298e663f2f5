//! tipcd: a TIPC node as an ordinary process, for itself and for the programs of its host.

use std::process::ExitCode;

use clap::Parser;
use crossway_tipc_node::{TipcdOptions, run_tipcd};

/// Serves TIPC sockets to programs: a node in user space, a peer to Linux kernels and to its like
#[derive(Debug, Parser)]
#[command(name = "tipcd", version, max_term_width = 100)]
struct Tipcd {
    #[command(flatten)]
    options: TipcdOptions,
}

fn main() -> ExitCode {
    match run_tipcd(&Tipcd::parse().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tipcd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
