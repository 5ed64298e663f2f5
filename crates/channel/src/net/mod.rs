//! Channels between hosts: names that lead to other hosts, connections that are encrypted or plain by choice, and resumption when one dies.
//!
//! ```text
//!   program        Session: items by number, kept until acknowledged      <- survives its connection
//!                  Writer, Reader: frames, sealed by Noise or plain
//!                  Stream: a TCP connection or a TIPC one                 <- may die
//! ```
//!
//! A channel between hosts has two such connections: one for messages, used by the program's threads, and one for control, used by the control
//! thread. Either may die and be replaced by the connecting end, which finds the listener by the channel's name again. If both programs allow loss,
//! messages may travel in datagrams beside the first connection.

pub(crate) mod connect;
pub(crate) mod datagrams;
pub(crate) mod endpoint;
mod frames;
mod greeting;
pub(crate) mod lossy;
mod network;
mod rejoin;
pub(crate) mod resume;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod wire;

pub(crate) use frames::{Reader, Writer, write_now};
pub(crate) use greeting::{Incoming, Progress};
pub use network::{BadNetwork, Hosts, Key, Network};
pub(crate) use stream::Stream;
