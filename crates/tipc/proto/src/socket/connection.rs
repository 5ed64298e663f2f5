//! Flow control of a connection: how much data may still be sent to the peer, and how much of the peer's data has been
//! read.

use super::Merge;
use crate::addr::SocketAddr;
use crate::limits::{CONNECTION_WINDOW, CONNECTION_WINDOW_FIRST};
use crate::time::Nanos;
use crate::wire::{Packet, SHORT_HEADER_LEN};

/// Number of 1 KiB blocks that a message with this payload counts for. Both ends add the length of the short header,
/// whatever header the message had, so that their counts agree.
pub(crate) fn blocks(payload_len: usize) -> u16 {
    ((payload_len + SHORT_HEADER_LEN) / 1024 + 1) as u16
}

/// A pending connection request.
#[derive(Clone, Debug)]
pub(crate) struct Connecting {
    /// When the request times out.
    pub(crate) deadline: Nanos,
    /// The request, stored because it is repeated if the listener is full.
    pub(crate) request: Packet,
    /// When to repeat the request; `None` unless the listener was full the last time.
    pub(crate) retry_at: Option<Nanos>,
}

/// An established connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// Data written but not sent yet.
    pub(crate) merge: Merge,
    /// Blocks sent that the peer's application has not read yet.
    unread_by_peer: u16,
    send_window: u16,
    /// Blocks read here that have not been acknowledged to the peer yet.
    read: u16,
    receive_window: u16,
    /// When to probe whether the peer still exists.
    pub(crate) probe_at: Nanos,
    pub(crate) probing: bool,
}

impl Connection {
    pub(crate) fn new(peer: SocketAddr, probe_at: Nanos) -> Self {
        Self {
            peer,
            merge: Merge::default(),
            unread_by_peer: 0,
            send_window: CONNECTION_WINDOW_FIRST,
            read: 0,
            receive_window: CONNECTION_WINDOW_FIRST,
            probe_at,
            probing: false,
        }
    }

    /// Whether the peer has left more blocks unread than its window allows.
    pub(crate) const fn is_congested(&self) -> bool {
        self.unread_by_peer > self.send_window
    }

    pub(crate) fn sent(&mut self, payload_len: usize) {
        self.unread_by_peer = self.unread_by_peer.saturating_add(blocks(payload_len));
    }

    /// Handles an acknowledgement: the peer has read `blocks` blocks and grants this window. Returns whether this ended
    /// congestion. Ignores the number of blocks if it exceeds what was sent.
    pub(crate) fn acknowledged(&mut self, blocks: u16, window: u16) -> bool {
        let was = self.is_congested();
        if blocks <= self.unread_by_peer {
            self.unread_by_peer -= blocks;
        }
        self.send_window = window;
        was && !self.is_congested()
    }

    /// Counts blocks that the application has read. If an acknowledgement is due (after a quarter of the window, or
    /// immediately if `now` says that the peer requested one), returns the contents of the acknowledgement: the number
    /// of blocks read and the window, in blocks.
    pub(crate) fn read(&mut self, blocks: u16, now: bool) -> Option<(u16, u16)> {
        self.read = self.read.saturating_add(blocks);
        if !now && self.read < self.receive_window / 4 {
            return None;
        }
        self.receive_window = CONNECTION_WINDOW;
        Some((core::mem::take(&mut self.read), self.receive_window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_window_of_128_blocks_lets_65_messages_of_two_blocks_through() {
        let mut c = Connection::new(SocketAddr::default(), Nanos(0));
        let mut sent = 0;
        while !c.is_congested() {
            c.sent(1000);
            sent += 1;
        }
        assert_eq!(sent, 65);
        assert!(!c.acknowledged(200, 128), "more blocks than were sent are ignored");
        assert!(c.is_congested());
        assert!(c.acknowledged(30, 128));
        assert!(!c.is_congested());
    }

    #[test]
    fn reading_is_acknowledged_after_a_quarter_of_the_window_or_on_request() {
        let mut c = Connection::new(SocketAddr::default(), Nanos(0));
        assert_eq!(c.read(31, false), None);
        assert_eq!(c.read(1, false), Some((32, 512)));
        assert_eq!(c.read(127, false), None);
        assert_eq!(c.read(0, true), Some((127, 512)));
        assert_eq!(c.read(0, true), Some((0, 512)));
    }
}
