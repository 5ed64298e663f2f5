//! Tests that a node checks where frames come from, if the medium says so.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crossway_tipc_proto::addr::{
    BearerId, MediaAddr, NodeAddr, NodeId, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::{BearerConfig, Config, Destination, Event, Node};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;

fn udp(last: u8, port: u16) -> MediaAddr {
    MediaAddr::Udp { ip: IpAddr::from([10, 77, 0, last]), port }
}

/// The nodes of a network, each with one bearer.
struct Site {
    now: Nanos,
    nodes: Vec<(Node, MediaAddr)>,
    /// Frames sent by node 1 to node 0.
    record: Vec<Vec<u8>>,
    events: Vec<Event>,
}

/// A node with a number as its address, at a station; `listed` are the stations from which it accepts frames.
fn node(
    number: u32,
    media: MediaAddr,
    seed: u64,
    listed: Option<&[MediaAddr]>,
) -> (Node, MediaAddr) {
    let id = NodeId::from_text(&format!("node-{number}"));
    let mut node =
        Node::new(Config { id, addr: Some(NodeAddr(number)), seed, ..Config::default() });
    let stations = listed.map(|listed| listed.iter().copied().collect::<BTreeSet<_>>());
    let cfg = BearerConfig { stations, ..BearerConfig::new("udp0", media, 1500) };
    node.enable_bearer(Nanos(0), cfg).unwrap();
    (node, media)
}

impl Site {
    fn new(nodes: Vec<(Node, MediaAddr)>) -> Self {
        Self { now: Nanos(0), nodes, record: Vec::new(), events: Vec::new() }
    }

    /// Lets time pass in steps of a millisecond.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_millis(1);
            for from in 0..self.nodes.len() {
                let (node, source) = &mut self.nodes[from];
                let source = *source;
                node.handle_timeout(self.now);
                let (mut frame, mut sent) = (Vec::new(), Vec::new());
                while let Some(transmit) = node.poll_transmit(self.now, &mut frame) {
                    sent.push((transmit.dest, frame.clone()));
                }
                for (dest, frame) in sent {
                    for to in 0..self.nodes.len() {
                        let (node, media) = &mut self.nodes[to];
                        let addressed = matches!(dest, Destination::Unicast(at) if at == *media)
                            || dest == Destination::Broadcast;
                        if addressed && to != from {
                            if (from, to) == (1, 0) {
                                self.record.push(frame.clone());
                            }
                            node.handle_frame(self.now, BearerId(0), Some(source), &frame);
                        }
                    }
                }
            }
            while let Some(event) = self.nodes[0].0.poll_event() {
                self.events.push(event);
            }
        }
    }

    /// The state of node 0's link to another node: how often it came up, and whether it is up.
    fn link(&self, to: u32) -> Option<(u64, bool)> {
        let peer = self.nodes[0].0.peers().find(|peer| peer.addr == NodeAddr(to))?;
        let link = peer.links.first()?;
        Some((link.stats.ups, link.state == LinkState::Established))
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.nodes[0].0.drops().get(reason)
    }

    fn refusals(&self, reason: DropReason) -> usize {
        let told = |e: &&Event| matches!(e, Event::FramesRefused { reason: r, .. } if *r == reason);
        self.events.iter().filter(told).count()
    }
}

/// Opens a socket with a binding on node 0.
fn sink(site: &mut Site) -> Port {
    let node = &mut site.nodes[0].0;
    let port = node.open(SocketKind::Rdm).unwrap();
    node.bind(port, ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    port
}

#[test]
fn frames_that_pretend_to_come_from_a_peer_are_dropped() {
    let (ours, theirs, forger) = (udp(1, 6118), udp(2, 6118), udp(2, 7001));
    let mut site = Site::new(vec![node(1, ours, 1, None), node(2, theirs, 2, None)]);
    let port = sink(&mut site);
    site.run(Duration::from_secs(2));
    assert_eq!(site.link(2), Some((1, true)));
    let client = site.nodes[1].0.open(SocketKind::Rdm).unwrap();
    let to = SocketAddr { port, node: NodeAddr(1) };
    for n in 0..20_u8 {
        let now = site.now;
        site.nodes[1].0.send(now, client, Some(Address::Socket(to)), &[n]).unwrap();
        site.run(Duration::from_millis(2));
        let message = site.nodes[0].0.recv(now, port, 10).unwrap();
        assert_eq!(message.payload, [n]);
    }
    // Every kind of frame that the peer has sent, with the numbers that the link expects next, from another port of
    // the peer's host: discovery, RESET, STATE, data and broadcasts.
    let frames = std::mem::take(&mut site.record);
    let kinds: BTreeSet<u8> = frames.iter().map(|frame| frame[0] >> 1 & 15).collect();
    assert!(kinds.is_superset(&BTreeSet::from([0, 5, 7, 11, 13])), "{kinds:?}");
    let mut sent = 0;
    for round in 0..64_u16 {
        for frame in &frames {
            let mut forged = frame.clone();
            if forged[0] >> 1 & 15 != 13 {
                let number = u16::from_be_bytes([frame[10], frame[11]]).wrapping_add(round);
                forged[10..12].copy_from_slice(&number.to_be_bytes());
            }
            site.nodes[0].0.handle_frame(site.now, BearerId(0), Some(forger), &forged);
            sent += 1;
        }
    }
    assert_eq!(site.drops(DropReason::WrongSource), sent);
    assert!(site.nodes[0].0.recv(site.now, port, 10).is_err(), "nothing was delivered");
    // The peer's next messages are not taken for copies of the forged ones.
    for n in 0..20_u8 {
        let now = site.now;
        site.nodes[1].0.send(now, client, Some(Address::Socket(to)), &[n]).unwrap();
        site.run(Duration::from_millis(2));
        assert_eq!(site.nodes[0].0.recv(now, port, 10).unwrap().payload, [n]);
    }
    assert_eq!(site.link(2), Some((1, true)));
    assert_eq!(site.refusals(DropReason::WrongSource), 1);
}

#[test]
fn a_bearer_with_a_list_accepts_nothing_from_others() {
    let [ours, listed, stranger] = [1, 2, 3].map(|last| udp(last, 6118));
    let nodes = vec![
        node(1, ours, 1, Some(&[listed])),
        node(2, listed, 2, None),
        node(3, stranger, 3, None),
    ];
    let mut site = Site::new(nodes);
    site.run(Duration::from_secs(5));
    assert_eq!((site.link(2), site.link(3)), (Some((1, true)), None));
    assert!(site.drops(DropReason::UnlistedSource) > 3);
    assert_eq!(site.refusals(DropReason::UnlistedSource), 1);
    // An operator adds the stranger, and removes it again.
    let now = site.now;
    site.nodes[0].0.meet(now, BearerId(0), stranger);
    site.run(Duration::from_secs(5));
    assert_eq!((site.link(2), site.link(3)), (Some((1, true)), Some((1, true))));
    let (now, unlisted) = (site.now, site.drops(DropReason::UnlistedSource));
    site.nodes[0].0.part_from(now, BearerId(0), stranger).unwrap();
    site.run(Duration::from_secs(5));
    assert_eq!((site.link(2), site.link(3)), (Some((1, true)), None));
    assert!(site.drops(DropReason::RemovedRemote) > 3);
    assert_eq!(site.drops(DropReason::UnlistedSource), unlisted);
}

#[test]
fn a_node_that_returns_at_another_station_is_found_again() {
    let (ours, before, after) = (udp(1, 6118), udp(2, 6118), udp(3, 6118));
    let mut site = Site::new(vec![node(1, ours, 1, None), node(2, before, 2, None)]);
    site.run(Duration::from_secs(2));
    assert_eq!(site.link(2), Some((1, true)));
    // The same identity and address, at another station, in another life.
    site.nodes[1] = node(2, after, 3, None);
    site.run(Duration::from_millis(500));
    assert_eq!(site.link(2), Some((1, true)), "the link to the old station has not failed yet");
    let duplicate = |e: &Event| matches!(e, Event::DuplicateAddress { addr: NodeAddr(2), media, .. } if *media == after);
    assert!(site.events.iter().any(duplicate), "{:?}", site.events);
    site.run(Duration::from_secs(5));
    let peer = site.nodes[0].0.peers().next().unwrap();
    assert_eq!((peer.addr, peer.up, peer.links[0].media), (NodeAddr(2), true, after));
}

#[test]
fn a_configured_address_needs_no_bearer() {
    let addr = Some(NodeAddr(0x0100_1001));
    let mut node = Node::new(Config { addr, ..Config::default() });
    assert_eq!(node.addr(), addr);
    let settled = |e: &Event| *e == Event::AddressSettled(NodeAddr(0x0100_1001));
    assert_eq!(std::iter::from_fn(|| node.poll_event()).filter(settled).count(), 1);
    assert_eq!(node.poll_timeout().filter(|at| *at > Nanos(0)), None, "nothing to wait for");
    let port = node.open(SocketKind::Rdm).unwrap();
    assert_eq!(Some(node.socket_report(port).unwrap().local.node), addr);
    let state = ServiceRange::single(0, 0x0100_1001);
    assert_eq!(node.own_bindings().iter().filter(|b| b.range == state).count(), 1);
    let cfg = BearerConfig::new("udp0", udp(1, 6118), 1500);
    node.enable_bearer(Nanos(0), cfg).unwrap();
    assert_eq!(node.addr(), addr);
    assert_eq!(node.own_bindings().iter().filter(|b| b.range == state).count(), 1);
    assert_eq!(std::iter::from_fn(|| node.poll_event()).filter(settled).count(), 0, "only once");
}
