//! The places at which other hosts reach a listener: a TCP address, or a service in TIPC's name table.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Inet};
use crossway_sys::{Errno, OsError};
use crossway_tipc_client::{Backend, Patience, Scope, Socket, SocketKind};

use super::stream::{Stream, tipc_service};

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A place at which a listener can be reached.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Tipc(Backend),
}

/// A socket that listens at a place.
pub(crate) enum Acceptor {
    Tcp(OwnedFd),
    Tipc(Socket),
}

/// The reason why it is not possible to listen at a place.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// The address belongs to another host.
    Foreign,
    /// Another socket is bound to it.
    Taken(OsError),
    Failed(OsError),
}

impl Place {
    /// Starts to listen at this place for a name.
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
    /// Accepts the next connection; `None` if none is waiting.
    ///
    /// # Errors
    /// The socket is dead because its tipcd has ended.
    pub(crate) fn accept(&self) -> Result<Option<Stream>, Errno> {
        match self {
            Acceptor::Tcp(fd) => match socket::try_accept(fd) {
                // A connection that has already ended is ignored.
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
