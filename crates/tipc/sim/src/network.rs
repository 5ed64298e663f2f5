//! The simulated network: its media, its hosts with their clocks, and the order of events.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crossway_tipc_proto::crypto::{Keyring, OVERHEAD, Way};
use crossway_tipc_proto::limits::Limits;
use crossway_tipc_proto::node::{BearerConfig, Config, Destination, Event, Node, Transmit};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::Capabilities;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::cipher::Toy;
use crate::fragments::Memory;
use crate::{Conditions, Fragmentation, capture};

/// Index of a host in the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct HostId(pub usize);

/// A host: a node, its addresses on the media, and its clock.
#[derive(Debug)]
pub struct Host {
    /// The node; `None` while the host is down.
    pub node: Option<Node>,
    /// The keys of the node. Without any, frames are not encrypted.
    pub keyring: Keyring<Toy>,
    /// Number of times the host has been started.
    pub lives: u64,
    /// The host's address on each plane.
    media: Vec<MediaAddr>,
    /// Deviation of the host's clock, in parts per million.
    skew_ppm: i64,
    /// Reading of the host's clock at virtual time 0, in nanoseconds.
    offset: u64,
    /// Time of the host's next wake-up.
    wake_at: Option<Nanos>,
}

impl Host {
    fn local(&self, now: Nanos) -> Nanos {
        let deviation = (i128::from(now.0) * i128::from(self.skew_ppm) / 1_000_000) as i64;
        Nanos(self.offset.wrapping_add(now.0).wrapping_add_signed(deviation))
    }

    fn global(&self, local: Nanos) -> Nanos {
        let shown = i128::from(local.0.saturating_sub(self.offset));
        // Rounded up, so that a deadline has passed when its host is woken.
        Nanos((shown * 1_000_000 / i128::from(1_000_000 + self.skew_ppm)) as u64 + 2)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scheduled {
    Frame { plane: usize, from: HostId, to: HostId, bytes: Vec<u8> },
    Wake(HostId),
}

/// A medium shared by all hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plane {
    /// Largest frame, in bytes.
    pub mtu: usize,
    /// Priority of the links over this medium.
    pub priority: u8,
}

/// A network of hosts on one medium, or on several media (planes) that can fail separately.
#[derive(Debug)]
pub struct Network {
    now: Nanos,
    rng: Pcg64Mcg,
    hosts: Vec<Host>,
    /// The conditions on all media; may be changed at any time.
    pub conditions: Conditions,
    queue: BinaryHeap<Reverse<(Nanos, u64, Scheduled)>>,
    order: u64,
    planes: Vec<Plane>,
    /// How the media divide large frames; `None` if they do not. Must be set before the hosts are started.
    pub fragmentation: Option<Fragmentation>,
    /// The reassembly memory of each host.
    memory: Vec<Memory>,
    tolerance: Duration,
    /// Capabilities that nodes do not announce if they are started from now on.
    pub withheld: Capabilities,
    /// Limits of nodes that are started from now on.
    pub limits: Limits,
    /// Number of frames sent by all hosts so far; a broadcast counts once.
    pub frames: u64,
    /// Whether every frame sent is written to the thread's capture file.
    captured: bool,
    /// A list to which every frame sent is appended; `None` to record nothing.
    pub record: Option<Vec<Vec<u8>>>,
    /// A function that may modify each frame on its way to a host; `None` for no changes. If it empties a frame, the
    /// frame is lost.
    pub meddler: Option<fn(HostId, &mut Vec<u8>)>,
    /// A function that gives a node its keys when it is started; with one, packets leave room for encryption. `None` for no
    /// keys.
    pub keys: Option<fn(HostId, &mut Keyring<Toy>, Nanos)>,
    events: Vec<(HostId, Event)>,
}

impl Network {
    /// Creates a network of this number of hosts, all down, on one medium. `mtu` is the MTU of the medium in bytes,
    /// `tolerance` the tolerance of all links.
    pub fn new(seed: u64, hosts: usize, mtu: usize, tolerance: Duration) -> Self {
        Self::with_planes(seed, hosts, &[Plane { mtu, priority: 10 }], tolerance)
    }

    /// Creates a network of this number of hosts, all down, each of which has a bearer on each of these planes.
    pub fn with_planes(seed: u64, hosts: usize, planes: &[Plane], tolerance: Duration) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let host = |n: usize, rng: &mut Pcg64Mcg| Host {
            node: None,
            keyring: Keyring::new(Toy::new(0)),
            lives: 0,
            media: (0..planes.len() as u8)
                .map(|plane| MediaAddr::Ethernet([2, 0, 0, plane, (n >> 8) as u8, n as u8]))
                .collect(),
            skew_ppm: rng.random_range(-500..=500),
            offset: rng.random_range(0..1 << 40),
            wake_at: None,
        };
        let memory = (0..hosts).map(|_| Memory::default()).collect();
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
            fragmentation: None,
            memory,
            tolerance,
            withheld: Capabilities::default(),
            limits: Limits::default(),
            frames: 0,
            captured: capture::is_open(),
            record: None,
            meddler: None,
            keys: None,
            events,
        }
    }

    /// The current virtual time. Only [`Network::run`] and [`Network::step`] advance it.
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// The network's random number generator. Tests use it to generate traffic, too.
    pub const fn rng(&mut self) -> &mut Pcg64Mcg {
        &mut self.rng
    }

    /// The hosts in the order of their numbers, including those whose node is not running.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The address of a host. It stays the same when the host is restarted, so that the new incarnation encounters
    /// frames and state of the earlier one.
    pub fn addr(&self, host: HostId) -> NodeAddr {
        NodeAddr(0x1000 + host.0 as u32)
    }

    /// Starts a host that is down, as a new incarnation of the same node. If `trial` is set, the node tries its address
    /// before it adopts it; otherwise it adopts the address immediately.
    pub fn start(&mut self, host: HostId, trial: bool) {
        let seed = self.rng.random();
        let addr = (!trial).then(|| self.addr(host));
        // An identity from which the address above is derived, so that the trial ends with it unless another node objects.
        let mut id = [0; 16];
        id[12..].copy_from_slice(&self.addr(host).0.to_be_bytes());
        let id = Some(NodeId(id));
        let (withheld, limits) = (self.withheld, self.limits);
        let mut node = Node::new(Config { id, addr, seed, withheld, limits, ..Config::default() });
        let h = &mut self.hosts[host.0];
        let local = h.local(self.now);
        h.keyring = Keyring::new(Toy::new(seed));
        if let Some(keys) = self.keys {
            keys(host, &mut h.keyring, local);
        }
        let room = if self.keys.is_some() { OVERHEAD } else { 0 };
        for (n, plane) in self.planes.iter().enumerate() {
            let mut cfg = BearerConfig::new(&format!("sim{n}"), h.media[n], plane.mtu - room);
            (cfg.tolerance, cfg.priority) = (self.tolerance, plane.priority);
            cfg.whole_max = self.fragmentation.map_or(plane.mtu, |rules| rules.whole_max) - room;
            node.enable_bearer(local, cfg).expect("the node accepts a bearer on each plane");
        }
        h.lives += 1;
        h.node = Some(node);
        self.after(host);
    }

    /// Stops a host abruptly, like a crash.
    pub fn crash(&mut self, host: HostId) {
        self.hosts[host.0].node = None;
        self.hosts[host.0].wake_at = None;
    }

    /// Runs a function on a node and sends the resulting frames. Returns `None` if the host is down.
    pub fn with<R>(&mut self, host: HostId, f: impl FnOnce(&mut Node, Nanos) -> R) -> Option<R> {
        let local = self.hosts[host.0].local(self.now);
        let result = self.hosts[host.0].node.as_mut().map(|node| f(node, local));
        self.after(host);
        result
    }

    /// Runs a function on a node's keys and sends the resulting frames.
    pub fn with_keys<R>(
        &mut self,
        host: HostId,
        f: impl FnOnce(&mut Keyring<Toy>, Nanos) -> R,
    ) -> R {
        let local = self.hosts[host.0].local(self.now);
        let result = f(&mut self.hosts[host.0].keyring, local);
        self.after(host);
        result
    }

    /// Removes and returns the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<(HostId, Event)> {
        core::mem::take(&mut self.events)
    }

    fn push(&mut self, at: Nanos, what: Scheduled) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, what)));
    }

    /// Sends a host's pending frames, collects its events and sets its wake-up time.
    fn after(&mut self, host: HostId) {
        let mut frame = Vec::new();
        loop {
            let h = &mut self.hosts[host.0];
            let local = h.local(self.now);
            let Some(node) = &mut h.node else { return };
            while let Some(event) = node.poll_event() {
                self.events.push((host, event));
            }
            while let Some(key) = h.keyring.poll_distribution() {
                node.send_key(&key);
            }
            let Some(transmit) = node.poll_transmit(local, &mut frame) else { break };
            for way in h.keyring.ways(local, transmit.peer, &frame) {
                let mut bytes = frame.clone();
                let h = &mut self.hosts[host.0];
                match way {
                    Way::Plain => {}
                    Way::Sealed(slot) if h.keyring.seal(slot, transmit.peer, &mut bytes) => {}
                    Way::Sealed(_) => continue,
                }
                self.send(host, transmit, &bytes);
            }
        }
        let h = &mut self.hosts[host.0];
        let deadlines = [h.node.as_ref().and_then(Node::poll_timeout), h.keyring.poll_timeout()];
        let next = if h.node.is_some() { deadlines.into_iter().flatten().min() } else { None };
        let at = next.map(|t| h.global(t).max(self.now));
        if at != h.wake_at
            && let Some(at) = at
        {
            h.wake_at = Some(at);
            self.push(at, Scheduled::Wake(host));
        }
    }

    /// Sends a frame to all stations that it is for.
    fn send(&mut self, host: HostId, transmit: Transmit, frame: &[u8]) {
        self.frames += 1;
        if let Some(record) = &mut self.record {
            record.push(frame.to_vec());
        }
        let plane = usize::from(transmit.bearer.0);
        if self.captured {
            let to = match transmit.dest {
                Destination::Broadcast => None,
                Destination::Unicast(media) => Some(media),
            };
            capture::add(self.now, self.hosts[host.0].media[plane], to, frame);
        }
        let mtu = self.planes[plane].mtu;
        assert!(
            frame.len() <= mtu,
            "a node sends a frame of {} bytes on a medium with an MTU of {mtu}",
            frame.len()
        );
        for to in 0..self.hosts.len() {
            let addressed = match transmit.dest {
                Destination::Broadcast => true,
                Destination::Unicast(media) => self.hosts[to].media[plane] == media,
            };
            if addressed && to != host.0 {
                self.carry(plane, host, HostId(to), frame);
            }
        }
    }

    /// Returns whether a frame of this length, with all of its fragments, reaches a host.
    fn arrives(&mut self, to: HostId, len: usize, loss_per_mille: u32) -> bool {
        let mut is_lost = || self.rng.random_range(0..1000) < loss_per_mille;
        match &self.fragmentation {
            Some(rules) if len > rules.whole_max => {
                let fragments = len.div_ceil(rules.whole_max);
                let lost = (0..fragments).filter(|_| is_lost()).count();
                self.memory[to.0].reassemble(self.now, rules, fragments, lost)
            }
            _ => !is_lost(),
        }
    }

    fn carry(&mut self, plane: usize, from: HostId, to: HostId, frame: &[u8]) {
        let c = &self.conditions;
        if c.is_cut(plane, from, to) || !self.arrives(to, frame.len(), c.loss_per_mille) {
            return;
        }
        let c = &self.conditions;
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
                self.push(at, Scheduled::Frame { plane, from, to, bytes });
            }
        }
    }

    /// Lets a frame arrive at a host, as if it came from another one. Frames in flight to an earlier incarnation reach the
    /// current one, as on a real medium.
    pub fn deliver(&mut self, plane: usize, from: HostId, to: HostId, mut bytes: Vec<u8>) {
        let (source, bearer) = (Some(self.hosts[from.0].media[plane]), BearerId(plane as u8));
        let h = &mut self.hosts[to.0];
        let local = h.local(self.now);
        let Some(node) = &mut h.node else { return };
        match h.keyring.open(local, node, &mut bytes) {
            Ok((frame, true)) => node.handle_sealed(local, bearer, source, frame),
            Ok((frame, false)) => node.handle_frame(local, bearer, source, frame),
            Err(reason) => node.refuse_frame(local, bearer, source, reason),
        }
        while let Some((from, key)) = node.poll_key() {
            if let Err(reason) = h.keyring.take_key(from, &key) {
                node.refuse_key(reason);
            }
        }
        self.after(to);
    }

    /// Processes the next event if it is due at or before `until`, and returns true. Otherwise advances the virtual
    /// time to `until` and returns false.
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
            Scheduled::Frame { plane, from, to, bytes } => self.deliver(plane, from, to, bytes),
            Scheduled::Wake(host) => {
                let h = &mut self.hosts[host.0];
                // The wake-up was rescheduled in the meantime.
                if h.wake_at != Some(at) {
                    return true;
                }
                h.wake_at = None;
                let local = h.local(self.now);
                if let Some(node) = &mut h.node {
                    node.handle_timeout(local);
                    h.keyring.handle_timeout(local);
                    self.after(host);
                }
            }
        }
        true
    }

    /// Advances the virtual time by `time`, and processes all events that become due.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// Largest number of bytes that any node has in its queues.
    pub fn bytes_max(&self) -> usize {
        self.hosts.iter().filter_map(|h| h.node.as_ref()).map(Node::held_bytes).max().unwrap_or(0)
    }
}
