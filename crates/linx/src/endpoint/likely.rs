//! Reads from a busy channel before the endpoint sleeps.

use super::Endpoint;
use crate::channel::Filled;
use crate::limits::LOOK_AROUND;

/// After [`Endpoint::read_likely`] has found nothing, the endpoint sleeps this number of times without reading the
/// channel first.
const RESTS: u32 = 8;

/// The channel that is read before this endpoint sleeps, because the last read of that channel returned something.
/// Waking costs both ends several times as much as a read that finds nothing.
#[derive(Default)]
pub(super) struct Likely {
    pub(super) channel: Option<u32>,
    /// Number of reads of this channel since the last check of all descriptors.
    pub(super) reads: u32,
    /// How many more times to sleep without reading the channel first.
    rests: u32,
}

impl Endpoint {
    /// Reads from the channel that was last found busy; returns whether something had arrived.
    pub(super) fn read_likely(&mut self) -> bool {
        let Some(number) = self.likely.channel else { return false };
        if self.likely.rests > 0 {
            self.likely.rests -= 1;
            return false;
        }
        // Other channels and the node must be checked, too.
        if self.likely.reads == LOOK_AROUND || self.mailbox.is_full() {
            return false;
        }
        self.likely.reads += 1;
        let Some(way) = self.ways.get_mut(&number) else { return false };
        match way.channel.fill(&mut self.assembly, false) {
            Ok(Filled::Something) => {
                self.make_hot(number);
                self.take_in(number, true, None);
                true
            }
            Ok(Filled::Nothing) => {
                self.likely.rests = RESTS;
                false
            }
            Err(broken) => {
                self.channel_ended(number, broken);
                true
            }
        }
    }
}
