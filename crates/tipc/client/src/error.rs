//! Why a call that is not on the path of messages failed, and what to do about it.

use std::path::PathBuf;

use crossway_sys::{Errno, OsError};

use crate::protocol::refusal::Refusal;

/// Why a socket cannot be had or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither back end is here.
    #[error(
        "no AF_TIPC in this kernel and no tipcd at {}: start `crossway tipcd` (or `tipcd`), or load the kernel's module as root: modprobe tipc",
        .path.display()
    )]
    NoTipc {
        /// Where a tipcd was looked for.
        path: PathBuf,
    },
    /// The kernel has no TIPC and was asked for by name.
    #[error("no AF_TIPC in this kernel: load its module as root (modprobe tipc), or use a tipcd")]
    NoKernelTipc,
    /// There is no tipcd and it was asked for by name.
    #[error("no tipcd at {}: start `crossway tipcd --socket {}`: {source}", .path.display(), .path.display())]
    NoDaemon {
        /// Where it was looked for.
        path: PathBuf,
        /// What connecting said.
        source: std::io::Error,
    },
    /// The permissions of the tipcd's socket keep this user out.
    #[error(
        "the tipcd at {} lets this user not in: ask for write permission to its socket (tipcd --mode)",
        .path.display()
    )]
    NotPermitted {
        /// Its socket.
        path: PathBuf,
    },
    /// Program and tipcd speak different versions.
    #[error(
        "the tipcd at {} speaks version {theirs} of the local protocol, this program version {ours}: use both from one release",
        .path.display()
    )]
    Version {
        /// Its socket.
        path: PathBuf,
        /// The program's version.
        ours: u16,
        /// The tipcd's.
        theirs: u16,
    },
    /// It does not let this program in.
    #[error("the tipcd at {} turns this program away: {}", .path.display(), cause(*.why))]
    TurnedAway {
        /// Its socket.
        path: PathBuf,
        /// Why, if it said so.
        why: Option<Refusal>,
    },
    /// The tipcd ended, or does not keep to the protocol.
    #[error("the tipcd at {} {what}: start it again and open a new socket", .path.display())]
    DaemonGone {
        /// Its socket.
        path: PathBuf,
        /// What it did.
        what: &'static str,
    },
    /// A call failed.
    #[error("{call} {object}: {}", describe(*.errno))]
    Call {
        /// Which call.
        call: &'static str,
        /// On what.
        object: String,
        /// How.
        errno: Errno,
    },
    /// A system call beneath failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

impl Error {
    pub(crate) fn call(call: &'static str, object: impl ToString, errno: Errno) -> Self {
        Self::Call { call, object: object.to_string(), errno }
    }

    /// The number that Linux has for it; that of AF_TIPC wherever the kernel's TIPC would fail alike.
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

/// Why a program is turned away.
fn cause(why: Option<Refusal>) -> String {
    why.map_or_else(
        || {
            "it closed the connection without a word, as one that is just ending does; try again"
                .to_owned()
        },
        |why| why.to_string(),
    )
}

/// What an errno means for a TIPC socket, and what to do.
fn describe(errno: Errno) -> String {
    let advice = match errno {
        Errno::NAMETOOLONG => "a socket's path has at most 107 bytes; give a shorter one",
        Errno::HOSTUNREACH => {
            "no binding of that name, and no contact to that node; is the server up?"
        }
        Errno::CONNREFUSED => "nothing listens there",
        Errno::TIMEDOUT => "no answer in time; does the server call accept?",
        Errno::ACCESS => {
            "service types below 64 belong to the protocol, and a group's member binds nothing"
        }
        Errno::AFNOSUPPORT => "a socket's own address cannot be bound; bind a service",
        Errno::NOMEM => {
            "the node has its full number of sockets or bindings (tipcd --help lists the limits)"
        }
        Errno::MFILE => "this program has its full number of sockets (tipcd --sockets-per-client)",
        Errno::USERS | Errno::DQUOT | Errno::NFILE | Errno::TOOMANYREFS => {
            let why = Refusal::from_errno(errno.raw_os_error());
            return why.map_or_else(String::new, |why| format!("{why} ({errno})"));
        }
        Errno::ISCONN => "the socket is connected already",
        Errno::NOTCONN => "the socket is not connected",
        Errno::OPNOTSUPP => "a socket of this kind, or one that is bound, cannot do that",
        Errno::DESTADDRREQ => "no address given and none stored; name one or connect first",
        Errno::PROTO => {
            "the tipcd sends what this program does not know: use both from one release"
        }
        Errno::MSGSIZE => "a message holds at most 66000 bytes",
        Errno::NETDOWN => "the tipcd ended; start it again and open a new socket",
        errno => return std::io::Error::from(errno).to_string(),
    };
    format!("{advice} ({errno})")
}
