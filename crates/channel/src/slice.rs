//! How an end that spins looks around from time to time: the deadline, its CPU, and whether it should give way.

use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_ring::biased::Flags;

use crate::link::{Link, flag};
use crate::page::Half;

/// An end that spins looks around each time this has passed.
const SLICE: Duration = Duration::from_micros(200);
/// While a switch away from spinning is under way, an end sleeps for this long between looks.
const NAP: Duration = Duration::from_micros(100);

/// A slice of spinning is over. Returns the end of the next one; `None` if the deadline has passed.
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
