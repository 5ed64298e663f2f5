//! Where a listener is reached from other hosts: a TCP address, or a service in TIPC's name table.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Inet};
use crossway_sys::{Errno, OsError};
use crossway_tipc_client::{Backend, Patience, Scope, Socket, SocketKind};

use super::stream::{Stream, tipc_service};

/// Connections that may wait.
const BACKLOG: i32 = 128;

/// A place to listen.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Tipc(Backend),
}

/// A socket that listens there.
pub(crate) enum Acceptor {
    Tcp(OwnedFd),
    Tipc(Socket),
}

/// Why a place cannot be listened at.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// The address is another host's.
    Foreign,
    /// Another socket has it.
    Taken(OsError),
    Failed(OsError),
}

impl Place {
    /// Listens there for a name.
    pub(crate) fn open(&self, name: &str) -> Result<Acceptor, NotThere> {
        match self {
            Place::Tcp(address) => {
                let fd = socket::inet(Inet::Tcp, *address).map_err(NotThere::Failed)?;
                let ready = socket::set_reuse_address(&fd)
                    .and_then(|()| socket::set_nonblocking(&fd))
                    .and_then(|()| {
                        let to = socket::inet_address(*address);
                        socket::bind(&fd, &to, &address.to_string())
                    })
                    .and_then(|()| socket::listen(&fd, BACKLOG));
                match ready {
                    Ok(()) => Ok(Acceptor::Tcp(fd)),
                    Err(error) => Err(match error.source.raw_os_error() {
                        Some(code) if code == Errno::ADDRNOTAVAIL.raw_os_error() => {
                            NotThere::Foreign
                        }
                        Some(code) if code == Errno::ADDRINUSE.raw_os_error() => {
                            NotThere::Taken(error)
                        }
                        _ => NotThere::Failed(error),
                    }),
                }
            }
            Place::Tipc(backend) => {
                let failed = |e: String| {
                    NotThere::Failed(OsError::new("listen", "TIPC", std::io::Error::other(e)))
                };
                let socket = Socket::open_on(backend, SocketKind::Stream)
                    .map_err(|e| failed(e.to_string()))?;
                socket
                    .listen()
                    .and_then(|()| socket.bind(tipc_service(name), Scope::Cluster))
                    .map_err(|errno| failed(errno.to_string()))?;
                Ok(Acceptor::Tipc(socket))
            }
        }
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Acceptor::Tcp(fd) => fd.as_fd(),
            Acceptor::Tipc(socket) => socket.as_fd(),
        }
    }
}

impl Acceptor {
    /// The next connection; `None` if there is none now.
    ///
    /// # Errors
    /// The socket is dead: its tipcd has ended.
    pub(crate) fn accept(&self) -> Result<Option<Stream>, Errno> {
        match self {
            Acceptor::Tcp(fd) => match socket::try_accept(fd) {
                // A connection that is gone already is of no interest.
                Ok(fd) => Ok(Stream::tcp(fd).ok()),
                Err(_) => Ok(None),
            },
            Acceptor::Tipc(socket) => match socket.accept(Patience::Now) {
                Ok((socket, _)) => Ok(Some(Stream::Tipc(socket))),
                Err(Errno::AGAIN) => Ok(None),
                Err(errno) => Err(errno),
            },
        }
    }
}
