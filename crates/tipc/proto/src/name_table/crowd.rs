//! The sockets that share one exact range, and whose turn it is.
//!
//! Nearly all crowds are small. Those keep their members in one piece and hold the answer to the next lookup ready, so that a lookup
//! waits for memory once and what it prepares for the next one is waited for by nobody. Large ones are trees, in which no change walks over
//! the members.

use super::bound::Member;
use crate::addr::{NodeAddr, SocketAddr};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Members of a small crowd.
const SMALL_MAX: usize = 64;

/// Members by age: the number each got when the table came to know it. One cache line, without what it points to.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(super) struct Crowd {
    /// The socket of the member whose turn it is; the oldest one's when `turn` is behind the youngest.
    next: SocketAddr,
    /// Index of the member whose turn it is. That of none when the last one was removed: the turn is the next new one's, unless the
    /// oldest is asked for before.
    turn: u32,
    /// Oldest first; empty in a large crowd.
    small: Vec<(u64, Member)>,
    large: Option<Box<Large>>,
}

#[derive(Clone, Debug, Default)]
struct Large {
    members: BTreeMap<u64, Member>,
    of_node: BTreeSet<(NodeAddr, u64)>,
    /// The first member of this age or later is next.
    turn: u64,
}

impl Large {
    fn insert(&mut self, age: u64, member: Member) {
        self.of_node.insert((member.socket.node, age));
        self.members.insert(age, member);
    }

    fn next(&mut self, of: Option<NodeAddr>) -> Option<SocketAddr> {
        let turn = self.turn;
        let age = match of {
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
        // After the youngest the oldest is next, even if a younger one comes meanwhile.
        let youngest = self.members.last_key_value().is_some_and(|(last, _)| *last == age);
        self.turn = if youngest { 0 } else { age + 1 };
        Some(self.members.get(&age)?.socket)
    }
}

impl Crowd {
    /// Members come with rising ages.
    pub(super) fn insert(&mut self, age: u64, member: Member) {
        if let Some(large) = &mut self.large {
            return large.insert(age, member);
        }
        if self.small.len() < SMALL_MAX {
            // Exactly as much room as there are members would be copied for each; twice as much is wasted by most.
            if self.small.len() == self.small.capacity() {
                self.small.reserve_exact(2 + self.small.len() / 2);
            }
            self.small.push((age, member));
            return self.pass_to(self.turn as usize);
        }
        let turn = self.turn as usize;
        let mut large = Large {
            // Ages below those of the members stand for the oldest one.
            turn: turn.checked_sub(1).map_or(0, |before| self.small[before].0 + 1),
            ..Large::default()
        };
        for (age, member) in core::mem::take(&mut self.small) {
            large.insert(age, member);
        }
        large.insert(age, member);
        self.large = Some(Box::new(large));
    }

    /// The turn is this member's.
    fn pass_to(&mut self, at: usize) {
        self.turn = at as u32;
        if let Some((_, member)) = self.small.get(at).or_else(|| self.small.first()) {
            self.next = member.socket;
        }
    }

    pub(super) fn remove(&mut self, age: u64) -> Option<Member> {
        if let Some(large) = &mut self.large {
            let member = large.members.remove(&age)?;
            large.of_node.remove(&(member.socket.node, age));
            return Some(member);
        }
        let at = self.small.binary_search_by_key(&age, |(age, _)| *age).ok()?;
        let (_, member) = self.small.remove(at);
        let turn = self.turn as usize;
        self.pass_to(turn - usize::from(at < turn));
        Some(member)
    }

    /// The member whose turn it is, among those of one node if one is given.
    #[inline]
    pub(super) fn next(&mut self, of: Option<NodeAddr>) -> Option<SocketAddr> {
        if let Some(large) = &mut self.large {
            return large.next(of);
        }
        let (len, turn) = (self.small.len(), self.turn as usize);
        let Some(node) = of else {
            let found = self.next;
            let after = if turn < len { turn + 1 } else { 1 };
            // After the youngest the oldest is next, even if a younger one comes meanwhile.
            let after = if after < len { after } else { 0 };
            self.next = self.small.get(after)?.1.socket;
            self.turn = after as u32;
            return Some(found);
        };
        let (before, onwards) = self.small.split_at(turn.min(len));
        let is_its = |(_, (_, member)): &(usize, &(u64, Member))| member.socket.node == node;
        let found = onwards.iter().enumerate().find(is_its).map(|(n, _)| turn + n);
        let at = found.or_else(|| before.iter().enumerate().find(is_its).map(|(n, _)| n))?;
        let socket = self.small.get(at)?.1.socket;
        self.pass_to(if at + 1 < len { at + 1 } else { 0 });
        Some(socket)
    }

    pub(super) fn len(&self) -> usize {
        self.large.as_ref().map_or(self.small.len(), |large| large.members.len())
    }

    /// The members and their ages, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Member)> {
        let large = self.large.iter().flat_map(|large| &large.members);
        self.small.iter().map(|(age, m)| (*age, m)).chain(large.map(|(age, m)| (*age, m)))
    }
}

/// Crowds in a piece of memory that grows by one block.
const BLOCK: usize = 64;

/// All crowds of a table, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowds {
    blocks: Vec<Vec<Crowd>>,
    free: Vec<u32>,
}

impl Crowds {
    /// Takes one in; its number.
    pub(super) fn enter(&mut self, crowd: Crowd) -> u32 {
        if let Some(id) = self.free.pop()
            && let Some(place) = self.get_mut(id)
        {
            *place = crowd;
            return id;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let before = (self.blocks.len() - 1) * BLOCK;
        let Some(block) = self.blocks.last_mut() else { return 0 };
        block.push(crowd);
        (before + block.len() - 1) as u32
    }

    /// One that has no members any more goes. When none is left, so does their memory.
    pub(super) fn leave(&mut self, id: u32) {
        if let Some(place) = self.get_mut(id) {
            *place = Crowd::default();
            self.free.push(id);
        }
        if self.free.len() == self.blocks.iter().map(Vec::len).sum::<usize>() {
            *self = Self::default();
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&Crowd> {
        self.blocks.get(id as usize / BLOCK)?.get(id as usize % BLOCK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Crowd> {
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
        /// A large crowd's rules are the model; what is small follows them, and on the way from one to the other nobody loses the turn.
        #[test]
        fn small_and_large_crowds_take_the_same_turns(
            first in 0u32..90,
            steps in prop::collection::vec((0u8..8, any::<u32>()), 0..300),
        ) {
            let (mut crowd, mut model) = (Crowd::default(), Large::default());
            let mut ages = 0..;
            let mut join = |crowd: &mut Crowd, model: &mut Large, node| {
                let age = ages.next().expect("endless");
                crowd.insert(age, member(age as u32, node));
                model.insert(age, member(age as u32, node));
            };
            for n in 0..first {
                join(&mut crowd, &mut model, n % 4);
            }
            for (what, number) in steps {
                match what {
                    0..2 => join(&mut crowd, &mut model, number % 4),
                    2..4 => {
                        let at = number as usize % model.members.len().max(1);
                        if let Some(age) = model.members.keys().nth(at).copied() {
                            let gone = model.members.remove(&age).expect("it is there");
                            model.of_node.remove(&(gone.socket.node, age));
                            prop_assert_eq!(crowd.remove(age).map(|m| m.socket), Some(gone.socket));
                        }
                    }
                    4..7 if !model.members.is_empty() => {
                        prop_assert_eq!(crowd.next(None), model.next(None));
                    }
                    _ => {
                        let node = Some(NodeAddr(number % 5));
                        prop_assert_eq!(crowd.next(node), model.next(node));
                    }
                }
                prop_assert_eq!(crowd.len(), model.members.len());
                let ages: Vec<u64> = crowd.iter().map(|(age, _)| age).collect();
                prop_assert!(ages.iter().eq(model.members.keys()));
            }
        }
    }

    #[test]
    fn a_place_is_used_again_and_an_empty_hall_is_given_back() {
        let mut crowds = Crowds::default();
        let ids: Vec<u32> = (0..200).map(|_| crowds.enter(Crowd::default())).collect();
        assert!(ids.iter().copied().eq(0..200));
        crowds.leave(77);
        assert_eq!(crowds.enter(Crowd::default()), 77);
        ids.iter().for_each(|id| crowds.leave(*id));
        assert!(crowds.blocks.is_empty() && crowds.free.is_empty());
        assert_eq!(size_of::<Crowd>(), 64);
    }
}
