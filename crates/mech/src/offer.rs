//! The offer that the listening end passes to the connecting end: values as text and, if both ends are on one host,
//! descriptors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use crate::OpenError;

/// Named values ("words") and named descriptors. The values are passed as text, the descriptors by `SCM_RIGHTS`.
/// Dropping an offer closes the descriptors that were not taken.
#[derive(Debug, Default)]
pub struct Offer {
    /// Named values, such as `path`, `address`, `port` and `pid`.
    pub words: BTreeMap<String, String>,
    /// Named descriptors, which the connecting end takes over.
    pub fds: Vec<(String, OwnedFd)>,
}

impl Offer {
    /// Creates an empty offer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value as text, which [`Offer::word`] parses again. Replaces a value of the same name.
    pub fn with_word(mut self, name: &str, value: impl ToString) -> Self {
        self.words.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds a descriptor, which the offer owns until [`Offer::take_fd`] removes it.
    pub fn with_fd(mut self, name: &str, fd: OwnedFd) -> Self {
        self.fds.push((name.to_owned(), fd));
        self
    }

    /// Parses the value with this name.
    pub fn word<T: std::str::FromStr>(
        &self,
        mechanism: &'static str,
        name: &str,
    ) -> Result<T, OpenError> {
        let text = self.words.get(name).ok_or_else(|| OpenError::BadOffer {
            mechanism,
            why: format!("the value '{name}' is missing"),
        })?;
        text.parse().map_err(|_| OpenError::BadOffer {
            mechanism,
            why: format!("the value '{name}' cannot be parsed: '{text}'"),
        })
    }

    /// Takes a descriptor out of the offer.
    pub fn take_fd(&mut self, mechanism: &'static str, name: &str) -> Result<OwnedFd, OpenError> {
        let at = self.fds.iter().position(|(n, _)| n == name).ok_or_else(|| {
            OpenError::BadOffer { mechanism, why: format!("the descriptor '{name}' is missing") }
        })?;
        Ok(self.fds.swap_remove(at).1)
    }
}
