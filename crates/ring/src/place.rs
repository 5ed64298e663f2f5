//! Copies messages into and out of a ring.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::layout::LINE;

/// Messages up to this length in bytes are copied so that the line with the header is written last.
const SMALL: usize = 256;

/// Copies a message into the ring; `to` must be as long as `msg`. The consumer watches the line in which the record
/// starts; if the copy began there, the line would travel to the consumer and back before the header is stored.
#[inline]
pub fn copy_in(to: &mut [u8], msg: &[u8]) {
    let first = to.as_ptr().addr().wrapping_neg() % LINE;
    if msg.len() <= SMALL && first < msg.len() {
        let (head, tail) = to.split_at_mut(first);
        tail.copy_from_slice(&msg[first..]);
        compiler_fence(Ordering::Release);
        head.copy_from_slice(&msg[..first]);
    } else {
        to.copy_from_slice(msg);
    }
}

/// Copies a message out of the ring. Returns its length in bytes.
///
/// # Panics
/// If the message is longer than the buffer.
#[inline]
pub fn copy_out(from: &[u8], to: &mut [u8]) -> usize {
    to[..from.len()].copy_from_slice(from);
    from.len()
}
