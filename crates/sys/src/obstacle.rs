//! Why something cannot be done here, and what helps: the two halves of a sentence, which records keep apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason and its remedy. As text, both in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// What is missing or impossible.
    pub why: String,
    /// The exact step that helps, or why nothing does.
    pub remedy: String,
}

impl Obstacle {
    /// An obstacle with this reason and this remedy.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
        Obstacle { why: why.into(), remedy: remedy.into() }
    }

    /// The obstacle that a text of another process or library states, whose remedy follows a semicolon; `usual` is the
    /// remedy if it states none.
    pub fn said(text: &str, usual: &str) -> Obstacle {
        let (why, remedy) = text.split_once("; ").unwrap_or((text, usual));
        Obstacle::new(why, remedy)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

impl std::error::Error for Obstacle {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_what_it_was_made_from() {
        let obstacle = Obstacle::new("no AF_TIPC", "start a tipcd; or load the module");
        assert_eq!(Obstacle::said(&obstacle.to_string(), "-"), obstacle);
        assert_eq!(
            Obstacle::said("too large", "send less"),
            Obstacle::new("too large", "send less")
        );
    }
}
