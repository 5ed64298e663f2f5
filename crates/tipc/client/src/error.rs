//! The errors of all calls except those that send and receive messages. Each error states its remedy.

use std::path::PathBuf;

use crossway_sys::{Errno, OsError};

use crate::protocol::refusal::Refusal;

/// Why a socket cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is neither the kernel's TIPC nor a tipcd.
    #[error(
        "no AF_TIPC in this kernel and no tipcd at {}: start `crossway tipcd` (or `tipcd`), or load the kernel's module as root: modprobe tipc",
        .path.display()
    )]
    NoTipc {
        /// Path where a tipcd was expected.
        path: PathBuf,
    },
    /// The kernel was requested explicitly but has no TIPC.
    #[error("no AF_TIPC in this kernel: load its module as root (modprobe tipc), or use a tipcd")]
    NoKernelTipc,
    /// A tipcd was requested explicitly but none is running.
    #[error("no tipcd at {}: {source}; start one with: crossway tipcd --socket {}", .path.display(), .path.display())]
    NoDaemon {
        /// Path where a tipcd was expected.
        path: PathBuf,
        /// The error from connecting.
        source: std::io::Error,
    },
    /// The permissions of the tipcd's socket exclude this user.
    #[error(
        "permission denied for the tipcd at {}: this user needs write permission to its socket (tipcd --mode)",
        .path.display()
    )]
    NotPermitted {
        /// Path of the tipcd's socket.
        path: PathBuf,
    },
    /// Program and tipcd use different protocol versions.
    #[error(
        "the tipcd at {} uses version {theirs} of the local protocol, this program uses version {ours}: use both from \
         the same release",
        .path.display()
    )]
    Version {
        /// Path of the tipcd's socket.
        path: PathBuf,
        /// Version used by the program.
        ours: u16,
        /// Version used by the tipcd.
        theirs: u16,
    },
    /// The tipcd has refused this program.
    #[error("the tipcd at {} refuses this program: {}", .path.display(), cause(*.why))]
    TurnedAway {
        /// Path of the tipcd's socket.
        path: PathBuf,
        /// The reason, if the tipcd gave one.
        why: Option<Refusal>,
    },
    /// The tipcd has ended, does not answer, or has violated the protocol.
    #[error("the tipcd at {} {what}: start it again and open a new socket", .path.display())]
    DaemonGone {
        /// Path of the tipcd's socket.
        path: PathBuf,
        /// What the tipcd did or failed to do, as the predicate of a sentence.
        what: &'static str,
    },
    /// A call of this library failed.
    #[error("{call} {object}: {}", describe(*.errno))]
    Call {
        /// Name of the call.
        call: &'static str,
        /// What the call was applied to.
        object: String,
        /// Why it failed. If the kernel's TIPC would fail in the same situation, this is the errno that AF_TIPC gives.
        errno: Errno,
    },
    /// An underlying system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

impl Error {
    pub(crate) fn call(call: &'static str, object: impl ToString, errno: Errno) -> Self {
        Self::Call { call, object: object.to_string(), errno }
    }

    /// The errno that corresponds to this error. If the kernel's TIPC would fail in the same situation, it is the errno
    /// that AF_TIPC gives.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoTipc { .. } | Self::NoKernelTipc => Errno::AFNOSUPPORT,
            Self::NoDaemon { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::NETDOWN),
            Self::NotPermitted { .. } => Errno::ACCESS,
            Self::Version { .. } => Errno::PROTO,
            Self::TurnedAway { .. } | Self::DaemonGone { .. } => Errno::NETDOWN,
            Self::Call { errno, .. } => *errno,
            Self::Os(os) => Errno::from_raw_os_error(os.errno()),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno().raw_os_error()).kind();
        Self::new(kind, error)
    }
}

/// Returns the reason why a program was refused, as the end of a sentence.
fn cause(why: Option<Refusal>) -> String {
    why.map_or_else(
        || {
            "it closed the connection without giving a reason, perhaps because it is shutting down; try again"
                .to_owned()
        },
        |why| why.to_string(),
    )
}

/// Describes what an errno means for a TIPC socket, and the remedy.
fn describe(errno: Errno) -> String {
    let advice = match errno {
        Errno::NAMETOOLONG => "a socket's path can have at most 107 bytes; give a shorter one",
        Errno::HOSTUNREACH => {
            "no socket is bound to that service, or its node cannot be reached; is the server running?"
        }
        Errno::CONNREFUSED => "nothing is listening at that address",
        Errno::TIMEDOUT => {
            "the connection request was not answered in time; does the server call accept?"
        }
        Errno::ACCESS => {
            "either the service type is reserved (below 64), or the socket is already in a group and cannot bind or \
             join another group"
        }
        Errno::AFNOSUPPORT => "a socket's own address cannot be bound; bind a service",
        Errno::NOMEM => {
            "the node has reached its maximum number of sockets or bindings, or this user has the maximum share of them \
             (tipcd --help lists the limits, its log names the one reached)"
        }
        Errno::MFILE => {
            "this program has the maximum number of sockets (tipcd --sockets-per-client)"
        }
        Errno::USERS | Errno::DQUOT | Errno::NFILE | Errno::TOOMANYREFS => {
            let why = Refusal::from_errno(errno.raw_os_error());
            return why.map_or_else(String::new, |why| format!("{why} ({errno})"));
        }
        Errno::ISCONN => "the socket is already connected",
        Errno::NOTCONN => "the socket is not connected",
        Errno::OPNOTSUPP => {
            "this socket does not support the operation, because of its kind or because it is bound"
        }
        Errno::DESTADDRREQ => "no destination address; pass one or connect the socket first",
        Errno::PROTO => {
            "the tipcd sent data that this program does not understand: use both from the same release"
        }
        Errno::MSGSIZE => "the message is longer than 66000 bytes; split it",
        Errno::NETDOWN => "the tipcd ended; start it again and open a new socket",
        errno => return std::io::Error::from(errno).to_string(),
    };
    format!("{advice} ({errno})")
}
