//! A connection's counters: how much the peer may still be sent, how much of what it sent was read.

use super::Merge;
use crate::addr::SocketAddr;
use crate::limits::{CONNECTION_WINDOW, CONNECTION_WINDOW_FIRST};
use crate::time::Nanos;
use crate::wire::SHORT_HEADER_LEN;
use alloc::vec::Vec;

/// Blocks of 1 KiB that a message of this payload costs. Both ends count the short header, whatever header the message really had,
/// so that they agree.
pub(crate) fn blocks(payload_len: usize) -> u16 {
    ((payload_len + SHORT_HEADER_LEN) / 1024 + 1) as u16
}

/// A request for a connection.
#[derive(Clone, Debug)]
pub(crate) struct Connecting {
    /// When it is given up.
    pub(crate) deadline: Nanos,
    /// The request, to be sent again when the listener was full.
    pub(crate) request: Vec<u8>,
    /// When it is sent again.
    pub(crate) retry_at: Option<Nanos>,
}

/// An established connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// What is written and not sent yet.
    pub(crate) merge: Merge,
    /// Blocks sent that the peer's application has not read yet.
    unread_by_peer: u16,
    send_window: u16,
    /// Blocks read here that the peer was not told yet.
    read: u16,
    receive_window: u16,
    /// When the peer is asked whether it still exists.
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

    /// The peer has more unread than it wants.
    pub(crate) const fn is_congested(&self) -> bool {
        self.unread_by_peer > self.send_window
    }

    pub(crate) fn sent(&mut self, payload_len: usize) {
        self.unread_by_peer = self.unread_by_peer.saturating_add(blocks(payload_len));
    }

    /// The peer read so many blocks and grants this window. Returns whether that ended a congestion. More blocks than were sent
    /// are not believed.
    pub(crate) fn acknowledged(&mut self, blocks: u16, window: u16) -> bool {
        let was = self.is_congested();
        if blocks <= self.unread_by_peer {
            self.unread_by_peer -= blocks;
        }
        self.send_window = window;
        was && !self.is_congested()
    }

    /// The application read so many blocks. Returns what to tell the peer, when it is time: after a quarter of the window, or at once
    /// when it asked (`now`).
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
        assert!(!c.acknowledged(200, 128), "more than was sent is not believed");
        assert!(c.is_congested());
        assert!(c.acknowledged(30, 128));
        assert!(!c.is_congested());
    }

    #[test]
    fn reading_is_told_after_a_quarter_of_the_window_or_when_asked() {
        let mut c = Connection::new(SocketAddr::default(), Nanos(0));
        assert_eq!(c.read(31, false), None);
        assert_eq!(c.read(1, false), Some((32, 512)));
        assert_eq!(c.read(127, false), None);
        assert_eq!(c.read(0, true), Some((127, 512)));
        assert_eq!(c.read(0, true), Some((0, 512)));
    }
}
