//! Selects the signals that a receive accepts.

use crate::{Signal, Spid};

/// A selection by signal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers<'a> {
    /// Signals with any number.
    Any,
    /// Signals with one of these numbers; none if the list is empty.
    Only(&'a [u32]),
    /// All numbers except these.
    Except(&'a [u32]),
}

/// The signals that a receive accepts; all others stay in the queue, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Which signal numbers are accepted.
    pub numbers: Numbers<'a>,
    /// The accepted sender; `None` accepts any.
    pub from: Option<Spid>,
}

impl<'a> Filter<'a> {
    /// Accepts every signal of every sender.
    pub const ANY: Filter<'static> = Filter { numbers: Numbers::Any, from: None };

    /// Accepts signals with these numbers.
    pub const fn only(numbers: &'a [u32]) -> Self {
        Filter { numbers: Numbers::Only(numbers), from: None }
    }

    /// Accepts signals with all numbers except these.
    pub const fn except(numbers: &'a [u32]) -> Self {
        Filter { numbers: Numbers::Except(numbers), from: None }
    }

    /// Restricts the filter to signals from this sender. To notice its death, attach to the sender and include the
    /// number of the attach's signal.
    pub const fn from(self, sender: Spid) -> Self {
        Filter { from: Some(sender), ..self }
    }

    /// Whether the filter accepts this signal.
    #[inline]
    pub fn takes(&self, signal: &Signal) -> bool {
        let number = match self.numbers {
            Numbers::Any => true,
            Numbers::Only(numbers) => numbers.contains(&signal.number()),
            Numbers::Except(numbers) => !numbers.contains(&signal.number()),
        };
        number && self.from.is_none_or(|from| signal.sender() == Some(from))
    }
}
