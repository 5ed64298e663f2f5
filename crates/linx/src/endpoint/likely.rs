//! Reads a busy channel before the endpoint sleeps.

use super::Endpoint;
use crate::channel::Filled;
use crate::limits::LOOK_AROUND;

/// How often an endpoint sleeps without reading first, after such a read has found nothing.
const RESTS: u32 = 8;

/// The byte stream that is read before this endpoint sleeps, since a read of it has just returned something. To be woken costs
/// both ends several times as much as a read that finds nothing.
#[derive(Default)]
pub(super) struct Likely {
    pub(super) channel: Option<u32>,
    /// Reads since the last check of everything.
    pub(super) reads: u32,
    /// How often to sleep without such a read, since one has found nothing.
    rests: u32,
}

impl Endpoint {
    /// Reads the channel that probably has something; returns whether it had.
    pub(super) fn read_likely(&mut self) -> bool {
        let Some(number) = self.likely.channel else { return false };
        if self.likely.rests > 0 {
            self.likely.rests -= 1;
            return false;
        }
        // Other channels and the node must be heard, too.
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
