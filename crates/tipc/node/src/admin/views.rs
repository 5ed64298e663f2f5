//! Builds the operator's views from the reports of the node and its service.

use std::collections::{BTreeMap, HashMap};

use crossway_tipc_client::admin::{
    BroadcastView, CounterView, GroupView, LaneView, LinkView, MonitorView, MonitoredBearerView,
    MonitoredView, MulticastWay, NamePage, NamePlace, NameView, NodeView, PeerView, SocketView,
    TrafficView,
};
use crossway_tipc_proto::addr::{BearerId, NodeAddr, Scope, ServiceRange};
use crossway_tipc_proto::link::{LinkState, LinkStats};
use crossway_tipc_proto::name_table::Binding;
use crossway_tipc_proto::node::{LinkReport, MonitorReport, Node, PeerReport, Traffic};
use crossway_tipc_proto::socket::{MulticastMethod, SocketKind};
use crossway_tipc_proto::wire::{Capabilities, InterfaceName};

use super::bearers::{bearer_name, bearer_names, media};
use crate::runner::Runner;
use crate::service::{LaneCounts, Service};

/// Number of bindings per page of the name table. A page of this size takes only a few milliseconds to build, so links
/// do not fail in the meantime.
const PAGE: usize = 4_096;

fn hex(addr: NodeAddr) -> String {
    format!("{addr}")
}

pub(super) fn text(name: &InterfaceName) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn traffic(t: Traffic) -> TrafficView {
    TrafficView { messages: t.messages, bytes: t.bytes }
}

fn capabilities(of: Capabilities) -> Vec<String> {
    const NAMES: [(Capabilities, &str); 12] = [
        (Capabilities::SYN, "syn"),
        (Capabilities::BCAST_SYNCH, "bcast-synch"),
        (Capabilities::BCAST_STATE_NACK, "bcast-state-nack"),
        (Capabilities::BLOCK_FLOWCTL, "block-flowctl"),
        (Capabilities::BCAST_RCAST, "bcast-rcast"),
        (Capabilities::NODE_ID128, "node-id128"),
        (Capabilities::LINK_PROTO_SEQNO, "link-proto-seqno"),
        (Capabilities::MCAST_RBCTL, "mcast-rbctl"),
        (Capabilities::GAP_ACK_BLOCK, "gap-ack-block"),
        (Capabilities::TUNNEL_ENHANCED, "tunnel-enhanced"),
        (Capabilities::NAGLE, "nagle"),
        (Capabilities::NAMED_BCAST, "named-bcast"),
    ];
    NAMES.iter().filter(|(one, _)| of.has(*one)).map(|(_, name)| (*name).to_owned()).collect()
}

pub(super) fn node(runner: &mut Runner, service: &Service) -> NodeView {
    let unsent_frames = runner.unsent();
    let node = runner.node();
    NodeView {
        identity: node.id().map(|id| id.to_string()),
        address: node.addr().map(hex),
        netid: node.network().0,
        capabilities: capabilities(node.capabilities()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        programs: service.clients() as u64,
        turned_away: service.turned_away(),
        sockets: service.sockets() as u64,
        bindings: node.names().len() as u64,
        peers_up: node.peers().filter(|p| p.up).count() as u64,
        held_bytes: node.held_bytes() as u64,
        local: traffic(node.local_traffic()),
        undelivered_messages: service.undelivered(),
        unsent_frames,
        drops: node.drops().iter().map(|(why, count)| (why.name().to_owned(), count)).collect(),
    }
}

pub(super) fn monitor(runner: &mut Runner) -> MonitorView {
    let names = bearer_names(runner);
    let node = runner.node();
    let view = |report: MonitorReport| {
        let name = names.iter().find(|(id, _)| *id == report.bearer).map(|(_, name)| name.clone());
        let nodes = node.monitored(report.bearer).into_iter().map(|m| MonitoredView {
            node: hex(m.addr),
            up: m.up,
            direct: m.direct,
            generation: m.generation,
            applied: m.applied,
            unapplied: m.unapplied.into_iter().map(|(addr, up)| (hex(addr), up)).collect(),
        });
        MonitoredBearerView {
            bearer: name.unwrap_or_default(),
            table_generation: report.table_generation,
            cluster_size: report.cluster_size,
            domain_size: report.domain,
            active: report.active,
            nodes: nodes.collect(),
        }
    };
    let bearers = node.monitors().map(view).collect();
    MonitorView { threshold: node.monitor_threshold(), bearers }
}

/// Returns a link's name, `OWN:INTERFACE-PEER:INTERFACE`. The peer's interface is shown as `unknown` until the peer has
/// answered.
pub(crate) fn name_of_link(node: &Node, peer: &PeerReport, link: &LinkReport) -> String {
    let own = node.id().map(|id| id.to_string()).unwrap_or_default();
    let bearer = node.bearers().find(|b| b.id == link.bearer);
    let interface = bearer.map(|b| text(&b.name)).unwrap_or_default();
    let theirs = match text(&link.peer_interface) {
        name if name.is_empty() => "unknown".to_owned(),
        name => name,
    };
    format!("{own}:{interface}-{}:{theirs}", peer.id)
}

/// Returns the name of the link to a peer over a bearer; `None` if there is no such link.
pub(crate) fn link_name(runner: &mut Runner, peer: NodeAddr, bearer: BearerId) -> Option<String> {
    let node = &*runner.node();
    let peer = node.peers().find(|p| p.addr == peer)?;
    let link = peer.links.iter().find(|l| l.bearer == bearer)?;
    Some(name_of_link(node, &peer, link))
}

pub(super) fn link_places(runner: &mut Runner) -> Vec<(NodeAddr, BearerId, String)> {
    let node = &*runner.node();
    let links = node.peers().flat_map(|peer| {
        let name = |link: &LinkReport| (peer.addr, link.bearer, name_of_link(node, &peer, link));
        peer.links.iter().map(name).collect::<Vec<_>>()
    });
    links.collect()
}

pub(super) fn links(runner: &mut Runner) -> Vec<LinkView> {
    let node = &*runner.node();
    let of_peer = |peer: PeerReport| {
        peer.links.iter().map(|link| link_view(node, &peer, link)).collect::<Vec<_>>()
    };
    node.peers().flat_map(of_peer).collect()
}

fn link_view(node: &Node, peer: &PeerReport, link: &LinkReport) -> LinkView {
    let bearer = node.bearers().find(|b| b.id == link.bearer);
    LinkView {
        name: name_of_link(node, peer, link),
        peer: hex(peer.addr),
        bearer: bearer.map(|b| bearer_name(&b)).unwrap_or_default(),
        remote: media(&link.media),
        up: link.state == LinkState::Established,
        active: link.active && link.state == LinkState::Established,
        state: match link.state {
            LinkState::Reset => "reset",
            LinkState::Establishing => "establishing",
            LinkState::Established => "established",
            LinkState::FailingOver => "failing-over",
        }
        .to_owned(),
        plane: char::from(b'A' + link.plane.min(7)).to_string(),
        mtu_bytes: link.mtu as u64,
        priority: link.priority,
        tolerance_ms: link.tolerance.as_millis() as u64,
        window_packets: link.window_max,
        window_now_packets: link.window,
        round_trip_us: link.round_trip.map(|t| t.as_micros() as u64),
        counters: counters(&link.stats),
        ups: link.stats.ups,
    }
}

fn counters(s: &LinkStats) -> CounterView {
    CounterView {
        received_packets: s.packets_received,
        received_bytes: s.bytes_received,
        received_fragments: s.fragments_received,
        received_fragmented: s.fragmented_received,
        received_bundles: s.bundles_received,
        received_bundled: s.bundled_received,
        sent_packets: s.packets_sent,
        sent_bytes: s.bytes_sent,
        sent_fragments: s.fragments_sent,
        sent_fragmented: s.fragmented_sent,
        sent_bundles: s.bundles_sent,
        sent_bundled: s.bundled_sent,
        resent_packets: s.packets_resent,
        profile_messages: s.profile.iter().sum(),
        profile_bytes: s.profile_bytes,
        profile: s.profile,
        early_packets: s.packets_early,
        duplicate_packets: s.packets_duplicate,
        received_states: s.states_received,
        sent_states: s.states_sent,
        received_probes: s.probes_received,
        sent_probes: s.probes_sent,
        received_naks: s.gaps_received,
        sent_naks: s.gaps_sent,
        sent_acks: s.acks_sent,
        congestions: s.congestions,
        queue_max_packets: s.queue_max,
        queue_average_packets: s.queue_average(),
    }
}

pub(super) fn broadcast(runner: &mut Runner) -> BroadcastView {
    let node = &*runner.node();
    let report = node.broadcast_link();
    BroadcastView {
        name: "broadcast-link".to_owned(),
        up: node.addr().is_some(),
        listeners: report.listeners as u64,
        mtu_bytes: report.mtu as u64,
        window_packets: report.window,
        method: match node.multicasts().method {
            MulticastMethod::Automatic => MulticastWay::Autoselect,
            MulticastMethod::Broadcast => MulticastWay::Broadcast,
            MulticastMethod::Replicast => MulticastWay::Replicast,
        },
        replicast_percent: node.multicasts().replicast_percent as u64,
        counters: counters(&report.stats),
    }
}

fn name_view(binding: &Binding) -> NameView {
    NameView {
        service: binding.range.service,
        lower: binding.range.lower,
        upper: binding.range.upper,
        scope: match binding.scope {
            Scope::Cluster => "cluster",
            Scope::Node => "node",
        }
        .to_owned(),
        port: binding.socket.port.0,
        node: hex(binding.socket.node),
    }
}

pub(super) fn names(node: &Node, behind: Option<NamePlace>) -> NamePage {
    let place =
        |at: NamePlace| ServiceRange { service: at.service, lower: at.lower, upper: at.upper };
    let mut page = NamePage::default();
    let mut last: Option<ServiceRange> = None;
    for binding in node.names().behind(behind.map(place)) {
        if page.bindings.len() >= PAGE && last.is_some_and(|last| last != binding.range) {
            page.next =
                last.map(|r| NamePlace { service: r.service, lower: r.lower, upper: r.upper });
            break;
        }
        last = Some(binding.range);
        page.bindings.push(name_view(&binding));
    }
    page
}

/// Returns the command name of a process; `None` if the process no longer exists.
fn command(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

pub(super) fn sockets(node: &Node, service: &Service) -> Vec<SocketView> {
    let mut bindings: BTreeMap<_, Vec<NameView>> = BTreeMap::new();
    for binding in node.own_bindings() {
        bindings.entry(binding.socket.port).or_default().push(name_view(&binding));
    }
    let mut commands: HashMap<u32, Option<String>> = HashMap::new();
    let mut views = Vec::new();
    for port in node.ports() {
        let Ok(report) = node.socket_report(port) else { continue };
        let owner = service.owner(port);
        views.push(SocketView {
            port: port.0,
            kind: match report.kind {
                SocketKind::Rdm => "rdm",
                SocketKind::Dgram => "dgram",
                SocketKind::Seqpacket => "seqpacket",
                SocketKind::Stream => "stream",
            }
            .to_owned(),
            connected_to: report.peer.map(|peer| format!("{}@{}", peer.port.0, peer.node)),
            bindings: bindings.remove(&port).unwrap_or_default(),
            group: report.group.map(|g| GroupView { group: g.group, instance: g.instance }),
            pid: owner.map(|o| o.pid),
            command: owner
                .and_then(|o| commands.entry(o.pid).or_insert_with(|| command(o.pid)).clone()),
            uid: owner.map(|o| o.uid),
            importance: report.options.importance as u8,
            queued_messages: report.queued_messages as u64,
            queued_bytes: report.queued_bytes as u64,
            sent: traffic(report.sent),
            received: traffic(report.received),
            lanes: service.lane_counts(port).map(|LaneCounts { sent, direct, woken }| LaneView {
                sent,
                direct,
                woken,
            }),
        });
    }
    views
}

pub(super) fn peers(runner: &mut Runner) -> Vec<PeerView> {
    let node = &*runner.node();
    let view = |peer: PeerReport| PeerView {
        identity: peer.id.to_string(),
        address: hex(peer.addr),
        up: peer.up,
        links: peer.links.iter().map(|link| name_of_link(node, &peer, link)).collect(),
        bindings: node.names().count_of(peer.addr) as u64,
        capabilities: capabilities(peer.capabilities),
    };
    node.peers().map(view).collect()
}
