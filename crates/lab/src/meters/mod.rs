//! Resources used by a role and its host during a window. Snapshots are taken just outside the timed loop.
//!
//! A host's meters run on that host, in its network namespace: in the controller on this machine, in the agent
//! elsewhere.

mod host;
mod packets;
mod retransmissions;
mod role;
mod series;

pub use host::{HostAsk, HostMeter, HostReading};
pub(crate) use packets::packets;
pub(crate) use role::{RoleMeter, open_counters};
