//! Settings that an operator changes on a running link. The peer is notified of a new tolerance or priority and adopts
//! it; the send window applies to this end only.

use super::{Link, LinkStats};
use crate::time::Nanos;
use crate::wire::Capabilities;
use core::time::Duration;

/// Number of STATE messages that announce each new setting. A single message might be lost, and nothing else would
/// repeat the setting.
const TELLINGS: u8 = 3;

/// Settings to change; `None` leaves a setting unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkSettings {
    /// Silence after which the link fails. The peer adopts the same value.
    pub tolerance: Option<Duration>,
    /// Priority of the link. The peer adopts the same value and, if it changes, resets the link.
    pub priority: Option<u8>,
    /// Maximum send window of this end, in packets.
    pub window_max: Option<u16>,
}

impl Link {
    /// Resets the statistics, except the number of times the link came up.
    pub(crate) fn reset_statistics(&mut self) {
        self.stats = LinkStats { ups: self.stats.ups, ..LinkStats::default() };
    }

    /// Sets the common capabilities when the peer has restarted.
    pub(crate) const fn set_common(&mut self, common: Capabilities) {
        self.cfg.common = common;
    }

    /// Applies the settings, and notifies the peer of a new tolerance or priority.
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

    /// Tolerance (in milliseconds) and priority for the next STATE; both 0 if there is no change to announce.
    pub(super) fn told_in_state(&mut self) -> (u16, u8) {
        if self.tellings == 0 {
            return (0, 0);
        }
        self.tellings -= 1;
        (self.tolerance.as_millis() as u16, self.priority)
    }
}
