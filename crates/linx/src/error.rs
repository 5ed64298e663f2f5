//! What can go wrong.

use std::path::PathBuf;

use crossway_sys::{Errno, OsError};

use crate::Spid;
use crate::limits::{LARGEST_SIGNAL, LEAST_SIGNAL, LONGEST_NAME};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A signal cannot have number 0.
    #[error("a signal cannot have the number 0; programs use 0x10000000 and above")]
    BadNumber,
    /// A signal cannot have this size.
    #[error("a signal cannot have {size} bytes: it has {LEAST_SIGNAL} to {LARGEST_SIGNAL}")]
    BadSize {
        /// What was asked for.
        size: usize,
    },
    /// No endpoint or link can have this name.
    #[error("'{name}' cannot be a name: names have 1 to {LONGEST_NAME} bytes and no '/'")]
    BadName {
        /// The name.
        name: String,
    },
    /// The endpoint existed and is closed, or its process or node died, or cannot be reached.
    #[error("the endpoint {spid} is gone; hunt for its name to find its successor")]
    Gone {
        /// Whose number it was.
        spid: Spid,
    },
    /// No endpoint ever had this number in this node.
    #[error(
        "no endpoint of this node ever had the number {number:#x}; numbers come from a hunt or a received signal"
    )]
    Unknown {
        /// The number.
        number: u32,
    },
    /// No such attach, hunt or time-out is pending: it was answered and received, or cancelled.
    #[error("nothing is pending under this reference: it was received or cancelled before")]
    NotPending,
    /// Nothing came, or no room appeared, until the deadline.
    #[error("nothing happened until the deadline")]
    TimedOut,
    /// A receive that waits for certain signals would wait forever: the queue is full of others, and the endpoint lets nothing more in.
    #[error(
        "the queue is full of {signals} signals that this receive does not take: receive them, or open the endpoint with a larger queue"
    )]
    QueueFull {
        /// How many there are.
        signals: usize,
    },
    /// More of something than there may be.
    #[error("{0}")]
    Limit(String),
    /// The node does not allow it.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// Nobody serves at this path.
    #[error("no LINX node at {path}: {source}; start one with: crossway linx node --dir {dir}")]
    NoNode {
        /// The node's socket.
        path: PathBuf,
        /// Its directory.
        dir: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The node ended, and with it the endpoint.
    #[error("the LINX node has ended or has closed this endpoint")]
    NodeGone,
    /// The node speaks another version of the protocol, or not this protocol.
    #[error(
        "the node's answer cannot be understood ({0}); use programs and node of one version of Crossway"
    )]
    Protocol(String),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

impl Error {
    /// The errno that the C interface gives for it.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Error::BadNumber
            | Error::BadName { .. }
            | Error::Unknown { .. }
            | Error::NotPending => Errno::INVAL,
            Error::BadSize { .. } => Errno::MSGSIZE,
            Error::Gone { .. } => Errno::CONNRESET,
            Error::TimedOut => Errno::TIMEDOUT,
            Error::QueueFull { .. } | Error::Limit(_) => Errno::NOBUFS,
            Error::NotPermitted(_) => Errno::PERM,
            Error::NoNode { .. } => Errno::CONNREFUSED,
            Error::NodeGone => Errno::PIPE,
            Error::Protocol(_) => Errno::PROTO,
            Error::Os(error) if error.errno() != 0 => return error.errno(),
            Error::Os(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}
