//! Numbers of endpoints, which are never reused for another endpoint.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;

/// The number of an endpoint, unique in its node for as long as the node runs: it is never assigned to another
/// endpoint, however many are opened and closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spid(NonZeroU32);

impl Spid {
    /// Creates a number; `None` for 0, which no endpoint has.
    pub const fn new(number: u32) -> Option<Spid> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Spid(number)),
            None => None,
        }
    }

    /// Returns the number as an integer.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Debug for Spid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}

impl fmt::Display for Spid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}

/// The state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// An endpoint has the number.
    Alive,
    /// An endpoint had the number and has ended. LINX calls this a zombie.
    Dead,
    /// No endpoint ever had the number.
    Unknown,
}

/// The composition of a number from an index, which is reused, and a count of the uses of that index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    /// Number of bits of the index.
    pub(crate) index: u32,
    /// Number of bits of the count.
    pub(crate) instance: u32,
}

impl Widths {
    /// Allows a million endpoints at a time and 4096 uses of each index, which makes 4 billion endpoints in the
    /// lifetime of a node.
    pub(crate) const FULL: Widths = Widths { index: 20, instance: 12 };
}

struct Slot<T> {
    instance: u32,
    value: Option<T>,
}

/// A table of values by their numbers.
pub(crate) struct SpidTable<T> {
    widths: Widths,
    slots: Vec<Slot<T>>,
    /// Indices that may be reused, in the order in which they were freed.
    free: VecDeque<u32>,
}

impl<T> SpidTable<T> {
    /// Creates an empty table.
    pub(crate) fn new(widths: Widths) -> Self {
        // Index 0 is not used, so that no number is 0.
        SpidTable { widths, slots: vec![Slot { instance: 0, value: None }], free: VecDeque::new() }
    }

    /// Assigns a number to a value; `None` if every index is in use or used up.
    pub(crate) fn insert(&mut self, value: T) -> Option<Spid> {
        let fresh = self.slots.len() < 1 << self.widths.index;
        // Unused indices are taken first, so that the counts of uses grow evenly.
        let index = if fresh {
            self.slots.push(Slot { instance: 0, value: None });
            self.slots.len() - 1
        } else {
            self.free.pop_front()? as usize
        };
        let slot = &mut self.slots[index];
        slot.value = Some(value);
        Spid::new(slot.instance << self.widths.index | index as u32)
    }

    fn split(&self, spid: Spid) -> (usize, u32) {
        let mask = (1 << self.widths.index) - 1;
        ((spid.get() & mask) as usize, spid.get() >> self.widths.index)
    }

    /// Removes the value with this number, which is not assigned again; `None` if there is no such value.
    pub(crate) fn remove(&mut self, spid: Spid) -> Option<T> {
        let (index, instance) = self.split(spid);
        let last = (1 << self.widths.instance) - 1;
        let slot = self.slots.get_mut(index).filter(|slot| slot.instance == instance)?;
        let value = slot.value.take()?;
        if slot.instance < last {
            slot.instance += 1;
            self.free.push_back(index as u32);
        } else {
            // The index is used up: another use would repeat a number. An instance beyond the last one matches no
            // number.
            slot.instance = last + 1;
        }
        Some(value)
    }

    /// Returns the value with this number; `None` if there is none.
    pub(crate) fn get(&self, spid: Spid) -> Option<&T> {
        let (index, instance) = self.split(spid);
        self.slots.get(index).filter(|slot| slot.instance == instance)?.value.as_ref()
    }

    /// Returns the value with this number, for changing.
    pub(crate) fn get_mut(&mut self, spid: Spid) -> Option<&mut T> {
        let (index, instance) = self.split(spid);
        self.slots.get_mut(index).filter(|slot| slot.instance == instance)?.value.as_mut()
    }

    /// Returns the state of a number.
    pub(crate) fn standing(&self, spid: Spid) -> Standing {
        let (index, instance) = self.split(spid);
        match self.slots.get(index) {
            Some(slot) if slot.instance == instance && slot.value.is_some() => Standing::Alive,
            Some(slot) if slot.instance > instance => Standing::Dead,
            _ => Standing::Unknown,
        }
    }

    /// Returns all values, in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Spid, &T)> {
        let bits = self.widths.index;
        self.slots.iter().enumerate().filter_map(move |(index, slot)| {
            let spid = Spid::new(slot.instance << bits | index as u32)?;
            Some((spid, slot.value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_given_twice_and_they_end() {
        let mut table = SpidTable::new(Widths { index: 3, instance: 2 });
        let mut seen = HashSet::new();
        while let Some(spid) = table.insert(()) {
            assert!(seen.insert(spid), "{spid} was assigned twice");
            assert_eq!(table.standing(spid), Standing::Alive);
            assert_eq!(table.remove(spid), Some(()));
            assert_eq!(table.remove(spid), None);
        }
        assert_eq!(seen.len(), 7 * 4, "each index but 0 has four uses");
        for spid in seen {
            assert_eq!(table.standing(spid), Standing::Dead);
            assert!(table.get(spid).is_none());
        }
        assert_eq!(table.iter().count(), 0);
    }

    #[test]
    fn a_number_that_was_not_given_is_unknown() {
        let mut table = SpidTable::new(Widths::FULL);
        let spid = table.insert('a').unwrap();
        assert_eq!(table.iter().collect::<Vec<_>>(), [(spid, &'a')]);
        assert_eq!(table.standing(Spid::new(spid.get() + 1).unwrap()), Standing::Unknown);
        assert_eq!(table.standing(Spid::new(spid.get() | 1 << 20).unwrap()), Standing::Unknown);
    }
}
