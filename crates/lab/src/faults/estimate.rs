//! Estimates how long the matrix takes, before it begins.

use std::time::Duration;

use super::cells;
use crate::catalogue::Entry;

/// Approximate duration of an attempt, including the start of its two processes.
const ATTEMPT: Duration = Duration::from_millis(70);
/// Approximate duration of an attempt with a contender; some contenders start an interpreter or a broker.
const CONTENDER_ATTEMPT: Duration = Duration::from_millis(350);
/// Number of attempts with a mechanism that does not report a peer's death in which the survivor's calls do not return,
/// so that the survivor is watched for the whole time.
const SILENCES: u32 = 14;

/// Approximate duration of the attempts with `entries`, one after the other.
pub(super) fn estimate(entries: &[Entry], watch: Duration) -> Duration {
    let one = |entry: &Entry| {
        let cells = cells::all();
        let (attempt, trials) = match entry.contender() {
            Some(_) => (CONTENDER_ATTEMPT, cells.len()),
            None => (ATTEMPT, cells.iter().map(|cell| cell.trials as usize).sum()),
        };
        // Two attempts stop an end and watch the other. If a death is not reported, each kill is watched for the whole time.
        let silences = if entry.caps().detects_peer_death { 2 } else { SILENCES };
        attempt * trials as u32 + watch * silences
    };
    entries.iter().map(one).sum()
}
