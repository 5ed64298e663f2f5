//! Tests of the ends of connections, with data, acknowledgements, shutdowns and closes in any order. If its peer shut
//! the connection down, an end is notified once, after all data. If its peer closed the socket, it gets a reset after
//! all data. No later event changes what has been reported.
//!
//! By default, the first 200 seeds are used; set the environment variable `ENDS_SEEDS=first..last` to use others.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{Conditions, HostId, Network, Plane, seeds};
use rand::RngExt;

const KINDS: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];
/// Number of connections in a run, for each kind of socket and from each host.
const CONNECTIONS: usize = 4;

/// What an end does after it has sent all its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Read until the other end has ended the connection.
    Stay,
    /// Shut down, and close this number of turns later (0: immediately).
    Shut(u32),
    Close,
}

/// How an end was notified that the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Shutdown,
    Reset,
}

#[derive(Debug)]
struct End {
    host: HostId,
    port: Port,
    to_send: usize,
    /// Maximum length of a message in bytes.
    longest: usize,
    sent: usize,
    received: usize,
    plan: Plan,
    /// In how many of ten turns this end reads.
    reads: u32,
    /// Whether this end has shut down or closed.
    over: bool,
    /// Whether this end has shut down, instead of only closing its socket.
    shut: bool,
    closed: bool,
    told: Option<Told>,
}

impl End {
    /// Whether this end will do nothing more.
    fn is_done(&self, other: &Self) -> bool {
        match self.plan {
            Plan::Stay if other.plan == Plan::Stay => self.received == other.to_send,
            Plan::Stay => self.told.is_some(),
            _ => self.closed,
        }
    }
}

/// The byte expected at position `at` of the data that an end sends.
const fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8
}

struct History {
    net: Network,
    /// Whether both ends of each connection are on one host.
    is_local: bool,
    ends: Vec<[End; 2]>,
}

impl History {
    fn new(seed: u64) -> Self {
        // A small MTU makes most messages fragmented; with two planes, each carries half of the ports.
        let mtu = [1500, 300, 9000][seed as usize % 3];
        let plane = Plane { mtu, priority: 10 };
        let planes = if seed.is_multiple_of(2) { vec![plane] } else { vec![plane, plane] };
        let mut net = Network::with_planes(seed, 2, &planes, Duration::from_millis(1500));
        (0..2).for_each(|host| net.start(HostId(host), false));
        net.run(Duration::from_secs(1));
        let delay_min = Duration::from_micros(net.rng().random_range(20..500));
        net.conditions = Conditions {
            loss_per_mille: [0, 0, 10, 50][seed as usize / 6 % 4],
            duplicate_per_mille: net.rng().random_range(0..50),
            delay_min,
            delay_max: delay_min + Duration::from_micros(net.rng().random_range(0..3_000)),
            ..Conditions::default()
        };
        Self { net, is_local: seed.is_multiple_of(5), ends: Vec::new() }
    }

    fn connect(&mut self) {
        let listeners: Vec<_> = (0..2)
            .map(HostId)
            .map(|host| {
                let opened = self.net.with(host, |node, _| {
                    KINDS.map(|kind| {
                        let port = node.open(kind).unwrap();
                        node.listen(port).unwrap();
                        let range = ServiceRange::single(1000 + kind as u32, host.0 as u32);
                        node.bind(port, range, Scope::Cluster).unwrap();
                        port
                    })
                });
                opened.unwrap()
            })
            .collect();
        self.net.run(Duration::from_secs(1));
        for n in 0..CONNECTIONS {
            let (kind, from) = (n % 2, n / 2);
            let to = HostId(if self.is_local { from } else { 1 - from });
            let from = HostId(from);
            let service = 1000 + KINDS[kind] as u32;
            let instance = to.0 as u32;
            let dest = Address::Service { service, instance, domain: NodeAddr(0) };
            let port = self.net.with(from, |node, now| {
                let port = node.open(KINDS[kind]).unwrap();
                let asked = node.connect(now, port, Some(dest), &[]);
                assert_eq!(asked, Err(SocketError::InProgress));
                port
            });
            let mut accepted = None;
            for _ in 0..1_000 {
                self.net.run(Duration::from_millis(10));
                let outcome =
                    self.net.with(to, |node, now| node.accept(now, listeners[to.0][kind]));
                match outcome.unwrap() {
                    Err(SocketError::WouldBlock) => {}
                    other => {
                        accepted = Some(other.unwrap().0);
                        break;
                    }
                }
            }
            let ends = [(from, port.unwrap()), (to, accepted.expect("a request arrives"))];
            let ends = ends.map(|(host, port)| self.end(host, port));
            self.ends.push(ends);
        }
        self.net.run(Duration::from_secs(1));
    }

    fn end(&mut self, host: HostId, port: Port) -> End {
        let rng = self.net.rng();
        let plan = match rng.random_range(0..10) {
            0..3 => Plan::Stay,
            3..6 => Plan::Shut(0),
            6..9 => Plan::Shut(rng.random_range(0..20)),
            _ => Plan::Close,
        };
        // Windows are counted in messages of up to a block.
        let most = [0, 300, 5_000, 5_000, 5_000, 5_000, 5_000, 200_000][rng.random_range(0..8)];
        let to_send = rng.random_range(0..=most);
        let reads = rng.random_range(1..=10);
        End {
            host,
            port,
            to_send,
            sent: 0,
            received: 0,
            longest: if most < 10_000 { 40 } else { 20_000 },
            plan,
            reads,
            over: false,
            shut: false,
            closed: false,
            told: None,
        }
    }

    fn send(&mut self, n: usize, side: usize) {
        let end = &mut self.ends[n][side];
        while !end.over && end.sent < end.to_send {
            let most = (end.to_send - end.sent).min(end.longest);
            let len = self.net.rng().random_range(1..=most);
            let payload: Vec<u8> = (end.sent..end.sent + len).map(byte).collect();
            let port = end.port;
            match self.net.with(end.host, |node, now| node.send(now, port, None, &payload)).unwrap()
            {
                Ok(taken) => end.sent += taken,
                Err(SocketError::WouldBlock) => return,
                // The other end has ended the connection.
                Err(SocketError::Pipe) => end.to_send = end.sent,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn receive(&mut self, n: usize, side: usize) {
        loop {
            let end = &mut self.ends[n][side];
            if end.over {
                return;
            }
            let port = end.port;
            match self.net.with(end.host, |node, now| node.recv(now, port, 66_000)).unwrap() {
                Ok(m) if m.error == ErrorCode::Ok => {
                    assert_eq!(end.told, None, "data arrived after the end of the connection");
                    let right = (end.received..).zip(&m.payload).all(|(at, b)| *b == byte(at));
                    assert!(right && !m.payload.is_empty());
                    end.received += m.payload.len();
                }
                Ok(m) => {
                    assert_eq!((m.error, end.told), (ErrorCode::ConnShutdown, None), "once");
                    end.told = Some(Told::Shutdown);
                }
                Err(SocketError::ConnectionReset) => {
                    assert_ne!(
                        end.told,
                        Some(Told::Shutdown),
                        "a reset was reported after an orderly end"
                    );
                    end.told = Some(Told::Reset);
                    return;
                }
                Err(SocketError::WouldBlock) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn act(&mut self, n: usize, side: usize) {
        let end = &mut self.ends[n][side];
        let (host, port) = (end.host, end.port);
        let ready = end.sent == end.to_send;
        match end.plan {
            Plan::Shut(_) if ready && !end.over => {
                (end.over, end.shut) = (true, true);
                self.net.with(host, |node, now| node.shutdown(now, port)).unwrap().unwrap();
                if end.plan == Plan::Shut(0) {
                    end.closed = true;
                    self.net.with(host, |node, now| node.close(now, port)).unwrap().unwrap();
                }
            }
            Plan::Shut(turns) if end.shut && !end.closed => {
                if turns > 1 {
                    end.plan = Plan::Shut(turns - 1);
                } else {
                    end.closed = true;
                    self.net.with(host, |node, now| node.close(now, port)).unwrap().unwrap();
                }
            }
            Plan::Close if ready && !end.over => {
                (end.over, end.closed) = (true, true);
                self.net.with(host, |node, now| node.close(now, port)).unwrap().unwrap();
            }
            _ => {}
        }
    }

    fn run(mut self) -> usize {
        self.connect();
        for turn in 0..6_000 {
            let pause = self.net.rng().random_range(0..2_000);
            self.net.run(Duration::from_micros(pause));
            let mut done = true;
            for (n, side) in (0..CONNECTIONS).flat_map(|n| [(n, 0), (n, 1)]) {
                if self.net.rng().random_bool(0.5) {
                    self.send(n, side);
                }
                // Finally, every end reads.
                let reads = self.net.rng().random_range(0..10) < self.ends[n][side].reads;
                if reads || turn > 3_000 {
                    self.receive(n, side);
                }
                if self.net.rng().random_bool(0.3) {
                    self.act(n, side);
                }
                done &= self.ends[n][side].is_done(&self.ends[n][1 - side]);
            }
            if done {
                break;
            }
        }
        for ends in &mut self.ends {
            // The ends that stay have read everything available.
            for end in ends.iter_mut().filter(|end| !end.closed) {
                let port = end.port;
                self.net.with(end.host, |node, now| node.close(now, port)).unwrap().unwrap();
            }
        }
        self.net.run(Duration::from_millis(200));
        self.ends.iter().map(judge).sum()
    }
}

/// Compares what each end was notified of with what the other end did. Returns the number of orderly ends.
fn judge(ends: &[End; 2]) -> usize {
    let mut orderly = 0;
    for side in 0..2 {
        let (end, other) = (&ends[side], &ends[1 - side]);
        if end.over {
            continue;
        }
        match end.told {
            Some(Told::Shutdown) => {
                assert!(other.shut, "{ends:?}");
                orderly += 1;
            }
            Some(Told::Reset) => assert!(!other.shut && other.over, "{ends:?}"),
            None => {
                assert!(!other.over, "an end was not notified that the connection ended: {ends:?}")
            }
        }
        if other.over {
            assert_eq!(end.received, other.sent, "{ends:?}");
        }
    }
    orderly
}

#[test]
fn an_end_is_reported_with_its_cause_after_all_data() {
    let orderly: usize =
        seeds::each("ENDS_SEEDS", 0..200, |seed| History::new(seed).run()).into_iter().sum();
    assert!(orderly > 0);
    println!("{orderly} orderly ends");
}
