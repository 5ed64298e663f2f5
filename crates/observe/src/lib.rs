//! How running programs talk to each other.
//!
//! - [`snapshot`]: what the kernel says about processes, their descriptors, mappings and sockets at one instant.
//! - [`map`]: which processes have channels to each other and to the outside, derived from a snapshot.
//! - [`rates`]: what flowed between two maps.
//! - [`recording`]: what processes exchanged, call by call; [`import`] makes recordings from logs, [`ebpf`] and [`live`]
//!   from running processes.
//!
//! Looking needs no privilege for a user's own processes. What needs more is listed as a [`snapshot::Gap`] with its
//! remedy; nothing is left out silently.

pub mod ebpf;
pub mod import;
pub mod live;
pub mod map;
pub mod rates;
pub mod recording;
pub mod snapshot;
#[cfg(feature = "samples")]
pub mod tape;
pub mod target;
