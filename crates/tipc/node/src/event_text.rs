//! Describes a node's events for the log.

use std::fmt::Write;

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::link::LinkDownReason;
use crossway_tipc_proto::name_table::Binding;
use crossway_tipc_proto::node::Event;

use crate::daemon::Daemon;

/// Whether the event concerns the name table. Such events can be very frequent.
pub(crate) const fn is_of_names(event: &Event) -> bool {
    matches!(event, Event::Published(_) | Event::Withdrawn(_))
}

/// Describes an event in one line.
pub(crate) fn describe(daemon: &mut Daemon, event: &Event) -> String {
    match event {
        Event::AddressSettled(addr) => {
            let node = daemon.node();
            let id = node.id().map(|id| format!(" {id},")).unwrap_or_default();
            format!("this is node{id} address {addr}, in cluster {}", node.network().0)
        }
        Event::DuplicateAddress { addr, id, media } => duplicate(daemon, *addr, *id, media),
        Event::FramesRefused { bearer, from, reason } => {
            let from = from.as_ref().map_or_else(|| "a station".to_owned(), crate::admin::media);
            let bearer = daemon.bearer_name(*bearer);
            refused(&bearer, &from, *reason)
        }
        Event::TooOld { peer, missing } => format!(
            "node {peer} is ignored because it lacks capabilities {:#05x}, as kernels before Linux 4.17 do; it needs \
             a later kernel",
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
        Event::GroupShrank { group } => {
            format!("a member of group {group} can no longer be reached")
        }
        Event::SubscriberRefused { subscriber } => format!(
            "the subscriber {}@{} is disconnected because its node has the maximum number of subscriptions or subscribers \
             (tipcd --subscriptions-per-user)",
            subscriber.port.0, subscriber.node
        ),
        Event::SocketReady(port) => format!("socket {} is readable or writable", port.0),
        Event::Connected { port, peer } => {
            format!("socket {} is connected to {}@{}", port.0, peer.port.0, peer.node)
        }
        Event::ConnectFailed { port, error } => {
            format!("socket {}: connection failed: {error}", port.0)
        }
    }
}

/// Describes the announcement of an address that this node or a peer already has.
fn duplicate(daemon: &mut Daemon, addr: NodeAddr, id: NodeId, media: &MediaAddr) -> String {
    const REMEDY: &str = "give one of the two a different identity (--id)";
    let announced = format!("node {id} at {}", crate::admin::media(media));
    let node = daemon.node();
    if node.addr() == Some(addr) {
        return format!(
            "{announced} is ignored because it uses this node's address, {addr}; {REMEDY}"
        );
    }
    let Some(peer) = node.peers().find(|peer| peer.addr == addr) else {
        return format!(
            "{announced} is ignored because another node uses its address, {addr}; {REMEDY}"
        );
    };
    let known: Vec<_> = peer.links.iter().map(|link| crate::admin::media(&link.media)).collect();
    let known = format!("node {} at {}", peer.id, known.join(" and "));
    if peer.id == id {
        format!(
            "{announced} is ignored because there is a link to {known}; two of its bearers are on one medium, or two nodes \
             have one identity (--id)"
        )
    } else {
        format!("{announced} is ignored because it uses the address {addr} of {known}; {REMEDY}")
    }
}

/// Describes the refusal of frames. `crossway tipc node` shows how many there are.
fn refused(bearer: &str, from: &str, reason: DropReason) -> String {
    let why = match reason {
        DropReason::UnlistedSource => format!(
            "{from} is not one of the bearer's remotes; if it belongs to the cluster, add it with `crossway tipc bearer \
             add {bearer} --remoteip {from}`"
        ),
        DropReason::WrongSource => format!(
            "frames from {from} claim to come from a node that has announced another address; they are forged, or addresses \
             are translated on the path, which TIPC does not support"
        ),
        DropReason::TooManyPeers => format!(
            "{from} is one node too many: the limit is reached and all known nodes are in contact; start the tipcd with a \
             higher limit (--peers)"
        ),
        DropReason::NeverAnswered => {
            "more nodes are announced than answer, so some of them are forgotten early; the last announcement named "
                .to_owned()
                + from
        }
        DropReason::Encrypted => format!(
            "{from} encrypts its frames and this node has no keys; set its keys with `crossway tipc node set key`"
        ),
        DropReason::Plain => format!(
            "{from} does not encrypt its frames and this node has keys; set the keys there, or accept plain frames for a \
             time with `crossway tipc node set plain allowed`"
        ),
        DropReason::NoKey | DropReason::NotGenuine => format!(
            "{from} encrypts with a key that this node does not have, or its frames were altered on the way; set the \
             same keys on all nodes"
        ),
        reason => reason.name().to_owned(),
    };
    format!("bearer {bearer}: frames are dropped ({}): {why}", reason.name())
}

/// Returns the name of a link as in `crossway tipc link list`.
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
        LinkDownReason::Silent => "nothing was received for the duration of the tolerance",
        LinkDownReason::MediumLost => "its device went down, lost its carrier or was removed",
        LinkDownReason::PeerReset => "the peer reset its end",
        LinkDownReason::PeerStopping => "the peer is stopping",
        LinkDownReason::ResendFailed => {
            "its oldest packet was not acknowledged despite retransmissions"
        }
        LinkDownReason::FragmentsLost => {
            "despite retransmissions, IP fragments of its packets were lost on the path, or the peer's system had no \
             memory left to reassemble them; the link comes up again with packets that IP need not fragment (to use \
             such packets from the start, set mtu= on the bearer)"
        }
        LinkDownReason::OutOfStep => "the ends are out of sync",
        LinkDownReason::PeerChanged => "the peer restarted or moved to another address",
        LinkDownReason::PriorityChanged => "it reconnects with a different priority",
        LinkDownReason::Overrun => "its backlog of protocol messages is full",
        LinkDownReason::BearerDisabled => "its bearer was disabled, or its remote was removed",
        LinkDownReason::PeerFailedOver => {
            "the peer's end failed; its traffic arrives over another link"
        }
        LinkDownReason::TunnelTooNarrow => {
            "the packets of the remaining link are too small to take over its traffic"
        }
    }
}

/// Describes the traffic of each link and the drops, as the final summary.
pub(crate) fn summary(daemon: &mut Daemon) -> String {
    let mut text = String::new();
    let places: Vec<_> =
        daemon.node().peers().flat_map(|p| p.links.into_iter().map(move |l| (p.addr, l))).collect();
    for (peer, link) in &places {
        let s = &link.stats;
        let name = daemon.link_name(*peer, link.bearer).unwrap_or_default();
        let _ = writeln!(
            text,
            "link {name}: mtu {}; packets sent: {} (retransmitted: {}), received: {} (out of order: {}, duplicate: {})",
            link.mtu,
            s.packets_sent,
            s.packets_resent,
            s.packets_received,
            s.packets_early,
            s.packets_duplicate
        );
    }
    for (reason, count) in daemon.node().drops().iter() {
        let _ = writeln!(text, "dropped ({}): {count}", reason.name());
    }
    text.truncate(text.trim_end().len());
    text
}
