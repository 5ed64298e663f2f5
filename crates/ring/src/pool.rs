//! A pool of buffers in memory shared by two ends, so that a message can be passed by reference: it is written and read
//! in the same place.
//!
//! Each end allocates from its own half only, with bookkeeping in its private memory: nothing that the peer writes can
//! damage it. A block is passed by its [`Reference`], over a channel that keeps the order of memory accesses (a ring).
//! The receiving end may pass it back, or drop it: then the block's word in a shared table becomes 0, and its owner can
//! use it again. Thus returning a block needs no message.
//!
//! After an end has died, the other one keeps the blocks that it holds until it drops them; the kernel frees the memory
//! when neither end has it mapped. Nothing has to be recovered, and nothing can be lost.
//!
//! A peer can change the content of any block at any time, as it can with a ring's records (see the [crate's](crate)
//! documentation). An invalid reference is refused.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossway_sys::OsError;
use crossway_sys::shm::{self, Mapping};

use crate::sync::{AtomicU32, Ordering};

/// The length of a block is a multiple of this many bytes.
pub const UNIT: usize = 512;

/// Released blocks are not collected while fewer blocks than this are lent.
const COLLECT_AT: usize = 16;

/// The value of a block's word in the shared table while the peer has not released it.
const IN_USE: u32 = 1;
/// The value of a block's word after the peer has released it.
const RELEASED: u32 = 0;

/// The location of a block, in the form in which it is passed to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The first unit, counted from the start of the first half.
    pub at: u32,
    /// Number of units.
    pub units: u32,
}

impl Reference {
    /// Length of the encoded form in bytes.
    pub const LEN: usize = 8;

    /// The encoded form.
    pub fn encode(self) -> [u8; Self::LEN] {
        (u64::from(self.at) << 32 | u64::from(self.units)).to_ne_bytes()
    }

    /// Decodes a reference; [`Pool::accept`] checks it.
    pub fn decode(bytes: [u8; Self::LEN]) -> Reference {
        let word = u64::from_ne_bytes(bytes);
        Reference { at: (word >> 32) as u32, units: word as u32 }
    }

    /// The length of the block in bytes.
    pub fn room(self) -> usize {
        self.units as usize * UNIT
    }

    fn end(self) -> u64 {
        u64::from(self.at) + u64::from(self.units)
    }
}

/// Non-overlapping ranges of units. The key is the first unit of a range, the value its number of units.
type Ranges = BTreeMap<u32, u32>;

/// An end's bookkeeping of its own half.
#[derive(Debug)]
struct Own {
    free: Ranges,
    /// Blocks passed to the peer that the peer has not passed back.
    lent: Ranges,
    /// Number of lent blocks at which released ones are collected; it is chosen so that each block is examined rarely.
    collect_at: usize,
}

impl Own {
    /// Takes `units` from the first free range that is long enough; `None` if none is.
    fn take(&mut self, units: u32) -> Option<Reference> {
        let (at, have) =
            self.free.iter().find(|(_, have)| **have >= units).map(|(a, h)| (*a, *h))?;
        self.free.remove(&at);
        if have > units {
            self.free.insert(at + units, have - units);
        }
        Some(Reference { at, units })
    }

    /// Frees a range and joins it with its neighbours.
    fn give_back(&mut self, block: Reference) {
        let (mut at, mut units) = (block.at, block.units);
        if let Some(behind) = self.free.remove(&(at + units)) {
            units += behind;
        }
        if let Some((before, len)) = self.free.range(..at).next_back().map(|(b, l)| (*b, *l))
            && before + len == at
        {
            (at, units) = (before, units + len);
        }
        self.free.insert(at, units);
    }
}

/// What an end shares with its blocks.
#[derive(Debug)]
struct Shared {
    mapping: Mapping,
    /// Number of units of each half.
    half: u32,
    /// The first unit of this end's half.
    start: u32,
    own: Mutex<Own>,
    /// The peer's blocks that this end holds.
    foreign: Mutex<Ranges>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of units of a half of `bytes` bytes.
fn units(bytes: usize) -> u32 {
    (bytes / UNIT) as u32
}

/// Length of the table of words in bytes.
fn table_len(half: u32) -> usize {
    (2 * half as usize * size_of::<u32>()).next_multiple_of(shm::page_len())
}

impl Shared {
    fn is_own(&self, block: Reference) -> bool {
        (self.start..self.start + self.half).contains(&block.at)
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        debug_assert!(at < 2 * self.half);
        // SAFETY: the table has a word for each unit of both halves, at the start of the mapping, and `at` is a unit of
        // one of them, as every constructor of a block checks; the words are only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.start().as_ptr().cast::<u32>().add(at as usize)) }
    }

    fn place(&self, block: Reference) -> *mut u8 {
        debug_assert!(block.end() <= 2 * u64::from(self.half));
        // SAFETY: within the mapping, which has the units of both halves behind the table.
        unsafe {
            self.mapping.start().as_ptr().add(table_len(self.half) + block.at as usize * UNIT)
        }
    }

    /// Frees the blocks that the peer has released.
    fn collect(&self, own: &mut Own) {
        let released = |at: &u32| self.word(*at).load(Ordering::Acquire) == RELEASED;
        let back: Vec<u32> = own.lent.keys().copied().filter(released).collect();
        for at in back {
            if let Some(units) = own.lent.remove(&at) {
                own.give_back(Reference { at, units });
            }
        }
        own.collect_at = COLLECT_AT.max(2 * own.lent.len());
    }
}

/// Creates the memory of a pool with `half` bytes for each end. Pages are allocated when they are first written to.
/// `label` appears in `/proc/<pid>/maps`.
///
/// # Errors
/// If a system call fails.
pub fn create(label: &str, half: usize) -> Result<OwnedFd, OsError> {
    shm::create_sealed(label, memory_len(half))
}

fn memory_len(half: usize) -> usize {
    table_len(units(half)) + 2 * units(half) as usize * UNIT
}

/// One end of a pool.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

impl Pool {
    /// Maps the memory that [`create`] made with the same `half`. `is_first` must be true for one of the two ends and
    /// false for the other.
    ///
    /// # Errors
    /// If the memory does not have the agreed size and seals, or a system call fails.
    pub fn map(memory: &OwnedFd, half: usize, is_first: bool) -> Result<Pool, OsError> {
        let len = memory_len(half);
        if !shm::is_sealed(memory.as_fd(), len)? {
            let why = std::io::Error::other(
                "the shared memory is not sealed, or does not have the agreed size",
            );
            return Err(OsError::new("mmap", "pool", why));
        }
        let mapping = Mapping::of_pieces_lazily(memory, &[(0, len)])?;
        let half = units(half);
        let start = if is_first { 0 } else { half };
        let own = Own {
            free: Ranges::from([(start, half)]),
            lent: Ranges::new(),
            collect_at: COLLECT_AT,
        };
        let foreign = Mutex::new(Ranges::new());
        Ok(Pool(Arc::new(Shared { mapping, half, start, own: Mutex::new(own), foreign })))
    }

    /// Allocates a block of at least `len` bytes from this end's half; `None` if no free range is long enough now. The
    /// block still contains whatever earlier messages between the two ends left there.
    pub fn alloc(&self, len: usize) -> Option<Block> {
        let units = u32::try_from(len.div_ceil(UNIT).max(1)).ok()?;
        let mut own = locked(&self.0.own);
        // Early, so that pages which were used before are used again.
        if own.lent.len() >= own.collect_at {
            self.0.collect(&mut own);
        }
        let place = match own.take(units) {
            Some(place) => place,
            None => {
                self.0.collect(&mut own);
                own.take(units)?
            }
        };
        drop(own);
        // Before the block is passed on, because the peer may release it immediately after.
        self.0.word(place.at).store(IN_USE, Ordering::Relaxed);
        Some(Block { pool: Arc::clone(&self.0), place })
    }

    /// Whether a block is from this pool.
    pub fn has(&self, block: &Block) -> bool {
        Arc::ptr_eq(&self.0, &block.pool)
    }

    /// Takes over a block that the peer has passed to this end. `None` if no correct peer would have passed it: it lies
    /// outside of the pool, overlaps with another block that is held here, or belongs to this end and was not passed to
    /// the peer.
    pub fn accept(&self, place: Reference) -> Option<Block> {
        let shared = &self.0;
        let in_one_half = place.units > 0
            && (place.end() <= u64::from(shared.half)
                || (place.at >= shared.half && place.end() <= 2 * u64::from(shared.half)));
        if !in_one_half {
            return None;
        }
        if shared.is_own(place) {
            let lent = &mut locked(&shared.own).lent;
            if lent.get(&place.at) != Some(&place.units) {
                return None;
            }
            lent.remove(&place.at);
            shared.word(place.at).store(IN_USE, Ordering::Relaxed);
        } else {
            let mut foreign = locked(&shared.foreign);
            let before = foreign.range(..place.at + place.units).next_back();
            if before.is_some_and(|(at, units)| at + units > place.at) {
                return None;
            }
            foreign.insert(place.at, place.units);
        }
        Some(Block { pool: Arc::clone(shared), place })
    }

    /// Number of bytes of this end's half that neither this end nor the peer uses.
    pub fn free_bytes(&self) -> usize {
        let mut own = locked(&self.0.own);
        self.0.collect(&mut own);
        own.free.values().map(|units| *units as usize * UNIT).sum()
    }
}

/// A block of a pool that this end holds, from either half; dropping it frees it.
#[derive(Debug)]
pub struct Block {
    pool: Arc<Shared>,
    place: Reference,
}

impl Block {
    /// The block's location, to be passed to the peer.
    pub fn reference(&self) -> Reference {
        self.place
    }

    /// Hands the block over to the peer. Call it after its reference was passed to the peer.
    pub fn lend(self) {
        if self.pool.is_own(self.place) {
            locked(&self.pool.own).lent.insert(self.place.at, self.place.units);
        } else {
            locked(&self.pool.foreign).remove(&self.place.at);
        }
        let mut block = std::mem::ManuallyDrop::new(self);
        // SAFETY: the block is not used after this, and its destructor does not run.
        unsafe { std::ptr::drop_in_place(&raw mut block.pool) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.pool.is_own(self.place) {
            locked(&self.pool.own).give_back(self.place);
        } else {
            locked(&self.pool.foreign).remove(&self.place.at);
            self.pool.word(self.place.at).store(RELEASED, Ordering::Release);
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: within the mapping, which the block keeps alive and the kernel has initialised; no other block of
        // this end overlaps with it. A correct peer does not touch it while it belongs to this end; for others, see the
        // crate's documentation.
        unsafe { std::slice::from_raw_parts(self.pool.place(self.place), self.place.room()) }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pool.place(self.place), self.place.room()) }
    }
}

#[cfg(test)]
mod tests;
