//! Link statistics.

use crate::wire::{Bundle, Fragment, FragmentKind, User, View};

/// Upper bounds of the size classes of [`LinkStats::profile`], in bytes; the last class has no upper bound.
pub const PROFILE_BOUNDS: [usize; 6] = [64, 256, 1024, 4096, 16384, 32768];

/// Counters of one link since it was created. For the broadcast link, acknowledgements and gap reports are those that
/// the unicast links carry for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Sequenced packets sent, without retransmissions.
    pub packets_sent: u64,
    /// Bytes of all frames sent, including TIPC headers.
    pub bytes_sent: u64,
    /// Packets sent again because the peer reported them missing.
    pub packets_resent: u64,
    /// Packets sent that carry a fragment.
    pub fragments_sent: u64,
    /// Messages sent in fragments.
    pub fragmented_sent: u64,
    /// Packets sent that carry a bundle.
    pub bundles_sent: u64,
    /// Messages sent in bundles.
    pub bundled_sent: u64,
    /// Packets with a sequence number that were accepted, each once.
    pub packets_received: u64,
    /// Bytes of the accepted packets.
    pub bytes_received: u64,
    /// Accepted packets that carry a fragment.
    pub fragments_received: u64,
    /// Messages received in fragments.
    pub fragmented_received: u64,
    /// Accepted packets that carry a bundle.
    pub bundles_received: u64,
    /// Messages received in bundles.
    pub bundled_received: u64,
    /// Packets received out of order, ahead of a missing one.
    pub packets_early: u64,
    /// Packets that had already been received.
    pub packets_duplicate: u64,
    /// STATE messages sent: probes, gap reports and all others.
    pub states_sent: u64,
    /// STATE messages received: probes, gap reports and all others.
    pub states_received: u64,
    /// STATE messages sent that demand an answer.
    pub probes_sent: u64,
    /// STATE messages received that demand an answer.
    pub probes_received: u64,
    /// STATE messages sent that are neither probes nor gap reports.
    pub acks_sent: u64,
    /// STATE messages sent that report missing packets.
    pub gaps_sent: u64,
    /// STATE messages received that report missing packets.
    pub gaps_received: u64,
    /// How often the link came up.
    pub ups: u64,
    /// Messages accepted for sending, by size: entry `i` counts those of at most `PROFILE_BOUNDS[i]` bytes, the last
    /// entry all larger ones.
    pub profile: [u64; 7],
    /// Bytes of the messages accepted for sending, including TIPC headers.
    pub profile_bytes: u64,
    /// How often a message was refused because the backlog was full.
    pub congestions: u64,
    /// Largest number of unacknowledged packets at any time.
    pub queue_max: u64,
    /// Sum of the numbers of unacknowledged packets in all samples.
    pub queue_sum: u64,
    /// Number of samples of the number of unacknowledged packets: one per tick while the link is up; for the broadcast
    /// link, one per packet sent.
    pub queue_looks: u64,
}

/// Number of messages in a bundle.
fn bundled(view: &View<'_>) -> u64 {
    Bundle::decode(view).map_or(0, |bundle| bundle.count.into())
}

fn is_fragment(view: &View<'_>, kind: FragmentKind) -> bool {
    Fragment::decode(view).is_ok_and(|fragment| fragment.kind == kind)
}

impl LinkStats {
    /// Counts a packet sent for the first time.
    pub(crate) fn count_sent(&mut self, view: &View<'_>) {
        self.packets_sent += 1;
        match view.user() {
            Some(User::Fragmenter) => {
                self.fragments_sent += 1;
                self.fragmented_sent += u64::from(is_fragment(view, FragmentKind::First));
            }
            Some(User::Bundler) => {
                self.bundles_sent += 1;
                self.bundled_sent += bundled(view);
            }
            _ => {}
        }
    }

    /// Counts an accepted packet.
    pub(crate) fn count_received(&mut self, view: &View<'_>) {
        self.packets_received += 1;
        self.bytes_received += view.size() as u64;
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

    /// Counts a message of this length accepted for sending.
    pub(crate) fn count_message(&mut self, len: usize) {
        let class = PROFILE_BOUNDS.iter().position(|bound| len <= *bound);
        self.profile[class.unwrap_or(PROFILE_BOUNDS.len())] += 1;
        self.profile_bytes += len as u64;
    }

    /// Samples the number of unacknowledged packets.
    pub(crate) fn look_at_queue(&mut self, packets: usize) {
        self.note_queue(packets);
        self.queue_sum += packets as u64;
        self.queue_looks += 1;
    }

    /// Raises the recorded maximum if this number of unacknowledged packets exceeds it. Used between two samples.
    pub(crate) fn note_queue(&mut self, packets: usize) {
        self.queue_max = self.queue_max.max(packets as u64);
    }

    /// Average number of unacknowledged packets over the samples; 0 if there are none.
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
        assert_eq!(stats.profile_bytes, 170_439);
        assert_eq!(stats.queue_average(), 0);
        stats.look_at_queue(7);
        stats.look_at_queue(2);
        assert_eq!((stats.queue_max, stats.queue_average()), (7, 4));
    }
}
