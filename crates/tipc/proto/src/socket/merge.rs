//! Merges small writes to a stream into shared packets.
//!
//! A stream begins to merge after several writes during which its peer has sent nothing. One packet then requests an
//! immediate acknowledgement; until it arrives, written data is collected and sent in full packets only. If the packets
//! sent until then contained fewer than two writes on average, merging was useless: it stops, and starts again after an
//! increasing number of writes.

use crate::limits::{MERGE_AFTER_MAX, MERGE_AFTER_WRITES};
use alloc::vec::Vec;

/// Merging state of the sending end of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    /// Data written but not sent: less than a packet, or a full packet for which there was no room.
    pub(crate) pending: Vec<u8>,
    /// Number of writes since the peer last sent data.
    oneway: u32,
    /// Number of writes after which merging begins if the peer sends no data.
    begins_after: u32,
    /// Whether a packet has requested an acknowledgement that has not arrived yet.
    awaits_ack: bool,
    /// Number of writes merged since a packet last requested an acknowledgement. `packets` is the number of packets
    /// sent since then.
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

    /// Whether a packet that is not full waits for more data.
    pub(crate) const fn holds(&self) -> bool {
        self.awaits_ack
    }

    /// Counts a packet sent. Returns whether it must request an immediate acknowledgement. `last` means that writes are
    /// being merged and nothing else is left to send.
    pub(crate) const fn packet_sent(&mut self, last: bool) -> bool {
        self.packets = self.packets.saturating_add(1);
        let asks = last && !self.awaits_ack;
        if asks {
            self.awaits_ack = true;
            (self.writes, self.packets) = (0, 0);
        }
        asks
    }

    /// Records that the peer has sent data: the two ends alternate, and merging would only delay them.
    pub(crate) const fn heard(&mut self) {
        self.oneway = 0;
    }

    /// Handles an acknowledgement that a packet requested. Returns whether merging continues; if so, the next packet
    /// requests another acknowledgement.
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
        assert!(!m.begin_write(false), "a write larger than a packet is sent unmerged");
        assert!(m.begin_write(true) && !m.holds());
        assert!(m.packet_sent(true), "the first packet requests an acknowledgement");
        assert!(m.holds());
        for _ in 0..30 {
            assert!(m.begin_write(true));
        }
        assert!(!m.packet_sent(true), "one acknowledgement is enough");
        assert!(m.acknowledged(), "30 writes in one packet are useful");
        assert!(!m.acknowledged(), "no other acknowledgement was requested");
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
