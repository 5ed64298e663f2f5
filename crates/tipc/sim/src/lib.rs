//! Many TIPC nodes on a hostile network, in virtual time.
//!
//! [`Network`] owns the nodes and the media that they share. Everything that happens follows from the seed: which frames are lost, sent
//! twice, late, or cut off by a partition, and how fast each node's clock runs. A run of an hour takes as long as its frames take to
//! handle.

mod capture;
mod conditions;
mod network;
pub mod seeds;

pub use conditions::Conditions;
pub use network::{Host, HostId, Network, Plane};
