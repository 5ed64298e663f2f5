//! How long an end retries before it sleeps.

use std::time::{Duration, Instant};

use crate::gather::Gather;
use crate::sync::{between_quick_looks, hint, hints_in, idle_for, measure_costs};
use crate::{Deadline, Wait};

/// How long an end spins between two reads of the clock.
const CLOCK_EVERY: Duration = Duration::from_micros(3);
/// How long an end spins before it asks the kernel again whether the peer is alive.
const LIFELINE_EVERY: Duration = Duration::from_micros(1500);
/// How long a blocking end spins before it sleeps, but only while messages flow (see [`Pace`]).
const FLOW: Duration = Duration::from_micros(5);
/// Number of messages in a row without waiting that count as a flow.
const FLOW_MESSAGES: u32 = 8;
/// How long a spinning sender that found the ring full waits for a large part of it to become free.
const PATIENCE: Duration = Duration::from_micros(50);
/// How long that sender spins between two reads of the clock.
const PATIENCE_CLOCK_EVERY: Duration = Duration::from_nanos(400);

/// The waiting strategy of one end, which adapts to the flow of messages.
#[derive(Debug)]
pub struct Pace {
    wait: Wait,
    /// Number of messages since this end last had nothing to do.
    burst: u32,
    /// Whether the end was receiving or sending a stream when it last ran out of work. A blocking end then spins for
    /// some microseconds before it sleeps, because it expects the next message sooner than it could fall asleep and be
    /// woken. With single messages and their answers it sleeps immediately, like any program that blocks in `read`.
    flows: bool,
    /// Number of messages in the part of a stream that has just ended.
    found: u32,
    gather: Gather,
}

impl Pace {
    /// Creates the strategy for a [`Wait`].
    pub fn new(wait: Wait) -> Self {
        // Otherwise the first wait would measure it.
        measure_costs();
        Pace { wait, burst: 0, flows: false, found: 0, gather: Gather::new() }
    }

    /// Records that a message was available without waiting.
    #[inline]
    pub fn went_on(&mut self) {
        self.burst = self.burst.saturating_add(1);
    }

    /// Whether several messages in a row have passed without waiting since this end last ran out of work.
    pub fn amid_stream(&self) -> bool {
        self.burst >= FLOW_MESSAGES
    }

    /// Waits for some time, in which the sender gets ahead by some messages. To be called after [`Pace::budget`].
    pub fn let_some_gather(&mut self) {
        idle_for(self.gather.pause(self.found, Instant::now));
    }

    /// Returns how long the end may spin now that it has nothing to do, or `None` if it must sleep immediately.
    pub fn budget(&mut self, until: Deadline) -> Option<SpinBudget> {
        if self.amid_stream() {
            self.flows = true;
        } else {
            self.gather.stopped();
        }
        self.found = std::mem::take(&mut self.burst);
        let limit = match self.wait {
            Wait::Spin => None,
            Wait::Hybrid { spin_us } => Some(Duration::from_micros(spin_us.into())),
            // The model checker has no clock, and a spin loop without a clock would never end.
            Wait::Block if self.flows && !cfg!(loom) => Some(FLOW),
            Wait::Block => return None,
        };
        let looks = hints_in(CLOCK_EVERY);
        Some(SpinBudget { limit, until, quick: true, looks, left: looks, start: None, asked: None })
    }

    /// Records that the budget was spent without success: the stream has stopped.
    pub fn slept(&mut self) {
        self.flows = false;
        self.gather.stopped();
    }

    /// How long a spinning sender waits for a large part of the ring to become free.
    pub fn patience(&self) -> Patience {
        let looks = hints_in(PATIENCE_CLOCK_EVERY);
        Patience { looks, left: looks, start: None }
    }
}

/// The next step of a spinning end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Try again.
    Left,
    /// Try again, and ask whether the peer is alive.
    LookAround,
    /// The deadline has passed.
    TimedOut,
    /// Sleep now.
    Spent,
}

/// The state of one spinning wait.
#[derive(Debug)]
pub struct SpinBudget {
    limit: Option<Duration>,
    until: Deadline,
    /// Whether the answer is expected within a microsecond, as it is until the first read of the clock.
    quick: bool,
    /// Number of attempts between two reads of the clock, and how many are left until the next.
    looks: u32,
    left: u32,
    start: Option<Instant>,
    /// When the kernel was last asked whether the peer is alive.
    asked: Option<Instant>,
}

impl SpinBudget {
    /// Counts one attempt, waits until the next one is due, and returns the next step. Attempts that follow each other
    /// immediately take the cache line away from the other end while that is writing to it.
    #[inline]
    pub fn spin(&mut self) -> Budget {
        if self.quick {
            between_quick_looks();
        } else {
            hint();
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { self.look_at_clock() } else { Budget::Left }
    }

    #[cold]
    fn look_at_clock(&mut self) -> Budget {
        self.quick = false;
        self.left = self.looks;
        let now = Instant::now();
        if self.until.is_some_and(|t| t <= now) {
            return Budget::TimedOut;
        }
        let start = *self.start.get_or_insert(now);
        if self.limit.is_some_and(|limit| now - start >= limit) {
            return Budget::Spent;
        }
        let asked = self.asked.get_or_insert(now);
        if now - *asked < LIFELINE_EVERY {
            return Budget::Left;
        }
        *asked = now;
        Budget::LookAround
    }
}

/// A time limit, see [`Pace::patience`].
#[derive(Debug)]
pub struct Patience {
    /// Number of calls between two reads of the clock, and how many are left until the next.
    looks: u32,
    left: u32,
    start: Option<Instant>,
}

impl Patience {
    /// Whether the time limit has passed, for a loop that executes one spin-loop hint in each round. Reads the clock
    /// only from time to time; the time begins at the first reading.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return false;
        }
        self.left = self.looks;
        let now = Instant::now();
        now - *self.start.get_or_insert(now) >= PATIENCE
    }
}
