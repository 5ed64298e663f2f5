//! A program's part in its node's trace. With each signal, the program reads one 64-bit counter in shared memory; only
//! if the counter has changed does it ask the node for the trace's socket.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crossway_sys::clock::unix_ns;
use crossway_sys::words::{SharedWords, WatchedWords};
use crossway_sys::{Errno, OsError, socket};

use super::record::Record;

/// Number of counters in a node's shared memory: one, the number of traces started and ended so far, which is odd while
/// a trace runs.
pub(crate) const WATCHED: usize = 1;
/// Number of counters in a trace's shared memory: one, the number of records lost.
pub(crate) const LOST: usize = 1;

/// The sending end of a trace.
#[derive(Debug)]
pub(crate) struct Tap {
    sink: OwnedFd,
    lost: SharedWords,
    /// Maximum number of payload bytes in a record.
    payload: usize,
}

impl Tap {
    pub(crate) fn new(sink: OwnedFd, lost: SharedWords, payload: usize) -> Tap {
        Tap { sink, lost, payload }
    }

    /// Sends a record. If there is no room, the record is lost and counted: a program never waits for the reader.
    pub(crate) fn write(&self, record: &Record<'_>) {
        match socket::send(&self.sink, &record.encode(unix_ns(), self.payload), true) {
            // The trace has ended.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(_) => {
                self.lost.word(0).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A node's counter and the running trace, shared by all endpoints that a process has on the node.
#[derive(Debug)]
pub(crate) struct Watch {
    words: WatchedWords,
    /// Device and inode, which identify the memory.
    identity: (u64, u64),
    tap: Mutex<(u64, Option<Arc<Tap>>)>,
}

static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

impl Watch {
    /// Returns the watch of the node with this memory; all endpoints of this process share it.
    pub(crate) fn of(memory: OwnedFd) -> Result<Arc<Watch>, OsError> {
        let file = File::from(memory);
        let about = file.metadata().map_err(|e| OsError::new("fstat", "LINX node's memory", e))?;
        let identity = (about.dev(), about.ino());
        let mut all = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|watch| watch.strong_count() > 0);
        if let Some(same) = all.iter().filter_map(Weak::upgrade).find(|w| w.identity == identity) {
            return Ok(same);
        }
        let words = WatchedWords::open(&file, WATCHED)?;
        let watch = Arc::new(Watch { words, identity, tap: Mutex::new((0, None)) });
        all.push(Arc::downgrade(&watch));
        Ok(watch)
    }

    fn known(&self, generation: u64) -> Option<Arc<Tap>> {
        let tap = self.tap.lock().unwrap_or_else(PoisonError::into_inner);
        tap.1.clone().filter(|_| tap.0 == generation)
    }
}

/// An endpoint's part in traces.
#[derive(Debug)]
pub(crate) struct Follower {
    watch: Arc<Watch>,
    generation: u64,
    tap: Option<Arc<Tap>>,
}

impl Follower {
    pub(crate) fn new(watch: Arc<Watch>) -> Follower {
        Follower { watch, generation: 0, tap: None }
    }

    /// Returns the trace to which the endpoint's records go, if there is one.
    #[inline]
    pub(crate) fn tap(&self) -> Option<&Arc<Tap>> {
        self.tap.as_ref()
    }

    /// Whether no trace has begun or ended since the last [`Follower::follow`].
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.watch.words.load(0) == self.generation
    }

    /// Notes that a trace has begun or ended; returns true if the node must be asked for the trace's socket.
    pub(crate) fn follow(&mut self) -> bool {
        self.generation = self.watch.words.load(0);
        if self.generation.is_multiple_of(2) {
            self.tap = None;
            *self.watch.tap.lock().unwrap_or_else(PoisonError::into_inner) =
                (self.generation, None);
            return false;
        }
        self.tap = self.watch.known(self.generation);
        self.tap.is_none()
    }

    /// Handles the node's answer: takes part in the trace, or in none if the answer has no descriptors because the
    /// trace has ended.
    pub(crate) fn join(
        &mut self,
        generation: u64,
        payload: usize,
        fds: Vec<OwnedFd>,
    ) -> Result<(), OsError> {
        self.generation = generation;
        let mut fds = fds.into_iter();
        self.tap = match (fds.next(), fds.next()) {
            (Some(sink), Some(lost)) => {
                Some(Arc::new(Tap::new(sink, SharedWords::open(&lost, LOST)?, payload)))
            }
            _ => None,
        };
        let known = (generation, self.tap.clone());
        *self.watch.tap.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }
}
