//! The record of the overlapping ring monitor: which nodes a node monitors, and which of them are up. It follows the gap-ack record in
//! the body of STATE messages.

use super::header::WireError;
use crate::addr::NodeAddr;
use crate::limits::DOMAIN_MEMBERS_MAX;
use crate::seq::Seq;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// A node's domain: the nodes that follow it in the ring and that it monitors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DomainRecord {
    /// Generation of the sender's domain, which is incremented at each change of the domain.
    pub generation: Seq,
    /// Generation of the destination's domain that the sender has received last.
    pub acked: Seq,
    /// One bit per member, set if the sender sees the member as up. The lowest bit is the first member's.
    pub up: u64,
    /// The members in ring order. Empty if the destination already knows them.
    pub members: ArrayVec<NodeAddr, DOMAIN_MEMBERS_MAX>,
}

impl DomainRecord {
    /// Length of a record without members, in bytes.
    pub const HEAD_LEN: usize = 16;

    /// Length of the encoded record in bytes.
    pub fn len(&self) -> usize {
        Self::HEAD_LEN + 4 * self.members.len()
    }

    /// Whether the record has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the sender sees the member with this index (0 to 63) as up.
    pub const fn sees(&self, member: usize) -> bool {
        member < 64 && self.up >> member & 1 == 1
    }

    /// Decodes a record that fills `body`.
    ///
    /// # Errors
    /// If the length, the count and the body are inconsistent, or there are too many members.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let (head, rest) = body.split_at_checked(Self::HEAD_LEN).ok_or(WireError::Truncated)?;
        let half = |n: usize| u16::from_be_bytes([head[n], head[n + 1]]);
        let (len, count) = (usize::from(half(0)), usize::from(half(6)));
        if count > DOMAIN_MEMBERS_MAX {
            return Err(WireError::Field("monitor members"));
        }
        if len != body.len() || rest.len() != 4 * count {
            return Err(WireError::Field("monitor length"));
        }
        let mut up = [0; 8];
        up.copy_from_slice(&head[8..16]);
        let member = |c: &[u8]| NodeAddr(u32::from_be_bytes([c[0], c[1], c[2], c[3]]));
        Ok(Self {
            generation: Seq(half(2)),
            acked: Seq(half(4)),
            up: u64::from_be_bytes(up),
            members: rest.chunks_exact(4).map(member).collect(),
        })
    }

    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let halves =
            [self.len() as u16, self.generation.0, self.acked.0, self.members.len() as u16];
        for half in halves {
            out.extend_from_slice(&half.to_be_bytes());
        }
        out.extend_from_slice(&self.up.to_be_bytes());
        for member in &self.members {
            out.extend_from_slice(&member.0.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_the_kernels_layout() {
        let record = DomainRecord {
            generation: Seq(7),
            acked: Seq(0x0102),
            up: 0b101,
            members: [1, 2, 0x0a09_0001].map(NodeAddr).into_iter().collect(),
        };
        let mut out = Vec::new();
        record.encode(&mut out);
        let head = [0, 28, 0, 7, 1, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(out[..16], head);
        assert_eq!(out[16..], [0, 0, 0, 1, 0, 0, 0, 2, 10, 9, 0, 1]);
        assert_eq!(DomainRecord::decode(&out), Ok(record.clone()));
        assert!(record.sees(0) && !record.sees(1) && record.sees(2) && !record.sees(64));
    }

    #[test]
    fn a_record_whose_lengths_disagree_is_refused() {
        let mut good = Vec::new();
        DomainRecord { members: [NodeAddr(1)].into_iter().collect(), ..Default::default() }
            .encode(&mut good);
        for len in 0..good.len() {
            assert!(DomainRecord::decode(&good[..len]).is_err(), "{len} bytes");
        }
        let long = [&good[..], &[0; 4]].concat();
        assert_eq!(DomainRecord::decode(&long), Err(WireError::Field("monitor length")));
        let mut lying = good.clone();
        lying[7] = 2;
        assert_eq!(DomainRecord::decode(&lying), Err(WireError::Field("monitor length")));
        let mut many = alloc::vec![0; 16 + 65 * 4];
        (many[0], many[1], many[7]) = (1, 20, 65);
        assert_eq!(DomainRecord::decode(&many), Err(WireError::Field("monitor members")));
    }
}
