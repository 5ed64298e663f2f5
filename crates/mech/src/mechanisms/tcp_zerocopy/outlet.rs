//! A TCP connection as the outlet of pages, and as a source of bytes whose waits are not disturbed
//! by notices.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossway_sys::pages::Pages;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, socket, zerocopy};

use super::TcpZerocopy;
use super::completions::{Completions, Turn};
use crate::building_blocks::byte_stream::ByteSource;
use crate::building_blocks::connection::SocketHalf;
use crate::building_blocks::pages_tx::Outlet;
use crate::building_blocks::waiting::{Attempt, Patience, Stop, wait_for};
use crate::{Facts, Wait};

/// The notices of one connection, which either half may find in its error queue.
#[derive(Clone, Debug)]
pub(super) struct Notices(Arc<Mutex<Completions>>);

impl Notices {
    pub(super) fn new() -> Self {
        Notices(Arc::new(Mutex::new(Completions::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Completions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all notices there are. Returns the number of sends, from the first on, that are all
    /// complete.
    fn take(&self, fd: impl AsFd) -> Result<u64, Errno> {
        let mut completions = self.lock();
        while let Some(notice) = zerocopy::take_notice(&fd)? {
            completions.note(notice);
        }
        Ok(completions.done())
    }
}

/// The sending direction.
#[derive(Debug)]
pub struct ZerocopyOutlet {
    half: SocketHalf<TcpZerocopy>,
    notices: Notices,
    turn: Turn,
    /// Number of sends without a copy.
    sent: u64,
    /// The value of `sent` when pages were taken last.
    sent_before: u64,
    /// Number of sends for which the kernel would not pin memory.
    refused: u64,
}

impl ZerocopyOutlet {
    pub(super) fn new(half: SocketHalf<TcpZerocopy>, notices: Notices, pages: usize) -> Self {
        ZerocopyOutlet {
            half,
            notices,
            turn: Turn::new(pages),
            sent: 0,
            sent_before: 0,
            refused: 0,
        }
    }

    /// Frees the pages of complete sends. Returns the first of `count` free pages, if there are so
    /// many.
    fn free_after_notices(&mut self, count: usize) -> Result<Option<usize>, Errno> {
        let done = self.notices.take(self.half.as_fd())?;
        self.turn.release(done, self.sent);
        Ok(self.turn.free(count))
    }
}

/// Waits for pages.
struct Taking<'a> {
    outlet: &'a mut ZerocopyOutlet,
    count: usize,
    /// Whether the connection is gone: there are no more notices than those found.
    is_gone: bool,
}

impl Attempt for Taking<'_> {
    type Out = usize;

    fn attempt(&mut self, nonblocking: bool) -> Result<usize, Errno> {
        loop {
            if let Some(first) = self.outlet.free_after_notices(self.count)? {
                return Ok(first);
            }
            if self.is_gone {
                return Err(Errno::PIPE);
            }
            if nonblocking {
                return Err(Errno::AGAIN);
            }
            self.is_gone = zerocopy::await_notice(self.outlet.half.as_fd(), None)?;
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        self.is_gone = zerocopy::await_notice(self.outlet.half.as_fd(), Some(until))?;
        Ok(())
    }
}

impl Outlet for ZerocopyOutlet {
    const LABEL: &'static str = "crossway-tcp-zerocopy";

    #[inline]
    fn take(&mut self, count: usize, wait: Wait, patience: Patience) -> Result<usize, Stop> {
        self.sent_before = self.sent;
        match self.turn.free(count) {
            Some(first) => Ok(first),
            None => wait_for(&mut Taking { outlet: self, count, is_gone: false }, wait, patience),
        }
    }

    #[inline]
    fn place(
        &mut self,
        pages: &Pages,
        range: Range<usize>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let mut outcome = zerocopy::send(self.half.as_fd(), pages, range.clone(), nonblocking);
        if outcome == Err(Errno::NOBUFS) {
            // Notices that nobody has taken count towards the socket's limit.
            self.notices.take(self.half.as_fd())?;
            outcome = zerocopy::send(self.half.as_fd(), pages, range.clone(), nonblocking);
        }
        match outcome {
            Ok(_) => self.sent += 1,
            Err(Errno::NOBUFS) => {
                outcome = socket::send(self.half.as_fd(), pages.bytes(range), nonblocking);
                self.refused += u64::from(outcome.is_ok());
            }
            Err(_) => {}
        }
        outcome
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        // A notice in the queue would end the sleep.
        self.notices.take(self.half.as_fd())?;
        wait_ready(self.half.as_fd(), Interest::Writable, Some(until)).map(drop)
    }

    #[inline]
    fn placed(&mut self, _first: usize, count: usize) {
        self.turn.hold(count, self.sent_before);
    }

    fn facts(&self) -> Facts {
        let mut facts = self.half.read_facts();
        // Best effort: what cannot be read now is not known to have been copied.
        let _ = self.notices.take(self.half.as_fd());
        let copied = self.notices.lock().copied();
        for (name, count) in [
            ("zerocopy_sends", self.sent),
            ("zerocopy_sends_copied", copied),
            ("zerocopy_sends_refused", self.refused),
        ] {
            facts.insert(name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX));
        }
        facts
    }
}

/// The receiving direction. Notices of the other one make the descriptor poll ready, so it takes
/// them, too.
#[derive(Debug)]
pub struct ZerocopySource {
    half: SocketHalf<TcpZerocopy>,
    notices: Notices,
}

impl ZerocopySource {
    pub(super) fn new(half: SocketHalf<TcpZerocopy>, notices: Notices) -> Self {
        ZerocopySource { half, notices }
    }
}

struct Receiving<'a> {
    source: &'a mut ZerocopySource,
    buf: &'a mut [u8],
}

impl Attempt for Receiving<'_> {
    type Out = usize;

    #[inline(always)]
    fn attempt(&mut self, nonblocking: bool) -> Result<usize, Errno> {
        self.source.read(self.buf, nonblocking)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        self.source.notices.take(self.source.half.as_fd())?;
        wait_ready(self.source.half.as_fd(), Interest::Readable, Some(until)).map(drop)
    }
}

impl ByteSource for ZerocopySource {
    #[inline(always)]
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        self.half.read(buf, nonblocking)
    }

    #[inline(always)]
    fn read_within(
        &mut self,
        buf: &mut [u8],
        wait: Wait,
        patience: Patience,
    ) -> Result<usize, Stop> {
        let outcome = wait_for(&mut Receiving { source: self, buf }, wait, patience);
        if outcome == Err(Stop::WouldBlock) {
            // Whoever looks because the descriptor polled ready must not find it so for ever.
            self.notices.take(self.half.as_fd()).map_err(Stop::Errno)?;
        }
        outcome
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.half.as_fd()
    }

    fn facts(&self) -> Facts {
        self.half.read_facts()
    }
}
