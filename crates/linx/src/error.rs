//! The errors of this crate.

use std::path::PathBuf;

use crossway_sys::{Errno, OsError};

use crate::Spid;
use crate::limits::{LARGEST_SIGNAL, LEAST_SIGNAL, LONGEST_NAME, LONGEST_PATH};

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A signal cannot have number 0.
    #[error("a signal cannot have the number 0; programs use 0x10000000 and above")]
    BadNumber,
    /// A signal cannot have this size.
    #[error(
        "a signal cannot have {size} bytes: its size must be {LEAST_SIGNAL} to {LARGEST_SIGNAL} bytes"
    )]
    BadSize {
        /// The requested size in bytes.
        size: usize,
    },
    /// The name is not valid for an endpoint or link.
    #[error(
        "'{name}' is not a valid name: a name has 1 to {LONGEST_NAME} bytes and contains neither '/' nor NUL; a path \
         of names has at most {LONGEST_PATH} bytes"
    )]
    BadName {
        /// The name that was given.
        name: String,
    },
    /// The endpoint existed but was closed, its process or node died, or it cannot be reached.
    #[error(
        "endpoint {spid} no longer exists or cannot be reached; hunt for its name to find its successor"
    )]
    Gone {
        /// The number of the endpoint.
        spid: Spid,
    },
    /// The endpoint's process has no descriptors left for a channel. Signals sent since the channel was requested are
    /// lost; the next send requests another channel.
    #[error(
        "signals sent to endpoint {spid} were lost: its process has no file descriptors left for a channel; raise \
         that process's limit (ulimit -n)"
    )]
    NoChannel {
        /// The number of the endpoint.
        spid: Spid,
    },
    /// No endpoint ever had this number in this node.
    #[error(
        "no endpoint of this node ever had the number {number:#x}; numbers come from a hunt or a received signal"
    )]
    Unknown {
        /// The number that was given.
        number: u32,
    },
    /// Only the endpoint's own node has this information, and the endpoint is not on this node.
    #[error(
        "endpoint {spid} is a link or belongs to another node, so its state is not known here; ask its own node"
    )]
    NotHere {
        /// The number of the endpoint.
        spid: Spid,
    },
    /// No such request is pending: it was answered and the answer received, or it was cancelled.
    #[error(
        "no request is pending under this reference: its answer was already received, or it was cancelled"
    )]
    NotPending,
    /// No signal or answer arrived, or no room became free, before the deadline.
    #[error("the deadline has passed: no signal or answer arrived, or there was no room to send")]
    TimedOut,
    /// A receive that waits for certain signals would never return: the queue is full of other signals, so the endpoint
    /// accepts no more.
    #[error(
        "the queue is full: it holds {signals} signals, none of which this call accepts; receive them first, or open \
         the endpoint with a larger queue"
    )]
    QueueFull {
        /// The number of signals in the queue.
        signals: usize,
    },
    /// A limit was reached.
    #[error("{0}")]
    Limit(String),
    /// The node does not permit the request.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// No node serves at this path.
    #[error("no LINX node at {path}: {source}; start one with: crossway linx node --dir {dir}")]
    NoNode {
        /// The path of the node's socket.
        path: PathBuf,
        /// The directory in which the node's socket would be, as the option `--dir` takes it.
        dir: String,
        /// Why connecting to the socket failed.
        source: std::io::Error,
    },
    /// The node has ended, and with it the endpoint, or it has closed the endpoint.
    #[error("the LINX node has ended or has closed this endpoint")]
    NodeGone,
    /// The node uses another version of the protocol, or another protocol.
    #[error(
        "protocol error between program and node ({0}); use the same version of Crossway for both"
    )]
    Protocol(String),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

impl Error {
    /// Returns the errno that the C interface uses for the error.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Error::BadNumber
            | Error::BadName { .. }
            | Error::Unknown { .. }
            | Error::NotPending => Errno::INVAL,
            Error::BadSize { .. } => Errno::MSGSIZE,
            Error::Gone { .. } | Error::NoChannel { .. } => Errno::CONNRESET,
            Error::NotHere { .. } => Errno::OPNOTSUPP,
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
