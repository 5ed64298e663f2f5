//! The result of testing whether a mechanism works here.

use crossway_sys::Obstacle;
use serde::{Deserialize, Serialize};

/// Whether a mechanism works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Probe {
    /// The mechanism was tried and works.
    Ready {
        /// The version of the software that provides the mechanism, such as `linux 6.1.0`.
        version: String,
    },
    /// The mechanism does not work here, for this reason.
    Missing(Obstacle),
}
