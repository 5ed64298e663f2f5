//! The sending half of mechanisms whose messages the kernel takes without a copy, out of pages that
//! belong to the sender until the kernel has done with them.
//!
//! A message's bytes are written into the pages by the caller itself
//! ([`Tx::send_in_place`]), or copied there. Which pages are free again is
//! known to the [`Outlet`].

use std::ops::Range;
use std::time::Instant;

use crossway_sys::Errno;
use crossway_sys::pages::Pages;
use crossway_sys::shm::page_len;

use super::byte_stream::send_error;
use super::waiting::{Attempt, Patience, Stop, wait_for};
use crate::contract::facts_of;
use crate::{Deadline, Facts, OpenError, SendError, Spec, Tx, Wait};

/// Where the pages go.
pub trait Outlet: Send + 'static {
    /// The name of the memory that holds the pages.
    const LABEL: &'static str;

    /// Returns the first of `count` consecutive pages that nobody reads any more, and waits for them
    /// if necessary.
    fn take(&mut self, count: usize, wait: Wait, patience: Patience) -> Result<usize, Stop>;

    /// Passes on references to some or all of the range's bytes and returns the number of bytes.
    /// Returns EAGAIN only if `nonblocking` is set.
    fn place(
        &mut self,
        pages: &Pages,
        range: Range<usize>,
        nonblocking: bool,
    ) -> Result<usize, Errno>;

    /// Sleeps until there may be room for more bytes, but not beyond `until`.
    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno>;

    /// Records that bytes of the pages from `first` on, the ones taken last, were passed on.
    fn placed(&mut self, first: usize, count: usize);

    /// Values read back from the system, and counts of what happened.
    fn facts(&self) -> Facts;
}

/// The sending half over an [`Outlet`].
#[derive(Debug)]
pub struct PagesTx<O> {
    outlet: O,
    pages: Pages,
    page_len: usize,
    wait: Wait,
    max: usize,
    /// The part of an accepted message that is in the pages and still has to be passed on, as a range
    /// of bytes.
    rest: Range<usize>,
    /// A message longer than `max`, of which the bytes from `tail_at` on are still to be sent.
    tail: Vec<u8>,
    tail_at: usize,
}

struct Placing<'a, O> {
    outlet: &'a mut O,
    pages: &'a Pages,
    range: Range<usize>,
}

impl<O: Outlet> Attempt for Placing<'_, O> {
    type Out = usize;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<usize, Errno> {
        self.outlet.place(self.pages, self.range.clone(), nonblocking)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        self.outlet.sleep_until(until)
    }
}

/// The length in bytes of the longest message that is put into pages as a whole.
pub(crate) fn piece_bytes(spec: &Spec) -> usize {
    spec.max_message.max(1)
}

impl<O: Outlet> PagesTx<O> {
    /// Creates the half over an open outlet, with `pages` pages.
    pub(crate) fn new(outlet: O, pages: usize, spec: &Spec) -> Result<Self, OpenError> {
        let page_len = page_len();
        Ok(PagesTx {
            outlet,
            pages: Pages::new(O::LABEL, pages * page_len)?,
            page_len,
            wait: spec.wait,
            max: piece_bytes(spec),
            rest: 0..0,
            tail: Vec::new(),
            tail_at: 0,
        })
    }

    /// Passes on the bytes of `range`, and removes from it those that were passed on.
    #[inline]
    fn place_range(
        &mut self,
        range: &mut Range<usize>,
        patience: Patience,
    ) -> Result<(), SendError> {
        while range.start < range.end {
            let mut placing =
                Placing { outlet: &mut self.outlet, pages: &self.pages, range: range.clone() };
            range.start += wait_for(&mut placing, self.wait, patience).map_err(send_error)?;
        }
        Ok(())
    }

    fn place_rest(&mut self, patience: Patience) -> Result<(), SendError> {
        let mut rest = self.rest.clone();
        let outcome = self.place_range(&mut rest, patience);
        self.rest = rest;
        outcome
    }

    /// Passes on everything that was accepted and still is to be.
    fn finish(&mut self, patience: Patience) -> Result<(), SendError> {
        self.place_rest(patience)?;
        while self.tail_at < self.tail.len() {
            let piece = self.max.min(self.tail.len() - self.tail_at);
            let tail = std::mem::take(&mut self.tail);
            let bytes = &tail[self.tail_at..self.tail_at + piece];
            let outcome = self.put(piece, patience, |page| page.copy_from_slice(bytes));
            self.tail = tail;
            outcome?;
            self.tail_at += piece;
            self.place_rest(patience)?;
        }
        self.tail.clear();
        self.tail_at = 0;
        Ok(())
    }

    #[inline]
    fn write_message(&mut self, msg: &[u8], patience: Patience) -> Result<(), SendError> {
        if !self.tail.is_empty() {
            self.finish(patience)?;
        }
        if msg.len() <= self.max {
            return self.put(msg.len(), patience, |page| page.copy_from_slice(msg));
        }
        // Longer than the pages were laid out for: a stream carries it in pieces.
        let mut done = 0;
        while done < msg.len() {
            let piece = &msg[done..msg.len().min(done + self.max)];
            match self.put(piece.len(), patience, |page| page.copy_from_slice(piece)) {
                Ok(()) => done += piece.len(),
                Err(SendError::Full | SendError::TimedOut) if done > 0 => {
                    self.tail.extend_from_slice(&msg[done..]);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes `fill` write `len` bytes, at most `max`, and passes them on. If only some of them fit,
    /// keeps the others for the next call.
    #[inline]
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if self.rest.start < self.rest.end {
            self.place_rest(patience)?;
        }
        if len == 0 {
            fill(&mut []);
            return Ok(());
        }
        let count = len.div_ceil(self.page_len);
        let first = self.outlet.take(count, self.wait, patience).map_err(send_error)?;
        let start = first * self.page_len;
        fill(self.pages.bytes_mut(start..start + len));
        let mut range = start..start + len;
        match self.place_range(&mut range, patience) {
            // Nothing was passed on: the pages are still ours.
            Err(error) if range.start == start => return Err(error),
            Err(SendError::Full | SendError::TimedOut) => self.rest = range,
            outcome => outcome?,
        }
        self.outlet.placed(first, count);
        Ok(())
    }
}

impl<O: Outlet> Tx for PagesTx<O> {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.write_message(msg, Patience::Now)
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.write_message(msg, Patience::Until(until))
    }

    #[inline]
    fn send_in_place(
        &mut self,
        len: usize,
        scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if !self.tail.is_empty() {
            self.finish(Patience::Until(until))?;
        }
        if len > self.max {
            fill(&mut scratch[..len]);
            return self.send(&scratch[..len], until);
        }
        self.put(len, Patience::Until(until), fill)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.finish(Patience::Until(None))
    }

    fn facts(&self) -> Facts {
        let mut facts = self.outlet.facts();
        facts.extend(facts_of([("piece_bytes", self.max), ("pool_bytes", self.pages.len())]));
        facts
    }
}
