//! A simulation of many TIPC nodes on a hostile network, in virtual time.
//!
//! [`Network`] owns the nodes and the media that they share. The seed determines everything: which frames are lost,
//! duplicated or delayed, and how fast each node's clock runs. A run of one simulated hour takes only as long as the
//! processing of its frames.

mod capture;
mod cipher;
mod conditions;
mod fragments;
mod network;
pub mod seeds;

pub use cipher::Toy;
pub use conditions::Conditions;
pub use fragments::Fragmentation;
pub use network::{Host, HostId, Network, Plane};
