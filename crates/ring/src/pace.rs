//! How long an end tries again before it sleeps.

use std::time::{Duration, Instant};

use crate::{Deadline, Wait};

/// Looks at the clock every so many spins.
const CLOCK_EVERY: u32 = 1 << 7;
/// Asks the kernel whether the peer lives every so many spins.
const LIFELINE_EVERY: u32 = 1 << 16;
/// A blocking end tries for so long before it sleeps, but only while messages flow (see [`Pace`]).
const FLOW: Duration = Duration::from_micros(5);
/// A waiting end tries so often at full speed, for the answer that comes at once; then it relaxes the processor between
/// tries.
const HOT_SPINS: u32 = 200;
/// How often a receiver that ran dry amid a stream relaxes before it looks again.
const GATHER_SPINS: u32 = 64;
/// So many messages without waiting count as a flow.
const FLOW_MESSAGES: u32 = 8;
/// A spinning sender that found the ring full waits for so long for a good part of it.
const PATIENCE: Duration = Duration::from_micros(50);

/// One end's habit of waiting.
#[derive(Debug)]
pub struct Pace {
    wait: Wait,
    /// Messages since this end last had nothing to do.
    burst: u32,
    /// The end was amid a stream when it last ran dry. A blocking end then looks again for some microseconds before it
    /// sleeps: the next message is expected sooner than a sleep takes. With single messages and their answers it sleeps at
    /// once, as any program that blocks in `read`.
    flows: bool,
}

impl Pace {
    /// As the spec asks.
    pub fn new(wait: Wait) -> Self {
        Pace { wait, burst: 0, flows: false }
    }

    /// A message was there without waiting.
    #[inline]
    pub fn went_on(&mut self) {
        self.burst = self.burst.saturating_add(1);
    }

    /// Whether messages came without waiting for them until this end ran dry.
    pub fn amid_stream(&self) -> bool {
        self.burst >= FLOW_MESSAGES
    }

    /// Lets the sender get ahead by some messages, about a microsecond's worth: each look at the line it is writing
    /// costs it that line, and so a good part of its rate.
    pub fn let_some_gather(&self) {
        for _ in 0..GATHER_SPINS {
            crate::sync::relax();
        }
    }

    /// The end has nothing to do: how long it may spin; `None`: it sleeps at once.
    pub fn budget(&mut self, until: Deadline) -> Option<SpinBudget> {
        if self.amid_stream() {
            self.flows = true;
        }
        self.burst = 0;
        let limit = match self.wait {
            Wait::Spin => None,
            Wait::Hybrid { spin_us } => Some(Duration::from_micros(spin_us.into())),
            // The model checker has no clock, and a spin loop without one would never end.
            Wait::Block if self.flows && !cfg!(loom) => Some(FLOW),
            Wait::Block => return None,
        };
        Some(SpinBudget { limit, until, spins: 0, start: None })
    }

    /// The budget was spent in vain: the stream has stopped.
    pub fn slept(&mut self) {
        self.flows = false;
    }

    /// How long a sender holds out for plenty of room while it spins.
    pub fn patience(&self) -> Patience {
        Patience { spins: 0, start: None }
    }
}

/// What a spinning end does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Try again.
    Left,
    /// Try again, and ask whether the peer lives.
    LookAround,
    /// The deadline has passed.
    TimedOut,
    /// Sleep now.
    Spent,
}

/// The spinning of one wait.
#[derive(Debug)]
pub struct SpinBudget {
    limit: Option<Duration>,
    until: Deadline,
    spins: u32,
    start: Option<Instant>,
}

impl SpinBudget {
    /// Without the first tries at full speed: for who must not keep taking a line that the other end writes to.
    pub fn relaxed(mut self) -> Self {
        self.spins = HOT_SPINS;
        self
    }

    /// Counts one try, relaxes the processor after the first ones, and says how to go on.
    #[inline]
    pub fn spin(&mut self) -> Budget {
        self.spins = self.spins.wrapping_add(1);
        if self.spins > HOT_SPINS || cfg!(loom) {
            crate::sync::relax();
        }
        if self.spins.is_multiple_of(CLOCK_EVERY) { self.look_at_clock() } else { Budget::Left }
    }

    #[cold]
    fn look_at_clock(&mut self) -> Budget {
        if self.limit.is_some() || self.until.is_some() {
            let now = Instant::now();
            if self.until.is_some_and(|t| t <= now) {
                return Budget::TimedOut;
            }
            let start = *self.start.get_or_insert(now);
            if self.limit.is_some_and(|limit| now - start >= limit) {
                return Budget::Spent;
            }
        }
        if self.spins.is_multiple_of(LIFELINE_EVERY) { Budget::LookAround } else { Budget::Left }
    }
}

/// See [`Pace::patience`].
#[derive(Debug)]
pub struct Patience {
    spins: u32,
    start: Option<Instant>,
}

impl Patience {
    /// Whether it is used up.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        self.spins = self.spins.wrapping_add(1);
        if !self.spins.is_multiple_of(16) {
            return false;
        }
        let now = Instant::now();
        now - *self.start.get_or_insert(now) >= PATIENCE
    }
}
