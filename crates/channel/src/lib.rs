//! Named channels between two processes, each over the transport that suits it best at the time.
//!
//! A program listens on a name or connects to it, and sends and receives whole messages. The channel begins on a pair
//! of sockets, because that always works. It moves to shared memory as soon as both ends have opened it, and later to
//! whichever transport suits the traffic, the machine and the policy. A switch never loses, duplicates or reorders
//! messages ([`protocol`] says why), blocks neither program, and is explained in a log.
//!
//! ```no_run
//! use crossway_channel::{connect, listen};
//!
//! // One process:
//! let mut camera = listen("camera/left")?.accept(None)?;
//! camera.sender().send(b"a frame", None)?;
//! // Another one:
//! let mut viewer = connect("camera/left", None)?;
//! let length = viewer.receiver().recv_in_place(None, |frame| frame.len())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Messages take the data path of the mechanism (`crossway-mech`) and have no header; a channel that stays on one
//! transport adds a few nanoseconds per message. Control traffic uses a second connection, a UNIX socket between the
//! two processes, and one thread per process that sleeps while nothing happens. After a fork, only the parent may use
//! its channels.

#![deny(unsafe_code)]

mod channel;
pub mod check;
mod directory;
mod error;
mod event;
mod fault;
mod hand_over;
mod handle;
mod judge;
mod link;
mod listener;
mod message;
mod net;
mod options;
mod page;
mod policy;
mod profile;
pub mod protocol;
mod reactor;
mod receiver;
mod sender;
mod slice;
mod status;
mod transport;
mod watch;

pub use channel::Channel;
pub use crossway_mech::{Deadline, SendError};
pub use crossway_tipc_client::Backend as TipcBackend;
pub use directory::Directory;
pub use error::{Error, RecvError};
pub use event::{Event, EventKind, Reason};
pub use handle::{Handle, SwitchError, ask_for, status};
pub use listener::Listener;
pub use net::datagrams::MAX_LOSSY_MESSAGE;
pub use net::{BadNetwork, Hosts, Key, Network};
pub use options::{Options, TakenOver};
pub use policy::Policy;
pub use profile::{BadProfile, Cost, Profile};
pub use receiver::Receiver;
pub use sender::Sender;
pub use status::Status;
pub use transport::{Transport, UnknownTransport};

/// Listens on a name, with the default [`Options`].
///
/// # Errors
/// Those of [`Options::listen`].
pub fn listen(name: &str) -> Result<Listener, Error> {
    Options::default().listen(name)
}

/// Connects to a name, with the default [`Options`].
///
/// # Errors
/// Those of [`Options::connect`].
pub fn connect(name: &str, until: Deadline) -> Result<Channel, Error> {
    Options::default().connect(name, until)
}

/// Runs the example of the crate's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
