//! `crossway tipc`: does for a tipcd what iproute2's `tipc` does for the kernel's TIPC.

mod bearer;
mod capture;
mod link;
mod media;
mod monitor;
mod nametable;
mod node;
mod peer;
mod run;
mod socket;
mod top;
mod trace;
mod wait;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use crossway_tipc_client::admin::{AdminError, Administration, Order, Outcome, Settings};
use crossway_tipc_client::{Error, default_path};
use serde::Serialize;

use super::Run;
use crate::ui::Ui;

/// Show and change a running tipcd: its node, bearers, links, names, sockets and peers
///
/// Accepts the keywords of iproute2's `tipc`, which is the tool for the kernel's TIPC, in the same order: `tipc link
/// set tolerance 500 link LINK` becomes `crossway tipc link set tolerance 500 link LINK`. A tipcd accepts commands from
/// root and from the user who started it.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Tipc {
    #[command(subcommand)]
    view: View,
    /// Socket of the tipcd [default: $TIPCD_SOCKET, /run/tipcd.sock, or tipcd.sock in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Print the output as JSON; `tipc wait` and `tipc run` ignore this option
    #[arg(short, long, global = true)]
    json: bool,
    /// Print readable JSON, as --json always does; accepted for scripts written for iproute2
    #[arg(short, long, global = true, requires = "json", hide = true)]
    pretty: bool,
}

#[derive(clap::Subcommand)]
enum View {
    /// Show this node: identity, address, cluster, node-local traffic, drops
    Node(node::Node),
    /// Manage bearers: list, enable, disable; add and remove remote addresses; set defaults for links
    Bearer(bearer::Bearer),
    /// Manage links: list, statistics, monitoring; set tolerance, priority, window
    Link(link::Link),
    /// List the media, and show their defaults for bearers
    Media(media::Media),
    /// Show the name table
    Nametable(nametable::Nametable),
    /// List the sockets of programs, each with its process
    Socket(socket::Socket),
    /// List the other nodes, or forget one
    Peer(peer::Peer),
    /// Wait until the tipcd runs and everything that the options name is there: its address, other nodes, services (for
    /// scripts)
    Wait(wait::Wait),
    /// Show traffic, links and the busiest sockets, and keep updating them
    Top(top::Top),
    /// Write all frames on all bearers to a capture file for tshark
    Trace(trace::Trace),
    /// Run an unmodified AF_TIPC program on a tipcd
    Run(run::RunProgram),
}

/// What every subcommand needs: the connection to the tipcd and the output format.
struct Site<'a> {
    tipcd: Administration,
    ui: &'a Ui,
    json: bool,
}

impl Site<'_> {
    /// Sends a command to the tipcd, which only acknowledges it.
    fn carry_out(&self, order: &Order) -> anyhow::Result<ExitCode> {
        match self.tipcd.order(order)? {
            Outcome::Done if self.json => self.ui.print_json(&serde_json::json!({"done": true}))?,
            Outcome::Done => {}
            other => return Err(self.tipcd.nonsense(format!("{other:?}")).into()),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints a value as JSON if that was requested, else with `print`.
    fn show<T: Serialize>(&self, what: &T, print: impl FnOnce(&T)) -> anyhow::Result<ExitCode> {
        if self.json {
            self.ui.print_json(what)?;
        } else {
            print(what);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Requests a view from the tipcd; any other answer is returned as an error.
macro_rules! ask {
    ($site:expr, $order:expr, $outcome:ident) => {
        match $site.tipcd.order(&$order)? {
            crossway_tipc_client::admin::Outcome::$outcome(view) => view,
            other => return Err($site.tipcd.nonsense(format!("{other:?}")).into()),
        }
    };
}
use ask;

/// Settings of a link.
#[derive(clap::Args)]
struct SetArguments {
    /// Milliseconds of silence after which the link fails, 50 to 30000
    #[arg(long, value_name = "MS")]
    tolerance: Option<u32>,
    /// Priority of the link, 1 to 31; traffic uses the links with the highest priority
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Maximum send window in packets, 1 to 8191
    #[arg(long, value_name = "PACKETS")]
    window: Option<u16>,
}

impl SetArguments {
    /// Combines these options with the settings given as iproute2's keywords; at least one must be present.
    fn or(&self, words: Settings) -> anyhow::Result<Settings> {
        let settings = Settings {
            tolerance_ms: self.tolerance.or(words.tolerance_ms),
            priority: self.priority.or(words.priority),
            window_packets: self.window.or(words.window_packets),
        };
        anyhow::ensure!(
            settings != Settings::default(),
            "nothing to set: give tolerance, priority or window with a value"
        );
        Ok(settings)
    }
}

/// If no tipcd runs but the kernel has TIPC, adds a hint about the kernel's own tool to the error.
fn explain(error: AdminError) -> anyhow::Error {
    let no_daemon = matches!(error, AdminError::Client(Error::NoDaemon { .. }));
    let kernel = crossway_mech::registry::ALL.iter().any(|mechanism| {
        mechanism.id == "tipc-kernel-rdm"
            && matches!((mechanism.probe)(), crossway_mech::Probe::Ready { .. })
    });
    if no_daemon && kernel {
        return anyhow::anyhow!(
            "{error}; this kernel supports TIPC: to inspect the kernel's node, use iproute2's `tipc`, e.g. tipc link list"
        );
    }
    // Without the error as a source: its text already states the cause.
    anyhow::anyhow!("{error}")
}

impl Run for Tipc {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let path = self.socket.unwrap_or_else(default_path);
        let json = self.json;
        let site = || {
            let tipcd = Administration::at(&path).map_err(explain)?;
            anyhow::Ok(Site { tipcd, ui, json })
        };
        match self.view {
            View::Node(view) => view.run(&site()?),
            View::Bearer(view) => view.run(&site()?),
            View::Link(view) => view.run(&site()?),
            View::Media(view) => view.run(&site()?),
            View::Nametable(view) => view.run(&site()?),
            View::Socket(view) => view.run(&site()?),
            View::Peer(view) => view.run(&site()?),
            View::Wait(view) => view.run(&path),
            View::Top(view) => view.run(&site()?),
            View::Trace(view) => view.run(&site()?),
            View::Run(program) => program.run(&path),
        }
    }
}
