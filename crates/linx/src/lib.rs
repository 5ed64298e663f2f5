//! The LINX messaging model over any transport, without a kernel module.
//!
//! An [`Endpoint`] has a name and sends and receives [`Signal`]s. It finds others with [`Endpoint::hunt`], whenever
//! they start, and is notified of their end after [`Endpoint::attach`], however they end. Between endpoints of one
//! node, signals are sent directly, over UNIX sockets, FIFOs or shared memory ([`Transport`]); the node ([`Node`]) only
//! knows names and numbers, and relays signals to other nodes.
//!
//! `docs/LINX.md` lists every call of LINX with its equivalent here.

#![deny(unsafe_code)]

pub mod bmark;
mod channel;
mod control;
mod endpoint;
mod error;
mod filter;
#[cfg(test)]
mod hostile;
pub mod limits;
mod mailbox;
mod node;
mod registry;
mod session;
pub mod signal;
#[cfg(test)]
mod simulation;
mod spid;
pub mod trace;
mod transport;
mod view;
mod wire;

pub use control::{DIR_VARIABLE, default_dir};
pub use endpoint::{Endpoint, Options};
pub use error::Error;
pub use filter::{Filter, Numbers};
pub use mailbox::{Queue, Reference, WhenFull};
pub use node::{LINGER, LinkAddress, LinkSettings, Node, NodeThread, Settings, TipcBackend};
pub use registry::check_name;
pub use signal::Signal;
pub use spid::Spid;
pub use transport::Transport;
pub use view::{Condition, Count, EndpointInfo, EndpointKind, Traffic, WaitsFor, list};

/// Runs the example of the crate's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
