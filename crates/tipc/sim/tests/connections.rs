//! Tests of connections on a hostile network. The data received on a connection is a prefix of the data sent, unchanged
//! and in order. Nothing is missing unless contact was lost, and a connection ends only for a reason. When the network
//! has healed, an application that sends on its end of a connection learns whether the other end still exists.
//!
//! By default, the first 60 seeds are used; set the environment variable `CONNECTIONS_SEEDS=first..last` to use others.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{Conditions, HostId, Network, seeds};
use rand::RngExt;

const TOLERANCE: Duration = Duration::from_millis(500);
const KINDS: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];
const BYTES_MAX: usize = 64 << 20;

/// An end of a connection.
#[derive(Debug)]
struct End {
    host: HostId,
    life: u64,
    port: Port,
    /// Whether the end is connected, as far as its application knows.
    alive: bool,
    /// Number of messages sent; for a stream, number of bytes.
    sent: u64,
    received: u64,
    /// Whether the connection was shut down from this end.
    shut: bool,
}

impl End {
    const fn new(host: HostId, life: u64, port: Port, alive: bool) -> Self {
        Self { host, life, port, alive, sent: 0, received: 0, shut: false }
    }
}

/// A connection: the end that requested it and, if it was accepted, the other end.
#[derive(Debug)]
struct Pair {
    kind: SocketKind,
    ends: Vec<End>,
    /// Whether contact between the two hosts was lost, or one of them crashed.
    broken: bool,
    /// Whether the request was refused or not answered in time.
    failed: bool,
}

/// The byte expected at position `at` of the data that one end of a connection sends.
const fn byte(pair: usize, side: usize, at: u64) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8
        ^ (pair as u8).wrapping_mul(57)
        ^ (side as u8).wrapping_mul(111)
}

struct History {
    net: Network,
    calm: bool,
    /// The listening ports of each host, by kind; `None` while the host is down.
    listeners: Vec<Option<[Port; 2]>>,
    pairs: Vec<Pair>,
    ended: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let hosts = 2 + seed as usize % 4;
        let mut net = Network::new(seed, hosts, [1500, 300, 9000][seed as usize % 3], TOLERANCE);
        let delay_min = Duration::from_micros(net.rng().random_range(20..500));
        net.conditions = Conditions {
            loss_per_mille: [0, 10, 50, 200][seed as usize % 4],
            duplicate_per_mille: net.rng().random_range(0..50),
            delay_min,
            delay_max: delay_min + Duration::from_micros(net.rng().random_range(0..3_000)),
            ..Conditions::default()
        };
        let calm = seed / 4 % 2 == 1;
        Self { net, calm, listeners: vec![None; hosts], pairs: Vec::new(), ended: 0 }
    }

    fn life(&self, host: HostId) -> u64 {
        self.net.hosts()[host.0].lives
    }

    fn start(&mut self, host: HostId) {
        self.net.start(host, false);
        self.listeners[host.0] = self.net.with(host, |node, _| {
            KINDS.map(|kind| {
                let port = node.open(kind).unwrap();
                node.listen(port).unwrap();
                let range = ServiceRange::single(1000 + kind as u32, host.0 as u32);
                node.bind(port, range, Scope::Cluster).unwrap();
                port
            })
        });
    }

    fn crash(&mut self, host: HostId) {
        let life = self.life(host);
        for pair in &mut self.pairs {
            for end in &mut pair.ends {
                if (end.host, end.life) == (host, life) {
                    (pair.broken, end.alive) = (true, false);
                }
            }
        }
        self.net.crash(host);
        self.listeners[host.0] = None;
    }

    fn connect(&mut self) {
        let hosts = self.listeners.len();
        let from = HostId(self.net.rng().random_range(0..hosts));
        let to = self.net.rng().random_range(0..hosts);
        let kind = KINDS[self.net.rng().random_range(0..2)];
        if self.listeners[from.0].is_none() || from.0 == to {
            return;
        }
        let dest = Address::Service {
            service: 1000 + kind as u32,
            instance: to as u32,
            domain: NodeAddr(0),
        };
        let asked = self.net.with(from, |node, now| {
            let port = node.open(kind).unwrap();
            (port, node.connect(now, port, Some(dest), &[]))
        });
        let Some((port, Err(SocketError::InProgress))) = asked else { return };
        let ends = vec![End::new(from, self.life(from), port, false)];
        self.pairs.push(Pair { kind, ends, broken: false, failed: false });
    }

    fn watch(&mut self) {
        for (host, event) in self.net.take_events() {
            let life = self.life(host);
            let first = |pair: &&mut Pair, port| {
                let end = &pair.ends[0];
                (end.host, end.life, end.port) == (host, life, port)
            };
            match event {
                Event::LinkDown { peer, .. } => {
                    let other = HostId((peer.0 - 0x1000) as usize);
                    let other_life = self.life(other);
                    for pair in &mut self.pairs {
                        let has = |h, l| pair.ends.iter().any(|e| (e.host, e.life) == (h, l));
                        // A request whose answer was in flight is lost with it.
                        pair.broken |=
                            has(host, life) && (has(other, other_life) || pair.ends.len() < 2);
                    }
                }
                Event::Connected { port, .. } => {
                    let mut pairs = self.pairs.iter_mut();
                    pairs.find(|pair| first(pair, port)).expect("who asked").ends[0].alive = true;
                }
                Event::ConnectFailed { port, .. } => {
                    let mut pairs = self.pairs.iter_mut();
                    pairs.find(|pair| first(pair, port)).expect("who asked").failed = true;
                }
                _ => {}
            }
        }
        assert!(self.net.bytes_max() < BYTES_MAX, "{} bytes", self.net.bytes_max());
    }

    fn accept(&mut self) {
        for host in (0..self.listeners.len()).map(HostId) {
            for port in self.listeners[host.0].into_iter().flatten() {
                while let Some(Ok((port, peer))) =
                    self.net.with(host, |node, now| node.accept(now, port))
                {
                    let end = End::new(host, self.life(host), port, true);
                    let asked = self.pairs.iter_mut().find(|pair| {
                        let first = &pair.ends[0];
                        first.port == peer.port && first.host.0 == (peer.node.0 - 0x1000) as usize
                    });
                    let pair = asked.expect("an accepted connection must have been requested");
                    assert_eq!(pair.ends.len(), 1, "a request was accepted twice");
                    pair.ends.push(end);
                }
            }
        }
    }

    /// Sends a random amount of data on an end, or as much of it as the connection accepts.
    fn send(&mut self, index: usize, side: usize) {
        let len = match self.net.rng().random_range(0..10) {
            0 => self.net.rng().random_range(1..20_000),
            1..4 => self.net.rng().random_range(1..2_000),
            _ => self.net.rng().random_range(1..200),
        };
        let pair = &mut self.pairs[index];
        let (kind, end) = (pair.kind, &mut pair.ends[side]);
        // A message begins with its number; in a stream, the bytes themselves tell their position.
        let payload: Vec<u8> = match kind {
            SocketKind::Stream => (0..len).map(|n| byte(index, side, end.sent + n)).collect(),
            _ => {
                let number = end.sent.to_be_bytes();
                let filler = (0..len).map(|n| byte(index, side, end.sent + n));
                number.into_iter().chain(filler).collect()
            }
        };
        let port = end.port;
        match self.net.with(end.host, |node, now| node.send(now, port, None, &payload)) {
            Some(Ok(taken)) if kind == SocketKind::Stream => end.sent += taken as u64,
            Some(Ok(_)) => end.sent += 1,
            Some(Err(SocketError::WouldBlock)) => {}
            Some(Err(SocketError::Pipe | SocketError::ConnectionReset)) => {}
            other => panic!("send on {end:?}: {other:?}"),
        }
    }

    fn shut(&mut self, index: usize, side: usize) {
        let end = &mut self.pairs[index].ends[side];
        let port = end.port;
        if let Some(Ok(())) = self.net.with(end.host, |node, now| node.shutdown(now, port)) {
            (end.shut, end.alive) = (true, false);
        }
    }

    fn live_ends(&self) -> Vec<(usize, usize)> {
        let sides = |(n, pair): (usize, &Pair)| {
            let alive = pair.ends.iter().enumerate().filter(|(_, end)| end.alive);
            alive.map(|(side, _)| (n, side)).collect::<Vec<_>>()
        };
        self.pairs.iter().enumerate().flat_map(sides).collect()
    }

    /// Reads all data received and compares it with the data sent.
    fn receive(&mut self) {
        for (index, side) in self.live_ends() {
            let pair = &mut self.pairs[index];
            let (host, port) = (pair.ends[side].host, pair.ends[side].port);
            while let Some(result) = self.net.with(host, |node, now| node.recv(now, port, 1 << 20))
            {
                let at = pair.ends[side].received;
                match result {
                    Ok(m) if m.error == ErrorCode::Ok => {
                        let (taken, body) = match pair.kind {
                            SocketKind::Stream => (m.payload.len() as u64, &m.payload[..]),
                            _ => {
                                assert_eq!(m.payload[..8], at.to_be_bytes(), "{pair:?}");
                                (1, &m.payload[8..])
                            }
                        };
                        let right = (at..).zip(body).all(|(n, &b)| b == byte(index, 1 - side, n));
                        assert!(
                            right,
                            "the data differs from what was sent after byte {at}: {pair:?}"
                        );
                        pair.ends[side].received += taken;
                    }
                    Err(SocketError::WouldBlock) => break,
                    Ok(_) | Err(SocketError::ConnectionReset) => {
                        pair.ends[side].alive = false;
                        self.ended += 1;
                        let other = pair.ends.get(1 - side);
                        let (sent, shut) = other.map_or((0, false), |o| (o.sent, o.shut));
                        assert!(
                            pair.broken || shut,
                            "the connection ended without a reason: {pair:?}"
                        );
                        let all = pair.broken || pair.ends[side].received == sent;
                        assert!(all, "the connection ended before all data had arrived: {pair:?}");
                        break;
                    }
                    Err(error) => panic!("recv: {error}: {pair:?}"),
                }
            }
        }
    }

    fn trouble(&mut self) {
        let hosts = self.listeners.len();
        let host = HostId(self.net.rng().random_range(0..hosts));
        match self.net.rng().random_range(0..40) {
            0 => {
                let groups = (0..hosts).map(|_| self.net.rng().random_range(0..2)).collect();
                self.net.conditions.groups = groups;
            }
            1..8 => self.net.conditions.groups.clear(),
            8 if self.listeners[host.0].is_some() => self.crash(host),
            8..14 if self.listeners[host.0].is_none() => self.start(host),
            _ => {}
        }
    }

    fn round(&mut self) {
        let pause = self.net.rng().random_range(1..60);
        self.net.run(Duration::from_millis(pause));
        // Before received data is checked: gaps are allowed if contact broke in the meantime.
        self.watch();
        self.accept();
        self.receive();
    }

    fn run(mut self) -> (u64, u64) {
        for host in 0..self.listeners.len() {
            self.start(HostId(host));
        }
        for _ in 0..300 {
            self.round();
            if !self.calm {
                self.trouble();
            }
            if self.net.rng().random_bool(0.2) {
                self.connect();
            }
            for (index, side) in self.live_ends() {
                match self.net.rng().random_range(0..100) {
                    0 => self.shut(index, side),
                    1..40 => self.send(index, side),
                    _ => {}
                }
            }
        }
        self.heal()
    }

    /// Heals the network and checks every connection. Returns the number of connections that were accepted, and how
    /// many times the end of a connection was reported.
    fn heal(mut self) -> (u64, u64) {
        self.net.conditions = Conditions::default();
        for host in (0..self.listeners.len()).map(HostId) {
            if self.listeners[host.0].is_none() {
                self.start(host);
            }
        }
        (0..400).for_each(|_| self.round());
        // An end that sends learns whether the other end exists.
        for (index, side) in self.live_ends() {
            self.send(index, side);
        }
        (0..400).for_each(|_| self.round());
        let mut made = 0;
        for pair in &self.pairs {
            let [a, b] = &pair.ends[..] else {
                assert!(
                    !pair.ends[0].alive,
                    "the connection was never accepted, but its end is alive: {pair:?}"
                );
                continue;
            };
            made += 1;
            assert_eq!(a.alive, b.alive, "only one end of the connection is still alive: {pair:?}");
            let whole = |from: &End, to: &End| from.sent == to.received;
            assert!(!a.alive || (whole(a, b) && whole(b, a)), "some data did not arrive: {pair:?}");
            assert!(a.alive || pair.broken || pair.failed || a.shut || b.shut, "{pair:?}");
        }
        let broken = self.pairs.iter().filter(|pair| pair.broken).count();
        assert!(!self.calm || broken == 0, "contact was lost without a reason");
        (made, self.ended)
    }
}

#[test]
fn connections_are_whole_or_known_to_be_broken() {
    let histories = seeds::each("CONNECTIONS_SEEDS", 0..60, |seed| History::new(seed).run());
    let (made, ended) = histories.iter().fold((0, 0), |(m, e), h| (m + h.0, e + h.1));
    assert!(
        made > 10 * histories.len() as u64 && ended > made / 4,
        "only {made} connections were made, and {ended} ended"
    );
}
