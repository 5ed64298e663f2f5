//! The topology service: a socket of the node itself that informs subscribers about changes of bindings, nodes and
//! links.
//!
//! The service is bound to type 1, instance 1, with node scope. It uses the kernel's protocol: subscriptions of 28
//! bytes, events of 48 bytes, and integers in the byte order of the request.

use super::Node;
use super::subscriptions::{
    EVENT_LEN, FILTER_CANCEL, FILTER_PORTS, FOREVER, Holder, SUBSCRIPTION_LEN, Subscription,
    Subscriptions, What,
};
use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::limits::SUBSCRIBERS_PART;
use crate::name_table::Binding;
use crate::socket::{SocketError, SocketKind};
use crate::time::Nanos;
use crate::wire::ErrorCode;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

/// Service type of the topology service.
pub(super) const TOPOLOGY_SERVICE: u32 = 1;
/// Service type for link states.
pub(super) const LINK_STATE_SERVICE: u32 = 2;

/// A change of the name table.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    published: bool,
    binding: Binding,
    /// Whether the binding was the first one added for its exact range, or the last one removed.
    range_changed: bool,
}

/// A connection to the service.
#[derive(Clone, Debug)]
struct Subscriber {
    /// The program's socket.
    peer: SocketAddr,
    holder: Holder,
    unsent: VecDeque<[u8; EVENT_LEN]>,
}

/// State of the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Topology {
    listener: Port,
    subscribers: BTreeMap<Port, Subscriber>,
    /// Number of subscribers of each holder.
    held: BTreeMap<Holder, usize>,
    subscriptions: Subscriptions,
    ready: VecDeque<Port>,
    news: VecDeque<News>,
}

impl Topology {
    /// Returns whether a socket belongs to the service. If it does, also records that the socket is ready.
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
        self.subscriptions.first_timeout()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.news.is_empty()
    }
}

impl Node {
    /// Opens the service if there is room for a socket and a binding. Called when the node is created.
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

    /// Reports the publication or withdrawal of a binding to the caller, to subscribers and to groups.
    pub(super) fn announce(&mut self, published: bool, binding: Binding) {
        let left = self.names.count_of_range(binding.range);
        let range_changed = left == usize::from(published);
        self.topology.news.push_back(News { published, binding, range_changed });
        self.events.push_back(if published {
            super::Event::Published(binding)
        } else {
            super::Event::Withdrawn(binding)
        });
        self.group_news(published, &binding);
    }

    /// Reports a change of a socket to the caller, unless the socket belongs to the service.
    pub(super) fn socket_changed(&mut self, port: Port) {
        if !self.topology.take_ready(port) {
            self.events.push_back(super::Event::SocketReady(port));
        }
    }

    /// Does the next piece of the service's work: serves one ready socket, or reports one change.
    pub(super) fn serve_topology(&mut self, now: Nanos) {
        if let Some(port) = self.topology.ready.pop_front() {
            if port == self.topology.listener {
                while let Ok((new, peer)) = self.accept(now, port) {
                    self.add_subscriber(now, new, peer);
                }
            } else {
                self.serve_subscriber(now, port);
            }
        } else if let Some(news) = self.topology.news.pop_front() {
            self.report_news(now, &news);
        }
    }

    fn add_subscriber(&mut self, now: Nanos, port: Port, peer: SocketAddr) {
        let holder = if peer.node != self.own() {
            Holder::Node(peer.node)
        } else {
            match self.sockets.get(&peer.port).map(|socket| socket.user) {
                Some(Some(user)) => Holder::User(user),
                Some(None) => Holder::Unlimited,
                None => Holder::Node(peer.node),
            }
        };
        let subscriber = Subscriber { peer, holder, unsent: VecDeque::new() };
        self.topology.subscribers.insert(port, subscriber);
        let held = self.topology.held.entry(holder).or_default();
        *held += 1;
        if holder != Holder::Unlimited && *held > self.cfg.limits.sockets / SUBSCRIBERS_PART {
            self.events.push_back(super::Event::SubscriberRefused { subscriber: peer });
            return self.dismiss(now, port);
        }
        // The connection request may already carry the first subscription.
        self.topology.ready.push_back(port);
    }

    fn serve_subscriber(&mut self, now: Nanos, port: Port) {
        loop {
            match self.recv(now, port, crate::limits::MESSAGE_LEN_MAX) {
                Ok(m) if m.error == ErrorCode::Ok => {
                    // Anything after the request is ignored, as in the kernel.
                    let Some(raw) = m.payload.first_chunk::<SUBSCRIPTION_LEN>() else {
                        return self.dismiss(now, port);
                    };
                    if !self.subscribe(now, port, Subscription::parse(*raw)) {
                        return self.dismiss(now, port);
                    }
                }
                Err(SocketError::WouldBlock) => break,
                Ok(_) | Err(_) => return self.dismiss(now, port),
            }
        }
        self.flush_subscriber(now, port);
    }

    /// Handles a subscription or a cancellation. Returns false if the subscriber must be disconnected: because the
    /// request is illegal, or the node or the subscriber's user has the maximum number of subscriptions.
    fn subscribe(&mut self, now: Nanos, port: Port, mut subscription: Subscription) -> bool {
        let topology = &mut self.topology;
        let Some(subscriber) = topology.subscribers.get_mut(&port) else { return false };
        if subscription.filter & FILTER_CANCEL != 0 {
            topology.subscriptions.cancel(port, &subscription);
            return true;
        }
        if !subscription.is_legal() {
            return false;
        }
        if !topology.subscriptions.has_room(subscriber.holder, &self.cfg.limits) {
            let subscriber = subscriber.peer;
            self.events.push_back(super::Event::SubscriberRefused { subscriber });
            return false;
        }
        subscription.holder = subscriber.holder;
        if subscription.timeout_ms != FOREVER {
            subscription.until = Some(now + Duration::from_millis(subscription.timeout_ms.into()));
        }
        let mut known: Vec<(u64, Binding)> = if subscription.wants_status() {
            self.names.overlapping_with_serial(subscription.range).collect()
        } else {
            Vec::new()
        };
        known.sort_by_key(|(serial, _)| *serial);
        if subscription.filter & FILTER_PORTS == 0 {
            let mut seen = BTreeSet::new();
            known.retain(|(_, b)| seen.insert(b.range));
        }
        known.retain(|(_, b)| subscription.is_about(b.scope));
        for (_, b) in known {
            let event = subscription.event(What::Published, b.range.lower, b.range.upper, b.socket);
            subscriber.unsent.push_back(event);
        }
        topology.subscriptions.insert(port, subscription);
        true
    }

    fn report_news(&mut self, now: Nanos, news: &News) {
        let what = if news.published { What::Published } else { What::Withdrawn };
        let range = news.binding.range;
        let topology = &mut self.topology;
        let mut touched = BTreeSet::new();
        for (port, id) in topology.subscriptions.concerned(range, news.range_changed) {
            let Some(subscriber) = topology.subscribers.get_mut(&port) else { continue };
            let Some(s) = topology.subscriptions.get((port, id)) else { continue };
            if !s.is_about(news.binding.scope) {
                continue;
            }
            subscriber.unsent.push_back(s.event(
                what,
                range.lower,
                range.upper,
                news.binding.socket,
            ));
            touched.insert(port);
        }
        for port in touched {
            self.flush_subscriber(now, port);
        }
    }

    /// Sends as many events as the connection accepts. A subscriber for which too many events are queued is disconnected.
    fn flush_subscriber(&mut self, now: Nanos, port: Port) {
        while let Some(subscriber) = self.topology.subscribers.get(&port)
            && let Some(event) = subscriber.unsent.front().copied()
        {
            match self.send(now, port, None, &event) {
                Ok(_) => {
                    if let Some(subscriber) = self.topology.subscribers.get_mut(&port) {
                        subscriber.unsent.pop_front();
                    }
                }
                Err(SocketError::WouldBlock)
                    if subscriber_waits(&self.topology, port)
                        <= self.cfg.limits.subscriber_events =>
                {
                    return;
                }
                Err(_) => return self.dismiss(now, port),
            }
        }
    }

    fn dismiss(&mut self, now: Nanos, port: Port) {
        let Some(holder) = self.topology.subscribers.get(&port).map(|of| of.holder) else { return };
        if let Some(held) = self.topology.held.get_mut(&holder) {
            *held -= 1;
            if *held == 0 {
                self.topology.held.remove(&holder);
            }
        }
        self.topology.subscriptions.remove_all_of(port);
        // The subscriber sees a connection that was shut down. Both calls fail if the subscriber itself ended it.
        let _ = self.shutdown(now, port);
        let _ = self.close(now, port);
        self.topology.subscribers.remove(&port);
    }

    /// Ends the subscriptions that have timed out, and notifies their subscribers.
    pub(super) fn topology_timeouts(&mut self, now: Nanos) {
        while let Some((port, s)) = self.topology.subscriptions.pop_timeout(now) {
            let Some(subscriber) = self.topology.subscribers.get_mut(&port) else { continue };
            let socket = SocketAddr::default();
            subscriber.unsent.push_back(s.event(
                What::Timeout,
                s.range.lower,
                s.range.upper,
                socket,
            ));
            self.flush_subscriber(now, port);
        }
    }

    /// The binding that represents a link. Its instance is the peer's address. Its port number encodes the two bearers:
    /// the peer's in the upper 16 bits, this node's in the lower ones.
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
    topology.subscribers.get(&port).map_or(0, |subscriber| subscriber.unsent.len())
}
