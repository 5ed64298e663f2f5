//! Waiting at the ends of kernel channels: the only implementation of blocking, spinning, hybrid waiting and deadlines.

use std::time::{Duration, Instant};

use crossway_sys::Errno;

use crate::{Deadline, Wait};

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Return immediately: [`Stop::WouldBlock`] if the operation would have to wait.
    Now,
    /// Wait until the deadline, in the channel's way of waiting.
    Until(Deadline),
}

/// Why a call did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The operation would have to wait.
    WouldBlock,
    /// The operation could not proceed before the deadline.
    TimedOut,
    /// The kernel returned an error.
    Errno(Errno),
}

/// An operation that may have to wait. An end can try it without sleeping, make a call that sleeps until the operation
/// can proceed, or sleep until a deadline and try again.
pub(crate) trait Attempt {
    /// The result of the operation.
    type Out;

    /// Whether blocking is a mode of the descriptor and not a flag of each call. Each change of that mode costs a
    /// system call.
    const SWITCHES_MODE: bool = false;

    /// Tries once, without sleeping if `nonblocking` is set; EAGAIN if the operation cannot proceed.
    fn attempt(&mut self, nonblocking: bool) -> Result<Self::Out, Errno>;

    /// Whether an attempt that may sleep spins by itself first, for as long as the end was configured to.
    #[inline]
    fn spins_itself(&self) -> bool {
        false
    }

    /// Sleeps until another attempt makes sense, but not beyond `until`.
    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno>;
}

/// Repeats the attempt until it succeeds or the time limit has passed.
///
/// Without a deadline, a blocking end makes only the plain blocking call, as an ordinary program does. That call is
/// inlined into the caller: the kernel overwrites the processor's return predictions when it switches to another
/// process, so after a sleep every function on the call's path costs a mispredicted return.
#[inline(always)]
pub(crate) fn wait_for<A: Attempt>(
    what: &mut A,
    wait: Wait,
    patience: Patience,
) -> Result<A::Out, Stop> {
    if let (Wait::Block, Patience::Until(None)) = (wait, patience) {
        return block_for_ever(what);
    }
    wait_in_turns(what, wait, patience)
}

#[inline(never)]
fn wait_in_turns<A: Attempt>(what: &mut A, wait: Wait, patience: Patience) -> Result<A::Out, Stop> {
    let Patience::Until(until) = patience else {
        return what.attempt(true).map_err(|errno| match errno {
            Errno::AGAIN => Stop::WouldBlock,
            errno => Stop::Errno(errno),
        });
    };
    match wait {
        Wait::Block => block(what, until),
        Wait::Spin => spin(what, until),
        Wait::Hybrid { .. } if until.is_none() && what.spins_itself() => block_for_ever(what),
        Wait::Hybrid { spin_us } => {
            // The clock is read only if it is necessary to wait.
            match what.attempt(true) {
                Err(Errno::AGAIN) => {}
                done => return done.map_err(Stop::Errno),
            }
            let budget = Instant::now() + Duration::from_micros(spin_us.into());
            match spin(what, Some(until.map_or(budget, |until| until.min(budget)))) {
                Err(Stop::TimedOut) if A::SWITCHES_MODE && until.is_none() => sleep_by_poll(what),
                Err(Stop::TimedOut) => block(what, until),
                done => done,
            }
        }
    }
}

#[inline(always)]
fn block_for_ever<A: Attempt>(what: &mut A) -> Result<A::Out, Stop> {
    loop {
        match what.attempt(false) {
            // A blocking call returns EAGAIN when a timeout left over from connecting has expired.
            Err(Errno::AGAIN) => {}
            done => return done.map_err(Stop::Errno),
        }
    }
}

#[inline]
fn block<A: Attempt>(what: &mut A, until: Deadline) -> Result<A::Out, Stop> {
    let Some(until) = until else { return block_for_ever(what) };
    loop {
        match what.attempt(true) {
            Err(Errno::AGAIN) if Instant::now() >= until => return Err(Stop::TimedOut),
            Err(Errno::AGAIN) => what.sleep_until(until).map_err(Stop::Errno)?,
            done => return done.map_err(Stop::Errno),
        }
    }
}

/// Blocks by polling instead of in the call itself, for descriptors on which two mode changes would cost more than the
/// poll.
fn sleep_by_poll<A: Attempt>(what: &mut A) -> Result<A::Out, Stop> {
    loop {
        match block(what, Some(Instant::now() + Duration::from_secs(3600))) {
            Err(Stop::TimedOut) => {}
            done => return done,
        }
    }
}

#[inline]
fn spin<A: Attempt>(what: &mut A, until: Deadline) -> Result<A::Out, Stop> {
    loop {
        match what.attempt(true) {
            Err(Errno::AGAIN) => {
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(Stop::TimedOut);
                }
                crossway_sys::spin::hint();
            }
            done => return done.map_err(Stop::Errno),
        }
    }
}
