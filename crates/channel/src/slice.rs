//! The periodic checks of a spinning end: whether the deadline has passed, on which CPU it runs, and whether it should
//! sleep for a moment.

use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_ring::biased::Flags;

use crate::link::{Link, flag};
use crate::page::Half;

/// A spinning end makes its checks at this interval.
const SLICE: Duration = Duration::from_micros(200);
/// While a switch away from spinning is in progress, an end sleeps for this long at each check.
const NAP: Duration = Duration::from_micros(100);

/// Makes the checks at the end of a slice of spinning. Returns the end of the next slice; `None` if the deadline has
/// passed.
#[cold]
pub(crate) fn next(link: &Link, half: Half, flags: Flags<'_>, until: Deadline) -> Option<Instant> {
    let now = Instant::now();
    if until.is_some_and(|until| until <= now) {
        return None;
    }
    link.note_cpu(half);
    if flags.raised() & flag::RELAX != 0 {
        std::thread::sleep(NAP);
    }
    Some(until.map_or(now + SLICE, |until| until.min(now + SLICE)))
}
