//! Pipes into which pages are put without a copy, by [`vmsplice`](crate::mechanisms::vmsplice) or [`splice`](crate::mechanisms::splice).

use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crossway_sys::pages::Pages;
use crossway_sys::pipe::{PipeEnd, pipe};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::shm::page_len;
use crossway_sys::{Errno, OsError};

use super::byte_stream::{StreamRx, send_error};
use super::pipe_halves::{ends, pipe_caps, pipe_facts};
use super::waiting::{Attempt, Patience, wait_for};
use crate::contract::facts_of;
use crate::{Caps, Deadline, Facts, OpenError, SendError, Spec, Tx, Wait};

/// The way in which references to pages get into a pipe.
pub trait Placing: Send + 'static {
    /// The name of the memory that holds the pages.
    const LABEL: &'static str;
    /// Puts references to some or all of the range's bytes into the pipe and returns the number of bytes. Returns
    /// EAGAIN only if `nonblocking` is set.
    fn place(
        pipe: impl AsFd,
        pages: &Pages,
        range: Range<usize>,
        nonblocking: bool,
    ) -> Result<usize, Errno>;
}

/// Chooses the pages of the next message.
///
/// A pipe of S slots holds at most the S pages that were spliced last; earlier pages have been read. A message takes at
/// most M consecutive pages, so up to M - 1 pages are skipped at the end of each round. Let P be the total number of
/// pages. Before a message's pages are reused, all other pages except the skipped ones are spliced, which are at least
/// P - M - (M - 1) pages. With P = S + 2 M, these are more than S pages, so the message's pages have been read.
#[derive(Debug)]
struct Rotation {
    pages: usize,
    next: usize,
}

impl Rotation {
    fn new(pipe_slots: usize, message_pages: usize) -> Self {
        Rotation { pages: pipe_slots + 2 * message_pages, next: 0 }
    }

    /// Returns the first of `count` consecutive pages that are no longer in the pipe.
    #[inline]
    fn take(&self, count: usize) -> usize {
        if self.next + count > self.pages { 0 } else { self.next }
    }

    /// Records that the pages from `first` on were put into the pipe.
    #[inline]
    fn spliced(&mut self, first: usize, count: usize) {
        self.next = first + count;
    }
}

/// The sending half of a pipe into which pages are put.
#[derive(Debug)]
pub struct PagesTx<P> {
    placing: PhantomData<P>,
    end: PipeEnd,
    pages: Pages,
    rotation: Rotation,
    page_len: usize,
    wait: Wait,
    max: usize,
    /// The part of an accepted message that is in the pages and still has to be put into the pipe, as a range of bytes.
    rest: Range<usize>,
    /// A message longer than `max`, of which the bytes from `tail_at` on are still to be sent.
    tail: Vec<u8>,
    tail_at: usize,
}

struct Splicing<'a, P> {
    placing: PhantomData<P>,
    end: &'a PipeEnd,
    pages: &'a Pages,
    range: Range<usize>,
}

impl<P: Placing> Attempt for Splicing<'_, P> {
    type Out = usize;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<usize, Errno> {
        P::place(self.end, self.pages, self.range.clone(), nonblocking)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.end, Interest::Writable, Some(until)).map(drop)
    }
}

impl<P: Placing> PagesTx<P> {
    fn new(end: PipeEnd, spec: &Spec) -> Result<Self, OpenError> {
        let page_len = page_len();
        let max = spec.max_message.max(1);
        let rotation = Rotation::new(end.capacity_bytes()? / page_len, max.div_ceil(page_len));
        let pages = Pages::new(P::LABEL, rotation.pages * page_len)?;
        Ok(PagesTx {
            placing: PhantomData,
            end,
            pages,
            rotation,
            page_len,
            wait: spec.wait,
            max,
            rest: 0..0,
            tail: Vec::new(),
            tail_at: 0,
        })
    }

    /// Puts the bytes of `range` into the pipe, and removes from `range` the bytes that are now in the pipe.
    #[inline]
    fn splice_range(&self, range: &mut Range<usize>, patience: Patience) -> Result<(), SendError> {
        while range.start < range.end {
            let mut splicing = Splicing {
                placing: self.placing,
                end: &self.end,
                pages: &self.pages,
                range: range.clone(),
            };
            range.start += wait_for(&mut splicing, self.wait, patience).map_err(send_error)?;
        }
        Ok(())
    }

    fn splice_rest(&mut self, patience: Patience) -> Result<(), SendError> {
        let mut rest = self.rest.clone();
        let outcome = self.splice_range(&mut rest, patience);
        self.rest = rest;
        outcome
    }

    /// Puts into the pipe everything that was accepted and is not there yet.
    fn finish(&mut self, patience: Patience) -> Result<(), SendError> {
        self.splice_rest(patience)?;
        while self.tail_at < self.tail.len() {
            let piece = self.max.min(self.tail.len() - self.tail_at);
            let tail = std::mem::take(&mut self.tail);
            let bytes = &tail[self.tail_at..self.tail_at + piece];
            let outcome = self.put(piece, patience, |page| page.copy_from_slice(bytes));
            self.tail = tail;
            outcome?;
            self.tail_at += piece;
            self.splice_rest(patience)?;
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

    /// Makes `fill` write `len` bytes, at most `max`, and puts them into the pipe. If only some of them fit, keeps the
    /// others for the next call.
    #[inline]
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if self.rest.start < self.rest.end {
            self.splice_rest(patience)?;
        }
        if len == 0 {
            fill(&mut []);
            return Ok(());
        }
        let count = len.div_ceil(self.page_len);
        let first = self.rotation.take(count);
        let start = first * self.page_len;
        fill(self.pages.bytes_mut(start..start + len));
        let mut range = start..start + len;
        match self.splice_range(&mut range, patience) {
            // Nothing was put into the pipe: the pages are still ours.
            Err(error) if range.start == start => return Err(error),
            Err(SendError::Full | SendError::TimedOut) => self.rest = range,
            outcome => outcome?,
        }
        self.rotation.spliced(first, count);
        Ok(())
    }
}

impl<P: Placing> Tx for PagesTx<P> {
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
        let mut facts = pipe_facts(&self.end);
        facts.extend(facts_of([
            ("piece_bytes", self.max),
            ("pipe_slots", self.rotation.pages - 2 * self.max.div_ceil(self.page_len)),
            ("pool_bytes", self.pages.len()),
        ]));
        facts
    }
}

/// The receiving half, which is the same as for any pipe.
pub(crate) type PagesRx = StreamRx<PipeEnd>;

/// The capabilities of a pipe into which pages are put.
pub(crate) fn pages_caps() -> Caps {
    Caps { in_place: true, ..pipe_caps() }
}

/// Tests whether a page can be put into a pipe and read from it.
pub(crate) fn try_to_place<P: Placing>() -> Result<(), OsError> {
    let (read, write) = pipe()?;
    let pages = Pages::new(P::LABEL, 1)?;
    P::place(&write, &pages, 0..1, true).map_err(|e| OsError::new("splice", "pipe", e))?;
    let read = PipeEnd::new(read)?.read(&mut [0], true);
    read.map(drop).map_err(|e| OsError::new("read", "pipe", e))
}

/// Opens a channel. Both ends of a pipe request the same capacity, so that it does not change after the slots were
/// counted.
pub(crate) fn channel<P: Placing>(
    spec: &Spec,
    write: OwnedFd,
    read: OwnedFd,
) -> Result<(PagesTx<P>, PagesRx), OpenError> {
    let (write, read) = ends(spec, write, read)?;
    Ok((PagesTx::new(write, spec)?, StreamRx::new(read, spec.wait)))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Tests that no page in the pipe is reused, with any sizes and fill levels of the pipe.
    #[test]
    fn the_rotation_never_gives_out_a_page_that_is_in_the_pipe() {
        for slots in [1, 2, 16] {
            for most in [1, 2, 3, 16, 17] {
                let mut rotation = Rotation::new(slots, most);
                let mut in_pipe = VecDeque::new();
                let mut seed = 1_u32;
                for _ in 0..10_000 {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let count = 1 + (seed >> 16) as usize % most;
                    let first = rotation.take(count);
                    for page in first..first + count {
                        assert!(page < rotation.pages);
                        assert!(!in_pipe.contains(&page), "slots {slots}, most {most}");
                    }
                    // The slowest possible reader: it reads only when the pipe is full.
                    for page in first..first + count {
                        if in_pipe.len() == slots {
                            in_pipe.pop_front();
                        }
                        in_pipe.push_back(page);
                    }
                    rotation.spliced(first, count);
                }
            }
        }
    }
}
