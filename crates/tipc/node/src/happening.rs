//! What happens in a node, in sentences for people.

use std::fmt::Write;

use crossway_tipc_proto::addr::{BearerId, NodeAddr};
use crossway_tipc_proto::link::LinkDownReason;
use crossway_tipc_proto::name_table::Binding;
use crossway_tipc_proto::node::Event;

use crate::daemon::Daemon;

/// Whether an event is of the name table, of which there may be very many.
pub(crate) const fn is_of_names(event: &Event) -> bool {
    matches!(event, Event::Published(_) | Event::Withdrawn(_))
}

/// One line.
pub(crate) fn describe(daemon: &mut Daemon, event: &Event) -> String {
    match event {
        Event::AddressSettled(addr) => {
            let node = daemon.node();
            let id = node.id().map(|id| id.to_string()).unwrap_or_default();
            format!("this is node {id}, address {addr}, in cluster {}", node.network().0)
        }
        Event::DuplicateAddress { id, media } => format!(
            "node {id} at {} uses this node's address; give one of them another identity (--id)",
            crate::admin::media(media)
        ),
        Event::TooOld { peer, missing } => format!(
            "node {peer} lacks capabilities {:#05x}, as kernels before Linux 4.17 do, and is ignored; give it a later kernel",
            missing.bits()
        ),
        Event::LinkUp { peer, bearer } => format!("link {} up", link(daemon, *peer, *bearer)),
        Event::LinkDown { peer, bearer, reason } => {
            format!("link {} down: {}", link(daemon, *peer, *bearer), why(*reason))
        }
        Event::PeerUp { peer } => format!("node {} up", node(daemon, *peer)),
        Event::PeerDown { peer } => format!("node {} down", node(daemon, *peer)),
        Event::Published(b) => format!("published {}", binding(b)),
        Event::Withdrawn(b) => format!("withdrawn {}", binding(b)),
        Event::GroupShrank { group } => format!("a member of group {group} is gone"),
        Event::SocketReady(port) => format!("socket {} has news", port.0),
        Event::Connected { port, peer } => {
            format!("socket {} is connected to {}@{}", port.0, peer.port.0, peer.node)
        }
        Event::ConnectFailed { port, error } => {
            format!("socket {}: connection failed: {error}", port.0)
        }
    }
}

/// A link as `crossway tipc link list` names it.
fn link(daemon: &mut Daemon, peer: NodeAddr, bearer: BearerId) -> String {
    daemon.link_name(peer, bearer).unwrap_or_else(|| format!("to {peer} on bearer {}", bearer.0))
}

fn node(daemon: &mut Daemon, addr: NodeAddr) -> String {
    match daemon.node().peers().find(|peer| peer.addr == addr) {
        Some(peer) => format!("{} ({addr})", peer.id),
        None => addr.to_string(),
    }
}

fn binding(b: &Binding) -> String {
    format!(
        "{{{},{},{}}} {}@{}",
        b.range.service, b.range.lower, b.range.upper, b.socket.port.0, b.socket.node
    )
}

const fn why(reason: LinkDownReason) -> &'static str {
    match reason {
        LinkDownReason::Silent => "nothing was heard for its tolerance",
        LinkDownReason::MediumLost => "its device went down, lost its carrier or is gone",
        LinkDownReason::PeerReset => "the peer reset its end",
        LinkDownReason::PeerStopping => "the peer stops",
        LinkDownReason::ResendFailed => {
            "its oldest packet did not get through however often it was sent"
        }
        LinkDownReason::OutOfStep => "the ends are out of step",
        LinkDownReason::PeerChanged => "the peer restarted or moved to another address",
        LinkDownReason::PriorityChanged => "it reconnects with another priority",
        LinkDownReason::Overrun => "more of the protocol's own messages waited than it may hold",
        LinkDownReason::BearerDisabled => "its bearer was disabled, or its remote was removed",
        LinkDownReason::PeerFailedOver => {
            "the peer's end failed; its traffic comes by another link"
        }
        LinkDownReason::TunnelTooNarrow => {
            "the packets of the one left are too small for what waits here"
        }
    }
}

/// The last words: what each link carried, and what was dropped.
pub(crate) fn summary(daemon: &mut Daemon) -> String {
    let mut text = String::new();
    let places: Vec<_> =
        daemon.node().peers().flat_map(|p| p.links.into_iter().map(move |l| (p.addr, l))).collect();
    for (peer, link) in &places {
        let s = &link.stats;
        let name = daemon.link_name(*peer, link.bearer).unwrap_or_default();
        let _ = writeln!(
            text,
            "link {name}: mtu {}, sent {} packets ({} again), received {} ({} early, {} twice)",
            link.mtu,
            s.packets_sent,
            s.packets_resent,
            s.packets_received,
            s.packets_early,
            s.packets_duplicate
        );
    }
    for (reason, count) in daemon.node().drops().iter() {
        let _ = writeln!(text, "dropped {count}: {}", reason.name());
    }
    text.truncate(text.trim_end().len());
    text
}
