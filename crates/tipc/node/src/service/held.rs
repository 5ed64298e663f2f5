//! Messages that a program has sent and that congestion holds up: they wait here, and further ones wait in the
//! program's descriptor and lane.
//!
//! A program that cannot send therefore blocks, as with the kernel, and a blocked program does not read. The kernel
//! queues everything that arrives in the meantime; here, the queue is limited to what the program's descriptor can
//! hold. Two programs that send to each other could then block each other for ever, although each reads before it
//! sends. To prevent this, a program whose own descriptor is full gets *relief*: everything that it has written is
//! accepted, and its send returns. It gets relief again only after it has read.

use std::collections::VecDeque;

use crossway_tipc_proto::limits::MESSAGE_OVERHEAD;
use crossway_tipc_proto::socket::Address;

use super::local::Local;

/// A message that waits because of congestion.
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) dest: Option<Address>,
    pub(super) payload: Vec<u8>,
    /// Number of bytes of the message that have already been sent.
    pub(super) sent: usize,
}

/// The waiting messages of one socket, oldest first.
#[derive(Debug)]
pub(super) struct Held {
    queue: VecDeque<Stalled>,
    /// Memory occupied by these messages, in bytes.
    bytes: usize,
    /// Limit of `bytes`. Once it is reached, no further message is accepted in spite of congestion.
    most: usize,
    /// Whether a message was accepted in spite of congestion since the program last read.
    relieved: bool,
}

impl Held {
    pub(super) fn new(most: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, most, relieved: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push_back(&mut self, message: Stalled) {
        self.bytes += weight(&message);
        self.queue.push_back(message);
    }

    /// Puts a message back at the front of the queue.
    pub(super) fn push_front(&mut self, message: Stalled) {
        self.bytes += weight(&message);
        self.queue.push_front(message);
    }

    pub(super) fn pop_front(&mut self) -> Option<Stalled> {
        let message = self.queue.pop_front()?;
        self.bytes -= weight(&message);
        Some(message)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// Records that messages were accepted in spite of congestion.
    pub(super) fn note_relief(&mut self) {
        self.relieved = true;
    }

    /// Records that the program has read and so made room for incoming messages.
    pub(super) fn note_room(&mut self) {
        self.relieved = false;
    }
}

/// Memory in bytes that a waiting message occupies. It stays the same until the message's last byte has been sent.
fn weight(message: &Stalled) -> usize {
    message.payload.len() + MESSAGE_OVERHEAD
}

impl Local {
    /// Whether to accept more of the program's messages although some are waiting: the program has not read its
    /// incoming messages, and may be unable to before its send returns.
    pub(super) fn wants_relief(&self) -> bool {
        !self.stalled.is_empty()
            && !self.writable
            && !self.stalled.relieved
            && !self.ended
            && self.lingers.is_none()
            && self.stalled.bytes < self.stalled.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_weighed_until_it_has_gone() {
        let mut held = Held::new(1);
        for len in [0, 10, 66_000] {
            held.push_back(Stalled { dest: None, payload: vec![0; len], sent: 0 });
        }
        assert_eq!(held.bytes, 66_010 + 3 * MESSAGE_OVERHEAD);
        let mut first = held.pop_front().unwrap();
        first.sent = 5;
        held.push_front(first);
        assert_eq!(held.bytes, 66_010 + 3 * MESSAGE_OVERHEAD);
        while held.pop_front().is_some() {}
        assert_eq!((held.bytes, held.is_empty()), (0, true));
        held.push_back(Stalled { dest: None, payload: vec![0; 7], sent: 0 });
        held.clear();
        assert_eq!((held.bytes, held.is_empty()), (0, true));
    }
}
