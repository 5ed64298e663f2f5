//! A rotation: the sockets that share one exact range, used in round-robin order.
//!
//! Nearly all rotations are small. A small rotation stores its members in a contiguous vector, and prepared answers to
//! the next few lookups in the rotation itself, so that a lookup waits for memory only once. Only one lookup in several
//! reads the members, to prepare new answers, and does not have to wait for the result. Large rotations are trees, in
//! which no change visits all members.

use super::bound::Member;
use crate::addr::{NodeAddr, SocketAddr};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Maximum number of members of a small rotation.
const SMALL_MAX: usize = 64;

/// Number of prepared answers: as many as fit into a cache line together with the rest of the struct.
const HAND: usize = 4;

/// The members in the order of their serial numbers. The table assigns increasing serial numbers to new bindings. The
/// struct itself fills one cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(super) struct Rotation {
    /// The prepared answers: from index `given` on, the sockets of the next member and of those that follow it.
    /// Meaningless in a large rotation, and if there are no members.
    hand: [SocketAddr; HAND],
    members: Members,
    /// Index of the next member in a small rotation. After the youngest member was removed, this may equal the number
    /// of members: the next member is then the one that is added next or, if a lookup comes first, the oldest member.
    turn: u8,
    /// How many of the prepared answers have been used; never all of them.
    given: u8,
}

#[derive(Clone, Debug)]
enum Members {
    /// Members with their serial numbers, in increasing order (oldest member first).
    Small(Vec<(u64, Member)>),
    Large(Box<Large>),
}

impl Default for Members {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

/// Index of the member that follows the one at `turn`, among `len` members. The youngest member (at the end) is
/// followed by the oldest one (at 0), even if another member is added before the next lookup.
const fn after(turn: usize, len: usize) -> usize {
    // An index past the end stands for the oldest member.
    let after = if turn < len { turn + 1 } else { 1 };
    if after < len { after } else { 0 }
}

#[derive(Clone, Debug, Default)]
struct Large {
    members: BTreeMap<u64, Member>,
    of_node: BTreeSet<(NodeAddr, u64)>,
    /// The next member is the first one whose serial number is at least this; if there is none, the oldest member.
    turn: u64,
}

impl Large {
    fn insert(&mut self, serial: u64, member: Member) {
        self.of_node.insert((member.socket.node, serial));
        self.members.insert(serial, member);
    }

    fn next(&mut self, of: Option<NodeAddr>) -> Option<SocketAddr> {
        let turn = self.turn;
        let serial = match of {
            None => {
                let mut onwards = self.members.range(turn..);
                *onwards.next().or_else(|| self.members.first_key_value())?.0
            }
            Some(node) => {
                let mut onwards = self.of_node.range((node, turn)..=(node, u64::MAX));
                let first = || self.of_node.range((node, 0)..=(node, turn)).next();
                onwards.next().or_else(first)?.1
            }
        };
        // The youngest is followed by the oldest, even if another member is added in the meantime.
        let youngest = self.members.last_key_value().is_some_and(|(last, _)| *last == serial);
        self.turn = if youngest { 0 } else { serial + 1 };
        Some(self.members.get(&serial)?.socket)
    }
}

impl Rotation {
    /// Adds a member. Its serial number must be higher than those of all other members.
    pub(super) fn insert(&mut self, serial: u64, member: Member) {
        let small = match &mut self.members {
            Members::Large(large) => return large.insert(serial, member),
            Members::Small(small) => small,
        };
        if small.len() < SMALL_MAX {
            // Growing by exactly one would copy the members each time; doubling would waste memory in most rotations.
            if small.len() == small.capacity() {
                small.reserve_exact(2 + small.len() / 2);
            }
            small.push((serial, member));
            return self.pass_to(self.turn);
        }
        let mut large = Large {
            // A serial number below those of all members stands for the oldest one.
            turn: self.turn.checked_sub(1).map_or(0, |before| small[before as usize].0 + 1),
            ..Large::default()
        };
        for (serial, member) in core::mem::take(small) {
            large.insert(serial, member);
        }
        large.insert(serial, member);
        self.members = Members::Large(Box::new(large));
    }

    /// Makes the member at this index the next one, and prepares the answers from there on. In a large rotation,
    /// prepares nothing.
    #[inline]
    fn pass_to(&mut self, at: u8) {
        (self.turn, self.given) = (at, 0);
        let Members::Small(small) = &self.members else { return };
        let mut at = at as usize;
        for place in &mut self.hand {
            let Some((_, member)) = small.get(at).or_else(|| small.first()) else { return };
            *place = member.socket;
            at = after(at, small.len());
        }
    }

    pub(super) fn remove(&mut self, serial: u64) -> Option<Member> {
        let small = match &mut self.members {
            Members::Large(large) => {
                let member = large.members.remove(&serial)?;
                large.of_node.remove(&(member.socket.node, serial));
                return Some(member);
            }
            Members::Small(small) => small,
        };
        let at = small.binary_search_by_key(&serial, |(serial, _)| *serial).ok()?;
        let (_, member) = small.remove(at);
        self.pass_to(self.turn - u8::from(at < self.turn as usize));
        Some(member)
    }

    /// The next member in round-robin order, optionally only among those of one node.
    #[inline]
    pub(super) fn next(&mut self, of: Option<NodeAddr>) -> Option<SocketAddr> {
        let small = match &mut self.members {
            Members::Large(large) => return large.next(of),
            Members::Small(small) => small,
        };
        let (len, turn) = (small.len(), self.turn as usize);
        let Some(node) = of else {
            let found = *self.hand.get(self.given as usize).filter(|_| len > 0)?;
            self.turn = after(turn, len) as u8;
            self.given += 1;
            if self.given as usize == HAND {
                self.pass_to(self.turn);
            }
            return Some(found);
        };
        let (before, onwards) = small.split_at(turn.min(len));
        let is_its = |(_, (_, member)): &(usize, &(u64, Member))| member.socket.node == node;
        let found = onwards.iter().enumerate().find(is_its).map(|(n, _)| turn + n);
        let at = found.or_else(|| before.iter().enumerate().find(is_its).map(|(n, _)| n))?;
        let socket = small.get(at)?.1.socket;
        self.pass_to(after(at, len) as u8);
        Some(socket)
    }

    pub(super) fn len(&self) -> usize {
        match &self.members {
            Members::Small(small) => small.len(),
            Members::Large(large) => large.members.len(),
        }
    }

    /// The members with their serial numbers, in increasing order (oldest member first).
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Member)> {
        let (small, large) = match &self.members {
            Members::Small(small) => (&small[..], None),
            Members::Large(large) => (&[][..], Some(&large.members)),
        };
        let large = large.into_iter().flatten();
        small.iter().map(|(serial, m)| (*serial, m)).chain(large.map(|(serial, m)| (*serial, m)))
    }
}

/// Number of rotations per block; memory grows by one block at a time.
const BLOCK: usize = 64;

/// All rotations of a table, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Rotations {
    blocks: Vec<Vec<Rotation>>,
    free: Vec<u32>,
}

impl Rotations {
    /// Adds a rotation and returns its number.
    pub(super) fn enter(&mut self, rotation: Rotation) -> u32 {
        if let Some(id) = self.free.pop()
            && let Some(place) = self.get_mut(id)
        {
            *place = rotation;
            return id;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let before = (self.blocks.len() - 1) * BLOCK;
        let Some(block) = self.blocks.last_mut() else { return 0 };
        block.push(rotation);
        (before + block.len() - 1) as u32
    }

    /// Removes a rotation that has no members left. When the last one is removed, all memory is freed.
    pub(super) fn leave(&mut self, id: u32) {
        if let Some(place) = self.get_mut(id) {
            *place = Rotation::default();
            self.free.push(id);
        }
        if self.free.len() == self.blocks.iter().map(Vec::len).sum::<usize>() {
            *self = Self::default();
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&Rotation> {
        self.blocks.get(id as usize / BLOCK)?.get(id as usize % BLOCK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Rotation> {
        self.blocks.get_mut(id as usize / BLOCK)?.get_mut(id as usize % BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Port, Scope};
    use proptest::prelude::*;

    fn member(port: u32, node: u32) -> Member {
        let socket = SocketAddr { port: Port(port), node: NodeAddr(node) };
        Member { socket, key: 0, scope: Scope::Cluster }
    }

    proptest! {
        /// A large rotation serves as the model: a small one must behave the same, and the conversion must not change
        /// the order.
        #[test]
        fn small_and_large_rotations_take_the_same_turns(
            first in 0u32..90,
            steps in prop::collection::vec((0u8..8, any::<u32>()), 0..300),
        ) {
            let (mut rotation, mut model) = (Rotation::default(), Large::default());
            let mut serials = 0..;
            let mut join = |rotation: &mut Rotation, model: &mut Large, node| {
                let serial = serials.next().expect("endless");
                rotation.insert(serial, member(serial as u32, node));
                model.insert(serial, member(serial as u32, node));
            };
            for n in 0..first {
                join(&mut rotation, &mut model, n % 4);
            }
            for (what, number) in steps {
                match what {
                    0..2 => join(&mut rotation, &mut model, number % 4),
                    2..4 => {
                        let at = number as usize % model.members.len().max(1);
                        if let Some(serial) = model.members.keys().nth(at).copied() {
                            let gone = model.members.remove(&serial).expect("it is there");
                            model.of_node.remove(&(gone.socket.node, serial));
                            prop_assert_eq!(rotation.remove(serial).map(|m| m.socket), Some(gone.socket));
                        }
                    }
                    4..7 if !model.members.is_empty() => {
                        prop_assert_eq!(rotation.next(None), model.next(None));
                    }
                    _ => {
                        let node = Some(NodeAddr(number % 5));
                        prop_assert_eq!(rotation.next(node), model.next(node));
                    }
                }
                prop_assert_eq!(rotation.len(), model.members.len());
                let serials: Vec<u64> = rotation.iter().map(|(serial, _)| serial).collect();
                prop_assert!(serials.iter().eq(model.members.keys()));
            }
        }
    }

    #[test]
    fn a_place_is_used_again_and_an_empty_hall_is_given_back() {
        let mut rotations = Rotations::default();
        let ids: Vec<u32> = (0..200).map(|_| rotations.enter(Rotation::default())).collect();
        assert!(ids.iter().copied().eq(0..200));
        rotations.leave(77);
        assert_eq!(rotations.enter(Rotation::default()), 77);
        ids.iter().for_each(|id| rotations.leave(*id));
        assert!(rotations.blocks.is_empty() && rotations.free.is_empty());
        assert_eq!(size_of::<Rotation>(), 64);
    }
}
