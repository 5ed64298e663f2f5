//! A TIPC node in user space: the protocol's state machine on real bearers.
//!
//! [`Runner`] is the event loop; [`Bearer`] carries frames over UDP or Ethernet; [`BearerSpec`] reads what a user writes to name one.
//! UDP needs no privilege; Ethernet needs CAP_NET_RAW.

mod bearer;
mod runner;
mod spec;

pub use bearer::{Bearer, BearerOpenError};
pub use runner::{Runner, RunnerError};
pub use spec::{BearerSpec, SpecError};
