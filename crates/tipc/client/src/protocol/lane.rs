//! The memory of a socket's lanes: a page of control words, then two rings.
//!
//! The page begins with the words of the rings themselves ([`crossway_ring::region`]). They are followed by further
//! words that the lanes share, which are addressed by their index in [`FreeWords`]; the indices are below. A record to
//! `tipcd` has the same contents as on the data descriptor: the bytes of a stream, or for other kinds the destination
//! (16 bytes) and the payload ([`super::record`]). A record to the program consists of a header of
//! [`super::record::HEADER_LEN`] bytes and the payload.
//!
//! # Direct lanes
//!
//! If both ends of a connection belong to programs of one `tipcd`, the ring from which a program receives is in
//! separate memory, which the peer's program maps, too: a *direct lane*. That memory has the same layout, but only the
//! ring towards the program is used. It contains the state of the bell (at [`DOWN`]) and [`ROOM_WANTED`]; the
//! receivers' other words remain in the memory of the socket's own lanes, which the peer cannot reach. The peer's
//! program and `tipcd` take turns at filling the ring, see [`outlet`].
//!
//! [`FreeWords`]: crossway_ring::region::FreeWords

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossway_ring::handover;
use crossway_ring::region::{Dimensions, Direction, FreeWords, SharedRing};
use crossway_sys::OsError;
use crossway_sys::shm::{self, Mapping};

use super::MESSAGE_LEN_MAX;
use super::record::HEADER_LEN;

/// Maximum length of a record in bytes.
pub const RECORD_LEN_MAX: usize = HEADER_LEN + MESSAGE_LEN_MAX;

/// Index of the first free word of the direction towards `tipcd`. `tipcd` sets this word to a non-zero value when the
/// lane must no longer be used.
pub const STOPPED: usize = 0;

/// Index of the first free word of the direction towards the program. That direction has half a page of words.
pub const DOWN: usize = (2048 - FreeWords::OFFSET) / 8;

/// Index of the first free word of a direct lane's memory. `tipcd` sets this word to a non-zero value when it waits for
/// room in the ring. The receiver that makes room resets the word and signals the eventfd of its lanes.
pub const ROOM_WANTED: usize = 0;

/// Indices of the words that control a sender's use of its peer's direct lane. The words are in the memory of the
/// sending socket's own lanes. In terms of [`crossway_ring::handover`], the program is the owner of that ring, and
/// `tipcd` the helper. The amount that the program has passed to `tipcd` is [`SENT`](super::slot::SENT) plus the number
/// of records that it has put into its own lane.
pub mod outlet {
    /// Written by `tipcd`: non-zero as soon as the direct lane can be requested.
    pub const READY: usize = 1;
    /// Written by `tipcd`: how much of the data that the program has passed to `tipcd` is already in the ring.
    pub(super) const PASSED: usize = 2;
    /// Written by the program: non-zero while it uses the ring. This word has a cache line of its own.
    pub const BUSY: usize = 16;
    /// Written by the program or `tipcd`, whichever has published a record last: the position of the next record.
    pub const TAIL: usize = 17;
    /// Like [`TAIL`]: the number of records published so far.
    pub const SEQUENCE: usize = 18;
}

/// Access to the words of [`outlet`] by which a program and `tipcd` take turns.
#[derive(Clone, Debug)]
pub struct OutletWords(FreeWords);

impl OutletWords {
    /// Returns the words of [`outlet`], given all free words of the memory of a sending socket's lanes.
    pub const fn of(lanes: FreeWords) -> Self {
        Self(lanes)
    }

    /// Returns all free words of the memory of the sending socket's lanes.
    pub const fn lanes(&self) -> &FreeWords {
        &self.0
    }
}

impl handover::Words for OutletWords {
    #[inline]
    fn busy(&self) -> &AtomicU64 {
        self.0.word(outlet::BUSY)
    }

    #[inline]
    fn passed(&self) -> &AtomicU64 {
        self.0.word(outlet::PASSED)
    }

    #[inline]
    fn tail(&self) -> &AtomicU64 {
        self.0.word(outlet::TAIL)
    }

    #[inline]
    fn sequence(&self) -> &AtomicU64 {
        self.0.word(outlet::SEQUENCE)
    }
}

/// Both lanes of a socket, mapped into memory.
#[derive(Clone)]
pub struct LaneMemory {
    mapping: Arc<Mapping>,
    dimensions: Dimensions,
}

impl std::fmt::Debug for LaneMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneMemory").field("dimensions", &self.dimensions).finish_non_exhaustive()
    }
}

impl LaneMemory {
    /// The dimensions of a memory with two rings of about `ring_bytes` bytes each.
    pub fn dimensions(ring_bytes: usize) -> Dimensions {
        Dimensions::choose(RECORD_LEN_MAX, Some(ring_bytes))
    }

    /// Creates the memory, and the descriptor with which another process can map it.
    ///
    /// # Errors
    /// [`OsError`] of the call that failed.
    pub fn create(ring_bytes: usize) -> Result<(Self, std::os::fd::OwnedFd), OsError> {
        let dimensions = Self::dimensions(ring_bytes);
        let fd = shm::create_sealed("tipcd-lanes", dimensions.memory_len())?;
        Ok((Self::map(&fd, dimensions)?, fd))
    }

    /// Maps the memory of a descriptor.
    ///
    /// # Errors
    /// [`OsError`] of the call that failed; also if the memory is not sealed or has a different size.
    pub fn open(fd: impl AsFd, ring_bytes: usize) -> Result<Self, OsError> {
        let dimensions = Self::dimensions(ring_bytes);
        if dimensions.capacity != ring_bytes
            || !shm::is_sealed(fd.as_fd(), dimensions.memory_len())?
        {
            let why = std::io::Error::other(format!("not two sealed rings of {ring_bytes} bytes"));
            return Err(OsError::new("mmap", "lanes", why));
        }
        Self::map(fd, dimensions)
    }

    fn map(fd: impl AsFd, dimensions: Dimensions) -> Result<Self, OsError> {
        // Do not fault the pages in: most sockets never fill their rings.
        let mapping = Arc::new(Mapping::of_pieces_lazily(fd, &dimensions.pieces())?);
        Ok(Self { mapping, dimensions })
    }

    /// Size of each ring in bytes.
    pub const fn ring_bytes(&self) -> usize {
        self.dimensions.capacity
    }

    /// The ring towards `tipcd`.
    pub fn up(&self) -> SharedRing {
        SharedRing::new(self.mapping.clone(), self.dimensions, Direction::FromConnector)
    }

    /// The ring towards the program.
    pub fn down(&self) -> SharedRing {
        SharedRing::new(self.mapping.clone(), self.dimensions, Direction::FromListener)
    }

    /// The words of the control page that the rings do not use.
    pub fn words(&self) -> FreeWords {
        FreeWords::new(self.mapping.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_ends_see_the_same_memory_and_no_other_is_taken_for_it() {
        let (ours, fd) = LaneMemory::create(1).unwrap();
        assert!(ours.ring_bytes() > RECORD_LEN_MAX);
        let theirs = LaneMemory::open(&fd, ours.ring_bytes()).unwrap();
        ours.words().word(DOWN).store(7, Ordering::Relaxed);
        assert_eq!(theirs.words().word(DOWN).load(Ordering::Relaxed), 7);
        assert_eq!(theirs.words().word(STOPPED).load(Ordering::Relaxed), 0);
        assert!(LaneMemory::open(&fd, 2 * ours.ring_bytes()).is_err());
        assert!(LaneMemory::open(&fd, 1).is_err());
        assert!(LaneMemory::open(&fd, usize::MAX >> 2).is_err());
    }
}
