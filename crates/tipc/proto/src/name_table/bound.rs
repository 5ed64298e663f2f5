//! The sockets bound to one exact range: a single socket, or a rotation of several.

use super::rotation::{Rotation, Rotations};
use crate::addr::{NodeAddr, Port, Scope, SocketAddr};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// One socket bound to a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) socket: SocketAddr,
    pub(super) key: u32,
    pub(super) scope: Scope,
}

/// The members of a range. Nearly all ranges have a single member, which is stored in the tree itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    One(u64, Member),
    /// Number of the rotation that holds the members.
    Many(u32),
}

impl Bound {
    /// Adds a member and returns the number of the rotation that now holds the members.
    pub(super) fn insert(&mut self, rotations: &mut Rotations, serial: u64, member: Member) -> u32 {
        let id = match *self {
            Self::Many(id) => id,
            Self::One(first_serial, first) => {
                let mut rotation = Rotation::default();
                rotation.insert(first_serial, first);
                rotations.enter(rotation)
            }
        };
        *self = Self::Many(id);
        if let Some(rotation) = rotations.get_mut(id) {
            rotation.insert(serial, member);
        }
        id
    }

    /// Removes a member. Also returns whether no member is left, in which case the caller must remove the range.
    pub(super) fn remove(
        &mut self,
        rotations: &mut Rotations,
        serial: u64,
    ) -> Option<(Member, bool)> {
        match *self {
            Self::One(at, member) => (at == serial).then_some((member, true)),
            Self::Many(id) => {
                let rotation = rotations.get_mut(id)?;
                let member = rotation.remove(serial)?;
                let last = rotation.len() == 0;
                if last {
                    rotations.leave(id);
                }
                Some((member, last))
            }
        }
    }

    /// The next member in round-robin order, optionally only among those of one node.
    #[inline]
    pub(super) fn next(
        &self,
        rotations: &mut Rotations,
        of: Option<NodeAddr>,
    ) -> Option<SocketAddr> {
        match self {
            Self::One(_, member) => {
                of.is_none_or(|node| member.socket.node == node).then_some(member.socket)
            }
            Self::Many(id) => rotations.get_mut(*id)?.next(of),
        }
    }

    pub(super) fn len(&self, rotations: &Rotations) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Many(id) => rotations.get(*id).map_or(0, Rotation::len),
        }
    }

    /// The members with their serial numbers, in increasing order (oldest member first).
    pub(super) fn iter<'a>(
        &'a self,
        rotations: &'a Rotations,
    ) -> impl Iterator<Item = (u64, &'a Member)> {
        let (one, many) = match self {
            Self::One(serial, member) => (Some((*serial, member)), None),
            Self::Many(id) => (None, rotations.get(*id)),
        };
        one.into_iter().chain(many.into_iter().flat_map(Rotation::iter))
    }
}

/// One node's bindings to a range.
#[derive(Clone, Debug)]
pub(super) enum Own {
    One((Port, u32), (u64, Scope)),
    Many(Box<Several>),
}

/// Two or more bindings. Boxed as a whole to keep the common case, a single binding, small.
#[derive(Clone, Debug)]
pub(super) struct Several(BTreeMap<(Port, u32), (u64, Scope)>);

impl Own {
    /// Adds a binding. Returns false if it already exists.
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

    /// Removes a binding. Returns its serial number, and whether no binding is left, in which case the caller must
    /// remove the range.
    pub(super) fn remove(&mut self, id: (Port, u32)) -> Option<(u64, bool)> {
        match self {
            Self::One(there, (serial, _)) => (*there == id).then_some((*serial, true)),
            Self::Many(all) => {
                let (serial, _) = all.0.remove(&id)?;
                Some((serial, all.0.is_empty()))
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
