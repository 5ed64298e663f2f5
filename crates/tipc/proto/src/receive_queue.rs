//! Puts packets in order: stores packets that arrive early, and reports missing ones. Used by unicast and broadcast
//! links.

use crate::drops::DropReason;
use crate::limits::{DEFERRED_BYTES_MAX, GAP_ACK_BLOCKS_MAX, RECEIVE_WINDOW};
use crate::seq::Seq;
use crate::wire::{GapAck, Packet, View};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// The receiving side of a packet sequence.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveQueue {
    next: Seq,
    /// Early packets: slot `i` is for packet `next + 1 + i`. Packet `next` itself is always missing.
    early: VecDeque<Option<Packet>>,
    early_count: usize,
    early_bytes: usize,
}

impl ReceiveQueue {
    pub(crate) const fn new(next: Seq) -> Self {
        Self { next, early: VecDeque::new(), early_count: 0, early_bytes: 0 }
    }

    /// Sequence number of the next expected packet.
    pub(crate) const fn next(&self) -> Seq {
        self.next
    }

    /// Number of packets that wait for an earlier one.
    pub(crate) const fn early_count(&self) -> usize {
        self.early_count
    }

    /// Total length of the waiting packets, in bytes.
    pub(crate) const fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Accepts a packet. If it is the next one, returns true and appends the packets that waited for it to `behind`;
    /// the caller processes it and then those. Returns false if the packet was stored because an earlier one is
    /// missing.
    pub(crate) fn accept(
        &mut self,
        packet: &View<'_>,
        behind: &mut Vec<Packet>,
    ) -> Result<bool, DropReason> {
        let ahead = packet.seq().distance_from(self.next);
        if ahead >= 0x8000 {
            return Err(DropReason::Duplicate);
        }
        if ahead > RECEIVE_WINDOW {
            return Err(DropReason::BeyondWindow);
        }
        if ahead == 0 {
            self.next = self.next.next();
            while let Some(slot) = self.early.pop_front() {
                let Some(packet) = slot else { break };
                self.early_count -= 1;
                self.early_bytes -= packet.size();
                behind.push(packet);
                self.next = self.next.next();
            }
            return Ok(true);
        }
        let index = usize::from(ahead) - 1;
        if self.early.get(index).is_some_and(Option::is_some) {
            return Err(DropReason::Duplicate);
        }
        if self.early_bytes + packet.size() > DEFERRED_BYTES_MAX {
            return Err(DropReason::BeyondWindow);
        }
        if self.early.len() <= index {
            self.early.resize_with(index + 1, || None);
        }
        self.early[index] = Some(Packet::copy_of(packet));
        self.early_count += 1;
        self.early_bytes += packet.size();
        Ok(false)
    }

    /// Number of missing packets, counted from the next expected one up to the first waiting packet, or up to `sent_to`
    /// (exclusive) if none waits.
    pub(crate) fn gap(&self, sent_to: Seq) -> u16 {
        match self.early.iter().position(Option::is_some) {
            Some(index) => index as u16 + 1,
            None if sent_to.after(self.next) => {
                sent_to.distance_from(self.next).min(RECEIVE_WINDOW)
            }
            None => 0,
        }
    }

    /// The runs of consecutive waiting packets, each with the gap after it, for the gap-ack record.
    /// [`ReceiveQueue::gap`] is the gap before the first run.
    pub(crate) fn runs(&self) -> ArrayVec<GapAck, GAP_ACK_BLOCKS_MAX> {
        let mut runs: ArrayVec<GapAck, GAP_ACK_BLOCKS_MAX> = ArrayVec::new();
        let (mut in_run, mut hole) = (false, 0);
        for (index, slot) in self.early.iter().enumerate() {
            if slot.is_none() {
                (in_run, hole) = (false, hole + 1);
                continue;
            }
            let seq = self.next.add(index as u16 + 1);
            if in_run {
                if let Some(run) = runs.last_mut() {
                    run.ack = seq;
                }
            } else {
                if let Some(before) = runs.last_mut() {
                    before.gap = hole;
                }
                if runs.try_push(GapAck { ack: seq, gap: 0 }).is_err() {
                    // The last block's gap must be 0: gaps beyond it are reported when the first ones are filled.
                    if let Some(last) = runs.last_mut() {
                        last.gap = 0;
                    }
                    break;
                }
            }
            (in_run, hole) = (true, 0);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::NodeAddr;
    use crate::wire::{ConnManager, LinkFields};

    fn accept(queue: &mut ReceiveQueue, seq: u16) -> Result<Vec<u16>, DropReason> {
        let mut packet =
            Packet::encoded(|out| ConnManager::default().encode(&LinkFields::default(), out));
        packet.set_sequence(NodeAddr(1), Seq(seq));
        let mut out = Vec::new();
        let now = queue.accept(&packet.view(), &mut out)?;
        let behind = out.iter().map(|p| p.view().seq().0);
        Ok(now.then_some(seq).into_iter().chain(behind).collect())
    }

    #[test]
    fn packets_come_out_in_order_once() {
        let mut q = ReceiveQueue::new(Seq(65534));
        assert_eq!(accept(&mut q, 1), Ok(vec_of(&[])));
        assert_eq!(accept(&mut q, 65534), Ok(vec_of(&[65534])));
        assert_eq!(accept(&mut q, 1), Err(DropReason::Duplicate));
        assert_eq!(accept(&mut q, 65534), Err(DropReason::Duplicate));
        assert_eq!(accept(&mut q, 0), Ok(vec_of(&[])));
        assert_eq!(accept(&mut q, 65535), Ok(vec_of(&[65535, 0, 1])));
        assert_eq!(accept(&mut q, 2 + RECEIVE_WINDOW + 1), Err(DropReason::BeyondWindow));
        assert_eq!((q.early_count(), q.early_bytes()), (0, 0));
    }

    #[test]
    fn holes_are_named_as_gap_and_runs() {
        let mut q = ReceiveQueue::new(Seq(5));
        for seq in [8, 9, 12] {
            accept(&mut q, seq).unwrap();
        }
        assert_eq!(q.gap(Seq(13)), 3);
        assert_eq!(q.runs()[..], [GapAck { ack: Seq(9), gap: 2 }, GapAck { ack: Seq(12), gap: 0 }]);
        let q = ReceiveQueue::new(Seq(5));
        assert_eq!(q.gap(Seq(5)), 0);
        assert_eq!(
            q.gap(Seq(7)),
            2,
            "the last packets count as missing when the peer reports them as sent"
        );
    }

    #[test]
    fn more_runs_than_blocks_end_with_a_gap_of_0() {
        let mut q = ReceiveQueue::new(Seq(0));
        for n in 1..=100 {
            accept(&mut q, 2 * n).unwrap();
        }
        let runs = q.runs();
        assert_eq!(runs.len(), GAP_ACK_BLOCKS_MAX);
        assert_eq!(runs[63], GapAck { ack: Seq(128), gap: 0 });
        assert_eq!(runs[0], GapAck { ack: Seq(2), gap: 1 });
    }

    fn vec_of(items: &[u16]) -> Vec<u16> {
        items.to_vec()
    }
}
