//! Gap-ack blocks: the selective acknowledgements in the body of STATE messages.

use super::header::WireError;
use crate::limits::GAP_ACK_BLOCKS_MAX;
use crate::seq::Seq;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// A run of consecutive received packets, and the gap after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapAck {
    /// Last packet of the run.
    pub ack: Seq,
    /// Number of packets missing after the run; 0 in the last block.
    pub gap: u16,
}

/// The gap-ack record: the blocks for the broadcast link and for the unicast link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GapAckBlocks {
    /// Runs received on the broadcast link.
    pub bcast: ArrayVec<GapAck, GAP_ACK_BLOCKS_MAX>,
    /// Runs received on this unicast link.
    pub unicast: ArrayVec<GapAck, GAP_ACK_BLOCKS_MAX>,
}

impl GapAckBlocks {
    /// Length of the encoded record, in bytes.
    pub fn len(&self) -> usize {
        4 * (1 + self.bcast.len() + self.unicast.len())
    }

    /// Whether there is nothing to report. An empty record is still sent, because the kernel requires one.
    pub fn is_empty(&self) -> bool {
        self.bcast.is_empty() && self.unicast.is_empty()
    }

    /// Decodes the record at the start of a STATE body. Returns the record and its length in bytes. If the record's
    /// counts do not match its length, the returned record is empty, as in the kernel.
    ///
    /// # Errors
    /// If the record is missing, longer than the body or shorter than its own first word (4 bytes), or has too many
    /// blocks.
    pub fn decode(body: &[u8]) -> Result<(Self, usize), WireError> {
        let head: [u8; 4] =
            body.get(..4).and_then(|b| b.try_into().ok()).ok_or(WireError::Truncated)?;
        let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let (unicast_count, bcast_count) = (usize::from(head[2]), usize::from(head[3]));
        if len < 4 {
            return Err(WireError::Field("gap-ack length"));
        }
        let record = body.get(4..len).ok_or(WireError::Truncated)?;
        let mut blocks = Self::default();
        if record.len() == 4 * (unicast_count + bcast_count) {
            for (n, c) in record.chunks_exact(4).enumerate() {
                let block = GapAck {
                    ack: Seq(u16::from_be_bytes([c[0], c[1]])),
                    gap: u16::from_be_bytes([c[2], c[3]]),
                };
                let list = if n < bcast_count { &mut blocks.bcast } else { &mut blocks.unicast };
                if list.try_push(block).is_err() {
                    return Err(WireError::Field("gap-ack count"));
                }
            }
        }
        Ok((blocks, len))
    }

    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u16).to_be_bytes());
        out.push(self.unicast.len() as u8);
        out.push(self.bcast.len() as u8);
        for block in self.bcast.iter().chain(&self.unicast) {
            out.extend_from_slice(&block.ack.0.to_be_bytes());
            out.extend_from_slice(&block.gap.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_a_round_trip() {
        let mut blocks = GapAckBlocks::default();
        blocks.unicast.push(GapAck { ack: Seq(9), gap: 2 });
        blocks.unicast.push(GapAck { ack: Seq(12), gap: 0 });
        blocks.bcast.push(GapAck { ack: Seq(65535), gap: 0 });
        let mut out = Vec::new();
        blocks.encode(&mut out);
        assert_eq!(out, [0, 16, 2, 1, 255, 255, 0, 0, 0, 9, 0, 2, 0, 12, 0, 0]);
        assert_eq!(GapAckBlocks::decode(&out), Ok((blocks, 16)));
    }

    #[test]
    fn counts_that_do_not_match_the_length_are_skipped_and_a_long_record_is_refused() {
        assert_eq!(
            GapAckBlocks::decode(&[0, 8, 9, 9, 0, 1, 0, 2]),
            Ok((GapAckBlocks::default(), 8))
        );
        assert_eq!(GapAckBlocks::decode(&[0, 12, 1, 1, 0, 0]), Err(WireError::Truncated));
        assert_eq!(GapAckBlocks::decode(&[0, 3, 0, 0]), Err(WireError::Field("gap-ack length")));
        assert_eq!(GapAckBlocks::decode(&[0]), Err(WireError::Truncated));
    }
}
