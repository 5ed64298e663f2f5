//! A round: two nodes on two media, with the man in the middle, and random commands.

use core::fmt;
use core::time::Duration;

use crossway_tipc_proto::addr::{
    BearerId, MediaAddr, NodeAddr, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::node::{BearerConfig, Config, Event, Node};
use crossway_tipc_proto::socket::{Address, GroupRequest, SocketKind};
use crossway_tipc_proto::time::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::lies::{Liar, decode};

const STEPS: usize = 3_000;
/// Maximum memory of a node in bytes; a node that holds more has a leak.
const BYTES_MAX: usize = 96 << 20;
/// Maximum number of frames that a node may send in response to one event.
const FRAMES_MAX: usize = 50_000;
const SERVICE: u32 = 1000;
const GROUP: u32 = 2000;

/// Counts of what happened, over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    frames: u64,
    understood: u64,
    links_up: u64,
    links_down: u64,
    contacts: u64,
    received: u64,
    drops: u64,
    bytes_max: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.understood += other.understood;
        self.links_up += other.links_up;
        self.links_down += other.links_down;
        self.contacts += other.contacts;
        self.received += other.received;
        self.drops += other.drops;
        self.bytes_max = self.bytes_max.max(other.bytes_max);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames ({} understood, {} dropped), links up {} and down {}, contacts {}, \
             messages received {}, at most {} bytes in a node",
            self.frames,
            self.understood,
            self.drops,
            self.links_up,
            self.links_down,
            self.contacts,
            self.received,
            self.bytes_max
        )
    }
}

struct Talk {
    rng: Pcg64Mcg,
    now: Nanos,
    nodes: [Node; 2],
    ports: [Vec<Port>; 2],
    liar: Liar,
    /// Frames in transit: index of the receiving node, its bearer, and the bytes.
    wire: Vec<(usize, BearerId, Vec<u8>)>,
    tally: Tally,
}

fn media(node: usize, plane: u8) -> MediaAddr {
    MediaAddr::Ethernet([2, 0, 0, plane, 0, node as u8])
}

fn bearer(node: usize, plane: u8) -> BearerConfig {
    let mtu = [1500, 1400][usize::from(plane) % 2];
    let mut cfg = BearerConfig::new("fuzz", media(node, plane), mtu);
    cfg.tolerance = Duration::from_millis(200);
    cfg
}

pub(crate) fn run(seed: u64) -> Tally {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let nodes = [0, 1].map(|n| {
        let addr = Some(NodeAddr(0x1000 + n as u32));
        let mut node = Node::new(Config { addr, seed: rng.random(), ..Config::default() });
        // In half of the rounds, the threshold is so low that two nodes already form a monitoring ring.
        let threshold = if seed % 8 < 4 { 1 } else { 32 };
        node.set_monitor_threshold(threshold).expect("a legal threshold");
        for plane in 0..2 {
            node.enable_bearer(Nanos(0), bearer(n, plane)).expect("a bearer");
        }
        node
    });
    let honesty = [0, 50, 90, 99][seed as usize % 4];
    let (liar, tally) = (Liar::new(honesty), Tally::default());
    let ports = [Vec::new(), Vec::new()];
    let mut talk = Talk { rng, now: Nanos(0), nodes, ports, liar, wire: Vec::new(), tally };
    for step in 0..STEPS {
        talk.step(step);
    }
    talk.tally.drops = talk.nodes.iter().flat_map(|n| n.drops().iter()).map(|(_, n)| n).sum();
    talk.tally
}

impl Talk {
    fn step(&mut self, step: usize) {
        match self.rng.random_range(0..10) {
            0 => self.command(),
            1 | 2 => {
                let time = [1, 5, 30, 120][self.rng.random_range(0..4)];
                self.now = self.now + Duration::from_millis(time);
            }
            _ => self.deliver(),
        }
        for n in 0..2 {
            self.nodes[n].handle_timeout(self.now);
            let due = self.nodes[n].poll_timeout();
            assert!(due.is_none_or(|due| due > self.now), "a timer that is due stays due");
            self.drain(n);
            if step.is_multiple_of(50) {
                let bytes = self.nodes[n].held_bytes();
                assert!(bytes < BYTES_MAX, "a node holds {bytes} bytes");
                self.tally.bytes_max = self.tally.bytes_max.max(bytes as u64);
                assert!(self.nodes[n].peers().count() < 500, "a node believes in too many peers");
            }
        }
    }

    /// Delivers some of the frames in transit, possibly forged.
    fn deliver(&mut self) {
        for _ in 0..self.rng.random_range(1..20) {
            if self.wire.is_empty() {
                return;
            }
            // Usually the oldest frame is delivered.
            let at = if self.rng.random_bool(0.9) {
                0
            } else {
                self.rng.random_range(0..self.wire.len())
            };
            let (to, on, frame) = self.wire.remove(at);
            self.liar.see(&mut self.rng, &frame);
            for lie in self.liar.pass(&mut self.rng, &frame) {
                self.tally.frames += 1;
                self.tally.understood += u64::from(decode(&lie));
                self.nodes[to].handle_frame(self.now, on, None, &lie);
                self.drain(to);
            }
        }
    }

    fn drain(&mut self, n: usize) {
        let (mut frame, mut sent) = (Vec::new(), 0);
        while let Some(transmit) = self.nodes[n].poll_transmit(self.now, &mut frame) {
            sent += 1;
            assert!(sent < FRAMES_MAX, "one thing makes the node talk for ever");
            assert!(frame.len() <= 1500, "{} bytes on a medium of 1500", frame.len());
            // A medium holds a limited number of frames, and loses further ones.
            if self.wire.len() < 400 {
                self.wire.push((1 - n, transmit.bearer, frame.clone()));
            }
        }
        while let Some(event) = self.nodes[n].poll_event() {
            match event {
                Event::LinkUp { .. } => self.tally.links_up += 1,
                Event::LinkDown { .. } => self.tally.links_down += 1,
                Event::PeerUp { .. } => self.tally.contacts += 1,
                Event::SocketReady(port) => self.read(n, port),
                _ => {}
            }
        }
    }

    fn read(&mut self, n: usize, port: Port) {
        let node = &mut self.nodes[n];
        while let Ok((new, _)) = node.accept(self.now, port) {
            self.ports[n].push(new);
        }
        while node.recv(self.now, port, 10_000).is_ok() {
            self.tally.received += 1;
        }
    }

    fn command(&mut self) {
        let n = self.rng.random_range(0..2);
        let payload = vec![7; [0, 10, 1_000, 5_000, 66_000][self.rng.random_range(0..5)]];
        let count = self.ports[n].len();
        let port = (count > 0).then(|| self.ports[n][self.rng.random_range(0..count)]);
        let dest = self.destination(1 - n);
        let instance = self.rng.random_range(0..4);
        let range = ServiceRange { service: SERVICE, lower: instance, upper: instance + 2 };
        let kind = self.rng.random_range(0..4);
        let (node, now) = (&mut self.nodes[n], self.now);
        // The results of commands do not matter here; they only have to return.
        match (self.rng.random_range(0..14), port) {
            (0..3, _) | (_, None) if count < 60 => {
                let kinds = [SocketKind::Rdm, SocketKind::Dgram, SocketKind::Stream];
                let kind = kinds.get(kind).copied().unwrap_or(SocketKind::Seqpacket);
                if let Ok(port) = node.open(kind) {
                    self.ports[n].push(port);
                    let _ = node.listen(port);
                    let _ = node.bind(port, range, Scope::Cluster);
                }
            }
            (3, Some(port)) => {
                let _ = node.connect(now, port, Some(dest), &payload[..payload.len().min(60_000)]);
            }
            (4, Some(port)) => {
                let _ = node.close(now, port);
                self.ports[n].retain(|p| *p != port);
            }
            (5, Some(port)) => {
                let _ = node.unbind(now, port, None);
            }
            (6, Some(port)) => {
                let _ = node.shutdown(now, port);
            }
            (7, _) if self.rng.random_bool(0.1) => {
                let plane = self.rng.random_range(0..2);
                if node.disable_bearer(now, BearerId(plane)).is_err() {
                    let _ = node.enable_bearer(now, bearer(n, plane));
                }
            }
            (8, Some(port)) => self.read(n, port),
            // Leave the group, or join it.
            (9, Some(port)) if node.leave(now, port).is_err() => {
                let (loopback, events, scope) = (true, true, Scope::Cluster);
                let request = GroupRequest { group: GROUP, instance, loopback, events, scope };
                let _ = node.join(now, port, request);
            }
            (9, Some(_)) => {}
            (10, Some(port)) => {
                // Broadcast to the group if the socket is a member; otherwise sent to its peer.
                let _ = node.send(now, port, None, &payload);
                let anycast = Address::Service { service: GROUP, instance, domain: NodeAddr(0) };
                let _ = node.send(now, port, Some(anycast), &payload);
            }
            (_, Some(port)) => {
                for _ in 0..self.rng.random_range(1..30) {
                    let _ = node.send(now, port, Some(dest), &payload);
                }
            }
            _ => {}
        }
        self.drain(n);
    }

    fn destination(&mut self, to: usize) -> Address {
        let instance = self.rng.random_range(0..6);
        let count = self.ports[to].len();
        match self.rng.random_range(0..3) {
            0 => Address::Service { service: SERVICE, instance, domain: NodeAddr(0) },
            1 => Address::Range(ServiceRange { service: SERVICE, lower: 0, upper: instance }),
            _ if count > 0 => {
                let port = self.ports[to][self.rng.random_range(0..count)];
                Address::Socket(SocketAddr { port, node: NodeAddr(0x1000 + to as u32) })
            }
            _ => Address::Service { service: 1, instance: 1, domain: NodeAddr(0x1000) },
        }
    }
}
