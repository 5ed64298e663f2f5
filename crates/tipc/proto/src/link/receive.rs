//! Handles sequenced packets from the peer: puts them in order and acknowledges them.

use super::{Link, LinkEvent, LinkState};
use crate::drops::{DropCounters, DropReason};
use crate::limits::{ACK_DELAY, ACK_EVERY, ACK_EVERY_MAX, NACK_AFTER_DEFERRED, NACK_REPEAT};
use crate::time::Nanos;
use crate::wire::{Packet, View};
use alloc::vec::Vec;

impl Link {
    /// Handles a sequenced packet. Returns the event to report, if any, and whether the packet is the next one in
    /// order; appends the packets that waited for it to `behind`. The caller passes all of them to
    /// [`Link::reassembly`], except those that belong to another link.
    pub(crate) fn handle_packet(
        &mut self,
        now: Nanos,
        view: &View<'_>,
        behind: &mut Vec<Packet>,
        drops: &mut DropCounters,
    ) -> (Option<LinkEvent>, bool) {
        // Data carries no session number, but if it acknowledges a packet never sent in this session, it is from an earlier one.
        if view.ack().after(self.tx.next().prev()) {
            drops.count(DropReason::WrongSession);
            return (None, false);
        }
        let mut event = None;
        match self.state {
            LinkState::Reset | LinkState::FailingOver => {
                drops.count(DropReason::LinkDown);
                return (None, false);
            }
            // The peer is sending data, so its end is up.
            LinkState::Establishing => event = Some(self.establish(now)),
            LinkState::Established => {}
        }
        let (before, early_before) = (self.rx.next(), self.rx.early_count());
        let in_order = match self.rx.accept(view, behind) {
            Ok(in_order) => in_order,
            Err(reason) => {
                drops.count(reason);
                if reason == DropReason::Duplicate {
                    self.stats.packets_duplicate += 1;
                    // The peer retransmitted it because our acknowledgement was lost: acknowledge again.
                    self.unacked = self.unacked.saturating_add(1);
                    self.acknowledge_sooner();
                }
                return (event, false);
            }
        };
        // Only packets of the current sequence count as a sign of life: a peer that lost the session sends duplicates.
        self.heard();
        self.stats.count_received(view);
        self.handle_ack(now, view.ack());
        let advanced = self.rx.next().distance_from(before);
        let early = self.rx.early_count();
        if advanced > 0 {
            self.unacked = self.unacked.saturating_add(advanced);
            // Higher values would not help, and would take longer to decay.
            self.unacked_max = self.unacked_max.max(self.unacked).min(2 * ACK_EVERY_MAX);
            self.ack_at = (self.unacked >= ACK_EVERY).then(|| now + ACK_DELAY);
            self.nack_wait = NACK_REPEAT;
            self.nack_at = (early > 0).then(|| now + self.nack_wait);
        } else if early > early_before {
            self.stats.packets_early += 1;
            if self.nack_at.is_none() {
                self.nack_at = Some(now + self.nack_wait);
            }
            if early == NACK_AFTER_DEFERRED || early.is_multiple_of(usize::from(ACK_EVERY)) {
                self.want_state(false, false);
            }
        }
        (event, in_order)
    }

    /// Whether an acknowledgement must be sent to the peer now, piggybacked on a packet or in a STATE.
    pub(super) fn is_ack_due(&self) -> bool {
        self.is_up() && self.unacked >= (self.unacked_max / 2).clamp(ACK_EVERY, ACK_EVERY_MAX)
    }

    /// Acknowledges what a peer sent that has sent nothing since. Nothing else would: it hears from this end, so it does not
    /// probe, and until the next tick a window of packets would take a quarter of the tolerance.
    pub(super) fn acknowledge_at_last(&mut self) {
        self.ack_at = None;
        if self.is_up() && self.unacked >= ACK_EVERY {
            self.acknowledge_sooner();
            self.want_state(false, false);
        }
    }

    /// Halves the estimate of the peer's window, which may have shrunk, so that acknowledgements are sent after fewer
    /// packets.
    pub(super) const fn acknowledge_sooner(&mut self) {
        self.unacked_max /= 2;
    }

    /// Reports a gap again if it still exists, at increasing intervals.
    pub(super) fn repeat_nack(&mut self, now: Nanos) {
        if self.rx.early_count() == 0 {
            self.nack_at = None;
            return;
        }
        self.want_state(false, false);
        self.nack_wait = (self.nack_wait * 2).min(self.tick_interval());
        self.nack_at = Some(now + self.nack_wait);
    }
}
