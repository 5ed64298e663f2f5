//! How long the matrix takes, before it begins.

use std::time::Duration;

use super::cells;
use crate::catalogue::Entry;

/// About how long an attempt takes, with the start of its two processes.
const ATTEMPT: Duration = Duration::from_millis(70);
/// The same for a contender, of which some start an interpreter or a broker.
const CONTENDER_ATTEMPT: Duration = Duration::from_millis(350);
/// Number of attempts with a mechanism that does not report a death in which the survivor is silent.
const SILENCES: u32 = 14;

/// About how long these take, one after the other.
pub(super) fn estimate(entries: &[Entry], watch: Duration) -> Duration {
    let one = |entry: &Entry| {
        let cells = cells::all();
        let (attempt, trials) = match entry.contender() {
            Some(_) => (CONTENDER_ATTEMPT, cells.len()),
            None => (ATTEMPT, cells.iter().map(|cell| cell.trials as usize).sum()),
        };
        // Two ends are stopped and watched; where a death is not reported, the killed states are watched to the end.
        let silences = if entry.caps().detects_peer_death { 2 } else { SILENCES };
        attempt * trials as u32 + watch * silences
    };
    entries.iter().map(one).sum()
}
