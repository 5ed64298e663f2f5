//! tipcd: a TIPC node that runs as an ordinary process, for the programs on its host.

use std::process::ExitCode;

use clap::Parser;
use crossway_sys::heap::LimitedHeap;
use crossway_tipc_node::{TipcdOptions, run_tipcd};

#[global_allocator]
static HEAP: LimitedHeap = LimitedHeap { program: "tipcd", status: 1 };

/// Run a TIPC node in user space, which provides TIPC sockets to programs and interoperates with Linux kernels and
/// other tipcds
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
