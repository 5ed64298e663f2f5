//! Handles the link's timers: the regular tick, and the timers that repair losses before the next tick.

use super::{Due, Link, LinkDownReason, LinkEvent, LinkState};
use crate::limits::{RESEND_TOLERANCES, RESETS_AT_ONCE, SILENT_TICKS_MAX, SUSPECT_PROBES};
use crate::monitor::Watch;
use crate::time::Nanos;
use crate::wire::Packet;

/// Number of ticks without an answer after which an end in the state `Establishing` starts over, because the peer may
/// have ended the session to which it responds.
const ESTABLISHING_TICKS_MAX: u32 = 16;

/// Number of probes per tick while nothing is heard and the ring monitor is active. Perhaps only one end of the link
/// then probes, and with one probe per tick, the loss of a fifth of all frames would occasionally be mistaken for the
/// loss of the peer.
const INSISTENCE: u32 = 4;

/// State outside the link that affects supervision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// Whether received broadcasts still have to be acknowledged to the peer.
    pub(crate) bcast_ack: bool,
    /// Whether the peer has not acknowledged all broadcasts of this node.
    pub(crate) bcast_behind: bool,
    /// How the link is monitored; `None` if each node monitors all others.
    pub(crate) watch: Option<Watch>,
}

impl Link {
    /// Handles the timers that have expired. Returns the event to report if the link fails.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, pending: Pending) -> Option<LinkEvent> {
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_tail(now);
        }
        if self.nack_at.is_some_and(|at| at <= now) {
            self.repeat_nack(now);
        }
        if self.ack_at.is_some_and(|at| at <= now) {
            self.acknowledge_at_last();
        }
        if self.insist_at.is_some_and(|at| at <= now) {
            let event = self.insist(now);
            if event.is_some() {
                return event;
            }
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
            LinkState::Established => self.look(now, pending),
            LinkState::FailingOver => None,
        }
    }

    fn look(&mut self, now: Nanos, pending: Pending) -> Option<LinkEvent> {
        if self.silent_ticks > SILENT_TICKS_MAX {
            return self.fail(now, LinkDownReason::Silent);
        }
        if self
            .tx
            .stuck_since()
            .is_some_and(|since| now.since(since) > self.tolerance * RESEND_TOLERANCES)
        {
            return self.fail(now, self.why_stuck(self.tx.get(self.tx.base())));
        }
        self.divided.handle_tick(now);
        self.stats.look_at_queue(self.tx.len());
        let next = self.tx.next();
        let idle = next == self.tick_next_sent;
        self.tick_next_sent = next;
        // Another node monitors the peer, unless packets are in flight: traffic itself reveals a loss. A silence that has begun is
        // followed up even if another node is now responsible: roles change most when many nodes are lost.
        let at_rest = self.tx.len() == 0 && self.rx.early_count() == 0 && !pending.bcast_behind;
        let quiet = at_rest && self.silent_ticks == 0;
        let watched = pending.watch != Some(Watch::Indirect) || !quiet;
        let probe = watched
            && (self.silent_ticks > 0
                || self.rx.early_count() > 0
                || idle
                || pending.watch == Some(Watch::Telling));
        if probe || self.unacked > 0 || pending.bcast_ack || self.tx.len() > 0 {
            self.want_state(probe, probe);
        }
        if !watched {
            self.silent_ticks = 0;
            return None;
        }
        if pending.watch.is_some() && self.silent_ticks > 0 {
            self.insist_at.get_or_insert(now + self.tick_interval() / INSISTENCE);
        }
        self.silent_ticks += 1;
        None
    }

    /// Returns the reason to report for a packet that was not acknowledged despite retransmissions although the peer is
    /// alive: it depends on whether the medium divides packets of this size.
    pub(crate) fn why_stuck(&self, packet: Option<&Packet>) -> LinkDownReason {
        if packet.is_some_and(|p| p.size() > self.divided.whole_max()) {
            LinkDownReason::FragmentsLost
        } else {
            LinkDownReason::ResendFailed
        }
    }

    /// Makes a link that is down send RESET at every tick again, because frames may now reach the peer again.
    pub(crate) fn ask_afresh(&mut self, now: Nanos) {
        if self.state == LinkState::Reset {
            (self.ticks, self.tick_at) = (0, now + self.tick_interval());
            self.due = Some(Due::Reset { stopping: false });
        }
    }

    /// Records that another node has reported the peer as lost. Unless the peer answers soon, the link fails.
    pub(crate) fn suspect(&mut self, now: Nanos) {
        if self.is_up() && self.suspected.is_none() {
            (self.suspected, self.insist_at) = (Some(0), Some(now));
        }
    }

    /// Records a sign of life from the peer in the current session.
    pub(super) const fn heard(&mut self) {
        self.silent_ticks = 0;
        (self.suspected, self.insist_at) = (None, None);
    }

    /// Probes again before the next tick, because nothing was heard from the peer. After [`SUSPECT_PROBES`] probes of a
    /// peer reported as lost, fails the link instead, and returns the event to report.
    fn insist(&mut self, now: Nanos) -> Option<LinkEvent> {
        self.insist_at = None;
        if !self.is_up() {
            return None;
        }
        if let Some(probes) = &mut self.suspected {
            if *probes >= SUSPECT_PROBES {
                return self.fail(now, LinkDownReason::Silent);
            }
            *probes += 1;
        }
        self.want_state(true, true);
        self.insist_at = Some(now + self.tick_interval() / INSISTENCE);
        None
    }
}
