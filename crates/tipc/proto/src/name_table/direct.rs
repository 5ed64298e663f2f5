//! Direct access to the sockets of single-instance names, which most lookups request.
//!
//! Among a million names, a lookup spends most of its time waiting for memory, so this path reads a single cache line:
//! the slot that the name's hash selects contains the name's only socket, or the number of its rotation. The table is
//! split into shards that grow separately, so that no single binding has to wait until a million others have been
//! moved. The hash is keyed because peers choose the names.

use crate::addr::{NodeAddr, Port, SocketAddr};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

const SHARDS: usize = 64;

/// What a name resolves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The name's only socket.
    Socket(SocketAddr),
    /// The rotation with this number.
    Rotation(u32),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Service type and instance of the name as one number; [`FREE`] if the slot is empty.
    point: u64,
    /// The name's only socket. If its node is [`ROTATION`], the port is instead the number of a rotation.
    socket: SocketAddr,
}

/// A node address that indicates a rotation instead of a socket. If a node really has this address, its sockets are
/// found only through the tree.
const ROTATION: NodeAddr = NodeAddr(u32::MAX);

/// Value of `point` in a free slot. The name that corresponds to this value, service type 2^32 - 1 with instance 2^32 -
/// 1, is found only through the tree.
const FREE: u64 = u64::MAX;

#[derive(Clone, Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    used: usize,
}

/// Sockets by name.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    key: u64,
    shards: Option<Box<[Shard; SHARDS]>>,
}

/// A keyed hash: two multiplications to 128 bits, each folded to 64.
const fn hash(key: u64, point: u64) -> u64 {
    let product = (point ^ key) as u128 * (key.rotate_left(32) | 1) as u128;
    let folded = (product as u64) ^ (product >> 64) as u64;
    let again = folded as u128 * 0x9e37_79b9_7f4a_7c15;
    (again as u64) ^ (again >> 64) as u64
}

const fn place(hash: u64, slots: usize) -> usize {
    hash as usize & (slots - 1)
}

impl Shard {
    /// Index of the slot that holds the name, or of the free slot that ends the search.
    fn find(&self, hash: u64, point: u64) -> usize {
        let mut at = place(hash, self.slots.len());
        while self.slots[at].point != point && self.slots[at].point != FREE {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    fn grow(&mut self, key: u64) {
        let len = (2 * self.slots.len()).max(8);
        let free = Slot { point: FREE, socket: SocketAddr::default() };
        let old = core::mem::replace(&mut self.slots, vec![free; len]);
        for slot in old.into_iter().filter(|slot| slot.point != FREE) {
            let at = self.find(hash(key, slot.point), slot.point);
            self.slots[at] = slot;
        }
    }

    /// Frees a slot. A later entry that was stored further on only because this slot was occupied moves back.
    fn free(&mut self, key: u64, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.slots[at].point == FREE {
                break;
            }
            let wanted = place(hash(key, self.slots[at].point), self.slots.len());
            // Whether the hole lies between the entry's preferred slot and its actual one.
            if at.wrapping_sub(wanted) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole].point = FREE;
        self.used -= 1;
    }
}

impl Direct {
    pub(super) const fn new(key: u64) -> Self {
        Self { key, shards: None }
    }

    fn shard(&mut self, hash: u64) -> Option<&mut Shard> {
        self.shards.as_mut()?.get_mut((hash >> 58) as usize)
    }

    #[inline]
    pub(super) fn get(&self, point: u64) -> Option<Way> {
        let hash = hash(self.key, point);
        let shard = self.shards.as_ref()?.get((hash >> 58) as usize)?;
        if shard.used == 0 || point == FREE {
            return None;
        }
        let slot = shard.slots[shard.find(hash, point)];
        (slot.point == point).then_some(match slot.socket {
            SocketAddr { node: ROTATION, port } => Way::Rotation(port.0),
            socket => Way::Socket(socket),
        })
    }

    /// Adds a name or replaces what it resolves to.
    pub(super) fn insert(&mut self, point: u64, way: Way) {
        let socket = match way {
            Way::Socket(SocketAddr { node: ROTATION, .. }) => return self.remove(point),
            Way::Socket(socket) => socket,
            Way::Rotation(id) => SocketAddr { node: ROTATION, port: Port(id) },
        };
        let (key, hash) = (self.key, hash(self.key, point));
        self.shards.get_or_insert_with(|| {
            Box::new([const { Shard { slots: Vec::new(), used: 0 } }; SHARDS])
        });
        let Some(shard) = self.shard(hash).filter(|_| point != FREE) else { return };
        // Keep the table at most three quarters full, so that most searches end within the cache line in which they began.
        if 4 * (shard.used + 1) > 3 * shard.slots.len() {
            shard.grow(key);
        }
        let at = shard.find(hash, point);
        shard.used += usize::from(shard.slots[at].point == FREE);
        shard.slots[at] = Slot { point, socket };
    }

    pub(super) fn remove(&mut self, point: u64) {
        let (key, hash) = (self.key, hash(self.key, point));
        let Some(shard) = self.shard(hash).filter(|shard| shard.used > 0 && point != FREE) else {
            return;
        };
        let at = shard.find(hash, point);
        if shard.slots[at].point == point {
            shard.free(key, at);
        }
        if shard.used == 0 {
            shard.slots = Vec::new();
        }
    }

    #[cfg(test)]
    fn longest_search(&self) -> usize {
        let shards = self.shards.iter().flat_map(|shards| shards.iter());
        let of = |shard: &Shard| {
            let len = shard.slots.len();
            let away = |(at, slot): (usize, &Slot)| {
                at.wrapping_sub(place(hash(self.key, slot.point), len)) & (len - 1)
            };
            shard.slots.iter().enumerate().filter(|(_, s)| s.point != FREE).map(away).max()
        };
        shards.filter_map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn socket(port: u32) -> Way {
        Way::Socket(SocketAddr { port: Port(port), node: NodeAddr(1) })
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(
            key in any::<u64>(),
            changes in prop::collection::vec((0u8..3, 0u64..60), 0..400),
        ) {
            let mut direct = Direct::new(key);
            let mut model = std::collections::BTreeMap::new();
            for (n, (what, point)) in changes.into_iter().enumerate() {
                // Point 59 stands for the reserved value.
                let point = if point == 59 { FREE } else { point };
                if what == 0 {
                    direct.remove(point);
                    model.remove(&point);
                } else if point != FREE {
                    let way = if what == 1 { socket(n as u32) } else { Way::Rotation(n as u32) };
                    direct.insert(point, way);
                    model.insert(point, way);
                } else {
                    direct.insert(point, socket(0));
                }
            }
            for point in (0..60).chain([FREE]) {
                prop_assert_eq!(direct.get(point), model.get(&point).copied());
            }
        }
    }

    #[test]
    fn neighbours_and_strides_do_not_collide() {
        for (first, stride) in
            [(1000 << 32, 1), (1000 << 32, 4096), (1000 << 32, 1 << 20), (0, 1 << 32)]
        {
            let mut direct = Direct::new(0x0123_4567_89ab_cdef);
            for n in 0..200_000u64 {
                direct.insert(first + n * stride, socket(n as u32));
            }
            let longest = direct.longest_search();
            assert!(longest < 128, "stride {stride}: {longest} slots for one name");
            assert_eq!(direct.get(first + 77 * stride), Some(socket(77)));
            for n in 0..200_000u64 {
                direct.remove(first + n * stride);
            }
            assert!(direct.shards.unwrap().iter().all(|shard| shard.slots.is_empty()));
        }
    }
}
