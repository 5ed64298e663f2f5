//! The link's timers: one regular look at it, and two that repair losses early.

use super::{Due, Link, LinkDownReason, LinkEvent, LinkState};
use crate::limits::{RESEND_TOLERANCES, RESETS_AT_ONCE, SILENT_TICKS_MAX};
use crate::time::Nanos;

/// Ticks without an answer after which an end that is establishing starts over, in case the session it answers to is over.
const ESTABLISHING_TICKS_MAX: u32 = 16;

impl Link {
    /// Runs the timers that are due. `bcast_pending` says that broadcasts of the peer want an acknowledgement.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, bcast_pending: bool) -> Option<LinkEvent> {
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_tail(now);
        }
        if self.nack_at.is_some_and(|at| at <= now) {
            self.repeat_nack(now);
        }
        if self.tick_at > now {
            return None;
        }
        self.tick_at = now + self.tick_interval();
        self.ticks = self.ticks.wrapping_add(1);
        match self.state {
            LinkState::Reset => {
                if self.ticks < RESETS_AT_ONCE || self.ticks.is_multiple_of(16) {
                    self.due = Some(Due::Reset { stopping: false });
                }
                None
            }
            LinkState::Establishing => {
                if self.ticks > ESTABLISHING_TICKS_MAX {
                    return self.fail(now, LinkDownReason::Silent);
                }
                self.due = Some(Due::Activate);
                None
            }
            LinkState::Established => self.look(now, bcast_pending),
            LinkState::FailingOver => None,
        }
    }

    fn look(&mut self, now: Nanos, bcast_pending: bool) -> Option<LinkEvent> {
        if self.silent_ticks > SILENT_TICKS_MAX {
            return self.fail(now, LinkDownReason::Silent);
        }
        if self
            .tx
            .stuck_since()
            .is_some_and(|since| now.since(since) > self.tolerance * RESEND_TOLERANCES)
        {
            return self.fail(now, LinkDownReason::ResendFailed);
        }
        self.stats.look_at_queue(self.tx.len());
        let next = self.tx.next();
        let idle = next == self.tick_next_sent;
        self.tick_next_sent = next;
        let probe = self.silent_ticks > 0 || self.rx.early_count() > 0 || idle;
        if probe || self.unacked > 0 || bcast_pending || self.tx.len() > 0 {
            self.want_state(probe, probe);
        }
        self.silent_ticks += 1;
        None
    }
}
