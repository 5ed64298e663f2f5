//! What a program has sent and the way has not taken: it waits here, and what stands behind it in the program's descriptor and lane waits there.
//!
//! So a program that cannot send waits, as for a kernel, and one that waits does not read. A kernel shows it all that came while it waits; here that is what its
//! descriptor takes. Two programs that send to each other could then wait for each other for good, although each reads before it sends. So one
//! whose own descriptor is full is relieved once each time that it has read: what it has written is taken, and its send returns.

use std::collections::VecDeque;

use crossway_tipc_proto::limits::MESSAGE_OVERHEAD;
use crossway_tipc_proto::socket::Address;

use super::local::Local;

/// A message that waits because the way is congested.
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) dest: Option<Address>,
    pub(super) payload: Vec<u8>,
    /// Octets of it that have gone.
    pub(super) sent: usize,
}

/// The messages of one socket that wait, oldest first.
#[derive(Debug)]
pub(super) struct Held {
    queue: VecDeque<Stalled>,
    /// What they take.
    octets: usize,
    /// How many of them end all relief.
    most: usize,
    /// The program was relieved since it last made room by reading.
    relieved: bool,
}

impl Held {
    pub(super) fn new(most: usize) -> Self {
        Self { queue: VecDeque::new(), octets: 0, most, relieved: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push_back(&mut self, message: Stalled) {
        self.octets += weight(&message);
        self.queue.push_back(message);
    }

    /// Puts the first one back.
    pub(super) fn push_front(&mut self, message: Stalled) {
        self.octets += weight(&message);
        self.queue.push_front(message);
    }

    pub(super) fn pop_front(&mut self) -> Option<Stalled> {
        let message = self.queue.pop_front()?;
        self.octets -= weight(&message);
        Some(message)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.octets = 0;
    }

    /// More of the program's messages were taken than the way takes.
    pub(super) fn note_relief(&mut self) {
        self.relieved = true;
    }

    /// The program has read, and so made room for what comes.
    pub(super) fn note_room(&mut self) {
        self.relieved = false;
    }
}

/// A message keeps its whole memory until the last octet has gone.
fn weight(message: &Stalled) -> usize {
    message.payload.len() + MESSAGE_OVERHEAD
}

impl Local {
    /// Whether more of the program's messages are taken although some wait: it has not read what came, and may be unable to before its
    /// send returns.
    pub(super) fn wants_relief(&self) -> bool {
        !self.stalled.is_empty()
            && !self.writable
            && !self.stalled.relieved
            && !self.ended
            && self.lingers.is_none()
            && self.stalled.octets < self.stalled.most
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
        assert_eq!(held.octets, 66_010 + 3 * MESSAGE_OVERHEAD);
        let mut first = held.pop_front().unwrap();
        first.sent = 5;
        held.push_front(first);
        assert_eq!(held.octets, 66_010 + 3 * MESSAGE_OVERHEAD);
        while held.pop_front().is_some() {}
        assert_eq!((held.octets, held.is_empty()), (0, true));
        held.push_back(Stalled { dest: None, payload: vec![0; 7], sent: 0 });
        held.clear();
        assert_eq!((held.octets, held.is_empty()), (0, true));
    }
}
