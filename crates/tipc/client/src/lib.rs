//! TIPC sockets for programs.
//!
//! [`Socket`] has two back ends: the kernel's AF_TIPC if it is available, otherwise a `tipcd`, Crossway's TIPC node in
//! user space. With either, its descriptor is a kernel socket, so poll, epoll, dup, fork, timeouts and signals work as
//! usual.
//!
//! Calls that send or receive messages fail with a plain [`Errno`], the same as with AF_TIPC. All other calls fail with
//! an [`Error`] that names the remedy.

pub mod address;
pub mod admin;
mod daemon;
mod error;
mod group;
mod kernel_socket;
mod lone;
mod message;
mod node_socket;
mod patiently;
pub mod protocol;
mod socket;
pub mod unmodified;

pub use address::{Address, Scope, ServiceRange, SocketAddress};
pub use crossway_sys::Errno;
pub use crossway_sys::patience::Patience;
pub use crossway_sys::tipc_option::SocketOption;
#[doc(hidden)]
pub use daemon::{Greeted, greet};
pub use daemon::{SOCKET_VARIABLE, default_path};
pub use error::Error;
pub use group::Group;
pub use kernel_socket::KernelSocket;
pub use lone::{LoneError, LoneTipcd};
pub use message::{ErrorCode, Event, Message};
pub use node_socket::NodeSocket;
pub use protocol::control::{SocketKind, SocketReport};
pub use socket::{Backend, Socket};

/// Runs the example of the crate's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
