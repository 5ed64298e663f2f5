//! Tests of nodes with two links to each other, over media that fail and recover, once or repeatedly, while messages
//! are in flight:
//!
//! - During contact, every message arrives once and in the order in which its socket sent it, whichever link carries it.
//! - Contact is kept while one of the two paths works.
//! - When both paths work again, every pair of nodes has both links and all name tables are equal.
//! - No queue grows without bound.
//!
//! By default, the first 200 seeds are used; set the environment variable `PLANES_SEEDS=first..last` to use others.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crossway_tipc_proto::addr::{Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::Capabilities;
use crossway_tipc_sim::{Conditions, HostId, Network, Plane, seeds};
use rand::RngExt;

const SERVICE: u32 = 1000;
const TOLERANCE: Duration = Duration::from_millis(500);
/// Maximum number of bytes in a node's queues; more indicates a leak.
const BYTES_MAX: usize = 64 << 20;
/// Number of sending sockets per host: enough that both halves of the ports are nearly always used.
const SOURCES: usize = 4;

/// A flow of messages: the sending host, the index of the sending socket, and the receiving host.
type Flow = (HostId, usize, HostId);

struct Planes {
    seed: u64,
    net: Network,
    count: usize,
    sinks: Vec<Port>,
    sources: Vec<[Port; SOURCES]>,
    sent: BTreeMap<Flow, u32>,
    received: BTreeMap<Flow, u32>,
    /// Pairs of hosts that have lost contact at any time. Messages between them may be missing.
    broken: BTreeSet<(HostId, HostId)>,
    downs: u64,
    /// When the last cut ended.
    repaired: Nanos,
}

impl Planes {
    fn new(seed: u64) -> Self {
        let count = 2 + seed as usize % 4;
        let mtu = [(1500, 1500), (300, 1500), (9000, 1400)][seed as usize % 3];
        // In a quarter of the runs, the second plane is a standby for the first.
        let priority = if seed % 4 == 3 { 5 } else { 10 };
        let planes = [Plane { mtu: mtu.0, priority: 10 }, Plane { mtu: mtu.1, priority }];
        let mut net = Network::with_planes(seed, count, &planes, TOLERANCE);
        let (mut sinks, mut sources) = (Vec::new(), Vec::new());
        for host in (0..count).map(HostId) {
            // An older node among new ones, if no packet is too large for either tunnel.
            let old = mtu.0 == mtu.1 && seed.is_multiple_of(2) && host.0 == 1;
            net.withheld =
                if old { Capabilities::TUNNEL_ENHANCED } else { Capabilities::default() };
            net.start(host, false);
            let ports = net.with(host, |node, _| {
                let sink = node.open(SocketKind::Rdm).unwrap();
                let range = ServiceRange::single(SERVICE, host.0 as u32);
                node.bind(sink, range, Scope::Cluster).unwrap();
                (sink, [(); SOURCES].map(|()| node.open(SocketKind::Rdm).unwrap()))
            });
            let (sink, own) = ports.expect("the host is up");
            sinks.push(sink);
            sources.push(own);
        }
        net.run(Duration::from_secs(3));
        net.take_events();
        let (sent, received) = (BTreeMap::new(), BTreeMap::new());
        let broken = BTreeSet::new();
        Self {
            seed,
            net,
            count,
            sinks,
            sources,
            sent,
            received,
            broken,
            downs: 0,
            repaired: Nanos(0),
        }
    }

    /// Whether every pair of nodes keeps at least one working path at any time.
    const fn is_calm(&self) -> bool {
        (self.seed / 4).is_multiple_of(2)
    }

    fn pick(&mut self) -> (HostId, HostId) {
        let a = self.net.rng().random_range(0..self.count);
        let b = (a + self.net.rng().random_range(1..self.count)) % self.count;
        (HostId(a), HostId(b))
    }

    fn send(&mut self) {
        let (from, to) = self.pick();
        let source = self.net.rng().random_range(0..SOURCES);
        let number = self.sent.get(&(from, source, to)).copied().unwrap_or(0) + 1;
        let len = match self.net.rng().random_range(0..20) {
            0 => self.net.rng().random_range(0..20_000),
            1..5 => self.net.rng().random_range(0..2_000),
            _ => self.net.rng().random_range(0..200),
        };
        let mut payload = Vec::new();
        for word in [from.0 as u32, source as u32, number] {
            payload.extend_from_slice(&word.to_be_bytes());
        }
        payload.resize(12 + len, number as u8);
        // To the socket itself, so that an outdated name table does not matter.
        let to_socket = SocketAddr { port: self.sinks[to.0], node: self.net.addr(to) };
        let port = self.sources[from.0][source];
        let result = self.net.with(from, |node, now| {
            node.send(now, port, Some(Address::Socket(to_socket)), &payload)
        });
        match result {
            Some(Ok(_)) => {
                self.sent.insert((from, source, to), number);
            }
            Some(Err(SocketError::WouldBlock | SocketError::Unreachable)) => {}
            other => panic!("send: {other:?}"),
        }
    }

    fn receive(&mut self) {
        for (host, event) in self.net.take_events() {
            match event {
                Event::PeerDown { peer } => {
                    let other = HostId((peer.0 - 0x1000) as usize);
                    self.broken.extend([(host, other), (other, host)]);
                    assert!(!self.is_calm(), "{host:?} lost {other:?} although a path worked");
                }
                Event::LinkDown { .. } => self.downs += 1,
                _ => {}
            }
        }
        for to in (0..self.count).map(HostId) {
            let sink = self.sinks[to.0];
            while let Some(Ok(m)) = self.net.with(to, |node, now| node.recv(now, sink, 1 << 20)) {
                let word =
                    |n: usize| u32::from_be_bytes(m.payload[4 * n..4 * n + 4].try_into().unwrap());
                let (from, source, number) = (HostId(word(0) as usize), word(1) as usize, word(2));
                assert!(m.payload[12..].iter().all(|b| *b == number as u8), "damaged");
                let last = self.received.insert((from, source, to), number).unwrap_or(0);
                assert!(
                    number > last,
                    "socket {source} of {from:?} to {to:?}: message {number} came after {last}"
                );
                assert!(
                    number == last + 1 || self.broken.contains(&(from, to)),
                    "socket {source} of {from:?} to {to:?}: message {} is missing before {number}",
                    last + 1
                );
            }
        }
        let held = self.net.bytes_max();
        assert!(held < BYTES_MAX, "a node has queued {held} bytes");
    }

    /// Whether all possible links are up.
    fn is_whole(&mut self) -> bool {
        (0..self.count).all(|host| {
            let whole = self.net.with(HostId(host), |node, _| {
                node.peers().all(|p| {
                    p.links.len() == 2 && p.links.iter().all(|l| l.state == LinkState::Established)
                })
            });
            whole == Some(true)
        })
    }

    fn trouble(&mut self) {
        let (a, b) = self.pick();
        let plane = self.net.rng().random_range(0..2);
        // A link whose cut has just ended counts as dead until something has been received over it again.
        let rested = self.net.now().since(self.repaired) > TOLERANCE * 2;
        let whole = !self.is_calm() || (rested && self.is_whole());
        let all: Vec<_> = (0..self.count)
            .flat_map(|a| (0..a).map(move |b| (plane, HostId(a), HostId(b))))
            .collect();
        let clear = self.net.conditions.dead_paths.is_empty();
        // A calm run cuts only when both paths work, so that the other path is available.
        let may_cut = whole && (clear || !self.is_calm());
        match self.net.rng().random_range(0..8) {
            0 if may_cut => self.net.conditions.dead_paths.push((plane, a, b)),
            1 if may_cut => self.net.conditions.dead_paths.extend(all),
            // Too short to be noticed, or just long enough.
            2 if may_cut => {
                self.net.conditions.dead_paths = all;
                let time = self.net.rng().random_range(10..700);
                self.net.run(Duration::from_millis(time));
                self.net.conditions.dead_paths.clear();
                self.repaired = self.net.now();
            }
            3 | 4 => {
                self.net.conditions.dead_paths.clear();
                self.repaired = self.net.now();
            }
            _ => {}
        }
    }

    fn run(&mut self) {
        assert!(self.is_whole(), "both links must come up at the start");
        let loss = [0, 10, 50, 200][self.seed as usize / 8 % 4];
        let rng = self.net.rng();
        let delay_min = Duration::from_micros(rng.random_range(20..500));
        let hostile = Conditions {
            loss_per_mille: loss,
            duplicate_per_mille: rng.random_range(0..50),
            delay_min,
            delay_max: delay_min + Duration::from_micros(rng.random_range(0..3_000)),
            ..Conditions::default()
        };
        self.net.conditions = hostile;
        for _ in 0..150 {
            let time = self.net.rng().random_range(1..100);
            self.net.run(Duration::from_millis(time));
            self.trouble();
            for _ in 0..self.net.rng().random_range(0..40) {
                self.send();
            }
            self.receive();
        }
        self.net.conditions = Conditions::default();
        self.net.run(Duration::from_secs(30));
        self.receive();
        for (flow, sent) in &self.sent {
            let received = self.received.get(flow).copied().unwrap_or(0);
            let excused = self.broken.contains(&(flow.0, flow.2));
            assert!(
                received == *sent || excused,
                "{flow:?}: only {received} of {sent} messages arrived"
            );
        }
        assert!(self.is_whole(), "both links must come up again");
        let mut tables: Vec<BTreeSet<_>> = Vec::new();
        for host in 0..self.count {
            let table = self.net.with(HostId(host), |node, _| {
                let cluster = node.names().iter().filter(|b| b.scope == Scope::Cluster);
                cluster.map(|b| (b.range, b.socket, b.key)).collect()
            });
            tables.push(table.expect("all hosts are up"));
        }
        assert_eq!(
            tables[0].len(),
            2 * self.count,
            "each table must contain the state and the service of every node"
        );
        assert!(tables.iter().all(|t| *t == tables[0]), "tables differ");
        let delivered: u32 = self.received.values().sum();
        assert!(
            delivered > 100,
            "only {delivered} messages were delivered, so the run proves nothing"
        );
    }
}

#[test]
fn messages_survive_the_loss_and_the_return_of_links() {
    let downs = seeds::each("PLANES_SEEDS", 0..200, |seed| {
        let mut planes = Planes::new(seed);
        planes.run();
        planes.downs
    });
    assert!(downs.iter().any(|downs| *downs > 0), "no link went down in any run");
}
