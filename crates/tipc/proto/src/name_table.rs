//! The name table: all bindings in the cluster, own and remote. Every node holds a copy.
//!
//! One tree contains all ranges of all services: service type and instance are combined into one 64-bit number, so that
//! all instances of a type are adjacent. A second tree orders the ranges by node, for operations that concern a single
//! node: its loss, and lookups restricted to its sockets. No operation visits more entries than it returns, however
//! many bindings a range has and however the ranges overlap. In addition, a hash table maps single-instance names
//! directly to their sockets.

mod bound;
mod direct;
mod rotation;

use crate::addr::{NodeAddr, Scope, ServiceRange, SocketAddr};
use crate::limits::BINDINGS_PER_NODE_MAX;
use crate::range_map::RangeMap;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bound::{Bound, Member, Own};
use direct::{Direct, Way};
use rotation::Rotations;

/// A service range bound to a socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Binding {
    /// The range of instances to which the socket is bound.
    pub range: ServiceRange,
    /// The bound socket. Port 0 stands for the node itself.
    pub socket: SocketAddr,
    /// Number that distinguishes several bindings of the same socket.
    pub key: u32,
    /// Where the binding is visible.
    pub scope: Scope,
}

/// Why a binding was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingError {
    /// The lower bound is above the upper bound.
    BadRange,
    /// The table already contains this binding.
    Exists,
    /// The node has reached its maximum number of bindings.
    TooMany,
}

impl core::fmt::Display for BindingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadRange => "the lower bound of the service range is above its upper bound",
            Self::Exists => "this binding already exists",
            Self::TooMany => {
                "the node has reached its maximum number of bindings; withdraw some first"
            }
        })
    }
}

impl core::error::Error for BindingError {}

/// Combines a service type and an instance into one number, a point on the axis that the ranges cover.
const fn point(service: u32, instance: u32) -> u64 {
    (service as u64) << 32 | instance as u64
}

const fn bounds(range: ServiceRange) -> (u64, u64) {
    (point(range.service, range.lower), point(range.service, range.upper))
}

const fn range_of((lower, upper): (u64, u64)) -> ServiceRange {
    ServiceRange { service: (lower >> 32) as u32, lower: lower as u32, upper: upper as u32 }
}

type OfNode = (NodeAddr, u32, u32);

const fn bounds_of(node: NodeAddr, range: ServiceRange) -> (OfNode, OfNode) {
    ((node, range.service, range.lower), (node, range.service, range.upper))
}

const fn whole(node: NodeAddr) -> (OfNode, OfNode) {
    ((node, 0, 0), (node, u32::MAX, u32::MAX))
}

/// Decrements a count and removes the entry when it reaches 0.
fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn binding(range: ServiceRange, member: &Member) -> Binding {
    Binding { range, socket: member.socket, key: member.key, scope: member.scope }
}

/// The table of all bindings known to this node.
#[derive(Clone, Debug)]
pub struct NameTable {
    ranges: RangeMap<u64, Bound>,
    /// The sockets of those ranges that have more than one binding.
    rotations: Rotations,
    /// Direct access to single-instance names.
    direct: Direct,
    /// For each service, the number of ranges with more than one instance: within their bounds, such ranges take
    /// precedence over single-instance names.
    wide: BTreeMap<u32, usize>,
    by_node: RangeMap<OfNode, Own>,
    counts: BTreeMap<NodeAddr, usize>,
    next_serial: u64,
    /// Maximum number of bindings per node.
    per_node_max: usize,
}

impl Default for NameTable {
    fn default() -> Self {
        Self::new(0)
    }
}

impl NameTable {
    /// Creates an empty table. The key randomises the hash table, so that peers cannot choose names that collide; it
    /// does not affect results.
    pub fn new(key: u64) -> Self {
        Self {
            ranges: RangeMap::default(),
            rotations: Rotations::default(),
            direct: Direct::new(key),
            wide: BTreeMap::new(),
            by_node: RangeMap::default(),
            counts: BTreeMap::new(),
            next_serial: 0,
            per_node_max: BINDINGS_PER_NODE_MAX,
        }
    }

    /// Sets the maximum number of bindings per node.
    pub const fn limit(&mut self, per_node_max: usize) {
        self.per_node_max = per_node_max;
    }

    /// Adds a binding.
    ///
    /// # Errors
    /// [`BindingError`] gives the reason for a rejection.
    pub fn insert(&mut self, binding: Binding) -> Result<(), BindingError> {
        let Binding { range, socket, key, scope } = binding;
        if !range.is_valid() {
            return Err(BindingError::BadRange);
        }
        if self.count_of(socket.node) >= self.per_node_max {
            return Err(BindingError::TooMany);
        }
        let serial = self.next_serial;
        let (id, entry) = ((socket.port, key), (serial, scope));
        let of_node = bounds_of(socket.node, range);
        match self.by_node.get_mut(of_node) {
            Some(own) => {
                if !own.insert(id, entry) {
                    return Err(BindingError::Exists);
                }
            }
            None => self.by_node.insert(of_node, Own::One(id, entry)),
        }
        let member = Member { socket, key, scope };
        let (lower, upper) = bounds(range);
        match self.ranges.get_mut((lower, upper)) {
            Some(bound) => {
                let rotation = bound.insert(&mut self.rotations, serial, member);
                if lower == upper {
                    self.direct.insert(lower, Way::Rotation(rotation));
                }
            }
            None => {
                self.ranges.insert((lower, upper), Bound::One(serial, member));
                if lower == upper {
                    self.direct.insert(lower, Way::Socket(socket));
                } else {
                    *self.wide.entry(range.service).or_default() += 1;
                }
            }
        }
        *self.counts.entry(socket.node).or_default() += 1;
        self.next_serial += 1;
        Ok(())
    }

    /// Removes the binding with this range, node, port and key, and returns it.
    pub fn remove(&mut self, range: ServiceRange, socket: SocketAddr, key: u32) -> Option<Binding> {
        let of_node = bounds_of(socket.node, range);
        let (serial, last) = self.by_node.get_mut(of_node)?.remove((socket.port, key))?;
        if last {
            self.by_node.remove(of_node);
        }
        let (member, last) =
            self.ranges.get_mut(bounds(range))?.remove(&mut self.rotations, serial)?;
        if last {
            self.ranges.remove(bounds(range));
            if range.lower == range.upper {
                self.direct.remove(point(range.service, range.lower));
            } else {
                decrement(&mut self.wide, range.service);
            }
        }
        decrement(&mut self.counts, socket.node);
        Some(binding(range, &member))
    }

    /// Removes and returns one of the node's bindings; `None` if it has none.
    pub(crate) fn remove_any(&mut self, node: NodeAddr) -> Option<Binding> {
        let (lower, upper) = whole(node);
        let (((_, service, lower), (_, _, upper)), own) =
            self.by_node.overlapping(lower, upper).next()?;
        let (port, key) = own.first()?;
        self.remove(ServiceRange { service, lower, upper }, SocketAddr { port, node }, key)
    }

    /// Removes and returns all bindings of a node.
    pub fn remove_node(&mut self, node: NodeAddr) -> Vec<Binding> {
        core::iter::from_fn(|| self.remove_any(node)).collect()
    }

    /// Returns the next socket, in round-robin order, among those bound to a range that contains `instance`. If several
    /// ranges contain it, the one with the lowest bounds is used, as in the kernel. `local` restricts the choice to the
    /// bindings of one node. `None` if there is no such binding.
    pub fn lookup(
        &mut self,
        service: u32,
        instance: u32,
        local: Option<NodeAddr>,
    ) -> Option<SocketAddr> {
        // Without wide ranges, only the name itself can contain the instance.
        if !self.wide.contains_key(&service)
            && let Some(way) = self.direct.get(point(service, instance))
        {
            return match way {
                Way::Socket(socket) => {
                    local.is_none_or(|node| socket.node == node).then_some(socket)
                }
                Way::Rotation(id) => self.rotations.get_mut(id)?.next(local),
            };
        }
        let Some(node) = local else {
            let bound = self.ranges.first_containing_value(point(service, instance))?;
            return bound.next(&mut self.rotations, None);
        };
        let ((_, _, lower), (_, _, upper)) =
            self.by_node.first_containing((node, service, instance))?;
        let range = ServiceRange { service, lower, upper };
        self.ranges.get(bounds(range))?.next(&mut self.rotations, local)
    }

    /// All bindings whose range shares an instance with `range`, in no particular order.
    pub fn overlapping(&self, range: ServiceRange) -> impl Iterator<Item = Binding> {
        self.overlapping_with_serial(range).map(|(_, binding)| binding)
    }

    /// Like [`NameTable::overlapping`], with a number for each binding that increases in the order of insertion.
    pub(crate) fn overlapping_with_serial(
        &self,
        range: ServiceRange,
    ) -> impl Iterator<Item = (u64, Binding)> {
        let (lower, upper) = bounds(range);
        self.ranges.overlapping(lower, upper).flat_map(|(at, bound)| {
            let members = bound.iter(&self.rotations);
            members.map(move |(serial, member)| (serial, binding(range_of(at), member)))
        })
    }

    /// One node's bindings whose range shares an instance with `range`, in no particular order.
    pub fn overlapping_of(
        &self,
        node: NodeAddr,
        range: ServiceRange,
    ) -> impl Iterator<Item = Binding> {
        let (lower, upper) = bounds_of(node, range);
        self.of_node_with_serial(lower, upper).map(|(_, binding)| binding)
    }

    /// All bindings of a node, with a number for each that increases in the order of insertion.
    pub(crate) fn of_node(&self, node: NodeAddr) -> impl Iterator<Item = (u64, Binding)> {
        let (lower, upper) = whole(node);
        self.of_node_with_serial(lower, upper)
    }

    fn of_node_with_serial(
        &self,
        lower: OfNode,
        upper: OfNode,
    ) -> impl Iterator<Item = (u64, Binding)> {
        self.by_node.overlapping(lower, upper).flat_map(
            |(((node, service, lower), (_, _, upper)), own)| {
                let range = ServiceRange { service, lower, upper };
                own.iter().map(move |((port, key), (serial, scope))| {
                    (serial, Binding { range, socket: SocketAddr { port, node }, key, scope })
                })
            },
        )
    }

    /// The nodes that have a binding whose range shares an instance with `range`.
    pub fn nodes_of(&self, range: ServiceRange) -> BTreeSet<NodeAddr> {
        let mut nodes = BTreeSet::new();
        // A narrow range has few bindings; a wide one may have a million, but then there are far fewer nodes than bindings.
        let few = self.counts.len();
        let mut all = self.overlapping(range);
        nodes.extend(all.by_ref().take(few).map(|b| b.socket.node));
        if nodes.len() < few && all.next().is_some() {
            let has_one = |node: &&NodeAddr| self.overlapping_of(**node, range).next().is_some();
            nodes.extend(self.counts.keys().filter(has_one));
        }
        nodes
    }

    /// Number of bindings of exactly this range.
    pub fn count_of_range(&self, range: ServiceRange) -> usize {
        self.ranges.get(bounds(range)).map_or(0, |bound| bound.len(&self.rotations))
    }

    /// All bindings, ordered by service type.
    pub fn iter(&self) -> impl Iterator<Item = Binding> {
        self.behind(None)
    }

    /// The bindings of all ranges that come after `range` in the order of service type and bounds; all bindings if
    /// `range` is `None`.
    pub fn behind(&self, range: Option<ServiceRange>) -> impl Iterator<Item = Binding> {
        let entries = match range {
            Some(range) => self.ranges.behind(bounds(range), (0, u64::MAX)),
            None => self.ranges.overlapping(0, u64::MAX),
        };
        entries.flat_map(|(at, bound)| {
            bound.iter(&self.rotations).map(move |(_, member)| binding(range_of(at), member))
        })
    }

    /// Number of bindings of a node.
    pub fn count_of(&self, node: NodeAddr) -> usize {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    /// Total number of bindings.
    pub fn len(&self) -> usize {
        self.counts.values().sum()
    }

    /// Whether the table has no bindings.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests;
