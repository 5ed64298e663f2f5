//! How long a call may wait.

use std::time::{Duration, Instant};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    Now,
    /// Until this instant.
    Until(Instant),
    /// For ever, with the plain system call.
    Forever,
}

impl Patience {
    /// From a deadline of which `None` means for ever.
    pub fn from_deadline(deadline: Option<Instant>) -> Self {
        deadline.map_or(Patience::Forever, Patience::Until)
    }

    /// The time left; `None` when there is no end to it.
    pub fn left(self) -> Option<Duration> {
        match self {
            Patience::Now => Some(Duration::ZERO),
            Patience::Until(at) => Some(at.saturating_duration_since(Instant::now())),
            Patience::Forever => None,
        }
    }

    /// Whether nothing is left of it.
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
