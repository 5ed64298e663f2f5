//! The send window: it begins with slow start, then grows by one packet per round trip, and is reduced to seven tenths
//! after a loss.

use crate::limits::{WINDOW_MIN, WINDOW_THRESHOLD_MIN};
use crate::seq::Seq;

/// A send window, in packets.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    size: u16,
    max: u16,
    threshold: u16,
    credit: u32,
    /// The window has already been reduced for the current round trip, so it is not reduced again before the oldest
    /// unacknowledged packet is this one; `None` if it has not been reduced.
    recover: Option<Seq>,
}

impl Window {
    pub(crate) const fn new(max: u16) -> Self {
        let size = if max < WINDOW_MIN { max } else { WINDOW_MIN };
        Self { size, max, threshold: max, credit: 0, recover: None }
    }

    /// Number of packets that may be in flight.
    pub(crate) const fn size(&self) -> u16 {
        self.size
    }

    /// Sets the maximum size.
    pub(crate) fn set_max(&mut self, max: u16) {
        (self.max, self.threshold) = (max, max);
        self.size = self.size.min(max);
    }

    /// Handles an acknowledgement of `count` packets. `oldest` is the oldest packet that is now unacknowledged. The
    /// window grows only if it was full.
    pub(crate) fn on_ack(&mut self, count: usize, oldest: Seq, was_full: bool) {
        if let Some(recover) = self.recover {
            if oldest.before(recover) {
                return;
            }
            self.recover = None;
        }
        if !was_full {
            return;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let grow = if self.size < self.threshold {
            count
        } else {
            self.credit += count;
            let rounds = self.credit / u32::from(self.size);
            self.credit %= u32::from(self.size);
            rounds
        };
        self.size = u16::try_from(u32::from(self.size).saturating_add(grow))
            .unwrap_or(u16::MAX)
            .min(self.max);
    }

    /// Handles a loss. `oldest` is the oldest unacknowledged packet, `next` the sequence number of the next new packet.
    pub(crate) fn on_loss(&mut self, oldest: Seq, next: Seq) {
        if self.recover.is_some_and(|recover| oldest.before(recover)) {
            return;
        }
        self.recover = Some(next);
        self.size = (self.size / 10 * 7).max(WINDOW_MIN.min(self.max));
        self.threshold = self.size.max(WINDOW_THRESHOLD_MIN);
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_then_loss_shrinks_once_per_round() {
        let mut w = Window::new(1024);
        w.on_ack(450, Seq(451), true);
        assert_eq!(w.size(), 500);
        w.on_ack(100, Seq(551), false);
        assert_eq!(w.size(), 500, "an idle window does not grow");
        w.on_loss(Seq(551), Seq(700));
        w.on_loss(Seq(560), Seq(710));
        assert_eq!(w.size(), 350, "a window of 500 must be reduced only once");
        w.on_ack(350, Seq(699), true);
        assert_eq!(w.size(), 350, "the window must not grow in the round trip of the loss");
        w.on_ack(350, Seq(700), true);
        assert_eq!(w.size(), 351, "from here, the window grows by one packet per round trip");
    }

    #[test]
    fn window_stays_within_its_bounds() {
        let mut w = Window::new(60);
        w.on_ack(usize::MAX, Seq(1), true);
        assert_eq!(w.size(), 60);
        for n in 0..20 {
            w.on_loss(Seq(n * 10), Seq(n * 10 + 5));
        }
        assert_eq!(w.size(), WINDOW_MIN);
    }
}
