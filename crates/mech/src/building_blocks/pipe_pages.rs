//! Pipes into which pages are put without a copy, by [`vmsplice`](crate::mechanisms::vmsplice) or
//! [`splice`](crate::mechanisms::splice).

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crossway_sys::pages::Pages;
use crossway_sys::pipe::{PipeEnd, pipe};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::shm::page_len;
use crossway_sys::{Errno, OsError};

use super::byte_stream::StreamRx;
use super::complete::{self, Complete};
use super::pages_tx::{Outlet, PagesTx, piece_bytes};
use super::pipe_halves::{ends, pipe_caps, pipe_facts};
use super::waiting::{Patience, Stop};
use crate::contract::facts_of;
use crate::{
    Caps, Carrier, Facts, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport, Wait,
};

/// The way in which references to pages get into a pipe.
pub trait Placing: fmt::Debug + Send + 'static {
    /// Id of the mechanism, [`Mechanism::ID`].
    const ID: &'static str;
    /// A one-line description for users.
    const ABOUT: &'static str;
    /// How to make the mechanism available if it is missing.
    const REMEDY: &'static str;
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

/// A pipe as the outlet of pages.
#[derive(Debug)]
pub struct PipeOutlet<P> {
    placing: PhantomData<P>,
    end: PipeEnd,
    slots: usize,
    rotation: Rotation,
}

impl<P: Placing> Outlet for PipeOutlet<P> {
    const LABEL: &'static str = P::LABEL;

    #[inline]
    fn take(&mut self, count: usize, _wait: Wait, _patience: Patience) -> Result<usize, Stop> {
        Ok(self.rotation.take(count))
    }

    #[inline]
    fn place(
        &mut self,
        pages: &Pages,
        range: Range<usize>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        P::place(&self.end, pages, range, nonblocking)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(&self.end, Interest::Writable, Some(until)).map(drop)
    }

    #[inline]
    fn placed(&mut self, first: usize, count: usize) {
        self.rotation.spliced(first, count);
    }

    fn facts(&self) -> Facts {
        let mut facts = pipe_facts(&self.end);
        facts.extend(facts_of([("pipe_slots", self.slots)]));
        facts
    }
}

/// The sending half of a pipe into which pages are put.
type PipePagesTx<P> = PagesTx<PipeOutlet<P>>;
/// The receiving half, which is the same as for any pipe.
type PipePagesRx = StreamRx<PipeEnd>;

/// A mechanism of two pipes, one each way, into which pages are put by `P`.
#[derive(Debug)]
pub struct PagesPipe<P>(PhantomData<P>);

impl<P: Placing> Mechanism for PagesPipe<P> {
    const ID: &'static str = P::ID;
    const ABOUT: &'static str = P::ABOUT;
    const CARRIER: Carrier = Carrier::new(Family::Pipe, Transport::Pipe).copied_once();
    type Tx = PipePagesTx<P>;
    type Rx = PipePagesRx;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        Caps { in_place: true, ..pipe_caps() }
    }

    fn probe() -> Probe {
        Probe::of_kernel(try_to_place::<P>(), P::REMEDY)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        complete::listen(Self::ID, pipe()?, pipe()?, |write, read| channel(spec, write, read))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        complete::connect(Self::ID, offer, |write, read| channel(spec, write, read))
    }
}

/// Tests whether a page can be put into a pipe and read from it.
fn try_to_place<P: Placing>() -> Result<(), OsError> {
    let (read, write) = pipe()?;
    let pages = Pages::new(P::LABEL, 1)?;
    P::place(&write, &pages, 0..1, true).map_err(|e| OsError::new("splice", "pipe", e))?;
    let read = PipeEnd::new(read)?.read(&mut [0], true);
    read.map(drop).map_err(|e| OsError::new("read", "pipe", e))
}

/// Opens a channel. Both ends of a pipe request the same capacity, so that it does not change after the slots were
/// counted.
fn channel<P: Placing>(
    spec: &Spec,
    write: OwnedFd,
    read: OwnedFd,
) -> Result<(PipePagesTx<P>, PipePagesRx), OpenError> {
    let (write, read) = ends(spec, write, read)?;
    let slots = write.capacity_bytes()? / page_len();
    let rotation = Rotation::new(slots, piece_bytes(spec).div_ceil(page_len()));
    let pages = rotation.pages;
    let outlet = PipeOutlet { placing: PhantomData, end: write, slots, rotation };
    Ok((PagesTx::new(outlet, pages, spec)?, StreamRx::new(read, spec.wait)))
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
