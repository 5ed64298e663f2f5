//! The bytes of a piece of a signal on its way through a node. They are read once into a buffer and sent from there,
//! with another header in front of them.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use crossway_ring::pool::Block;

use crate::limits::PIECE;

/// Number of bytes reserved in front of a body for the header with which it is sent on: the length of the longest
/// header.
pub(crate) const HEADROOM: usize = 20;

/// Maximum number of buffers that a thread keeps for further bodies.
const KEPT: usize = 32;

thread_local! {
    /// Large buffers that are not in use. Allocating memory from the system for each piece would cost as much as
    /// copying the piece.
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that its thread keeps for reuse if it is large enough for any piece.
#[derive(PartialEq, Eq)]
struct Buffer(Vec<u8>);

impl Buffer {
    fn with_capacity(len: usize) -> Buffer {
        if len < PIECE / 2 {
            return Buffer(Vec::with_capacity(len));
        }
        let kept = FREE.with_borrow_mut(|free| {
            let at = free.iter().rposition(|free| free.capacity() >= len)?;
            Some(free.swap_remove(at))
        });
        Buffer(kept.unwrap_or_else(|| Vec::with_capacity(len.max(HEADROOM + PIECE))))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.capacity() < HEADROOM + PIECE {
            return;
        }
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        // The thread may be about to end.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(buffer);
            }
        });
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Buffer::with_capacity(self.0.len());
        copy.0.extend_from_slice(&self.0);
        copy
    }
}

/// The place for a signal's block while its pieces arrive; empty while one of them is being read into the block.
pub(crate) type Slot = Arc<Mutex<Option<Block>>>;

/// A piece that is read directly into its signal's block. Dropping it puts the block back into its slot, whether the
/// whole piece has arrived or the connection has ended first.
pub(crate) struct Landing {
    slot: Slot,
    block: Option<Block>,
    at: usize,
    have: usize,
    len: usize,
}

impl Landing {
    /// Prepares to read a piece of `len` bytes into the block at offset `at`; `None` if the block is not in its slot or
    /// is too short.
    pub(crate) fn begin(slot: &Slot, at: usize, len: usize) -> Option<Landing> {
        let mut place = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let block = place.take_if(|block| at + len <= block.len())?;
        drop(place);
        Some(Landing { slot: Arc::clone(slot), block: Some(block), at, have: 0, len })
    }

    /// Returns the place for the bytes that are still missing.
    fn rest(&mut self) -> &mut [u8] {
        let range = self.at + self.have..self.at + self.len;
        self.block.as_mut().map_or(&mut [], |block| &mut block[range])
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.block.take();
    }
}

/// The place where the bytes of a body are.
enum Place {
    /// In a buffer, with room in front of the bytes.
    Own(Buffer),
    /// In a part of a signal in a pool; the other parts share the block.
    Part { block: Arc<Block>, from: usize, to: usize },
    /// In the block of a signal whose pieces are arriving.
    Landed(Landing),
}

/// Space for bytes that will be read.
pub(crate) enum Space<'a> {
    /// At the end of a vector, which has room for at least this many bytes.
    Behind(&'a mut Vec<u8>, usize),
    /// At a given place.
    In(&'a mut [u8]),
}

/// The bytes of a piece, without its header.
pub(crate) struct Body(Place);

impl Body {
    /// Creates an empty body with room for `len` bytes.
    pub(crate) fn with_capacity(len: usize) -> Body {
        let mut buffer = Buffer::with_capacity(HEADROOM + len);
        buffer.0.resize(HEADROOM, 0);
        Body(Place::Own(buffer))
    }

    /// Creates a body that is a copy of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Body {
        let mut body = Body::with_capacity(bytes.len());
        body.append(bytes);
        body
    }

    /// Creates a body that is a part of a signal's block.
    pub(crate) fn part(block: &Arc<Block>, from: usize, to: usize) -> Body {
        Body(Place::Part { block: Arc::clone(block), from, to })
    }

    /// Creates an empty body that will be completed in its signal's block.
    pub(crate) fn landing(landing: Landing) -> Body {
        Body(Place::Landed(landing))
    }

    /// Whether the body was read directly into its signal's block.
    pub(crate) fn has_landed(&self) -> bool {
        matches!(self.0, Place::Landed(_))
    }

    /// Appends bytes, for which there is room.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Place::Own(buffer) => buffer.0.extend_from_slice(bytes),
            Place::Landed(landing) => {
                landing.rest()[..bytes.len()].copy_from_slice(bytes);
                landing.have += bytes.len();
            }
            Place::Part { .. } => debug_assert!(bytes.is_empty(), "a part is complete"),
        }
    }

    /// Appends at most `most` bytes with a function that reads them; returns the function's result.
    pub(crate) fn read<E>(
        &mut self,
        most: usize,
        read: impl FnOnce(Space<'_>) -> Result<usize, E>,
    ) -> Result<usize, E> {
        match &mut self.0 {
            Place::Own(buffer) => read(Space::Behind(&mut buffer.0, most)),
            Place::Landed(landing) => {
                let got = read(Space::In(&mut landing.rest()[..most]))?;
                landing.have += got;
                Ok(got)
            }
            Place::Part { .. } => Ok(0),
        }
    }

    /// Returns the bytes for changing. The result is empty for a body in a block, because programs can change a block's
    /// bytes, too.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Place::Own(buffer) => &mut buffer.0[HEADROOM..],
            Place::Part { .. } | Place::Landed(_) => &mut [],
        }
    }

    /// Puts a header in front of the body, without copying the body. The header has at most [`HEADROOM`] bytes.
    pub(crate) fn behind(self, head: &[u8]) -> Framed {
        let from = HEADROOM - head.len();
        let (mut buffer, body) = match self.0 {
            Place::Own(buffer) => (buffer, None),
            other => (Body::with_capacity(0).into_buffer(), Some(Body(other))),
        };
        buffer.0[from..HEADROOM].copy_from_slice(head);
        Framed { buffer, from, body }
    }

    fn into_buffer(self) -> Buffer {
        match self.0 {
            Place::Own(buffer) => buffer,
            _ => Buffer(Vec::new()),
        }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Own(buffer) => &buffer.0[HEADROOM..],
            Place::Part { block, from, to } => &block[*from..*to],
            Place::Landed(Landing { block: Some(block), at, have, .. }) => &block[*at..*at + *have],
            Place::Landed(_) => &[],
        }
    }
}

impl Clone for Body {
    fn clone(&self) -> Self {
        match &self.0 {
            Place::Part { block, from, to } => Body::part(block, *from, *to),
            Place::Own(_) | Place::Landed(_) => Body::of(self),
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body of {} bytes", self.len())
    }
}

/// Bytes in the form in which they are sent.
#[derive(PartialEq, Eq)]
pub(crate) struct Framed {
    buffer: Buffer,
    from: usize,
    /// The body, if it is not in the buffer.
    body: Option<Body>,
}

impl Framed {
    pub(crate) fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Returns all bytes in two parts; the second may be empty.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.buffer.0[self.from..], self.body.as_deref().unwrap_or_default()]
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

impl From<Vec<u8>> for Framed {
    fn from(bytes: Vec<u8>) -> Self {
        Framed { buffer: Buffer(bytes), from: 0, body: None }
    }
}

impl fmt::Debug for Framed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Framed, {} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_put_before_a_body_without_a_copy() {
        let body = Body::of(b"body");
        let at = body.as_ptr();
        let framed = body.behind(b"head");
        let [bytes, rest] = framed.parts();
        assert_eq!((bytes, rest, bytes[4..].as_ptr()), (&b"headbody"[..], &[][..], at));
    }

    #[test]
    fn pieces_are_read_into_the_block_of_their_signal_and_sent_from_there() {
        let memory = crossway_ring::pool::create("crossway-test", 1 << 16).unwrap();
        let pool = crossway_ring::pool::Pool::map(&memory, 1 << 16, true).unwrap();
        let slot: Slot = Arc::new(Mutex::new(pool.alloc(100)));
        let mut body = Body::landing(Landing::begin(&slot, 3, 10).unwrap());
        assert!(Landing::begin(&slot, 0, 1).is_none(), "a piece is being read");
        body.append(b"abc");
        let read = |space: Space<'_>| match space {
            Space::In(place) => {
                place.copy_from_slice(b"defg");
                Ok::<usize, ()>(4)
            }
            Space::Behind(..) => panic!("a copy"),
        };
        assert_eq!(body.read(4, read), Ok(4));
        assert!(body.has_landed() && *body == b"abcdefg"[..]);
        drop(body);
        assert!(Landing::begin(&slot, 500, 20).is_none(), "longer than the block");
        let block = Arc::new(slot.lock().unwrap().take().unwrap());
        let framed = Body::part(&block, 3, 10).behind(b"head");
        assert_eq!(framed.parts()[1].as_ptr(), block[3..].as_ptr());
        assert_eq!((framed.to_vec(), framed.len()), (b"headabcdefg".to_vec(), 11));
    }

    #[test]
    fn buffers_of_large_bodies_are_used_again_and_not_kept_without_limit() {
        let large = Body::of(&[1; PIECE]);
        let at = large.as_ptr();
        drop(large.behind(&[0; HEADROOM]));
        assert_eq!(Body::of(&[2; PIECE]).as_ptr(), at);
        drop((0..2 * KEPT).map(|_| Body::of(&[3; PIECE])).collect::<Vec<_>>());
        assert_eq!(FREE.with_borrow(Vec::len), KEPT);
    }
}
