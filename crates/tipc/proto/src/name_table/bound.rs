//! The sockets bound to one exact range, and whose turn it is.

use crate::addr::{NodeAddr, Port, Scope, SocketAddr};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

/// One socket bound to a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) socket: SocketAddr,
    pub(super) key: u32,
    pub(super) scope: Scope,
}

/// The members of a range. Nearly all ranges have one, which then stands in the tree itself.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    One(u64, Member),
    Many(Box<Crowd>),
}

/// Members by age: the number each got when the table came to know it.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    members: BTreeMap<u64, Member>,
    of_node: BTreeSet<(NodeAddr, u64)>,
    /// The first member of this age or later is next.
    turn: u64,
}

impl Crowd {
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

impl Bound {
    pub(super) fn insert(&mut self, age: u64, member: Member) {
        match self {
            Self::Many(crowd) => crowd.insert(age, member),
            Self::One(first_age, first) => {
                let mut crowd = Box::<Crowd>::default();
                crowd.insert(*first_age, *first);
                crowd.insert(age, member);
                *self = Self::Many(crowd);
            }
        }
    }

    /// Removes a member, and says whether it was the last, with which the range is to go.
    pub(super) fn remove(&mut self, age: u64) -> Option<(Member, bool)> {
        match self {
            Self::One(at, member) => (*at == age).then_some((*member, true)),
            Self::Many(crowd) => {
                let member = crowd.members.remove(&age)?;
                crowd.of_node.remove(&(member.socket.node, age));
                Some((member, crowd.members.is_empty()))
            }
        }
    }

    /// The member whose turn it is, among those of one node if one is given.
    pub(super) fn next(&mut self, of: Option<NodeAddr>) -> Option<SocketAddr> {
        match self {
            Self::One(_, member) => {
                of.is_none_or(|node| member.socket.node == node).then_some(member.socket)
            }
            Self::Many(crowd) => crowd.next(of),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Many(crowd) => crowd.members.len(),
        }
    }

    /// The members and their ages, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Member)> {
        let (one, many) = match self {
            Self::One(age, member) => (Some((*age, member)), None),
            Self::Many(crowd) => (None, Some(crowd)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|c| &c.members).map(|(age, m)| (*age, m)))
    }
}

/// What one node has bound to a range.
#[derive(Clone, Debug)]
pub(super) enum Own {
    One((Port, u32), (u64, Scope)),
    Many(Box<Several>),
}

/// Boxed as a whole, so that the one binding that nearly all ranges have takes little room.
#[derive(Clone, Debug)]
pub(super) struct Several(BTreeMap<(Port, u32), (u64, Scope)>);

impl Own {
    /// False when it is there already.
    pub(super) fn insert(&mut self, id: (Port, u32), entry: (u64, Scope)) -> bool {
        match self {
            Self::One(there, first) => {
                if *there == id {
                    return false;
                }
                *self = Self::Many(Box::new(Several([(*there, *first), (id, entry)].into())));
                true
            }
            Self::Many(all) => {
                let new = !all.0.contains_key(&id);
                if new {
                    all.0.insert(id, entry);
                }
                new
            }
        }
    }

    /// Removes a binding and gives its age, and says whether it was the last, with which the range is to go.
    pub(super) fn remove(&mut self, id: (Port, u32)) -> Option<(u64, bool)> {
        match self {
            Self::One(there, (age, _)) => (*there == id).then_some((*age, true)),
            Self::Many(all) => {
                let (age, _) = all.0.remove(&id)?;
                Some((age, all.0.is_empty()))
            }
        }
    }

    pub(super) fn first(&self) -> Option<(Port, u32)> {
        match self {
            Self::One(id, _) => Some(*id),
            Self::Many(all) => all.0.keys().next().copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ((Port, u32), (u64, Scope))> {
        let (one, many) = match self {
            Self::One(id, entry) => (Some((*id, *entry)), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|all| all.0.iter()).map(|(i, e)| (*i, *e)))
    }
}
