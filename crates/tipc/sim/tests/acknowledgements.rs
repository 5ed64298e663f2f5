//! Tests of acknowledgements when many packets arrive at the same time: they take few frames, and never come later than
//! the sender needs them.

use core::time::Duration;
use std::collections::VecDeque;

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr, Port, SocketAddr};
use crossway_tipc_proto::link::{LinkSettings, LinkStats};
use crossway_tipc_proto::node::{BearerConfig, Config, Event, Node};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::time::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Duration of a node's turn.
const TURN: Duration = Duration::from_micros(50);

/// Two nodes that work in turns, and handle many frames in each turn. (The hosts of a simulated network, in contrast,
/// handle frames one by one.)
struct Pair {
    nodes: [Node; 2],
    /// Frames waiting for each node.
    wires: [VecDeque<Vec<u8>>; 2],
    now: Nanos,
    /// Number of times that both nodes had to wait until a timer expired.
    waits: u32,
    loss_per_mille: u32,
    rng: Pcg64Mcg,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let nodes = [1, 2].map(|n| {
            let addr = Some(NodeAddr(0x1000 + n));
            let mut node =
                Node::new(Config { addr, seed: seed + u64::from(n), ..Config::default() });
            let mac = MediaAddr::Ethernet([2, 0, 0, 0, 0, n as u8]);
            node.enable_bearer(Nanos(0), BearerConfig::new("eth0", mac, 1_500)).unwrap();
            node
        });
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let wires = [VecDeque::new(), VecDeque::new()];
        let mut pair = Self { nodes, wires, now: Nanos(0), waits: 0, loss_per_mille: 0, rng };
        let up = |node: &mut Node| {
            core::iter::from_fn(|| node.poll_event()).any(|e| matches!(e, Event::PeerUp { .. }))
        };
        let mut ups = [false; 2];
        while ups != [true; 2] {
            assert!(pair.now < Nanos(0) + Duration::from_secs(5), "no contact");
            pair.turn(0, 100);
            pair.turn(1, 100);
            pair.rest();
            for (node, is_up) in pair.nodes.iter_mut().zip(&mut ups) {
                *is_up |= up(node);
            }
        }
        for _ in 0..20 {
            pair.turn(0, 100);
            pair.turn(1, 100);
        }
        pair.waits = 0;
        pair
    }

    /// Makes a node handle up to `most` frames, and then send its pending frames. Returns whether there was anything to
    /// do.
    fn turn(&mut self, n: usize, most: usize) -> bool {
        self.now = self.now + TURN;
        let node = &mut self.nodes[n];
        let count = most.min(self.wires[n].len());
        for frame in self.wires[n].drain(..count) {
            node.handle_frame(self.now, BearerId(0), None, &frame);
        }
        if node.poll_timeout().is_some_and(|at| at <= self.now) {
            node.handle_timeout(self.now);
        }
        let (mut moved, mut frame) = (count > 0, Vec::new());
        while node.poll_transmit(self.now, &mut frame).is_some() {
            moved = true;
            if self.rng.random_range(0..1_000) >= self.loss_per_mille {
                self.wires[1 - n].push_back(frame.clone());
            }
        }
        moved
    }

    /// If no frames are in flight, advances to the next timer.
    fn rest(&mut self) {
        if self.wires.iter().all(VecDeque::is_empty) {
            let next = self.nodes.iter().filter_map(Node::poll_timeout).min();
            self.now = next.unwrap_or(self.now).max(self.now);
            self.waits += 1;
        }
    }

    fn stats(&self, n: usize) -> LinkStats {
        self.nodes[n].peers().next().unwrap().links[0].stats
    }

    /// Opens a datagram socket on each node. Returns the port on the first node and the address on the second.
    fn datagrams(&mut self) -> (Port, SocketAddr) {
        let ports = self.nodes.each_mut().map(|node| node.open(SocketKind::Rdm).unwrap());
        let to = SocketAddr { port: ports[1], node: self.nodes[1].addr().unwrap() };
        (ports[0], to)
    }

    /// Sends `count` messages as fast as the windows allow. The receiver handles `batch` frames per turn. All messages
    /// must arrive in order.
    fn flow(
        &mut self,
        (from, to): (Port, SocketAddr),
        count: u32,
        mut batch: impl FnMut(&mut Pcg64Mcg) -> usize,
    ) {
        let (mut sent, mut received, mut turns) = (0, 0, 0);
        while received < count {
            turns += 1;
            assert!(
                turns < 200_000,
                "only {received} of {count} messages arrived after {:?}",
                self.now
            );
            while sent < count {
                let text = [&sent.to_be_bytes()[..], &[7; 1_396]].concat();
                match self.nodes[0].send(self.now, from, Some(Address::Socket(to)), &text) {
                    Ok(_) => sent += 1,
                    Err(SocketError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let mut moved = self.turn(0, usize::MAX);
            let most = batch(&mut self.rng);
            moved |= self.turn(1, most);
            while let Ok(m) = self.nodes[1].recv(self.now, to.port, 2_000) {
                assert_eq!(
                    m.payload[..4],
                    received.to_be_bytes(),
                    "messages must arrive in order and once"
                );
                received += 1;
            }
            if !moved {
                self.rest();
            }
        }
    }
}

/// Sets the maximum window of the first node's link.
fn with_window(pair: &mut Pair, window: u16) {
    let peer = pair.nodes[1].addr().unwrap();
    let settings = LinkSettings { window_max: Some(window), ..LinkSettings::default() };
    pair.nodes[0].set_link(pair.now, peer, BearerId(0), settings).unwrap();
}

#[test]
fn a_sender_never_waits_for_an_acknowledgement_that_is_held_back() {
    for window in [20, 50, 51, 100, 300, 8_191] {
        for batch in [1, 15, 16, 17, 40, 50, 128, 500] {
            let mut pair = Pair::new(7);
            with_window(&mut pair, window);
            let ends = pair.datagrams();
            pair.flow(ends, 1_500, |_| batch);
            pair.flow(ends, 1_500, |rng| rng.random_range(1..=batch));
            assert_eq!(
                pair.waits, 0,
                "the sender waited with window {window} and {batch} frames per turn"
            );
        }
    }
}

#[test]
fn a_window_that_an_operator_makes_smaller_is_noticed() {
    let mut pair = Pair::new(3);
    let ends = pair.datagrams();
    pair.flow(ends, 3_000, |_| 500);
    with_window(&mut pair, 20);
    pair.flow(ends, 1_000, |_| 500);
    assert!(
        pair.waits <= 3,
        "each probe must halve the acknowledgement interval, from 128 to 16 packets, but the sender waited {} times",
        pair.waits
    );
}

#[test]
fn whatever_is_lost_everything_arrives() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed);
        let window = pair.rng.random_range(20..=400);
        with_window(&mut pair, window);
        let ends = pair.datagrams();
        pair.flow(ends, 500, |rng| rng.random_range(1..=200));
        pair.loss_per_mille = [5, 20, 100][seed as usize % 3];
        pair.flow(ends, 1_500, |rng| rng.random_range(1..=200));
        pair.loss_per_mille = 0;
        pair.flow(ends, 500, |rng| rng.random_range(1..=200));
    }
}

#[test]
fn acknowledgements_travel_with_packets_and_few_by_themselves() {
    const MESSAGES: u64 = 200;
    let mut pair = Pair::new(5);
    let [client, listener] =
        pair.nodes.each_mut().map(|node| node.open(SocketKind::Seqpacket).unwrap());
    let to = SocketAddr { port: listener, node: pair.nodes[1].addr().unwrap() };
    pair.nodes[1].listen(listener).unwrap();
    let asked = pair.nodes[0].connect(pair.now, client, Some(Address::Socket(to)), &[]);
    assert_eq!(asked, Err(SocketError::InProgress));
    pair.turn(0, 10);
    pair.turn(1, 10);
    let (server, _) = pair.nodes[1].accept(pair.now, listener).unwrap();
    pair.turn(1, 10);
    pair.turn(0, 10);
    let before = pair.stats(1);
    let (mut sent, mut received) = (0, 0);
    while received < MESSAGES {
        let payload = [9; 65_536];
        while sent < MESSAGES && pair.nodes[0].send(pair.now, client, None, &payload).is_ok() {
            sent += 1;
        }
        let mut moved = pair.turn(0, usize::MAX);
        moved |= pair.turn(1, 64);
        while let Ok(m) = pair.nodes[1].recv(pair.now, server, 70_000) {
            received += u64::from(m.payload.len() == 65_536);
        }
        assert!(moved, "no frame moves after {received} of {sent} messages");
    }
    let after = pair.stats(1);
    let packets = after.packets_sent - before.packets_sent;
    let states = after.states_sent - before.states_sent;
    // 65 blocks per message, acknowledged at the first after 128: every second message. 45 or 46 packets per message, and an acknowledgement
    // after half of 64 or more packets: fewer of them have no packet to travel with.
    assert!((90..=101).contains(&packets), "the receiver sent {packets} packets");
    assert!(states <= MESSAGES / 2, "{states} acknowledgements were sent without a data packet");
}
