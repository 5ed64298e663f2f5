//! What an operator sets on a link while it runs; the peer's end is told and follows.

use super::{Link, LinkStats};
use crate::time::Nanos;
use crate::wire::Capabilities;
use core::time::Duration;

/// STATE messages that carry a new setting: one may be lost, and nothing else would repeat it.
const TELLINGS: u8 = 3;

/// What to set; `None` leaves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkSettings {
    /// Silence after which the link fails; both ends have the same.
    pub tolerance: Option<Duration>,
    /// Priority; both ends have the same. The peer answers a new one by resetting the link.
    pub priority: Option<u8>,
    /// Largest send window of this end, in packets.
    pub window_max: Option<u16>,
}

impl Link {
    /// Begins the counters anew, but for how often the link came up.
    pub(crate) fn reset_statistics(&mut self) {
        self.stats = LinkStats { ups: self.stats.ups, ..LinkStats::default() };
    }

    /// What both ends understand from now on: the peer began a new life.
    pub(crate) const fn set_common(&mut self, common: Capabilities) {
        self.cfg.common = common;
    }

    /// Sets, and has the peer told.
    pub(crate) fn set(&mut self, now: Nanos, settings: LinkSettings) {
        if let Some(max) = settings.window_max {
            self.cfg.window_max = max;
            self.window.set_max(max);
        }
        if let Some(tolerance) = settings.tolerance {
            (self.cfg.tolerance, self.tolerance) = (tolerance, tolerance);
            self.tick_at = self.tick_at.min(now + self.tick_interval());
        }
        if let Some(priority) = settings.priority {
            (self.cfg.priority, self.priority) = (priority, priority);
        }
        if settings.tolerance.is_some() || settings.priority.is_some() {
            self.tellings = TELLINGS;
            self.want_state(false, false);
        }
    }

    /// Tolerance in milliseconds and priority for the next STATE; 0 where there is nothing to tell.
    pub(super) fn told_in_state(&mut self) -> (u16, u8) {
        if self.tellings == 0 {
            return (0, 0);
        }
        self.tellings -= 1;
        (self.tolerance.as_millis() as u16, self.priority)
    }
}
