//! A socket whose protocol is implemented by a `tipcd`.

mod connect;
mod down;
mod inlet;
mod lane_request;
mod lanes;
mod outlet;
mod receive;
mod send;
mod waiting;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::tipc_option::SocketOption;
use crossway_sys::{Errno, OsError, fdpass, records, socket};

use crate::Patience;
use crate::address::{Address, Binding, Scope, ServiceRange, SocketAddress};
use crate::daemon::Daemon;
use crate::error::Error;
use crate::group::Group;
use crate::message::{ErrorCode, Event, Message};
use crate::patiently::patiently;
use crate::protocol::control::{Opened, Reader, Request, SocketKind, SocketReport};
use crate::protocol::record::{
    HEADER_LEN, Header, OFFER_LEN, PAD_FAMILY, RecordKind, SEND_HEADER_LEN,
};
use crate::protocol::slot::{self, Phase, State};
use crate::protocol::{MESSAGE_LEN_MAX, epoch};

/// A destination, and the value that its epoch counter had when the destination was found to be reachable.
#[derive(Clone, Copy, Debug)]
struct Known {
    address: Option<Address>,
    epoch: u64,
}

#[derive(Debug, Default)]
struct Memory {
    known: Vec<Known>,
    next: usize,
    default_dest: Option<Address>,
    /// Whether the descriptor was filled with padding, which `tipcd` leaves unread, so that poll(2) does not report it
    /// as writable.
    padded: bool,
}

/// A TIPC socket on a `tipcd`.
#[derive(Debug)]
pub struct NodeSocket {
    fd: OwnedFd,
    kind: SocketKind,
    opened: Opened,
    daemon: Arc<Daemon>,
    memory: Mutex<Memory>,
    /// Whether this end has shut the connection down.
    shut: AtomicBool,
    /// The group that the socket is a member of; 0 if none.
    group: AtomicU32,
    /// The service type and instance to which a connection of a stream socket was addressed; 0 if none. For other kinds
    /// of socket, each message says to which service it was addressed.
    through: AtomicU64,
    usage: lane_request::Usage,
    pace: down::Pace,
    /// How long blocking receive calls spin before they sleep, in microseconds.
    spin_us: AtomicU32,
}

impl AsFd for NodeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl NodeSocket {
    /// Opens a socket on the tipcd that listens at `path`.
    ///
    /// # Errors
    /// [`Error`] gives the cause and the remedy.
    pub fn open(path: &Path, kind: SocketKind) -> Result<Self, Error> {
        let daemon = Daemon::at(path)?;
        let mut answer = daemon
            .ask(&Request::Open { kind })
            .map_err(|errno| Error::call("open a socket at", path.display(), errno))?;
        let opened = Opened::decode(&mut Reader::new(&answer.bytes));
        match (opened, answer.fds.pop()) {
            (Some(opened), Some(fd)) if daemon.has_slot(opened.slot) => {
                Ok(Self::new(fd, kind, opened, daemon))
            }
            _ => Err(Error::DaemonGone { path: path.to_owned(), what: "sent an invalid answer" }),
        }
    }

    fn new(fd: OwnedFd, kind: SocketKind, opened: Opened, daemon: Arc<Daemon>) -> Self {
        let (shut, group, through) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU64::new(0));
        let (memory, usage, pace) =
            (Mutex::default(), lane_request::Usage::default(), down::Pace::default());
        let spin_us = AtomicU32::new(0);
        Self { fd, kind, opened, daemon, memory, shut, group, through, usage, pace, spin_us }
    }

    fn note_service(&self, service: Option<ServiceRange>) {
        let word = service.map_or(0, |s| u64::from(s.service) << 32 | u64::from(s.lower));
        self.through.store(word, Ordering::Relaxed);
    }

    fn service(&self) -> Option<ServiceRange> {
        let word = self.through.load(Ordering::Relaxed);
        (word != 0).then(|| ServiceRange::single((word >> 32) as u32, word as u32))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind of the socket.
    pub const fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Path of the tipcd's socket.
    pub fn path(&self) -> &Path {
        self.daemon.path()
    }

    #[inline]
    fn state(&self) -> State {
        let word = self.daemon.word(self.opened.slot, slot::STATE);
        State::decode(word.load(Ordering::Acquire))
    }

    fn ask(&self, request: &Request<'_>) -> Result<crate::daemon::Answer, Errno> {
        self.daemon.ask(request)
    }

    /// Binds the socket to a service range: messages and connection requests to these services reach it.
    ///
    /// # Errors
    /// EINVAL if the bounds of the range are out of order or the socket is connected, EACCES if the service is reserved
    /// or the socket is a member of a group, ENOMEM if the node has the maximum number of bindings.
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        self.bind_or_not(Binding { range, scope, withdraw: false })
    }

    /// Withdraws one binding with exactly this range and scope.
    ///
    /// # Errors
    /// EINVAL if the socket has bindings, but not this one; EACCES if the socket is a member of a group.
    pub fn unbind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        self.bind_or_not(Binding { range, scope, withdraw: true })
    }

    fn bind_or_not(&self, binding: Binding) -> Result<(), Errno> {
        self.bind_raw(&binding.encode())
    }

    /// Binds as specified by a struct sockaddr_tipc; a negative scope withdraws the binding.
    ///
    /// # Errors
    /// The errno that the kernel's bind would return.
    pub fn bind_raw(&self, address: &[u8; crate::address::ENCODED_LEN]) -> Result<(), Errno> {
        self.ask(&Request::Bind { token: self.opened.token, address: *address }).map(drop)
    }

    /// Withdraws all bindings of the socket.
    ///
    /// # Errors
    /// EACCES if the socket is a member of a group, ENETDOWN if the tipcd has ended.
    pub fn unbind_all(&self) -> Result<(), Errno> {
        self.ask(&Request::UnbindAll { token: self.opened.token }).map(drop)
    }

    fn peer(&self) -> SocketAddress {
        let word = self.daemon.word(self.opened.slot, slot::PEER).load(Ordering::Acquire);
        SocketAddress { port: (word >> 32) as u32, node: word as u32 }
    }

    /// Shuts the connection down. The peer reads what is in flight, then the end.
    ///
    /// # Errors
    /// ENOTCONN if there is no connection.
    pub fn shutdown(&self) -> Result<(), Errno> {
        match self.state().phase {
            Phase::Connected | Phase::Disconnected => {}
            _ => return Err(Errno::NOTCONN),
        }
        self.ask(&Request::Shutdown { token: self.opened.token })?;
        self.shut.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the socket's own address.
    ///
    /// # Errors
    /// ENETDOWN if the tipcd has ended.
    pub fn local_address(&self) -> Result<SocketAddress, Errno> {
        self.report().map(|report| report.local)
    }

    /// Returns the address of the connection's other end.
    ///
    /// # Errors
    /// ENOTCONN if there is no connection.
    pub fn peer_address(&self) -> Result<SocketAddress, Errno> {
        if self.kind.is_connected_kind() && self.state().phase == Phase::Connected {
            Ok(self.peer())
        } else {
            Err(Errno::NOTCONN)
        }
    }

    /// Returns the socket's addresses and the state of its queue.
    ///
    /// # Errors
    /// ENETDOWN if the tipcd has ended.
    pub fn report(&self) -> Result<SocketReport, Errno> {
        let answer = self.ask(&Request::Report { token: self.opened.token })?;
        SocketReport::decode(&mut Reader::new(&answer.bytes)).ok_or(Errno::PROTO)
    }

    /// Sets a socket option.
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
    /// As [`Socket::join`](crate::Socket::join).
    pub fn join(&self, group: Group) -> Result<(), Errno> {
        self.join_by_request(group.request())
    }

    /// Sets an option of level SOL_TIPC by its number.
    ///
    /// # Errors
    /// EINVAL for a value out of range, an unknown option or a read-only one; ENOPROTOOPT if this kind of socket does
    /// not have the option.
    #[doc(hidden)]
    pub fn set_option_by_number(&self, name: u32, value: u32) -> Result<(), Errno> {
        self.ask(&Request::SetOption { token: self.opened.token, name, value }).map(drop)
    }

    /// Reads an option of level SOL_TIPC by its number.
    ///
    /// # Errors
    /// EINVAL for an unknown or write-only option.
    #[doc(hidden)]
    pub fn option_by_number(&self, name: u32) -> Result<u32, Errno> {
        let answer = self.ask(&Request::GetOption { token: self.opened.token, name })?;
        Reader::new(&answer.bytes).u32().ok_or(Errno::PROTO)
    }

    /// Joins a group, given the fields of a struct tipc_group_req: {type, instance, scope, flags}.
    ///
    /// # Errors
    /// The errno that the kernel's TIPC_GROUP_JOIN would return.
    #[doc(hidden)]
    pub fn join_by_request(&self, group: [u32; 4]) -> Result<(), Errno> {
        self.ask(&Request::Join { token: self.opened.token, group })?;
        // Reachability was determined for a socket that is not in a group.
        self.memory().known.clear();
        self.group.store(group[0], Ordering::Relaxed);
        Ok(())
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// EINVAL if the socket is not in a group.
    pub fn leave(&self) -> Result<(), Errno> {
        self.ask(&Request::Leave { token: self.opened.token })?;
        self.memory().known.clear();
        self.group.store(0, Ordering::Relaxed);
        Ok(())
    }
}
