//! Small writes to a stream that share packets.
//!
//! A stream that has only sent for a while begins to merge: one packet asks for an acknowledgement at once, and until that comes, what is
//! written is collected and leaves in full packets only. When the acknowledgement shows that less than two writes shared a packet,
//! merging was of no use; it stops, and starts again later and later.

use crate::limits::{MERGE_AFTER_MAX, MERGE_AFTER_WRITES};
use alloc::vec::Vec;

/// The sending end of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    /// What is written and not sent yet: less than a packet, or a full one that found no room.
    pub(crate) pending: Vec<u8>,
    /// Writes since the peer last sent something.
    oneway: u32,
    /// Writes in one direction after which merging begins.
    begins_after: u32,
    /// A packet asked for an acknowledgement, which has not come yet.
    awaits_ack: bool,
    /// Writes that were merged since the last acknowledgement, and the packets that they took.
    writes: u32,
    packets: u32,
}

impl Default for Merge {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            oneway: 0,
            begins_after: MERGE_AFTER_WRITES,
            awaits_ack: false,
            writes: 0,
            packets: 0,
        }
    }
}

impl Merge {
    /// Counts a write. Returns whether it is merged with others.
    pub(crate) fn begin_write(&mut self, fits_a_packet: bool) -> bool {
        self.oneway = self.oneway.saturating_add(1);
        let merging = self.oneway > self.begins_after && fits_a_packet;
        self.writes += u32::from(merging);
        merging
    }

    /// Whether a packet that is not full waits for more.
    pub(crate) const fn holds(&self) -> bool {
        self.awaits_ack
    }

    /// A packet is sent. Returns whether it is to ask for an acknowledgement at once; `last` says that nothing is left to send
    /// and writes are being merged.
    pub(crate) const fn packet_sent(&mut self, last: bool) -> bool {
        self.packets = self.packets.saturating_add(1);
        let asks = last && !self.awaits_ack;
        if asks {
            self.awaits_ack = true;
            (self.writes, self.packets) = (0, 0);
        }
        asks
    }

    /// The peer sent data: this is a conversation, which merging would only delay.
    pub(crate) const fn heard(&mut self) {
        self.oneway = 0;
    }

    /// The acknowledgement came. Returns whether merging goes on, so that the next packet asks for another.
    pub(crate) fn acknowledged(&mut self) -> bool {
        if !core::mem::take(&mut self.awaits_ack) {
            return false;
        }
        let packets = self.packets + u32::from(!self.pending.is_empty());
        let useful = packets > 0 && self.writes / packets >= 2;
        if useful {
            self.begins_after = MERGE_AFTER_WRITES;
        } else {
            self.oneway = 0;
            self.begins_after = (self.begins_after * 2).min(MERGE_AFTER_MAX);
        }
        (self.writes, self.packets) = (0, 0);
        useful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_begins_after_four_writes_and_asks_for_one_acknowledgement() {
        let mut m = Merge::default();
        for _ in 0..4 {
            assert!(!m.begin_write(true));
        }
        assert!(!m.begin_write(false), "a write of more than a packet is sent as it is");
        assert!(m.begin_write(true) && !m.holds());
        assert!(m.packet_sent(true), "the first one asks");
        assert!(m.holds());
        for _ in 0..30 {
            assert!(m.begin_write(true));
        }
        assert!(!m.packet_sent(true), "one acknowledgement is enough");
        assert!(m.acknowledged(), "30 writes in one packet are useful");
        assert!(!m.acknowledged(), "nothing more was asked for");
    }

    #[test]
    fn merging_without_use_stops_and_comes_back_later() {
        let mut m = Merge::default();
        let mut asked = [0; 3];
        for asked in &mut asked {
            while !m.begin_write(true) {
                *asked += 1;
            }
            m.packet_sent(true);
            m.begin_write(true);
            m.packet_sent(true);
            assert!(!m.acknowledged());
        }
        assert_eq!(asked, [4, 8, 16]);
        m.begin_write(true);
        m.heard();
        assert!(!m.begin_write(true));
    }
}
