//! `crossway tipc socket`.

use std::process::ExitCode;

use crossway_tipc_client::admin::{LaneView, Order, SocketView};

use super::{Site, ask};

#[derive(clap::Args)]
pub(super) struct Socket {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Clone, Copy, clap::Subcommand)]
enum What {
    /// List the sockets: connection, bindings, process
    List {
        /// Also show counters of messages and bytes
        #[arg(long)]
        statistics: bool,
    },
}

impl Socket {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        let sockets = ask!(site, Order::Sockets, Sockets);
        let statistics = matches!(self.what, Some(What::List { statistics: true }));
        site.show(&sockets, |sockets| sockets.iter().for_each(|s| print(s, statistics)))
    }
}

/// Formats the process id and the command of a socket's owner, as far as they are known.
pub(super) fn owner(s: &SocketView) -> String {
    match (s.pid, &s.command) {
        (Some(pid), Some(command)) => format!("{pid} ({command})"),
        (Some(pid), None) => format!("{pid} (exited)"),
        (None, _) => "unknown".to_owned(),
    }
}

fn print(s: &SocketView, statistics: bool) {
    println!("socket {} {} process {}", s.port, s.kind, owner(s));
    if let Some(peer) = &s.connected_to {
        println!("  connected to {peer}");
    }
    for b in &s.bindings {
        println!("  bound to {{{},{},{}}} {}", b.service, b.lower, b.upper, b.scope);
    }
    if let Some(g) = &s.group {
        println!("  member {} of group {}", g.instance, g.group);
    }
    if statistics {
        println!("  RX messages:{} bytes:{}", s.received.messages, s.received.bytes);
        println!("  TX messages:{} bytes:{}", s.sent.messages, s.sent.bytes);
        println!("  Queued messages:{} bytes:{}", s.queued_messages, s.queued_bytes);
        if let Some(lanes) = s.lanes {
            let LaneView { sent, direct, woken } = lanes;
            println!("  Lanes messages sent:{sent} direct:{direct} tipcd woken:{woken}");
        }
    }
}
