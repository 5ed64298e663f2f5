//! A TIPC socket with two back ends: the kernel's TIPC, and a `tipcd`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use crossway_sys::Errno;
use crossway_sys::tipc_option::SocketOption;

use crate::Patience;
use crate::address::{Address, ENCODED_LEN, Scope, ServiceRange, SocketAddress};
use crate::daemon::default_path;
use crate::error::Error;
use crate::group::Group;
use crate::kernel_socket::KernelSocket;
use crate::message::Message;
use crate::node_socket::NodeSocket;
use crate::protocol::control::SocketKind;

/// Which implementation of TIPC a socket uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The kernel's TIPC if there is one, otherwise the `tipcd` at the default path.
    #[default]
    Automatic,
    /// The kernel's TIPC, through AF_TIPC sockets.
    Kernel,
    /// The `tipcd` that listens at this path.
    Node(PathBuf),
}

impl Backend {
    /// Parses the name of a back end: `auto`, `kernel`, or the path of a tipcd's socket.
    pub fn named(name: impl AsRef<OsStr>) -> Backend {
        match name.as_ref().to_str() {
            Some("auto") => Backend::Automatic,
            Some("kernel") => Backend::Kernel,
            _ => Backend::Node(name.as_ref().into()),
        }
    }
}

/// A TIPC socket of the kernel or of a `tipcd`, with the same calls for both.
#[derive(Debug)]
pub enum Socket {
    /// A socket of the kernel's TIPC.
    Kernel(KernelSocket),
    /// A socket of a `tipcd`, used through its local protocol.
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

/// Makes the same call on either back end.
macro_rules! either {
    ($self:ident, $socket:ident => $call:expr) => {
        match $self {
            Self::Kernel($socket) => $call,
            Self::Node($socket) => $call,
        }
    };
}

impl Socket {
    /// Opens a socket with the kernel's TIPC if there is one, otherwise with the `tipcd` at the default path.
    ///
    /// # Errors
    /// [`Error::NoTipc`] if there is neither, or the reason why the socket cannot be opened; each with the remedy.
    pub fn open(kind: SocketKind) -> Result<Self, Error> {
        Self::open_on(&Backend::Automatic, kind)
    }

    /// Opens a socket with the given back end.
    ///
    /// # Errors
    /// [`Error`] if it cannot be opened.
    pub fn open_on(backend: &Backend, kind: SocketKind) -> Result<Self, Error> {
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

    /// Makes blocking receive calls spin before they sleep, see [`NodeSocket::set_spin`]. This has no effect on the
    /// kernel's sockets.
    pub fn set_spin(&self, limit: std::time::Duration) {
        if let Self::Node(socket) = self {
            socket.set_spin(limit);
        }
    }

    /// The kind of the socket.
    pub const fn kind(&self) -> SocketKind {
        either!(self, s => s.kind())
    }

    /// Binds the socket to a service range: messages and connection requests to these services reach it.
    ///
    /// # Errors
    /// EINVAL if the bounds of the range are out of order or the socket is connected, EACCES if the service is reserved
    /// or the socket is a member of a group; with a `tipcd`, ENOMEM if the node has the maximum number of bindings.
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        either!(self, s => s.bind(range, scope))
    }

    /// Withdraws one binding with exactly this range and scope.
    ///
    /// # Errors
    /// EINVAL if the socket has bindings, but not this one; EACCES if the socket is a member of a group.
    pub fn unbind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        either!(self, s => s.unbind(range, scope))
    }

    /// Binds as specified by a struct sockaddr_tipc; a negative scope withdraws the binding.
    ///
    /// # Errors
    /// The errors of [`Socket::bind`] and [`Socket::unbind`]; EAFNOSUPPORT for a socket's address.
    pub fn bind_raw(&self, address: &[u8; ENCODED_LEN]) -> Result<(), Errno> {
        either!(self, s => s.bind_raw(address))
    }

    /// Withdraws all bindings of the socket.
    ///
    /// # Errors
    /// With a `tipcd`: EACCES if the socket is a member of a group, ENETDOWN if the tipcd has ended.
    pub fn unbind_all(&self) -> Result<(), Errno> {
        either!(self, s => s.unbind_all())
    }

    /// Makes the socket accept connections. Call it before bind, because a binding is visible to others immediately.
    ///
    /// # Errors
    /// EOPNOTSUPP for connectionless kinds, EINVAL if it already listens or is connected.
    pub fn listen(&self) -> Result<(), Errno> {
        either!(self, s => s.listen())
    }

    /// Accepts a connection. Returns its socket and the peer's address.
    ///
    /// # Errors
    /// EINVAL if the socket does not listen, EOPNOTSUPP for connectionless kinds, EAGAIN if no connection arrived in
    /// time.
    pub fn accept(&self, patience: Patience) -> Result<(Self, SocketAddress), Errno> {
        match self {
            Self::Kernel(s) => s.accept(patience).map(|(new, from)| (Self::Kernel(new), from)),
            Self::Node(s) => s.accept(patience).map(|(new, from)| (Self::Node(new), from)),
        }
    }

    /// Connects to a given socket, or to a socket that is bound to a given service. On a connectionless socket, sets
    /// the default destination, or clears it if `to` is `None`.
    ///
    /// # Errors
    /// EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT (the connection was not accepted within the connection timeout), EISCONN,
    /// EALREADY, EINVAL, EOPNOTSUPP; EINPROGRESS if patience runs out before the answer. POLLOUT then announces the
    /// answer, and [`Socket::take_error`] returns its error, if any.
    pub fn connect(&self, to: Option<Address>, patience: Patience) -> Result<(), Errno> {
        either!(self, s => s.connect(to, patience))
    }

    /// Returns and clears the errno of a connection request that has failed since the last call, like SO_ERROR.
    pub fn take_error(&self) -> Option<Errno> {
        either!(self, s => s.take_error())
    }

    /// Sends a message, or as much of a stream as is accepted while patience lasts. Returns the number of bytes
    /// accepted. On a new socket of a connected kind, an address makes this a connection request with the payload as
    /// its first message; on a connected socket, the address is ignored.
    ///
    /// # Errors
    /// The errno that the kernel's sendto would return. EAGAIN if there was no room in time.
    #[inline]
    pub fn send(
        &self,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        either!(self, s => s.send(payload, to, patience))
    }

    /// Receives a message, or the available data of a stream, and returns the number of bytes in `buf`. Returns 0 at
    /// the end of a connection that the peer shut down, for a message that this socket sent and that was returned, and
    /// for a report that a member joined or left the group (use [`Socket::recv_message`] to distinguish these).
    ///
    /// # Errors
    /// ENOTCONN if the socket was never connected or this end has shut the connection down, ECONNRESET if the peer or
    /// its node was lost, EAGAIN if nothing arrived in time, EINVAL for an empty buffer.
    #[inline]
    pub fn recv(&self, buf: &mut [u8], patience: Patience) -> Result<usize, Errno> {
        either!(self, s => s.recv(buf, patience))
    }

    /// Receives a message, and returns its kind, its sender and the service that it was addressed to. The end of a
    /// connection is returned as a message of kind [`Event::End`](crate::Event::End).
    ///
    /// # Errors
    /// ENOTCONN if the socket was never connected or this end has shut the connection down, EAGAIN if nothing arrived
    /// in time, EINVAL for an empty buffer.
    pub fn recv_message(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        match self {
            Self::Kernel(s) => s.recv_message(buf, patience, false),
            Self::Node(s) => s.recv_message(buf, patience),
        }
    }

    /// Like [`Socket::recv_message`], but leaves the message in the queue.
    ///
    /// # Errors
    /// The errors of [`Socket::recv_message`]; EPROTO for a kind of record that this version does not know, which
    /// receiving would skip.
    pub fn peek(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        match self {
            Self::Kernel(s) => s.recv_message(buf, patience, true),
            Self::Node(s) => s.peek(buf, patience),
        }
    }

    /// Shuts the connection down. The peer reads what is in flight, then the end.
    ///
    /// # Errors
    /// ENOTCONN if there is no connection.
    pub fn shutdown(&self) -> Result<(), Errno> {
        either!(self, s => s.shutdown())
    }

    /// Returns the socket's own address.
    ///
    /// # Errors
    /// ENETDOWN if the tipcd has ended.
    pub fn local_address(&self) -> Result<SocketAddress, Errno> {
        either!(self, s => s.local_address())
    }

    /// Returns the address of the connection's other end.
    ///
    /// # Errors
    /// ENOTCONN if there is no connection.
    pub fn peer_address(&self) -> Result<SocketAddress, Errno> {
        either!(self, s => s.peer_address())
    }

    /// Sets a socket option. Options that take no value ignore it.
    ///
    /// # Errors
    /// EINVAL for a value out of range or a read-only option; ENOPROTOOPT if this kind of socket does not have the
    /// option.
    pub fn set_option(&self, option: SocketOption, value: u32) -> Result<(), Errno> {
        self.set_option_by_number(option.number(), value)
    }

    /// Reads a socket option.
    ///
    /// # Errors
    /// EINVAL for a write-only option.
    pub fn option(&self, option: SocketOption) -> Result<u32, Errno> {
        self.option_by_number(option.number())
    }

    /// Joins a group.
    ///
    /// # Errors
    /// EACCES if the socket is in a group already or the service type is reserved, like the kernel's TIPC_GROUP_JOIN.
    pub fn join(&self, group: Group) -> Result<(), Errno> {
        self.join_by_request(group.request())
    }

    /// Like [`Socket::set_option`], but takes the option's number; for interfaces to other languages.
    ///
    /// # Errors
    /// The errors of [`Socket::set_option`], and EINVAL for an unknown number.
    #[doc(hidden)]
    pub fn set_option_by_number(&self, number: u32, value: u32) -> Result<(), Errno> {
        either!(self, s => s.set_option_by_number(number, value))
    }

    /// Like [`Socket::option`], but takes the option's number; for interfaces to other languages.
    ///
    /// # Errors
    /// The errors of [`Socket::option`], and EINVAL for an unknown number.
    #[doc(hidden)]
    pub fn option_by_number(&self, number: u32) -> Result<u32, Errno> {
        either!(self, s => s.option_by_number(number))
    }

    /// Like [`Socket::join`], but takes the fields of `struct tipc_group_req`: type, instance, scope and flags.
    ///
    /// # Errors
    /// The errors of [`Socket::join`], and EINVAL for an invalid scope.
    #[doc(hidden)]
    pub fn join_by_request(&self, request: [u32; 4]) -> Result<(), Errno> {
        either!(self, s => s.join_by_request(request))
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// EINVAL if the socket is not in a group.
    pub fn leave(&self) -> Result<(), Errno> {
        either!(self, s => s.leave())
    }
}
