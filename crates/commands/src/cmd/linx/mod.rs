//! `crossway linx`: a node for the LINX messaging model, and tools to inspect it and try it out.

mod bench;
mod hunt;
mod list;
mod node;
mod send;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossway_linx::default_dir;

use super::Run;
use crate::ui::Ui;

/// LINX messaging (signals, hunt, attach) without a kernel module: run a node, inspect and trace it, send signals and
/// hunt
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Linx {
    #[command(subcommand)]
    what: What,
    /// Directory of the node [default: $CROSSWAY_LINX_DIR, or crossway-linx in $XDG_RUNTIME_DIR or in /run]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Run a LINX node, which serves the programs of this host, until interrupted
    Node(node::Node),
    /// List endpoints and links: owner, state, queue, filter, attaches, hunts, timeouts
    #[command(visible_alias = "stat")]
    List(list::List),
    /// Wait until an endpoint exists, then print its number, name and process
    Hunt(hunt::Hunt),
    /// Send a signal to an endpoint, and optionally print signals that it sends in answer
    Send(send::Send),
    /// Write all signals, hunts, attaches and link messages to a capture file for tshark
    ///
    /// tshark needs the dissector that is installed in share/crossway below the installation prefix: tshark -X
    /// lua_script:PREFIX/share/crossway/crossway_linx.lua -r FILE. Only root, the user who runs the node and the
    /// members of the node's group (--group) may trace it. Records that arrive faster than they can be written are
    /// dropped and counted; no endpoint is delayed.
    Trace(trace::TraceTo),
    /// Run the measurements of linx_bmark, LINX's own benchmark: attach delay, round trips, bursts, ramps of sizes,
    /// many pairs
    Bench(bench::Bench),
}

impl Run for Linx {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let dir = self.dir.unwrap_or_else(default_dir);
        match self.what {
            What::Node(node) => node.run(&dir),
            What::List(list) => list.run(&dir, ui),
            What::Hunt(hunt) => hunt.run(&dir),
            What::Send(send) => send.run(&dir),
            What::Trace(trace) => trace.run(&dir, ui),
            What::Bench(bench) => bench.run(&dir, ui),
        }
    }
}

/// Returns the time `seconds` from now; `None` without a limit, or if that time is too far off.
fn deadline(seconds: Option<f64>) -> anyhow::Result<Option<Instant>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let limit = Duration::try_from_secs_f64(seconds)
        .map_err(|error| anyhow::anyhow!("--timeout: {error}; give a smaller number of seconds"))?;
    Ok(Instant::now().checked_add(limit))
}
