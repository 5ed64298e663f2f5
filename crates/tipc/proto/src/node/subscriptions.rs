//! All subscriptions to changes of the name table, indexed by range.
//!
//! The subscriptions that a change affects are found in a tree of ranges; the subscription that a request cancels is
//! found by the request's bytes. Neither search visits any other subscription, even if all of them are for the same
//! service.

use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::limits::Limits;
use crate::range_map::RangeMap;
use crate::time::Nanos;
use alloc::collections::{BTreeMap, BTreeSet};

pub(super) const SUBSCRIPTION_LEN: usize = 28;
pub(super) const EVENT_LEN: usize = 48;

pub(super) const FILTER_PORTS: u32 = 1;
pub(super) const FILTER_SERVICE: u32 = 2;
pub(super) const FILTER_CANCEL: u32 = 4;
/// The first of three filter bits that the kernel uses internally, but accepts in any request. In order, they request
/// only bindings with cluster scope, only bindings with node scope, and no report of existing bindings.
const FILTER_CLUSTER_SCOPE: u32 = 0x20;
const FILTER_NODE_SCOPE: u32 = 0x40;
const FILTER_NO_STATUS: u32 = 0x80;
pub(super) const FOREVER: u32 = u32::MAX;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Published = 1,
    Withdrawn = 2,
    Timeout = 3,
}

/// Whose share of the subscriptions is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Holder {
    /// A socket without a user, which is not limited.
    #[default]
    Unlimited,
    /// A user of this node.
    User(u32),
    /// The programs of another node. With this node's own address, sockets that have been closed.
    Node(NodeAddr),
}

/// A subscription. It includes the original bytes of the request, which every event repeats.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    raw: [u8; SUBSCRIPTION_LEN],
    little_endian: bool,
    pub(super) range: ServiceRange,
    pub(super) timeout_ms: u32,
    pub(super) filter: u32,
    pub(super) until: Option<Nanos>,
    pub(super) holder: Holder,
}

impl Subscription {
    pub(super) fn parse(raw: [u8; SUBSCRIPTION_LEN]) -> Self {
        let bytes = |n: usize| [raw[4 * n], raw[4 * n + 1], raw[4 * n + 2], raw[4 * n + 3]];
        // The byte order in which the filter has one of its low bits set is the sender's.
        let little_endian = u32::from_le_bytes(bytes(4)) & 7 != 0;
        let word = |n| {
            if little_endian { u32::from_le_bytes(bytes(n)) } else { u32::from_be_bytes(bytes(n)) }
        };
        let range = ServiceRange { service: word(0), lower: word(1), upper: word(2) };
        let (timeout_ms, filter) = (word(3), word(4));
        let holder = Holder::default();
        Self { raw, little_endian, range, timeout_ms, filter, until: None, holder }
    }

    pub(super) fn is_legal(&self) -> bool {
        self.range.is_valid()
            && self.filter & (FILTER_PORTS | FILTER_SERVICE) != FILTER_PORTS | FILTER_SERVICE
    }

    /// Whether to report existing bindings when the subscription is made.
    pub(super) const fn wants_status(&self) -> bool {
        self.filter & FILTER_NO_STATUS == 0
    }

    /// Whether to report bindings of this scope.
    pub(super) fn is_about(&self, scope: Scope) -> bool {
        let without = if scope == Scope::Node { FILTER_CLUSTER_SCOPE } else { FILTER_NODE_SCOPE };
        self.filter & without == 0
    }

    /// The key by which a cancellation finds its subscription: the request without the cancel bit.
    fn request(&self) -> [u8; SUBSCRIPTION_LEN] {
        let mut request = self.raw;
        request[16..20].copy_from_slice(&(self.filter & !FILTER_CANCEL).to_be_bytes());
        request
    }

    pub(super) fn event(
        &self,
        what: What,
        lower: u32,
        upper: u32,
        socket: SocketAddr,
    ) -> [u8; EVENT_LEN] {
        let mut event = [0; EVENT_LEN];
        let words = [what as u32, lower, upper, socket.port.0, socket.node.0];
        for (place, word) in event.chunks_exact_mut(4).zip(words) {
            let bytes = if self.little_endian { word.to_le_bytes() } else { word.to_be_bytes() };
            place.copy_from_slice(&bytes);
        }
        event[EVENT_LEN - SUBSCRIPTION_LEN..].copy_from_slice(&self.raw);
        event
    }
}

/// A subscriber's connection and the number of one of its subscriptions.
pub(super) type SubscriptionId = (Port, u64);

type Ids = BTreeSet<SubscriptionId>;

/// All subscriptions of the node.
#[derive(Clone, Debug, Default)]
pub(super) struct Subscriptions {
    all: BTreeMap<SubscriptionId, Subscription>,
    /// For each request, the numbers of the subscriptions that it made. If there are several, a cancellation removes
    /// the oldest.
    requests: BTreeMap<(Port, [u8; SUBSCRIPTION_LEN]), BTreeSet<u64>>,
    /// Subscriptions that report every binding, by range.
    of_ports: RangeMap<u64, Ids>,
    /// Subscriptions that report only the first binding that is added for a range and the last one that is removed, by
    /// range.
    of_services: RangeMap<u64, Ids>,
    timers: BTreeSet<(Nanos, SubscriptionId)>,
    /// How many each holder has that is limited.
    held: BTreeMap<Holder, usize>,
    /// The sum of these.
    held_by_all: usize,
    next_id: u64,
}

const fn bounds(range: ServiceRange) -> (u64, u64) {
    let service = (range.service as u64) << 32;
    (service | range.lower as u64, service | range.upper as u64)
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the holder may have one more.
    pub(super) fn has_room(&self, holder: Holder, limits: &Limits) -> bool {
        let most = limits.subscriptions;
        let own = self.held.get(&holder).copied().unwrap_or(0);
        let may = holder == Holder::Unlimited
            || own < limits.subscriptions_per_user && self.held_by_all < most - most / 8;
        may && self.len() < most
    }

    pub(super) fn first_timeout(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn get(&self, id: SubscriptionId) -> Option<&Subscription> {
        self.all.get(&id)
    }

    fn index(&mut self, subscription: &Subscription) -> &mut RangeMap<u64, Ids> {
        if subscription.filter & FILTER_PORTS != 0 {
            &mut self.of_ports
        } else {
            &mut self.of_services
        }
    }

    pub(super) fn insert(&mut self, port: Port, subscription: Subscription) {
        let id = (port, self.next_id);
        self.next_id += 1;
        if let Some(at) = subscription.until {
            self.timers.insert((at, id));
        }
        self.requests.entry((port, subscription.request())).or_default().insert(id.1);
        let bounds = bounds(subscription.range);
        let index = self.index(&subscription);
        match index.get_mut(bounds) {
            Some(ids) => {
                ids.insert(id);
            }
            None => index.insert(bounds, [id].into()),
        }
        if subscription.holder != Holder::Unlimited {
            *self.held.entry(subscription.holder).or_default() += 1;
            self.held_by_all += 1;
        }
        self.all.insert(id, subscription);
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let gone = self.all.remove(&id)?;
        if let Some(held) = self.held.get_mut(&gone.holder) {
            *held -= 1;
            self.held_by_all -= 1;
            if *held == 0 {
                self.held.remove(&gone.holder);
            }
        }
        if let Some(at) = gone.until {
            self.timers.remove(&(at, id));
        }
        let request = (id.0, gone.request());
        if let Some(ids) = self.requests.get_mut(&request) {
            ids.remove(&id.1);
            if ids.is_empty() {
                self.requests.remove(&request);
            }
        }
        let bounds = bounds(gone.range);
        let index = self.index(&gone);
        if let Some(ids) = index.get_mut(bounds) {
            ids.remove(&id);
            if ids.is_empty() {
                index.remove(bounds);
            }
        }
        Some(gone)
    }

    /// Removes this subscriber's oldest subscription that matches the cancellation, if there is one.
    pub(super) fn cancel(&mut self, port: Port, request: &Subscription) {
        let id = self.requests.get(&(port, request.request())).and_then(|ids| ids.first().copied());
        if let Some(id) = id {
            self.remove((port, id));
        }
    }

    /// Removes all subscriptions of a subscriber.
    pub(super) fn remove_all_of(&mut self, port: Port) {
        while let Some(id) = self.all.range((port, 0)..=(port, u64::MAX)).next().map(|(id, _)| *id)
        {
            self.remove(id);
        }
    }

    /// Removes and returns the next subscription that has timed out.
    pub(super) fn pop_timeout(&mut self, now: Nanos) -> Option<(Port, Subscription)> {
        let (at, id) = *self.timers.first()?;
        if at > now {
            return None;
        }
        let gone = self.remove(id)?;
        Some((id.0, gone))
    }

    /// The subscriptions that a change of this range's bindings affects, in the order of their IDs. `range_changed`
    /// means that the range's first binding was added or its last one removed.
    pub(super) fn concerned(&self, range: ServiceRange, range_changed: bool) -> Ids {
        let (lower, upper) = bounds(range);
        let of_ports = self.of_ports.overlapping(lower, upper);
        let of_services =
            range_changed.then(|| self.of_services.overlapping(lower, upper)).into_iter().flatten();
        of_ports.chain(of_services).flat_map(|(_, ids)| ids).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn subscription(lower: u32, upper: u32, filter: u32, handle: u64) -> Subscription {
        let mut raw = [0; SUBSCRIPTION_LEN];
        for (place, word) in raw.chunks_exact_mut(4).zip([1000, lower, upper, FOREVER, filter]) {
            place.copy_from_slice(&u32::to_le_bytes(word));
        }
        raw[20..].copy_from_slice(&handle.to_be_bytes());
        Subscription::parse(raw)
    }

    fn single(instance: u32) -> ServiceRange {
        ServiceRange::single(1000, instance)
    }

    #[test]
    fn each_holder_has_a_share_and_some_are_left_for_those_without_a_limit() {
        let limits = Limits { subscriptions: 80, subscriptions_per_user: 50, ..Limits::default() };
        let mut all = Subscriptions::default();
        let fill = |all: &mut Subscriptions, port, holder| {
            let before = all.len();
            while all.has_room(holder, &limits) {
                let handle = all.len() as u64;
                all.insert(
                    port,
                    Subscription { holder, ..subscription(1, 1, FILTER_PORTS, handle) },
                );
            }
            all.len() - before
        };
        assert_eq!(fill(&mut all, Port(1), Holder::User(1001)), 50);
        assert_eq!(fill(&mut all, Port(2), Holder::User(1001)), 0, "another socket of this user");
        assert_eq!(fill(&mut all, Port(3), Holder::Node(NodeAddr(7))), 20);
        assert_eq!(fill(&mut all, Port(4), Holder::User(1002)), 0);
        assert_eq!(fill(&mut all, Port(5), Holder::Unlimited), 10);
        // However they end, they are given back once.
        all.cancel(Port(1), &subscription(1, 1, FILTER_PORTS | FILTER_CANCEL, 7));
        all.cancel(Port(1), &subscription(1, 1, FILTER_PORTS | FILTER_CANCEL, 7));
        assert_eq!(fill(&mut all, Port(2), Holder::User(1001)), 1);
        for port in 1..=5 {
            all.remove_all_of(Port(port));
        }
        assert!(all.held.is_empty() && all.held_by_all == 0);
        assert_eq!(fill(&mut all, Port(4), Holder::User(1002)), 50);
    }

    #[test]
    fn a_change_concerns_few_of_a_hundred_thousand_in_one_service() {
        let mut all = Subscriptions::default();
        for n in 0..100_000 {
            all.insert(Port(n % 1_000), subscription(n, n, FILTER_PORTS, 0));
        }
        all.insert(Port(7), subscription(0, u32::MAX, FILTER_PORTS, 0));
        for n in 0..1_000 {
            all.insert(Port(8), subscription(0, u32::MAX, FILTER_SERVICE, n));
        }
        assert_eq!(all.len(), 101_001);
        let concerned = all.concerned(single(5), false);
        assert_eq!(concerned.into_iter().collect::<Vec<_>>(), [(Port(5), 5), (Port(7), 100_000)]);
        assert_eq!(all.concerned(single(5), true).len(), 1_002);
        let (lower, upper) = bounds(single(50_000));
        let mut search = all.of_ports.overlapping(lower, upper);
        assert_eq!(search.by_ref().count(), 2);
        assert!(search.visited() <= 3 * all.of_ports.height(), "{} nodes", search.visited());
    }

    #[test]
    fn a_cancellation_ends_the_oldest_equal_one_and_leaves_nothing() {
        let mut all = Subscriptions::default();
        for filter in [FILTER_PORTS, FILTER_SERVICE, FILTER_PORTS] {
            all.insert(Port(1), subscription(1, 2, filter, 9));
        }
        all.cancel(Port(1), &subscription(1, 2, FILTER_PORTS | FILTER_CANCEL, 8));
        all.cancel(Port(2), &subscription(1, 2, FILTER_PORTS | FILTER_CANCEL, 9));
        assert_eq!(all.len(), 3, "another handle, another subscriber");
        all.cancel(Port(1), &subscription(1, 2, FILTER_PORTS | FILTER_CANCEL, 9));
        assert!(all.get((Port(1), 0)).is_none() && all.get((Port(1), 2)).is_some());
        all.remove_all_of(Port(1));
        assert!(all.of_ports.is_empty() && all.of_services.is_empty() && all.requests.is_empty());
    }

    #[test]
    fn the_next_to_run_out_comes_first() {
        let mut all = Subscriptions::default();
        for (handle, at) in [(1, 30), (2, 10), (3, 20)] {
            let until = Some(Nanos(at));
            all.insert(Port(1), Subscription { until, ..subscription(1, 1, FILTER_PORTS, handle) });
        }
        assert_eq!(all.first_timeout(), Some(Nanos(10)));
        let mut gone = Vec::new();
        while let Some((_, s)) = all.pop_timeout(Nanos(25)) {
            gone.push(s.raw[27]);
        }
        assert_eq!((gone, all.len()), (std::vec![2, 3], 1));
    }
}
