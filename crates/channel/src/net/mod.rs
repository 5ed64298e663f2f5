//! Channels between hosts: names that lead to other hosts, connections that are encrypted or (by choice) plain, and
//! resumption after a connection has died.
//!
//! ```text
//!   program        Session: items by number, kept until acknowledged      <- survives its connection
//!                  Writer, Reader: frames, sealed by Noise or plain
//!                  Stream: a TCP connection or a TIPC one                 <- may die
//! ```
//!
//! A channel between hosts has two such connections: one for messages, used by the program's threads, and one for
//! control packets, used by the control thread. If either dies, the connecting end finds the listener by the channel's
//! name again and replaces the connection. If both programs allow loss, messages may travel in datagrams instead of on
//! the first connection.

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
