//! Parts from which mechanisms are built: sockets, byte streams, messages, waiting.
//!
//! The rings in shared memory have their own folder, [`ring`](crate::ring).

pub(crate) mod arrival;
pub mod byte_stream;
pub(crate) mod complete;
pub mod connection;
pub mod datagram;
pub(crate) mod in_place;
pub mod message_socket;
pub mod pages_tx;
pub mod parcel;
pub(crate) mod pipe_halves;
pub mod pipe_pages;
pub(crate) mod queue_wait;
pub(crate) mod slots;
pub mod stream_socket;
pub mod tipc_port;
pub(crate) mod waiting;
