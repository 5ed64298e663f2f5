//! Every way two Linux processes can talk, behind one contract.
//!
//! [`contract`] says what a mechanism is; [`registry`] lists them all; each mechanism is one file below
//! [`mechanisms`]; the shared-memory rings are in [`ring`]; `crates/conformance` is the one suite that
//! all pass.

#![deny(unsafe_code)]

pub mod contract;
#[cfg(not(loom))]
pub mod mechanisms;
pub mod offer;
#[cfg(not(loom))]
pub mod registry;
pub mod ring;
pub mod sync;

pub use contract::{
    Access, Boundaries, Caps, Deadline, Facts, Listener, Mechanism, OpenError, Order, Privilege,
    Probe, RecvError, Reliability, Rx, SendError, Spec, Tx, Wait,
};
pub use offer::Offer;
