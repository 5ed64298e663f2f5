//! The topology service: a socket of the node's own that tells its subscribers who binds what, and which nodes and links are there.
//!
//! It is bound to {1, 1} with node scope and speaks the kernel's protocol: 28 octets of subscription in, 48 octets of event out, integers
//! in the byte order of the request.

use super::Node;
use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::limits::{SUBSCRIBER_EVENTS_MAX, SUBSCRIPTIONS_MAX};
use crate::name_table::Binding;
use crate::socket::{SocketError, SocketKind};
use crate::time::Nanos;
use crate::wire::ErrorCode;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

/// The service's own name.
pub(super) const TOPOLOGY_SERVICE: u32 = 1;
/// Service type of the states of links.
pub(super) const LINK_STATE_SERVICE: u32 = 2;

const SUBSCRIPTION_LEN: usize = 28;
const EVENT_LEN: usize = 48;

const FILTER_PORTS: u32 = 1;
const FILTER_SERVICE: u32 = 2;
const FILTER_CANCEL: u32 = 4;
const FOREVER: u32 = u32::MAX;

/// What an event says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Published = 1,
    Withdrawn = 2,
    Timeout = 3,
}

/// A subscription, and the octets it came in, which every event repeats.
#[derive(Clone, Debug)]
struct Subscription {
    raw: [u8; SUBSCRIPTION_LEN],
    little_endian: bool,
    range: ServiceRange,
    timeout_ms: u32,
    filter: u32,
    until: Option<Nanos>,
}

impl Subscription {
    fn parse(raw: [u8; SUBSCRIPTION_LEN]) -> Self {
        let octets = |n: usize| [raw[4 * n], raw[4 * n + 1], raw[4 * n + 2], raw[4 * n + 3]];
        // The order in which the filter has one of its low bits is the sender's.
        let little_endian = u32::from_le_bytes(octets(4)) & 7 != 0;
        let word = |n| {
            if little_endian {
                u32::from_le_bytes(octets(n))
            } else {
                u32::from_be_bytes(octets(n))
            }
        };
        let range = ServiceRange { service: word(0), lower: word(1), upper: word(2) };
        Self { raw, little_endian, range, timeout_ms: word(3), filter: word(4), until: None }
    }

    fn is_legal(&self) -> bool {
        self.range.is_valid()
            && self.filter & (FILTER_PORTS | FILTER_SERVICE) != FILTER_PORTS | FILTER_SERVICE
    }

    /// Whether the other one cancels this one: the same octets but for the cancel bit.
    fn is_cancelled_by(&self, other: &Self) -> bool {
        let same = |n| self.raw[n] == other.raw[n];
        self.filter == other.filter & !FILTER_CANCEL
            && (0..16).chain(20..SUBSCRIPTION_LEN).all(same)
    }

    fn event(&self, what: What, lower: u32, upper: u32, socket: SocketAddr) -> [u8; EVENT_LEN] {
        let mut event = [0; EVENT_LEN];
        let words = [what as u32, lower, upper, socket.port.0, socket.node.0];
        for (place, word) in event.chunks_exact_mut(4).zip(words) {
            let octets = if self.little_endian { word.to_le_bytes() } else { word.to_be_bytes() };
            place.copy_from_slice(&octets);
        }
        event[EVENT_LEN - SUBSCRIPTION_LEN..].copy_from_slice(&self.raw);
        event
    }
}

/// A change of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    published: bool,
    binding: Binding,
    /// The first binding of its exact range came, or the last one went.
    range_changed: bool,
}

#[derive(Clone, Debug, Default)]
struct Subscriber {
    subscriptions: BTreeMap<u64, Subscription>,
    unsent: VecDeque<[u8; EVENT_LEN]>,
}

/// The service's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Topology {
    listener: Port,
    subscribers: BTreeMap<Port, Subscriber>,
    /// Subscriptions by service type.
    index: BTreeMap<u32, BTreeSet<(Port, u64)>>,
    timers: BTreeSet<(Nanos, Port, u64)>,
    next_id: u64,
    ready: VecDeque<Port>,
    news: VecDeque<News>,
}

impl Topology {
    /// Takes note of a socket's readiness if it is one of the service's.
    pub(super) fn take_ready(&mut self, port: Port) -> bool {
        let ours = port == self.listener || self.subscribers.contains_key(&port);
        if ours {
            self.ready.push_back(port);
        }
        ours
    }

    pub(super) fn owns(&self, port: Port) -> bool {
        port == self.listener || self.subscribers.contains_key(&port)
    }

    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, ..)| *at)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.news.is_empty()
    }

    fn forget(&mut self, port: Port, id: u64, subscription: &Subscription) {
        if let Some(set) = self.index.get_mut(&subscription.range.service) {
            set.remove(&(port, id));
            if set.is_empty() {
                self.index.remove(&subscription.range.service);
            }
        }
        if let Some(at) = subscription.until {
            self.timers.remove(&(at, port, id));
        }
    }
}

impl Node {
    /// Opens the service. Part of a node's birth, when there is room for a socket and a binding.
    pub(super) fn open_topology(&mut self) {
        let Ok(port) = self.open(SocketKind::Seqpacket) else { return };
        if self.listen(port).is_err() {
            return;
        }
        let range = ServiceRange::single(TOPOLOGY_SERVICE, TOPOLOGY_SERVICE);
        let socket = SocketAddr { port, node: self.own() };
        let _ = self.names.insert(Binding { range, socket, key: port.0, scope: Scope::Node });
        self.topology.listener = port;
    }

    /// The table has changed: tells the caller, and whoever subscribed.
    pub(super) fn announce(&mut self, published: bool, binding: Binding) {
        let left = self.names.count_of_range(binding.range);
        let range_changed = left == usize::from(published);
        self.topology.news.push_back(News { published, binding, range_changed });
        self.events.push_back(if published {
            super::Event::Published(binding)
        } else {
            super::Event::Withdrawn(binding)
        });
    }

    /// A socket has changed: tells the caller, unless it is one of the service's.
    pub(super) fn socket_changed(&mut self, port: Port) {
        if !self.topology.take_ready(port) {
            self.events.push_back(super::Event::SocketReady(port));
        }
    }

    /// Does one piece of the service's work.
    pub(super) fn serve_topology(&mut self, now: Nanos) {
        if let Some(port) = self.topology.ready.pop_front() {
            if port == self.topology.listener {
                while let Ok((new, _)) = self.accept(now, port) {
                    self.topology.subscribers.insert(new, Subscriber::default());
                    // Its request may have brought the first subscription.
                    self.topology.ready.push_back(new);
                }
            } else {
                self.serve_subscriber(now, port);
            }
        } else if let Some(news) = self.topology.news.pop_front() {
            self.report_news(now, &news);
        }
    }

    fn serve_subscriber(&mut self, now: Nanos, port: Port) {
        loop {
            match self.recv(now, port, crate::limits::MESSAGE_LEN_MAX) {
                Ok(m) if m.error == ErrorCode::Ok => {
                    let Ok(raw) = <[u8; SUBSCRIPTION_LEN]>::try_from(&m.payload[..]) else {
                        return self.dismiss(now, port);
                    };
                    if !self.subscribe(now, port, Subscription::parse(raw)) {
                        return self.dismiss(now, port);
                    }
                }
                Err(SocketError::WouldBlock) => break,
                Ok(_) | Err(_) => return self.dismiss(now, port),
            }
        }
        self.flush_subscriber(now, port);
    }

    /// Takes a subscription or a cancellation. False when the subscriber broke the rules.
    fn subscribe(&mut self, now: Nanos, port: Port, mut subscription: Subscription) -> bool {
        let topology = &mut self.topology;
        let Some(subscriber) = topology.subscribers.get_mut(&port) else { return false };
        if subscription.filter & FILTER_CANCEL != 0 {
            let found =
                subscriber.subscriptions.iter().find(|(_, s)| s.is_cancelled_by(&subscription));
            if let Some(id) = found.map(|(id, _)| *id)
                && let Some(gone) = subscriber.subscriptions.remove(&id)
            {
                topology.forget(port, id, &gone);
            }
            return true;
        }
        let full = topology.index.values().map(BTreeSet::len).sum::<usize>() >= SUBSCRIPTIONS_MAX;
        if !subscription.is_legal() || full {
            return false;
        }
        let id = topology.next_id;
        topology.next_id += 1;
        if subscription.timeout_ms != FOREVER {
            let at = now + Duration::from_millis(subscription.timeout_ms.into());
            subscription.until = Some(at);
            topology.timers.insert((at, port, id));
        }
        topology.index.entry(subscription.range.service).or_default().insert((port, id));
        let mut known: Vec<(u64, Binding)> =
            match subscription.filter & (FILTER_PORTS | FILTER_SERVICE) {
                0 => Vec::new(),
                _ => self
                    .names
                    .overlapping_with_age(subscription.range)
                    .map(|(age, b)| (age, *b))
                    .collect(),
            };
        known.sort_by_key(|(age, _)| *age);
        if subscription.filter & FILTER_SERVICE != 0 {
            let mut seen = BTreeSet::new();
            known.retain(|(_, b)| seen.insert(b.range));
        }
        for (_, b) in known {
            let event = subscription.event(What::Published, b.range.lower, b.range.upper, b.socket);
            subscriber.unsent.push_back(event);
        }
        subscriber.subscriptions.insert(id, subscription);
        true
    }

    fn report_news(&mut self, now: Nanos, news: &News) {
        let Some(set) = self.topology.index.get(&news.binding.range.service) else { return };
        let what = if news.published { What::Published } else { What::Withdrawn };
        let range = news.binding.range;
        let mut touched = BTreeSet::new();
        for (port, id) in set {
            let Some(subscriber) = self.topology.subscribers.get_mut(port) else { continue };
            let Some(s) = subscriber.subscriptions.get(id) else { continue };
            if !s.range.overlaps(&range) || (s.filter & FILTER_PORTS == 0 && !news.range_changed) {
                continue;
            }
            let event = s.event(what, range.lower, range.upper, news.binding.socket);
            subscriber.unsent.push_back(event);
            touched.insert(*port);
        }
        for port in touched {
            self.flush_subscriber(now, port);
        }
    }

    /// Sends what the connection takes. A subscriber that does not read is dismissed when too much waits for it.
    fn flush_subscriber(&mut self, now: Nanos, port: Port) {
        while let Some(subscriber) = self.topology.subscribers.get_mut(&port)
            && let Some(event) = subscriber.unsent.front().copied()
        {
            match self.send(now, port, None, &event) {
                Ok(_) => {
                    if let Some(subscriber) = self.topology.subscribers.get_mut(&port) {
                        subscriber.unsent.pop_front();
                    }
                }
                Err(SocketError::WouldBlock)
                    if subscriber_waits(&self.topology, port) <= SUBSCRIBER_EVENTS_MAX =>
                {
                    return;
                }
                Err(_) => return self.dismiss(now, port),
            }
        }
    }

    fn dismiss(&mut self, now: Nanos, port: Port) {
        let Some(subscriber) = self.topology.subscribers.get_mut(&port) else { return };
        for (id, subscription) in core::mem::take(&mut subscriber.subscriptions) {
            self.topology.forget(port, id, &subscription);
        }
        // The subscriber sees the end of a connection that was shut down. Both fail when it was the one to end it.
        let _ = self.shutdown(now, port);
        let _ = self.close(now, port);
        self.topology.subscribers.remove(&port);
    }

    /// Ends the subscriptions whose time is over.
    pub(super) fn topology_timeouts(&mut self, now: Nanos) {
        while let Some(&(at, port, id)) = self.topology.timers.first()
            && at <= now
        {
            self.topology.timers.pop_first();
            let Some(subscriber) = self.topology.subscribers.get_mut(&port) else { continue };
            let Some(s) = subscriber.subscriptions.remove(&id) else { continue };
            let event = s.event(What::Timeout, s.range.lower, s.range.upper, SocketAddr::default());
            subscriber.unsent.push_back(event);
            self.topology.forget(port, id, &s);
            self.flush_subscriber(now, port);
        }
    }

    /// The binding that stands for a link: the instance is the peer, the port the two bearers.
    pub(super) fn link_binding(&self, peer: NodeAddr, own_bearer: u8, peer_bearer: u8) -> Binding {
        let id = u32::from(peer_bearer) << 16 | u32::from(own_bearer);
        let socket = SocketAddr { port: Port(id), node: self.own() };
        Binding {
            range: ServiceRange::single(LINK_STATE_SERVICE, peer.0),
            socket,
            key: id,
            scope: Scope::Node,
        }
    }
}

fn subscriber_waits(topology: &Topology, port: Port) -> usize {
    topology.subscribers.get(&port).map_or(0, |s| s.unsent.len())
}
