//! Packets that the medium divides: over IPv4, packets larger than the device's MTU travel as IP fragments.
//!
//! If one fragment is lost, the whole packet is lost, and the remaining fragments occupy the reassembly memory of the
//! receiving system until a timer expires. When that memory is full, Linux drops the fragments of every packet. No
//! divided packet then arrives for up to 30 s, and a link fails after ten tolerances (15 s by default). A link
//! therefore stops sending divided packets before the fragments of lost ones can occupy more than a small part of that
//! memory.

use crate::limits::{DIVIDED_AVOIDED, DIVIDED_LOST_BYTES_MAX, DIVIDED_LOST_WITHIN};
use crate::time::Nanos;

/// Counts the losses of divided packets, and decides whether more divided packets may be sent.
#[derive(Clone, Debug)]
pub(super) struct Divided {
    /// Largest packet that the medium carries whole, in bytes.
    whole_max: usize,
    /// Bytes of divided packets retransmitted since `counted_since`.
    lost_bytes: usize,
    counted_since: Nanos,
    /// Until this time, no packets are sent that the medium would divide; `None` if such packets are permitted.
    avoided_until: Option<Nanos>,
}

impl Divided {
    pub(super) const fn new(whole_max: usize) -> Self {
        Self { whole_max, lost_bytes: 0, counted_since: Nanos(0), avoided_until: None }
    }

    /// Largest packet that the medium carries whole, in bytes.
    pub(super) const fn whole_max(&self) -> usize {
        self.whole_max
    }

    /// Maximum size of new packets, in bytes. `packet_max` is the size that both ends of the link support.
    pub(super) fn limit(&self, packet_max: usize) -> usize {
        if self.avoided_until.is_some() { packet_max.min(self.whole_max) } else { packet_max }
    }

    /// Counts a retransmitted packet of this size. If too many bytes of divided packets are lost, no more divided
    /// packets are sent for some time.
    pub(super) fn on_resend(&mut self, now: Nanos, size: usize) {
        if size <= self.whole_max {
            return;
        }
        if now.since(self.counted_since) > DIVIDED_LOST_WITHIN {
            (self.counted_since, self.lost_bytes) = (now, 0);
        }
        self.lost_bytes += size;
        if self.lost_bytes > DIVIDED_LOST_BYTES_MAX {
            self.avoided_until = Some(now + DIVIDED_AVOIDED);
        }
    }

    /// Permits divided packets again once the time for which they are avoided is over.
    pub(super) fn handle_tick(&mut self, now: Nanos) {
        if self.avoided_until.is_some_and(|until| until <= now) {
            self.avoided_until = None;
            (self.counted_since, self.lost_bytes) = (now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos(1_000_000_000_000);
    const LARGE: usize = 14_000;
    const WHOLE: usize = 1_472;
    /// Number of packets of size `LARGE` that may be lost before divided packets are no longer sent.
    const ACCEPTED: usize = DIVIDED_LOST_BYTES_MAX / LARGE;

    #[test]
    fn divided_packets_are_avoided_for_a_while_after_many_losses_within_the_time() {
        let mut divided = Divided::new(WHOLE);
        for _ in 0..10 * ACCEPTED {
            divided.on_resend(START, WHOLE);
        }
        for _ in 0..ACCEPTED {
            divided.on_resend(START, LARGE);
        }
        assert_eq!(divided.limit(LARGE), LARGE);
        divided.on_resend(START, LARGE);
        assert_eq!((divided.limit(LARGE), divided.limit(1_000)), (WHOLE, 1_000));
        let end = START + DIVIDED_AVOIDED;
        divided.handle_tick(Nanos(end.0 - 1));
        assert_eq!(divided.limit(LARGE), WHOLE);
        divided.handle_tick(end);
        assert_eq!(divided.limit(LARGE), LARGE);
        divided.on_resend(end, LARGE);
        assert_eq!(divided.limit(LARGE), LARGE, "earlier losses no longer count");
    }

    #[test]
    fn rare_losses_do_not_add_up() {
        let mut divided = Divided::new(WHOLE);
        let mut now = START;
        for _ in 0..10 * ACCEPTED {
            now = now + DIVIDED_LOST_WITHIN / 10;
            divided.on_resend(now, LARGE);
        }
        assert_eq!(divided.limit(LARGE), LARGE);
    }
}
