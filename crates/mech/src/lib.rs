//! All communication mechanisms between two Linux processes, behind one contract.
//!
//! [`contract`] defines what a mechanism is, and [`registry`] lists all of them. Each mechanism is one file below
//! [`mechanisms`]. Parts that several mechanisms share are in [`building_blocks`], and channels of shared-memory rings
//! in [`ring`]. All mechanisms pass one test suite, `crates/conformance`.

#![deny(unsafe_code)]

pub mod building_blocks;
pub mod caps;
pub mod carrier;
pub mod contract;
pub mod erased;
pub mod history;
pub mod mechanisms;
pub mod meeting;
pub mod offer;
pub mod opening;
pub mod probe;
pub mod registry;
pub mod ring;
mod self_test;

pub use building_blocks::connection::ConnectionFamily;
pub use caps::{Boundaries, Caps, Order, Privilege, Reliability};
pub use carrier::{Carrier, Family, NodeKind, Transport};
pub use contract::{
    Access, Bind, COUNTERS, Deadline, Facts, LARGEST, Listener, Mechanism, OpenError, RecvError,
    Rx, SendError, Spec, Tx, Wait, combine,
};
pub use crossway_sys::Obstacle;
pub use meeting::Meeting;
pub use offer::Offer;
pub use probe::Probe;
