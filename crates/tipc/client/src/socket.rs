//! One socket, whichever back end it runs on.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use crossway_sys::Errno;

use crate::Patience;
use crate::address::{Address, ENCODED_LEN, Scope, ServiceRange, SocketAddress};
use crate::daemon::default_path;
use crate::error::Error;
use crate::kernel_socket::KernelSocket;
use crate::message::Message;
use crate::node_socket::NodeSocket;
use crate::protocol::control::Kind;

/// Which implementation of TIPC a socket uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The kernel's where there is one, else the `tipcd` at the default path.
    #[default]
    Automatic,
    /// The kernel's.
    Kernel,
    /// The `tipcd` that listens there.
    Node(PathBuf),
}

/// A TIPC socket.
#[derive(Debug)]
pub enum Socket {
    /// On the kernel's TIPC.
    Kernel(KernelSocket),
    /// On a `tipcd`.
    Node(NodeSocket),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kernel(socket) => socket.as_fd(),
            Self::Node(socket) => socket.as_fd(),
        }
    }
}

/// The same call on either back end.
macro_rules! either {
    ($self:ident, $socket:ident => $call:expr) => {
        match $self {
            Self::Kernel($socket) => $call,
            Self::Node($socket) => $call,
        }
    };
}

impl Socket {
    /// Opens a socket on the kernel's TIPC where there is one, else on the `tipcd` at the default path.
    ///
    /// # Errors
    /// [`Error::NoTipc`] where neither is, and what else keeps it from being opened; each says what to do.
    pub fn open(kind: Kind) -> Result<Self, Error> {
        Self::open_on(&Backend::Automatic, kind)
    }

    /// Opens a socket on a back end.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open_on(backend: &Backend, kind: Kind) -> Result<Self, Error> {
        match backend {
            Backend::Kernel => KernelSocket::open(kind).map(Self::Kernel),
            Backend::Node(path) => NodeSocket::open(path, kind).map(Self::Node),
            Backend::Automatic => match KernelSocket::open(kind) {
                Ok(socket) => Ok(Self::Kernel(socket)),
                Err(Error::NoKernelTipc) => match NodeSocket::open(&default_path(), kind) {
                    Err(Error::NoDaemon { path, .. }) => Err(Error::NoTipc { path }),
                    outcome => outcome.map(Self::Node),
                },
                Err(error) => Err(error),
            },
        }
    }

    /// What the socket is.
    pub const fn kind(&self) -> Kind {
        either!(self, s => s.kind())
    }

    /// Binds the socket to a range of services, so that messages and requests for connections to them reach it.
    ///
    /// # Errors
    /// EINVAL for a range in the wrong order and a connected socket, EACCES for a reserved service or a member of a group.
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        either!(self, s => s.bind(range, scope))
    }

    /// Takes back one binding of exactly this range and scope.
    ///
    /// # Errors
    /// EINVAL when there is none.
    pub fn unbind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        either!(self, s => s.unbind(range, scope))
    }

    /// Binds what a struct sockaddr_tipc says; a negative scope takes the binding back.
    ///
    /// # Errors
    /// As [`Socket::bind`] and [`Socket::unbind`]; EAFNOSUPPORT for a socket's address.
    pub fn bind_raw(&self, address: &[u8; ENCODED_LEN]) -> Result<(), Errno> {
        either!(self, s => s.bind_raw(address))
    }

    /// Takes back all bindings.
    ///
    /// # Errors
    /// ENETDOWN when the tipcd is gone.
    pub fn unbind_all(&self) -> Result<(), Errno> {
        either!(self, s => s.unbind_all())
    }

    /// Waits for connections from now on. A binding publishes at once: listen before bind.
    ///
    /// # Errors
    /// EOPNOTSUPP for kinds without connections, EINVAL when it listens or is connected.
    pub fn listen(&self) -> Result<(), Errno> {
        either!(self, s => s.listen())
    }

    /// Takes a connection: its socket, and who is at the other end.
    ///
    /// # Errors
    /// EINVAL when the socket does not listen, EOPNOTSUPP for kinds without connections, EAGAIN when none came in time.
    pub fn accept(&self, patience: Patience) -> Result<(Self, SocketAddress), Errno> {
        match self {
            Self::Kernel(s) => s.accept(patience).map(|(new, from)| (Self::Kernel(new), from)),
            Self::Node(s) => s.accept(patience).map(|(new, from)| (Self::Node(new), from)),
        }
    }

    /// Connects to a socket or to one that is bound to a service. On a socket without connections it stores where to send by default;
    /// `None` forgets that.
    ///
    /// # Errors
    /// EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT (no accept within the connection time-out), EISCONN, EALREADY, EINVAL, EOPNOTSUPP;
    /// EINPROGRESS when patience ends before the answer, which then shows by POLLOUT and [`Socket::take_error`].
    pub fn connect(&self, to: Option<Address>, patience: Patience) -> Result<(), Errno> {
        either!(self, s => s.connect(to, patience))
    }

    /// The errno of a request for a connection that failed since it was last asked for (SO_ERROR).
    pub fn take_error(&self) -> Option<Errno> {
        either!(self, s => s.take_error())
    }

    /// Sends a message; of a stream as much as goes while patience lasts. Returns the octets taken. An address on a fresh socket of a
    /// connected kind asks for a connection with the payload as first message; on a connected one it is ignored.
    ///
    /// # Errors
    /// As the kernel's sendto. EAGAIN when there was no room in time.
    #[inline]
    pub fn send(
        &self,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        either!(self, s => s.send(payload, to, patience))
    }

    /// Receives: a message, or what is there of a stream. 0 is the end of a connection that the peer shut down, or a message that came
    /// back ([`Socket::recv_message`] tells).
    ///
    /// # Errors
    /// ENOTCONN, ECONNRESET when the peer or its node is gone, EAGAIN when nothing came in time, EINVAL for an empty buffer.
    #[inline]
    pub fn recv(&self, buf: &mut [u8], patience: Patience) -> Result<usize, Errno> {
        either!(self, s => s.recv(buf, patience))
    }

    /// Receives, and tells what came, from whom and to which service. The end of a connection is an event.
    ///
    /// # Errors
    /// ENOTCONN, EAGAIN when nothing came in time, EINVAL for an empty buffer.
    pub fn recv_message(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        match self {
            Self::Kernel(s) => s.recv_message(buf, patience, false),
            Self::Node(s) => s.recv_message(buf, patience),
        }
    }

    /// As [`Socket::recv_message`]; what was found stays to be received.
    ///
    /// # Errors
    /// As [`Socket::recv_message`].
    pub fn peek(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        match self {
            Self::Kernel(s) => s.recv_message(buf, patience, true),
            Self::Node(s) => s.peek(buf, patience),
        }
    }

    /// Ends the connection in good order: the peer reads what is under way, then the end.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn shutdown(&self) -> Result<(), Errno> {
        either!(self, s => s.shutdown())
    }

    /// The socket's own address.
    ///
    /// # Errors
    /// ENETDOWN when the tipcd is gone.
    pub fn local_address(&self) -> Result<SocketAddress, Errno> {
        either!(self, s => s.local_address())
    }

    /// The other end of the connection.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_address(&self) -> Result<SocketAddress, Errno> {
        either!(self, s => s.peer_address())
    }

    /// Sets an option of level SOL_TIPC by its number; the value of those that take none is not looked at.
    ///
    /// # Errors
    /// EINVAL for a value out of range, an unknown option or one that can only be read, ENOPROTOOPT.
    pub fn set_option(&self, name: u32, value: u32) -> Result<(), Errno> {
        either!(self, s => s.set_option(name, value))
    }

    /// Reads an option of level SOL_TIPC by its number.
    ///
    /// # Errors
    /// EINVAL for an unknown option or one that can only be set.
    pub fn option(&self, name: u32) -> Result<u32, Errno> {
        either!(self, s => s.option(name))
    }

    /// Joins a group: struct tipc_group_req, {type, instance, scope, flags}.
    ///
    /// # Errors
    /// As the kernel's TIPC_GROUP_JOIN.
    pub fn join(&self, group: [u32; 4]) -> Result<(), Errno> {
        either!(self, s => s.join(group))
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// EINVAL when the socket is in none.
    pub fn leave(&self) -> Result<(), Errno> {
        either!(self, s => s.leave())
    }
}
