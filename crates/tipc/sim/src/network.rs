//! The medium, the clocks and the order of things.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crossway_tipc_proto::node::{BearerConfig, Config, Destination, Event, Node};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::Capabilities;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Conditions, capture};

/// A host of the network, by its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct HostId(pub usize);

/// A host: a node, its place on the medium and its clock.
#[derive(Debug)]
pub struct Host {
    /// The node; `None` while the host is down.
    pub node: Option<Node>,
    /// How often it was started.
    pub lives: u64,
    /// Its address on each plane.
    media: Vec<MediaAddr>,
    /// Its clock's deviation, in millionths.
    skew_ppm: i64,
    /// What its clock shows at time 0.
    offset: u64,
    /// When it is woken next.
    wake_at: Option<Nanos>,
}

impl Host {
    fn local(&self, now: Nanos) -> Nanos {
        let deviation = (i128::from(now.0) * i128::from(self.skew_ppm) / 1_000_000) as i64;
        Nanos(self.offset.wrapping_add(now.0).wrapping_add_signed(deviation))
    }

    fn global(&self, local: Nanos) -> Nanos {
        let shown = i128::from(local.0.saturating_sub(self.offset));
        // Rounded up, so that a deadline is past when its host is woken.
        Nanos((shown * 1_000_000 / i128::from(1_000_000 + self.skew_ppm)) as u64 + 2)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happening {
    Frame { plane: usize, to: HostId, bytes: Vec<u8> },
    Wake(HostId),
}

/// A medium that all hosts share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plane {
    /// Largest frame, in octets.
    pub mtu: usize,
    /// Priority of the links over it.
    pub priority: u8,
}

/// Nodes on one medium, or on several that fail one by one.
#[derive(Debug)]
pub struct Network {
    now: Nanos,
    rng: Pcg64Mcg,
    hosts: Vec<Host>,
    /// How hostile the medium is, from now on.
    pub conditions: Conditions,
    queue: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    order: u64,
    planes: Vec<Plane>,
    tolerance: Duration,
    /// Capabilities that the nodes started from now on do not announce.
    pub withheld: Capabilities,
    /// Frames sent by all hosts so far; a broadcast counts once.
    pub frames: u64,
    /// Every frame sent goes into the thread's capture file.
    captured: bool,
    /// When it is there, every frame sent is added to it.
    pub record: Option<Vec<Vec<u8>>>,
    /// When it is there, it may change each frame on its way to a host; one that it empties is lost.
    pub meddler: Option<fn(HostId, &mut Vec<u8>)>,
    events: Vec<(HostId, Event)>,
}

impl Network {
    /// So many hosts, all down. `mtu` is the medium's, `tolerance` that of all links.
    pub fn new(seed: u64, hosts: usize, mtu: usize, tolerance: Duration) -> Self {
        Self::with_planes(seed, hosts, &[Plane { mtu, priority: 10 }], tolerance)
    }

    /// So many hosts, all down, with a bearer on each of these planes.
    pub fn with_planes(seed: u64, hosts: usize, planes: &[Plane], tolerance: Duration) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let host = |n: usize, rng: &mut Pcg64Mcg| Host {
            node: None,
            lives: 0,
            media: (0..planes.len() as u8)
                .map(|plane| MediaAddr::Ethernet([2, 0, 0, plane, (n >> 8) as u8, n as u8]))
                .collect(),
            skew_ppm: rng.random_range(-500..=500),
            offset: rng.random_range(0..1 << 40),
            wake_at: None,
        };
        let hosts = (0..hosts).map(|n| host(n, &mut rng)).collect();
        let (queue, events) = (BinaryHeap::new(), Vec::new());
        let conditions = Conditions::default();
        Self {
            now: Nanos(0),
            rng,
            hosts,
            conditions,
            queue,
            order: 0,
            planes: planes.to_vec(),
            tolerance,
            withheld: Capabilities::default(),
            frames: 0,
            captured: capture::is_open(),
            record: None,
            meddler: None,
            events,
        }
    }

    /// Virtual time.
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// The network's source of chance, for the traffic on it.
    pub const fn rng(&mut self) -> &mut Pcg64Mcg {
        &mut self.rng
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The address that host `n` uses: fixed, so that a restart meets its own past.
    pub fn addr(&self, host: HostId) -> NodeAddr {
        NodeAddr(0x1000 + host.0 as u32)
    }

    /// Starts a host that is down, as a new life of the same node. `trial` lets it try its address instead of owning it at once.
    pub fn start(&mut self, host: HostId, trial: bool) {
        let seed = self.rng.random();
        let addr = (!trial).then(|| self.addr(host));
        // An identity whose address is the one above, so that the trial ends with it unless somebody objects.
        let mut id = [0; 16];
        id[12..].copy_from_slice(&self.addr(host).0.to_be_bytes());
        let id = Some(NodeId(id));
        let mut node =
            Node::new(Config { id, addr, seed, withheld: self.withheld, ..Config::default() });
        let h = &mut self.hosts[host.0];
        let local = h.local(self.now);
        for (n, plane) in self.planes.iter().enumerate() {
            let mut cfg = BearerConfig::new(&format!("sim{n}"), h.media[n], plane.mtu);
            (cfg.tolerance, cfg.priority) = (self.tolerance, plane.priority);
            node.enable_bearer(local, cfg).expect("a bearer on each plane is accepted");
        }
        h.lives += 1;
        h.node = Some(node);
        self.after(host);
    }

    /// Stops a host without a word, as a crash does.
    pub fn crash(&mut self, host: HostId) {
        self.hosts[host.0].node = None;
        self.hosts[host.0].wake_at = None;
    }

    /// Does something with a node that is up; what it sends goes out. `None` when it is down.
    pub fn with<R>(&mut self, host: HostId, f: impl FnOnce(&mut Node, Nanos) -> R) -> Option<R> {
        let local = self.hosts[host.0].local(self.now);
        let result = self.hosts[host.0].node.as_mut().map(|node| f(node, local));
        self.after(host);
        result
    }

    /// The events since the last call, in the order in which they happened.
    pub fn take_events(&mut self) -> Vec<(HostId, Event)> {
        core::mem::take(&mut self.events)
    }

    fn push(&mut self, at: Nanos, what: Happening) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, what)));
    }

    /// Sends what a host has to send, collects its events and sets its alarm.
    fn after(&mut self, host: HostId) {
        let mut frame = Vec::new();
        loop {
            let h = &mut self.hosts[host.0];
            let local = h.local(self.now);
            let Some(node) = &mut h.node else { return };
            while let Some(event) = node.poll_event() {
                self.events.push((host, event));
            }
            let Some(transmit) = node.poll_transmit(local, &mut frame) else { break };
            self.frames += 1;
            if let Some(record) = &mut self.record {
                record.push(frame.clone());
            }
            let plane = usize::from(transmit.bearer.0);
            if self.captured {
                let to = match transmit.dest {
                    Destination::Broadcast => None,
                    Destination::Unicast(media) => Some(media),
                };
                capture::add(self.now, self.hosts[host.0].media[plane], to, &frame);
            }
            let mtu = self.planes[plane].mtu;
            assert!(frame.len() <= mtu, "a frame of {} octets on a medium of {mtu}", frame.len());
            for to in 0..self.hosts.len() {
                let addressed = match transmit.dest {
                    Destination::Broadcast => true,
                    Destination::Unicast(media) => self.hosts[to].media[plane] == media,
                };
                if addressed && to != host.0 {
                    self.carry(plane, host, HostId(to), &frame);
                }
            }
        }
        let h = &mut self.hosts[host.0];
        let at = h.node.as_ref().and_then(Node::poll_timeout).map(|t| h.global(t).max(self.now));
        if at != h.wake_at
            && let Some(at) = at
        {
            h.wake_at = Some(at);
            self.push(at, Happening::Wake(host));
        }
    }

    fn carry(&mut self, plane: usize, from: HostId, to: HostId, frame: &[u8]) {
        let c = &self.conditions;
        if c.is_cut(plane, from, to) || self.rng.random_range(0..1000) < c.loss_per_mille {
            return;
        }
        let copies = 1 + u32::from(self.rng.random_range(0..1000) < c.duplicate_per_mille);
        let (min, max) = (c.delay_min, c.delay_max);
        for _ in 0..copies {
            let nanos = self.rng.random_range(min.as_nanos() as u64..=max.as_nanos() as u64);
            let at = self.now + Duration::from_nanos(nanos);
            let mut bytes = frame.to_vec();
            if let Some(meddle) = self.meddler {
                meddle(to, &mut bytes);
            }
            if !bytes.is_empty() {
                self.push(at, Happening::Frame { plane, to, bytes });
            }
        }
    }

    /// Lets the next thing happen if it happens before `until`. Otherwise moves the clock there and returns false.
    pub fn step(&mut self, until: Nanos) -> bool {
        match self.queue.peek() {
            Some(Reverse((at, ..))) if *at <= until => {}
            _ => {
                self.now = self.now.max(until);
                return false;
            }
        }
        let Some(Reverse((at, _, what))) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        match what {
            Happening::Frame { plane, to, bytes } => {
                let h = &mut self.hosts[to.0];
                let local = h.local(self.now);
                // What was on its way to an earlier life reaches the present one, as on a real medium.
                if let Some(node) = &mut h.node {
                    node.handle_frame(local, BearerId(plane as u8), &bytes);
                    self.after(to);
                }
            }
            Happening::Wake(host) => {
                let h = &mut self.hosts[host.0];
                // An alarm that was moved meanwhile.
                if h.wake_at != Some(at) {
                    return true;
                }
                h.wake_at = None;
                let local = h.local(self.now);
                if let Some(node) = &mut h.node {
                    node.handle_timeout(local);
                    self.after(host);
                }
            }
        }
        true
    }

    /// Lets everything happen that happens within `time`.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// Octets that the fullest node holds.
    pub fn octets_max(&self) -> usize {
        self.hosts.iter().filter_map(|h| h.node.as_ref()).map(Node::octets).max().unwrap_or(0)
    }
}
