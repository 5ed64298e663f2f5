//! How the ends of kernel channels wait: one place for block, spin, hybrid, and deadlines.

use std::time::{Duration, Instant};

use crossway_sys::Errno;

use crate::{Deadline, Wait};

/// How long one call may take.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Not at all.
    Now,
    /// Until the deadline, waiting as the channel was told.
    Until(Deadline),
}

/// Why a call did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It could not go on at once.
    WouldBlock,
    /// It could not go on until the deadline.
    TimedOut,
    /// The kernel refused.
    Errno(Errno),
}

/// Something that can be tried at once, tried with sleeping in the call, and slept for with a deadline.
pub(super) trait Attempt {
    /// What comes out of it.
    type Out;

    /// Whether blocking and not blocking is a mode of the descriptor, which costs a system call to switch, and not of
    /// the call.
    const SWITCHES_MODE: bool = false;

    /// Tries; EAGAIN when it cannot go on, without sleeping if `nonblocking`.
    fn attempt(&mut self, nonblocking: bool) -> Result<Self::Out, Errno>;

    /// Sleeps until another attempt makes sense, not longer than until the deadline.
    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno>;
}

/// Attempts until it is done or patience is at its end.
///
/// Without a deadline a blocking end makes the plain blocking call and no other: what an ordinary program does.
#[inline]
pub(super) fn wait_for<A: Attempt>(
    what: &mut A,
    wait: Wait,
    patience: Patience,
) -> Result<A::Out, Stop> {
    let Patience::Until(until) = patience else {
        return what.attempt(true).map_err(|errno| match errno {
            Errno::AGAIN => Stop::WouldBlock,
            errno => Stop::Errno(errno),
        });
    };
    match wait {
        Wait::Block => block(what, until),
        Wait::Spin => spin(what, until),
        Wait::Hybrid { spin_us } => {
            // The clock is read only when there is something to wait for.
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

#[inline]
fn block<A: Attempt>(what: &mut A, until: Deadline) -> Result<A::Out, Stop> {
    let Some(until) = until else {
        loop {
            match what.attempt(false) {
                // A blocking call says EAGAIN when a timeout left over from connecting has expired.
                Err(Errno::AGAIN) => {}
                done => return done.map_err(Stop::Errno),
            }
        }
    };
    loop {
        match what.attempt(true) {
            Err(Errno::AGAIN) if Instant::now() >= until => return Err(Stop::TimedOut),
            Err(Errno::AGAIN) => what.sleep_until(until).map_err(Stop::Errno)?,
            done => return done.map_err(Stop::Errno),
        }
    }
}

/// Blocks without the blocking call, where two switches of mode would cost more than the poll.
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
                std::hint::spin_loop();
            }
            done => return done.map_err(Stop::Errno),
        }
    }
}
