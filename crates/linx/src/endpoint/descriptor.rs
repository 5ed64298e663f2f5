//! The descriptor of an endpoint, for programs that poll.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crossway_sys::clock::monotonic_ns;
use crossway_sys::epoll::Trigger;
use crossway_sys::eventfd::EventFd;
use crossway_sys::timerfd::TimerFd;

use super::{Endpoint, TIMER, WAKE};
use crate::Error;

/// The descriptor that the program polls.
pub(super) struct Pollable {
    /// Readable while the queue contains something that no other descriptor shows.
    wake: EventFd,
    is_awake: bool,
    timer: TimerFd,
    /// The instant for which the timer is set; `None` if it is not set.
    timed_ns: Option<u64>,
}

impl Endpoint {
    /// Returns a descriptor that polls readable when something can be received; it may also be readable without a
    /// signal. Do not read from it or close it. When it is ready, receive with a deadline that has passed until there
    /// is nothing left.
    ///
    /// # Errors
    /// [`Error::Os`] if a system call fails.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        if self.pollable.is_none() {
            let pollable = Pollable {
                wake: EventFd::new()?,
                is_awake: false,
                timer: TimerFd::new()?,
                timed_ns: None,
            };
            self.epoll.add(&pollable.wake, WAKE, Trigger::WhileReadable)?;
            self.epoll.add(&pollable.timer, TIMER, Trigger::WhileReadable)?;
            self.pollable = Some(pollable);
            self.announce()?;
        }
        Ok(self.epoll.as_fd())
    }

    /// Updates the descriptor after a change of the queue or the timer. Every function that may have taken in arrivals
    /// calls this at its end.
    #[inline]
    pub(super) fn show(&mut self) -> Result<(), Error> {
        if self.pollable.is_some() { self.announce() } else { Ok(()) }
    }

    /// Stops the descriptor from showing the queue. A function that is about to sleep on the same descriptor calls this
    /// first, because the queue would wake it immediately.
    pub(super) fn hush(&mut self) -> Result<(), Error> {
        if let Some(pollable) = &mut self.pollable
            && pollable.is_awake
        {
            pollable.wake.clear()?;
            pollable.is_awake = false;
        }
        Ok(())
    }

    /// Makes the descriptor readable if the queue contains something that no other descriptor shows.
    fn announce(&mut self) -> Result<(), Error> {
        let idle = self.mailbox.len() == 0 && self.starved.is_none() && self.arm_hot()?;
        let next_ns = self.mailbox.next_timeout_ns();
        let Some(pollable) = &mut self.pollable else { return Ok(()) };
        if pollable.is_awake == idle {
            if idle {
                pollable.wake.clear()?;
            } else {
                pollable.wake.signal()?;
            }
            pollable.is_awake = !idle;
        }
        if pollable.timed_ns != next_ns {
            let left = next_ns.map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            pollable.timer.set(left)?;
            pollable.timed_ns = next_ns;
        }
        Ok(())
    }
}
