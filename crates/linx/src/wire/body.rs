//! The bytes of a piece of a signal on its way through a node: read once into a buffer, and written from there, with another
//! head before them.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

use crate::limits::PIECE;

/// Number of bytes before a body for the head with which it is passed on; the longest head has that length.
pub(crate) const HEADROOM: usize = 20;

/// Maximum number of buffers that a thread keeps for further bodies.
const KEPT: usize = 32;

thread_local! {
    /// Large buffers that are not in use. Memory for each piece from the system would cost as much as a copy of the piece.
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that the thread keeps when it is no longer needed, if it is large enough for any piece.
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

/// A body, with room before it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Body(Buffer);

impl Body {
    /// An empty body with room for `len` bytes.
    pub(crate) fn with_capacity(len: usize) -> Body {
        let mut buffer = Buffer::with_capacity(HEADROOM + len);
        buffer.0.resize(HEADROOM, 0);
        Body(buffer)
    }

    /// A body that is a copy of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Body {
        let mut body = Body::with_capacity(bytes.len());
        body.0.0.extend_from_slice(bytes);
        body
    }

    /// The vector to which further bytes are appended.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.0.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0.0[HEADROOM..]
    }

    /// The body with a head before it, without a copy of the body. The head has at most [`HEADROOM`] bytes.
    pub(crate) fn behind(mut self, head: &[u8]) -> Framed {
        let from = HEADROOM - head.len();
        self.0.0[from..HEADROOM].copy_from_slice(head);
        Framed { buffer: self.0, from }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.0[HEADROOM..]
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body of {} bytes", self.len())
    }
}

/// Bytes as they are sent.
#[derive(PartialEq, Eq)]
pub(crate) struct Framed {
    buffer: Buffer,
    from: usize,
}

impl From<Vec<u8>> for Framed {
    fn from(bytes: Vec<u8>) -> Self {
        Framed { buffer: Buffer(bytes), from: 0 }
    }
}

impl Deref for Framed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer.0[self.from..]
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
        assert_eq!((&framed[..], framed[4..].as_ptr()), (&b"headbody"[..], at));
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
