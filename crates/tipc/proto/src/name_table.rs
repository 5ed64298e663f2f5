//! Who is bound to what: the table that every node of the cluster holds, own bindings and remote ones alike.
//!
//! Ranges may overlap. To find those around an instance without looking at all, the ranges of a service are kept by the magnitude of
//! their width: within one class every range that contains an instance begins less than twice the class's width before it.

use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::limits::BINDINGS_PER_NODE_MAX;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// One binding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Binding {
    /// The range bound.
    pub range: ServiceRange,
    /// The socket bound to it. Port 0 stands for the node itself.
    pub socket: SocketAddr,
    /// Tells two bindings of one socket apart.
    pub key: u32,
    /// How far it is visible.
    pub scope: Scope,
}

/// Why a binding was not entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingError {
    /// Lower bound above upper bound.
    BadRange,
    /// The same binding exists.
    Exists,
    /// The node has its full number of bindings.
    TooMany,
}

impl core::fmt::Display for BindingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadRange => "the lower bound of the service range is above its upper bound",
            Self::Exists => "this binding exists already",
            Self::TooMany => "the node has its full number of bindings; withdraw some first",
        })
    }
}

impl core::error::Error for BindingError {}

/// The bindings of one exact range, and whose turn it is.
#[derive(Clone, Debug, Default)]
struct Bound {
    bindings: Vec<Binding>,
    /// The number of each binding in the order in which the table came to know them.
    ages: Vec<u64>,
    turn: usize,
}

type RangeMap = BTreeMap<(u32, u32), Bound>;

#[derive(Clone, Debug, Default)]
struct Service {
    /// By the position of the highest bit of the width; class 32 holds the whole number space only.
    classes: BTreeMap<u32, RangeMap>,
}

fn class_of(lower: u32, upper: u32) -> u32 {
    (u64::from(upper) - u64::from(lower) + 1).ilog2()
}

impl Service {
    /// The distinct ranges that contain `instance`.
    fn containing(&self, instance: u32) -> impl Iterator<Item = (&(u32, u32), &Bound)> {
        self.classes.iter().flat_map(move |(&class, ranges)| {
            let reach = (2u64 << class) - 1;
            let from = u64::from(instance).saturating_sub(reach) as u32;
            ranges
                .range((from, 0)..=(instance, u32::MAX))
                .filter(move |((_, upper), _)| *upper >= instance)
        })
    }
}

/// The table of all bindings that this node knows.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    services: BTreeMap<u32, Service>,
    by_node: BTreeMap<NodeAddr, BTreeSet<(ServiceRange, Port, u32)>>,
    next_age: u64,
}

impl NameTable {
    /// Enters a binding.
    ///
    /// # Errors
    /// [`BindingError`] says why not.
    pub fn insert(&mut self, binding: Binding) -> Result<(), BindingError> {
        let ServiceRange { service, lower, upper } = binding.range;
        if !binding.range.is_valid() {
            return Err(BindingError::BadRange);
        }
        let of_node = self.by_node.entry(binding.socket.node).or_default();
        if of_node.len() >= BINDINGS_PER_NODE_MAX {
            return Err(BindingError::TooMany);
        }
        if !of_node.insert((binding.range, binding.socket.port, binding.key)) {
            return Err(BindingError::Exists);
        }
        let classes = &mut self.services.entry(service).or_default().classes;
        let ranges = classes.entry(class_of(lower, upper)).or_default();
        let bound = ranges.entry((lower, upper)).or_default();
        bound.bindings.push(binding);
        bound.ages.push(self.next_age);
        self.next_age += 1;
        Ok(())
    }

    /// Removes the binding of this range, node, port and key.
    pub fn remove(&mut self, range: ServiceRange, socket: SocketAddr, key: u32) -> Option<Binding> {
        let of_node = self.by_node.get_mut(&socket.node)?;
        if !of_node.remove(&(range, socket.port, key)) {
            return None;
        }
        if of_node.is_empty() {
            self.by_node.remove(&socket.node);
        }
        self.unlink(range, socket, key)
    }

    fn unlink(&mut self, range: ServiceRange, socket: SocketAddr, key: u32) -> Option<Binding> {
        let ServiceRange { service, lower, upper } = range;
        let class = class_of(lower, upper);
        let entry = self.services.get_mut(&service)?;
        let ranges = entry.classes.get_mut(&class)?;
        let bound = ranges.get_mut(&(lower, upper))?;
        let index = bound.bindings.iter().position(|b| b.socket == socket && b.key == key)?;
        let binding = bound.bindings.remove(index);
        bound.ages.remove(index);
        if index < bound.turn {
            bound.turn -= 1;
        }
        if bound.bindings.is_empty() {
            ranges.remove(&(lower, upper));
            if ranges.is_empty() {
                entry.classes.remove(&class);
            }
            if entry.classes.is_empty() {
                self.services.remove(&service);
            }
        }
        Some(binding)
    }

    /// Removes one binding of a node, if there is any left.
    pub(crate) fn remove_any(&mut self, node: NodeAddr) -> Option<Binding> {
        let (range, port, key) = self.by_node.get(&node)?.first().copied()?;
        self.remove(range, SocketAddr { port, node }, key)
    }

    /// Removes everything that a node has bound, and returns it.
    pub fn remove_node(&mut self, node: NodeAddr) -> Vec<Binding> {
        let Some(keys) = self.by_node.remove(&node) else { return Vec::new() };
        keys.into_iter()
            .filter_map(|(range, port, key)| self.unlink(range, SocketAddr { port, node }, key))
            .collect()
    }

    /// The next socket, in turn, that is bound around `instance`: of the range with the lowest bounds, as the kernel chooses.
    /// `local` restricts the choice to one node.
    pub fn lookup(
        &mut self,
        service: u32,
        instance: u32,
        local: Option<NodeAddr>,
    ) -> Option<SocketAddr> {
        let matches = |bound: &Bound| {
            local.is_none_or(|node| bound.bindings.iter().any(|b| b.socket.node == node))
        };
        let entry = self.services.get_mut(&service)?;
        let &(lower, upper) =
            entry.containing(instance).filter(|(_, bound)| matches(bound)).map(|(k, _)| k).min()?;
        let bound = entry.classes.get_mut(&class_of(lower, upper))?.get_mut(&(lower, upper))?;
        let count = bound.bindings.len();
        let offset = (0..count).find(|n| {
            local.is_none_or(|node| bound.bindings[(bound.turn + n) % count].socket.node == node)
        })?;
        let index = (bound.turn + offset) % count;
        bound.turn = (index + 1) % count;
        Some(bound.bindings[index].socket)
    }

    /// All bindings whose range shares an instance with `range`, in no order.
    pub fn overlapping(&self, range: ServiceRange) -> impl Iterator<Item = &Binding> {
        self.overlapping_with_age(range).map(|(_, binding)| binding)
    }

    /// As [`NameTable::overlapping`], each with a number that grows with the order in which the table came to know them.
    pub(crate) fn overlapping_with_age(
        &self,
        range: ServiceRange,
    ) -> impl Iterator<Item = (u64, &Binding)> {
        let classes = self.services.get(&range.service).into_iter().flat_map(|s| &s.classes);
        classes
            .flat_map(move |(&class, ranges)| {
                let reach = (2u64 << class) - 1;
                let from = u64::from(range.lower).saturating_sub(reach) as u32;
                ranges.range((from, 0)..=(range.upper, u32::MAX))
            })
            .filter(move |((_, upper), _)| *upper >= range.lower)
            .flat_map(|(_, bound)| bound.ages.iter().copied().zip(&bound.bindings))
    }

    /// Number of bindings of exactly this range.
    pub fn count_of_range(&self, range: ServiceRange) -> usize {
        let class = class_of(range.lower, range.upper);
        let ranges = self.services.get(&range.service).and_then(|s| s.classes.get(&class));
        ranges
            .and_then(|r| r.get(&(range.lower, range.upper)))
            .map_or(0, |bound| bound.bindings.len())
    }

    /// Every binding of the table, by service type.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        let ranges = self.services.values().flat_map(|s| s.classes.values());
        ranges.flat_map(|ranges| ranges.values()).flat_map(|bound| &bound.bindings)
    }

    /// Number of bindings of a node.
    pub fn count_of(&self, node: NodeAddr) -> usize {
        self.by_node.get(&node).map_or(0, BTreeSet::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn binding(lower: u32, upper: u32, port: u32, node: u32) -> Binding {
        let socket = SocketAddr { port: Port(port), node: NodeAddr(node) };
        let range = ServiceRange { service: 100, lower, upper };
        Binding { range, socket, key: port, scope: Scope::Cluster }
    }

    #[test]
    fn equal_bindings_take_turns_and_a_domain_restricts_the_choice() {
        let mut table = NameTable::default();
        for (port, node) in [(1, 1), (2, 2), (3, 1)] {
            table.insert(binding(5, 9, port, node)).unwrap();
        }
        let ports = |table: &mut NameTable, local| -> Vec<u32> {
            (0..4).map(|_| table.lookup(100, 7, local).unwrap().port.0).collect()
        };
        assert_eq!(ports(&mut table, None), [1, 2, 3, 1]);
        assert_eq!(ports(&mut table, Some(NodeAddr(1))), [3, 1, 3, 1]);
        assert_eq!(table.lookup(100, 7, Some(NodeAddr(9))), None);
        assert_eq!(table.lookup(100, 10, None), None);
        assert_eq!(table.lookup(101, 7, None), None);
    }

    #[test]
    fn a_lost_node_takes_its_bindings_along() {
        let mut table = NameTable::default();
        for (port, node) in [(1, 1), (2, 2), (3, 1)] {
            table.insert(binding(0, u32::MAX, port, node)).unwrap();
        }
        assert_eq!(table.insert(binding(0, u32::MAX, 2, 2)), Err(BindingError::Exists));
        assert_eq!(table.insert(binding(2, 1, 2, 2)), Err(BindingError::BadRange));
        assert_eq!(table.remove_node(NodeAddr(1)).len(), 2);
        assert_eq!(table.iter().map(|b| b.socket.port.0).collect::<Vec<_>>(), [2]);
        assert!(
            table.remove(binding(0, u32::MAX, 2, 2).range, binding(0, 0, 2, 2).socket, 2).is_some()
        );
        assert!(table.services.is_empty() && table.by_node.is_empty(), "nothing is left behind");
    }

    proptest! {
        #[test]
        fn lookups_find_what_a_walk_over_all_bindings_finds(
            ranges in prop::collection::vec((0u32..200, 0u32..200), 1..40),
            wide in prop::collection::vec(any::<(u32, u32)>(), 0..5),
            probe in 0u32..220, width in 0u32..50,
        ) {
            let mut table = NameTable::default();
            let mut all = Vec::new();
            for (n, (a, b)) in ranges.iter().chain(&wide).enumerate() {
                let entry = binding(*a.min(b), *a.max(b), n as u32, 1);
                table.insert(entry).unwrap();
                all.push(entry);
            }
            let range = ServiceRange { service: 100, lower: probe, upper: probe + width };
            let mut expected: Vec<_> = all.iter().filter(|b| b.range.overlaps(&range)).copied().collect();
            let mut found: Vec<_> = table.overlapping(range).copied().collect();
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
            let best = all.iter().filter(|b| b.range.contains(probe)).map(|b| b.range).min();
            let got = table.lookup(100, probe, None).and_then(|s| all.iter().find(|b| b.socket == s)).map(|b| b.range);
            prop_assert_eq!(got, best);
        }
    }
}
