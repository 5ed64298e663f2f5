//! Tests of random runs on a hostile network, each with its own seed. They check that:
//!
//! - between two sockets, messages arrive at most once and in order, and none is lost while contact is kept;
//! - when the network heals, every pair of nodes is in contact and all name tables are equal;
//! - no queue grows without bound;
//! - during contact, no node receives an event for a binding twice or in the wrong order;
//! - an idle network sends few frames.
//!
//! By default, the first 200 seeds are used; set the environment variable `SWARM_SEEDS=first..last` to use others.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::Capabilities;
use crossway_tipc_sim::{Conditions, HostId, Network, seeds};
use rand::RngExt;

const SERVICE: u32 = 1000;
const TOLERANCE: Duration = Duration::from_millis(500);

/// Maximum number of bytes in a node's queues; more indicates a leak.
const BYTES_MAX: usize = 64 << 20;

/// Contents of a message: the sender's host and incarnation, and a number that counts the messages to this receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Stamp {
    host: u64,
    life: u64,
    number: u64,
}

impl Stamp {
    fn encode(self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [self.host, self.life, self.number] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        let filler = self.number as u8;
        bytes.resize(len.max(24), filler);
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |n: usize| u64::from_be_bytes(bytes[8 * n..8 * n + 8].try_into().unwrap());
        let stamp = Self { host: word(0), life: word(1), number: word(2) };
        assert!(
            bytes[24..].iter().all(|&b| b == stamp.number as u8),
            "the payload was damaged: {stamp:?}"
        );
        stamp
    }
}

/// A flow of messages: sender and receiver, each as a host and its incarnation.
type Flow = (HostId, u64, HostId, u64);

#[derive(Debug)]
struct Swarm {
    seed: u64,
    net: Network,
    /// The port of each host's current incarnation. `names` contains the further instances that each host has bound.
    ports: Vec<Option<Port>>,
    names: Vec<BTreeSet<u32>>,
    sent: BTreeMap<Flow, u64>,
    received: BTreeMap<Flow, u64>,
    /// Flows whose hosts have lost contact at any time. Their messages may be missing.
    broken: BTreeSet<Flow>,
    ups: u64,
}

impl Swarm {
    fn new(seed: u64) -> Self {
        let hosts = match seed % 10 {
            0 => 16,
            n => 2 + n as usize % 5,
        };
        let mtu = [1500, 300, 9000][seed as usize % 3];
        let net = Network::new(seed, hosts, mtu, TOLERANCE);
        let (ports, names) = (vec![None; hosts], vec![BTreeSet::new(); hosts]);
        let (sent, received) = (BTreeMap::new(), BTreeMap::new());
        Self { seed, net, ports, names, sent, received, broken: BTreeSet::new(), ups: 0 }
    }

    fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.ports.len()).map(HostId)
    }

    /// The capabilities that a host withholds. In a quarter of the runs, some incarnations of some hosts emulate older
    /// kernels: they withhold the capabilities that Linux 5.8, 5.1 or 4.17 lacks.
    fn withheld(&self, host: HostId) -> Capabilities {
        const LACKING: [u16; 3] = [0x800, 0xf00, 0xfc0];
        let turn = host.0 as u64 + self.life(host);
        if self.seed % 16 / 4 == 1 && turn % 3 == 1 {
            Capabilities::from_bits(LACKING[(self.seed + turn) as usize % 3])
        } else {
            Capabilities::default()
        }
    }

    fn life(&self, host: HostId) -> u64 {
        self.net.hosts()[host.0].lives
    }

    fn start(&mut self, host: HostId) {
        let trial = self.seed.is_multiple_of(2);
        self.net.withheld = self.withheld(host);
        self.net.start(host, trial);
        self.names[host.0].clear();
        let port = self.net.with(host, |node, _| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, ServiceRange::single(SERVICE, host.0 as u32), Scope::Cluster).unwrap();
            port
        });
        self.ports[host.0] = port;
    }

    fn crash(&mut self, host: HostId) {
        let life = self.life(host);
        for other in self.hosts() {
            let other_life = self.life(other);
            self.broken.insert((host, life, other, other_life));
            self.broken.insert((other, other_life, host, life));
        }
        self.net.crash(host);
        self.ports[host.0] = None;
        self.names[host.0].clear();
    }

    /// Sends a message from one host to another if the sender's name table contains the receiver.
    fn send(&mut self, from: HostId, to: HostId) {
        let Some(port) = self.ports[from.0] else { return };
        // Only to the current incarnation: an old binding would lead to a port that no longer exists, and the message would be
        // lost.
        let there = (self.net.addr(to), self.ports[to.0]);
        let knows = self.net.with(from, |node, _| {
            let range = ServiceRange::single(SERVICE, to.0 as u32);
            node.names().overlapping(range).any(|b| (b.socket.node, Some(b.socket.port)) == there)
        });
        if knows != Some(true) {
            return;
        }
        let flow = (from, self.life(from), to, self.life(to));
        let number = self.sent.get(&flow).copied().unwrap_or(0) + 1;
        let len = match self.net.rng().random_range(0..20) {
            0 => self.net.rng().random_range(0..20_000),
            1..5 => self.net.rng().random_range(0..2_000),
            _ => self.net.rng().random_range(0..200),
        };
        let payload = Stamp { host: from.0 as u64, life: flow.1, number }.encode(len);
        let dest = if self.net.rng().random_bool(0.1) {
            Address::Range(ServiceRange::single(SERVICE, to.0 as u32))
        } else {
            Address::Service { service: SERVICE, instance: to.0 as u32, domain: NodeAddr(0) }
        };
        match self.net.with(from, |node, now| node.send(now, port, Some(dest), &payload)) {
            Some(Ok(_)) => {
                self.sent.insert(flow, number);
            }
            Some(Err(SocketError::WouldBlock | SocketError::Unreachable)) | None => {}
            Some(Err(error)) => panic!("send failed: {error}"),
        }
    }

    /// Reads the messages received and checks their order.
    fn receive(&mut self) {
        for to in self.hosts() {
            let Some(port) = self.ports[to.0] else { continue };
            while let Some(Ok(message)) =
                self.net.with(to, |node, now| node.recv(now, port, 1 << 20))
            {
                let stamp = Stamp::decode(&message.payload);
                let flow = (HostId(stamp.host as usize), stamp.life, to, self.life(to));
                assert_eq!(
                    message.from.node,
                    self.net.addr(flow.0),
                    "a message must carry its sender's address"
                );
                let last = self.received.get(&flow).copied().unwrap_or(0);
                assert!(
                    stamp.number > last,
                    "{flow:?}: message {} came after {last}",
                    stamp.number
                );
                let gap = stamp.number != last + 1;
                assert!(
                    !gap || self.broken.contains(&flow),
                    "{flow:?}: message {} is missing before {}",
                    last + 1,
                    stamp.number
                );
                self.received.insert(flow, stamp.number);
            }
        }
    }

    /// Records between which hosts contact was lost.
    fn watch(&mut self) {
        for (host, event) in self.net.take_events() {
            match event {
                Event::LinkDown { peer, .. } => {
                    let other = HostId((peer.0 - 0x1000) as usize);
                    let (life, other_life) = (self.life(host), self.life(other));
                    self.broken.insert((host, life, other, other_life));
                    self.broken.insert((other, other_life, host, life));
                }
                Event::LinkUp { .. } => self.ups += 1,
                Event::DuplicateAddress { id, .. } => {
                    panic!("{host:?} reports that node {id} uses its address")
                }
                _ => {}
            }
        }
        let held = self.net.bytes_max();
        assert!(held < BYTES_MAX, "a node has queued {held} bytes");
    }

    /// Binds or withdraws a random name.
    fn rename(&mut self, host: HostId) {
        let Some(port) = self.ports[host.0] else { return };
        let instance = self.net.rng().random_range(100..120);
        let range =
            ServiceRange { service: 2000 + host.0 as u32, lower: instance, upper: instance + 5 };
        let names = &mut self.names[host.0];
        let result = if names.remove(&instance) {
            self.net.with(host, |node, now| node.unbind(now, port, Some((range, Scope::Cluster))))
        } else {
            names.insert(instance);
            self.net.with(host, |node, _| node.bind(port, range, Scope::Cluster))
        };
        assert!(matches!(result, Some(Ok(()))), "{result:?}");
    }

    const fn is_calm(&self) -> bool {
        self.seed / 4 % 2 == 1
    }

    fn hostile(&mut self) -> Conditions {
        let loss = [0, 10, 50, 200][self.seed as usize % 4];
        let rng = self.net.rng();
        let delay_min = Duration::from_micros(rng.random_range(20..500));
        Conditions {
            loss_per_mille: loss,
            duplicate_per_mille: rng.random_range(0..50),
            delay_min,
            delay_max: delay_min + Duration::from_micros(rng.random_range(0..3_000)),
            ..Conditions::default()
        }
    }

    fn trouble(&mut self) {
        let hosts = self.ports.len();
        let host = HostId(self.net.rng().random_range(0..hosts));
        // In half of the runs, frames are disturbed but contact is kept: there, every message must arrive.
        let kinds = if self.is_calm() { 6..12 } else { 0..12 };
        match self.net.rng().random_range(kinds) {
            0 => {
                let groups = (0..hosts).map(|_| self.net.rng().random_range(0..2)).collect();
                self.net.conditions.groups = groups;
            }
            1 | 2 => self.net.conditions.groups.clear(),
            3 if self.ports[host.0].is_some() => self.crash(host),
            3 | 4 if self.ports[host.0].is_none() => self.start(host),
            _ => self.rename(host),
        }
    }

    fn run(&mut self) {
        for host in self.hosts() {
            self.start(host);
        }
        self.net.conditions = self.hostile();
        for _ in 0..120 {
            self.net.run(Duration::from_millis(100));
            self.trouble();
            for _ in 0..40 {
                let hosts = self.ports.len();
                let from = HostId(self.net.rng().random_range(0..hosts));
                let to = HostId(self.net.rng().random_range(0..hosts));
                if from != to {
                    self.send(from, to);
                }
            }
            // Before the messages are checked: gaps are allowed if contact broke while they were in flight.
            self.watch();
            self.receive();
        }
        self.heal();
    }

    fn heal(&mut self) {
        self.net.conditions = Conditions::default();
        for host in self.hosts() {
            if self.ports[host.0].is_none() {
                self.start(host);
            }
        }
        self.net.run(Duration::from_secs(30));
        self.watch();
        self.receive();
        let frames = self.net.frames;
        let rest = Duration::from_secs(10);
        self.net.run(rest);
        self.receive();
        self.watch();
        let count = self.ports.len() as u64;
        let ticks = 10_000 / 125;
        let quiet = count * (count - 1) * ticks * 2 + count * 40;
        let sent = self.net.frames - frames;
        assert!(sent <= quiet, "an idle network sent {sent} frames in 10 s, more than {quiet}");
        for (flow, sent) in &self.sent {
            let received = self.received.get(flow).copied().unwrap_or(0);
            assert!(received <= *sent);
            assert!(
                received == *sent || self.broken.contains(flow),
                "{flow:?}: only {received} of {sent} messages arrived"
            );
        }
        let table = |swarm: &mut Self, host| {
            let all = swarm.net.with(host, |node, _| {
                assert!(
                    node.peers().all(|p| p.links[0].state == LinkState::Established),
                    "{:?}",
                    node.peers().collect::<Vec<_>>()
                );
                assert_eq!(node.peers().count(), count as usize - 1);
                let cluster = node.names().iter().filter(|b| b.scope == Scope::Cluster);
                cluster.map(|b| (b.range, b.socket, b.key)).collect::<BTreeSet<_>>()
            });
            all.expect("every host must be running")
        };
        let first = table(self, HostId(0));
        let names: usize = self.names.iter().map(BTreeSet::len).sum();
        assert_eq!(
            first.len(),
            names + 2 * count as usize,
            "each table must contain the state, the service and the names of every node"
        );
        for host in self.hosts() {
            let own = table(self, host);
            let twice = self.net.with(host, |node, _| node.drops().get(DropReason::BadBinding));
            // Frames in flight to an earlier incarnation may reach the next one: packets carry no session.
            let excused = !self.is_calm();
            assert!(
                excused || twice == Some(0),
                "{host:?}: number of bindings reported twice: {twice:?}"
            );
            assert_eq!(own, first, "the name tables of {host:?} and host 0 differ");
        }
        assert!(
            self.ups >= count * (count - 1),
            "fewer links came up than there are pairs of nodes"
        );
        if self.is_calm() {
            assert!(self.broken.is_empty(), "contact was lost without a reason: {:?}", self.broken);
        }
        let delivered: u64 = self.received.values().sum();
        // Partitions and crashes may leave little to send; a calm run must deliver more.
        let least = if self.is_calm() { 100 } else { 1 };
        assert!(delivered >= least, "only {delivered} messages arrived, so the run proves nothing");
    }
}

#[test]
fn every_promise_holds_on_a_hostile_network() {
    seeds::each("SWARM_SEEDS", 0..200, |seed| Swarm::new(seed).run());
}

#[test]
fn sixty_four_nodes_meet_and_know_the_same() {
    let mut net = Network::new(64, 64, 1500, Duration::from_millis(1500));
    net.conditions.loss_per_mille = 20;
    net.conditions.delay_max = Duration::from_millis(2);
    let hosts: Vec<HostId> = (0..64).map(HostId).collect();
    for host in &hosts {
        net.start(*host, true);
        net.with(*host, |node, _| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, ServiceRange::single(SERVICE, host.0 as u32), Scope::Cluster).unwrap();
        });
    }
    net.run(Duration::from_secs(8));
    for host in &hosts {
        let table = net.with(*host, |node, _| {
            assert!(node.peers().all(|p| p.links[0].state == LinkState::Established), "{host:?}");
            node.names().iter().filter(|b| b.scope == Scope::Cluster).count()
        });
        assert_eq!(table, Some(2 * 64), "{host:?}");
    }
}
