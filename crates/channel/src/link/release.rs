//! Freeing the memory of an old transport, in steps with pauses between them.
//!
//! The kernel takes about a microsecond to free a page. If megabytes were freed in one go on a CPU that an end keeps
//! busy, that end could not run for milliseconds. The next switch waits until all the memory is free, so that memory
//! does not pile up when switches follow each other quickly.

use std::time::{Duration, Instant};

use super::Link;
use super::state::{Old, State};

/// Approximate duration of a step.
const STEP: Duration = Duration::from_micros(100);
/// Pause after each step.
const PAUSE: Duration = Duration::from_micros(500);
/// Number of bytes freed by one system call.
const CHUNK: usize = 256 << 10;

/// An old transport whose memory is being freed.
pub(super) struct Release {
    old: Old,
    /// Number of bytes of each ring that have been freed.
    done: usize,
    next: Instant,
}

impl Release {
    pub(super) fn new(old: Old) -> Release {
        Release { old, done: 0, next: Instant::now() }
    }

    /// Frees as much as one step allows; returns true when nothing is left.
    fn step(&mut self) -> bool {
        let start = Instant::now();
        let rings = || self.old.tx.iter().filter_map(|tx| tx.ring());
        let rings = || rings().chain(self.old.rx.iter().filter_map(|rx| rx.ring()));
        while rings().filter(|ring| ring.give_back(self.done, CHUNK)).count() > 0 {
            self.done += CHUNK;
            if start.elapsed() >= STEP {
                return false;
            }
        }
        true
    }
}

impl State {
    /// Whether some memory of an old transport has not been freed yet, so that no switch can begin.
    pub(crate) const fn is_releasing(&self) -> bool {
        self.is_releasing
    }
}

impl Link {
    /// Control thread: frees some memory of an old transport, if it is time; returns when to continue, or `None` if
    /// nothing is left to free.
    pub(crate) fn release(&self, now: Instant) -> Option<Instant> {
        let mut release = self.lock().release.take()?;
        let finished = release.next <= now && release.step();
        if finished {
            drop(release);
            let mut state = self.lock();
            state.is_releasing = false;
            let wished = state.wished.is_some();
            drop(state);
            self.changed.notify_all();
            if wished {
                self.call_policy();
            }
            return None;
        }
        if release.next <= now {
            release.next = Instant::now() + PAUSE;
        }
        let next = release.next;
        self.lock().release = Some(release);
        Some(next)
    }
}
