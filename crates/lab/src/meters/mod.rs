//! Resources used by a host during a window; those of a role are in `crossway_loops`. Snapshots are taken just outside the timed loop.
//!
//! A host's meters run on that host, in its network namespace: in the controller on this machine, in the agent
//! elsewhere.

mod host;
mod packets;
mod retransmissions;
mod series;

pub use host::{HostAsk, HostMeter, HostReading};
pub(crate) use packets::packets;
