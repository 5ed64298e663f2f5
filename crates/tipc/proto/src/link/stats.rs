//! What a link counts.

use crate::wire::{Bundle, Fragment, FragmentKind, User, View};

/// Largest sizes of the classes of [`LinkStats::profile`], in octets; the last class has no bound of its own.
pub const PROFILE_BOUNDS: [usize; 6] = [64, 256, 1024, 4096, 16384, 32768];

/// Counters of one link since it was created, or of the broadcast link, where acknowledgements and gaps are those that the links to the
/// peers carried for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Sequenced packets sent for the first time.
    pub packets_sent: u64,
    /// Octets of all frames sent, headers of TIPC included.
    pub octets_sent: u64,
    /// Packets sent again.
    pub packets_resent: u64,
    /// Of the packets sent: those that carry a part of a message.
    pub fragments_sent: u64,
    /// Messages that were cut into these.
    pub fragmented_sent: u64,
    /// Of the packets sent: those that carry several messages.
    pub bundles_sent: u64,
    /// Messages in these.
    pub bundled_sent: u64,
    /// Sequenced packets accepted.
    pub packets_received: u64,
    /// Octets of the accepted packets.
    pub octets_received: u64,
    /// Of the packets accepted: those that carry a part of a message.
    pub fragments_received: u64,
    /// Messages that had been cut into these.
    pub fragmented_received: u64,
    /// Of the packets accepted: those that carry several messages.
    pub bundles_received: u64,
    /// Messages in these.
    pub bundled_received: u64,
    /// Packets that came before their turn.
    pub packets_early: u64,
    /// Packets that had come before.
    pub packets_duplicate: u64,
    /// STATE messages sent.
    pub states_sent: u64,
    /// STATE messages received.
    pub states_received: u64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probes received.
    pub probes_received: u64,
    /// STATE messages sent that neither probe nor report a gap.
    pub acks_sent: u64,
    /// Gap reports sent.
    pub gaps_sent: u64,
    /// Gap reports received.
    pub gaps_received: u64,
    /// How often the link came up.
    pub ups: u64,
    /// Messages taken for sending, by size: up to each of [`PROFILE_BOUNDS`], and larger.
    pub profile: [u64; 7],
    /// Octets of these messages, headers of TIPC included.
    pub profile_octets: u64,
    /// How often a message was not taken because too many wait.
    pub congestions: u64,
    /// Most packets that were not acknowledged at once.
    pub queue_max: u64,
    /// Packets that were not acknowledged, summed over the looks at the link.
    pub queue_sum: u64,
    /// Looks at the link: one in a tick while it is up; of the broadcast link, one at each packet.
    pub queue_looks: u64,
}

/// Messages in a packet that carries several.
fn bundled(view: &View<'_>) -> u64 {
    Bundle::decode(view).map_or(0, |bundle| bundle.count.into())
}

fn is_fragment(view: &View<'_>, kind: FragmentKind) -> bool {
    Fragment::decode(view).is_ok_and(|fragment| fragment.kind == kind)
}

impl LinkStats {
    /// A packet went out for the first time.
    pub(crate) fn count_sent(&mut self, packet: &[u8]) {
        self.packets_sent += 1;
        let Ok(view) = View::parse(packet) else { return };
        match view.user() {
            Some(User::Fragmenter) => {
                self.fragments_sent += 1;
                self.fragmented_sent += u64::from(is_fragment(&view, FragmentKind::First));
            }
            Some(User::Bundler) => {
                self.bundles_sent += 1;
                self.bundled_sent += bundled(&view);
            }
            _ => {}
        }
    }

    /// A packet was accepted.
    pub(crate) fn count_received(&mut self, view: &View<'_>) {
        self.packets_received += 1;
        self.octets_received += view.size() as u64;
        match view.user() {
            Some(User::Fragmenter) => {
                self.fragments_received += 1;
                self.fragmented_received += u64::from(is_fragment(view, FragmentKind::Last));
            }
            Some(User::Bundler) => {
                self.bundles_received += 1;
                self.bundled_received += bundled(view);
            }
            _ => {}
        }
    }

    /// A message of this length was taken for sending.
    pub(crate) fn count_message(&mut self, len: usize) {
        let class = PROFILE_BOUNDS.iter().position(|bound| len <= *bound);
        self.profile[class.unwrap_or(PROFILE_BOUNDS.len())] += 1;
        self.profile_octets += len as u64;
    }

    /// So many packets are not acknowledged.
    pub(crate) fn look_at_queue(&mut self, packets: usize) {
        self.note_queue(packets);
        self.queue_sum += packets as u64;
        self.queue_looks += 1;
    }

    /// So many packets are not acknowledged, between two looks.
    pub(crate) fn note_queue(&mut self, packets: usize) {
        self.queue_max = self.queue_max.max(packets as u64);
    }

    /// Packets that were not acknowledged, on average over the looks.
    pub const fn queue_average(&self) -> u64 {
        match self.queue_sum.checked_div(self.queue_looks) {
            Some(average) => average,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_their_classes() {
        let mut stats = LinkStats::default();
        for len in [24, 64, 65, 256, 1024, 1025, 16384, 20000, 32768, 32769, 66060] {
            stats.count_message(len);
        }
        assert_eq!(stats.profile, [2, 2, 1, 1, 1, 2, 2]);
        assert_eq!(stats.profile_octets, 170_439);
        assert_eq!(stats.queue_average(), 0);
        stats.look_at_queue(7);
        stats.look_at_queue(2);
        assert_eq!((stats.queue_max, stats.queue_average()), (7, 4));
    }
}
