//! Every way two Linux processes can talk, behind one contract.
//!
//! [`contract`] says what a mechanism is; [`registry`] lists them all; each mechanism is one file below
//! [`mechanisms`]; the shared-memory rings are in [`ring`]; `crates/conformance` is the one suite that
//! all pass.

#![deny(unsafe_code)]

pub mod caps;
#[cfg(not(loom))]
mod complete;
pub mod contract;
#[cfg(not(loom))]
pub mod mechanisms;
pub mod offer;
pub mod probe;
#[cfg(not(loom))]
pub mod registry;
pub mod ring;
#[cfg(not(loom))]
mod self_test;
pub mod sync;

pub use caps::{Boundaries, Caps, Order, Privilege, Reliability};
pub use contract::{
    Access, Deadline, Facts, Listener, Mechanism, OpenError, RecvError, Rx, SendError, Spec, Tx,
    Wait,
};
pub use offer::Offer;
pub use probe::Probe;
