//! How long a call may wait.

use std::time::{Duration, Instant};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Do not wait.
    Now,
    /// Wait until this instant.
    Until(Instant),
    /// Wait for ever, with the plain system call.
    Forever,
}

impl Patience {
    /// Converts a deadline, where `None` means for ever.
    pub fn from_deadline(deadline: Option<Instant>) -> Self {
        deadline.map_or(Patience::Forever, Patience::Until)
    }

    /// The remaining time; `None` if there is no limit.
    pub fn left(self) -> Option<Duration> {
        match self {
            Patience::Now => Some(Duration::ZERO),
            Patience::Until(at) => Some(at.saturating_duration_since(Instant::now())),
            Patience::Forever => None,
        }
    }

    /// Whether the time has run out.
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
