//! Which signals a receive takes.

use crate::{Signal, Spid};

/// Which numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers<'a> {
    /// All.
    Any,
    /// These only.
    Only(&'a [u32]),
    /// All but these.
    Except(&'a [u32]),
}

/// What a receive takes; everything else stays in the queue, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// By number.
    pub numbers: Numbers<'a>,
    /// By sender.
    pub from: Option<Spid>,
}

impl<'a> Filter<'a> {
    /// Takes every signal.
    pub const ANY: Filter<'static> = Filter { numbers: Numbers::Any, from: None };

    /// Takes signals of these numbers.
    pub const fn only(numbers: &'a [u32]) -> Self {
        Filter { numbers: Numbers::Only(numbers), from: None }
    }

    /// Takes signals of all numbers but these.
    pub const fn except(numbers: &'a [u32]) -> Self {
        Filter { numbers: Numbers::Except(numbers), from: None }
    }

    /// Takes of those only what this endpoint has sent. Attach to it and name the attach's number, or its death is not noticed.
    pub const fn from(self, sender: Spid) -> Self {
        Filter { from: Some(sender), ..self }
    }

    /// Whether it takes this signal.
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
