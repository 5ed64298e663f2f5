//! A socket whose protocol runs in a `tipcd`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError, fdpass, records, socket};

use crate::Patience;
use crate::address::{Address, Binding, Scope, ServiceRange, SocketAddress};
use crate::daemon::Daemon;
use crate::error::Error;
use crate::message::{ErrorCode, Event, Message};
use crate::patiently::patiently;
use crate::protocol::control::{Kind, Opened, Reader, Report, Request};
use crate::protocol::record::{
    HEADER_LEN, Header, Kind as RecordKind, OFFER_LEN, PAD_FAMILY, SEND_HEADER_LEN,
};
use crate::protocol::slot::{self, Phase, State};
use crate::protocol::{MESSAGE_LEN_MAX, epoch};

/// How often a waiting connect looks whether the tipcd gave up; success and refusal wake it at once.
const CONNECT_GLANCE: Duration = Duration::from_millis(50);

/// Destinations of a socket that are remembered as reachable.
const KNOWN_MAX: usize = 8;

/// A destination that was reachable at some count of its epoch.
#[derive(Clone, Copy, Debug)]
struct Known {
    address: Address,
    epoch: u64,
}

#[derive(Debug, Default)]
struct Memory {
    known: Vec<Known>,
    next: usize,
    default_dest: Option<Address>,
    /// The descriptor was made unwritable and `tipcd` keeps it so.
    padded: bool,
}

/// A TIPC socket on a `tipcd`.
#[derive(Debug)]
pub struct NodeSocket {
    fd: OwnedFd,
    kind: Kind,
    opened: Opened,
    daemon: Arc<Daemon>,
    memory: Mutex<Memory>,
    /// This end shut the connection down.
    shut: AtomicBool,
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
    /// [`Error`] says what to do.
    pub fn open(path: &Path, kind: Kind) -> Result<Self, Error> {
        let daemon = Daemon::at(path)?;
        let mut answer = daemon
            .ask(&Request::Open { kind })
            .map_err(|errno| Error::call("open a socket at", path.display(), errno))?;
        let opened = Opened::decode(&mut Reader::new(&answer.octets));
        match (opened, answer.fds.pop()) {
            (Some(opened), Some(fd)) if daemon.has_slot(opened.slot) => {
                Ok(Self::new(fd, kind, opened, daemon))
            }
            _ => Err(Error::DaemonGone { path: path.to_owned(), what: "answers nonsense" }),
        }
    }

    fn new(fd: OwnedFd, kind: Kind, opened: Opened, daemon: Arc<Daemon>) -> Self {
        let (memory, shut) = (Mutex::default(), AtomicBool::new(false));
        Self { fd, kind, opened, daemon, memory, shut }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the socket is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The tipcd's socket.
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

    /// Binds the socket to a range of services, so that messages and requests for connections to them reach it.
    ///
    /// # Errors
    /// EINVAL for a range in the wrong order and a connected socket, EACCES for a reserved service or a member of a group.
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        self.bind_or_not(Binding { range, scope, withdraw: false })
    }

    /// Takes back one binding of exactly this range and scope.
    ///
    /// # Errors
    /// EINVAL when there is none.
    pub fn unbind(&self, range: ServiceRange, scope: Scope) -> Result<(), Errno> {
        self.bind_or_not(Binding { range, scope, withdraw: true })
    }

    fn bind_or_not(&self, binding: Binding) -> Result<(), Errno> {
        self.bind_raw(&binding.encode())
    }

    /// Binds what a struct sockaddr_tipc says; a negative scope takes the binding back.
    ///
    /// # Errors
    /// The errno of the kernel's bind.
    pub fn bind_raw(&self, address: &[u8; crate::address::ENCODED_LEN]) -> Result<(), Errno> {
        self.ask(&Request::Bind { token: self.opened.token, address: *address }).map(drop)
    }

    /// Takes back all bindings.
    ///
    /// # Errors
    /// ENETDOWN when the tipcd is gone.
    pub fn unbind_all(&self) -> Result<(), Errno> {
        self.ask(&Request::UnbindAll { token: self.opened.token }).map(drop)
    }

    /// Fills the descriptor until it polls unwritable. Returns the octets of payload that did it, 0 when it is unwritable already.
    fn pad(&self, memory: &mut Memory) -> Result<u32, Errno> {
        if std::mem::replace(&mut memory.padded, true) {
            return Ok(0);
        }
        // A UNIX socket polls writable while at most a quarter of its buffer is unread (unix(7) is silent; net/unix/af_unix.c).
        let sndbuf = socket::send_buffer_bytes(&self.fd).map_err(errno_of)?;
        let mut filling = vec![0; sndbuf / 4 + 1];
        if self.kind == Kind::Stream {
            let mut sent = 0;
            while sent < filling.len() {
                sent += socket::send(&self.fd, &filling[sent..], true)?;
            }
        } else {
            filling[..2].copy_from_slice(&PAD_FAMILY.to_ne_bytes());
            socket::send(&self.fd, &filling, true)?;
        }
        Ok(filling.len() as u32)
    }

    /// Waits for connections from now on; the queue's length is bounded by the node.
    ///
    /// # Errors
    /// EOPNOTSUPP for kinds without connections, EINVAL when it listens or is connected.
    pub fn listen(&self) -> Result<(), Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::OPNOTSUPP);
        }
        let mut memory = self.memory();
        let pad = self.pad(&mut memory)?;
        let outcome = self.ask(&Request::Listen { token: self.opened.token, pad }).map(drop);
        if outcome.is_err() && pad > 0 {
            memory.padded = false;
        }
        outcome
    }

    /// Takes a connection: its socket, and who is at the other end.
    ///
    /// # Errors
    /// EINVAL when the socket does not listen, EOPNOTSUPP for kinds without connections, EAGAIN when none came in time.
    pub fn accept(&self, patience: Patience) -> Result<(Self, SocketAddress), Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::OPNOTSUPP);
        }
        if self.state().phase != Phase::Listening {
            return Err(Errno::INVAL);
        }
        loop {
            let mut raw = [0; HEADER_LEN + OFFER_LEN];
            let mut fds = Vec::new();
            let len = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
                fdpass::receive(&self.fd, &mut raw, &mut fds, nonblocking)
            })?;
            if len == 0 {
                return Err(Errno::NETDOWN);
            }
            let header = raw.first_chunk().and_then(Header::decode).ok_or(Errno::PROTO)?;
            let opened = Opened::decode(&mut Reader::new(&raw[HEADER_LEN..]));
            let (Some(opened), Some(fd)) = (opened, fds.pop()) else { return Err(Errno::PROTO) };
            if header.kind != RecordKind::Offer || !self.daemon.has_slot(opened.slot) {
                return Err(Errno::PROTO);
            }
            // Who asked may have given up meanwhile.
            if socket::send(&fd, &[1], true).is_ok() {
                let new = Self::new(fd, self.kind, opened, self.daemon.clone());
                return Ok((new, header.from));
            }
        }
    }

    /// Connects to a socket or to one that is bound to a service. On a socket without connections it stores where to send by default;
    /// `None` forgets that.
    ///
    /// # Errors
    /// As the kernel's connect: EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT (no accept within the connection time-out), EISCONN, EALREADY,
    /// EINVAL, EOPNOTSUPP; EINPROGRESS when patience ends before the answer.
    pub fn connect(&self, to: Option<Address>, patience: Patience) -> Result<(), Errno> {
        if !self.kind.is_connected_kind() {
            self.memory().default_dest = to;
            return Ok(());
        }
        self.request_connection(to.ok_or(Errno::INVAL)?, &[])?;
        // Without waiting the answer is never known, even where it has come.
        if patience == Patience::Now {
            Err(Errno::INPROGRESS)
        } else {
            self.await_connection(patience)
        }
    }

    fn request_connection(&self, to: Address, payload: &[u8]) -> Result<(), Errno> {
        let mut memory = self.memory();
        match self.state().phase {
            Phase::Open => {}
            Phase::Listening => return Err(Errno::INVAL),
            Phase::Connecting => return Err(Errno::ALREADY),
            Phase::Connected => return Err(Errno::ISCONN),
            // A failed request tells its cause once.
            Phase::Disconnected => return Err(self.take_error().unwrap_or(Errno::ISCONN)),
        }
        let pad = self.pad(&mut memory)?;
        let token = self.opened.token;
        let request = Request::Connect { token, address: to.encode(), pad, payload };
        match self.ask(&request) {
            Err(Errno::INPROGRESS) => Ok(()),
            outcome => {
                // The tipcd has thrown the padding away.
                memory.padded &= pad == 0;
                outcome.map(drop).and(Err(Errno::PROTO))
            }
        }
    }

    fn await_connection(&self, patience: Patience) -> Result<(), Errno> {
        loop {
            match self.state().phase {
                Phase::Connecting => {}
                Phase::Connected => return Ok(()),
                _ => return Err(self.take_error().unwrap_or(Errno::CONNREFUSED)),
            }
            let glance = Instant::now() + CONNECT_GLANCE;
            let until = match patience {
                Patience::Now => return Err(Errno::INPROGRESS),
                Patience::Until(at) if patience.is_over() && Instant::now() >= at => {
                    return Err(Errno::INPROGRESS);
                }
                Patience::Until(at) => at.min(glance),
                Patience::Forever => glance,
            };
            let ready = wait_ready(&self.fd, Interest::Writable, Some(until))?;
            if ready && self.state().phase == Phase::Connecting {
                // Only a tipcd that ended wakes without an answer.
                return Err(Errno::NETDOWN);
            }
        }
    }

    /// The errno of a request for a connection that failed since it was last asked for (SO_ERROR).
    pub fn take_error(&self) -> Option<Errno> {
        let word = self.daemon.word(self.opened.slot, slot::ERROR).swap(0, Ordering::AcqRel);
        i32::try_from(word).ok().filter(|errno| *errno != 0).map(Errno::from_raw_os_error)
    }

    /// Whether a destination is reachable: asked once, then known until something goes that it may depend on.
    fn check_reachable(&self, to: Address) -> Result<(), Errno> {
        let now = self.daemon.epoch(epoch::of(to));
        let mut memory = self.memory();
        if memory.known.iter().any(|k| k.address == to && k.epoch == now) {
            return Ok(());
        }
        self.ask(&Request::Resolve { token: self.opened.token, address: to.encode() })?;
        let known = Known { address: to, epoch: now };
        if let Some(old) = memory.known.iter_mut().find(|k| k.address == to) {
            *old = known;
        } else if memory.known.len() < KNOWN_MAX {
            memory.known.push(known);
        } else {
            let place = memory.next % KNOWN_MAX;
            memory.known[place] = known;
            memory.next = place + 1;
        }
        Ok(())
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
        if self.kind.is_connected_kind() {
            return self.send_connected(payload, to, patience);
        }
        let to = match to {
            Some(to) => to,
            None => self.memory().default_dest.ok_or(Errno::DESTADDRREQ)?,
        };
        if payload.len() > MESSAGE_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        self.check_reachable(to)?;
        // The empty message is taken and goes nowhere.
        if payload.is_empty() {
            return Ok(0);
        }
        self.put(&to.encode(), payload, patience).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Errno::NETDOWN,
            errno => errno,
        })
    }

    #[inline]
    fn put(
        &self,
        header: &[u8; SEND_HEADER_LEN],
        payload: &[u8],
        patience: Patience,
    ) -> Result<usize, Errno> {
        patiently(&self.fd, Interest::Writable, patience, |nonblocking| {
            records::send(&self.fd, header, payload, nonblocking)
        })?;
        Ok(payload.len())
    }

    fn send_connected(
        &self,
        payload: &[u8],
        to: Option<Address>,
        patience: Patience,
    ) -> Result<usize, Errno> {
        let stream = self.kind == Kind::Stream;
        if !stream && payload.len() > MESSAGE_LEN_MAX {
            return Err(Errno::MSGSIZE);
        }
        match (self.state().phase, to) {
            (Phase::Connected, _) => {}
            (Phase::Disconnected, _) => return Err(Errno::PIPE),
            (Phase::Open, Some(to)) => {
                let first = &payload[..payload.len().min(MESSAGE_LEN_MAX)];
                self.request_connection(to, first)?;
                if patience == Patience::Now {
                    return Ok(first.len());
                }
                return match self.await_connection(patience) {
                    Ok(()) | Err(Errno::INPROGRESS) => Ok(first.len()),
                    Err(errno) => Err(errno),
                };
            }
            (Phase::Connecting, Some(_)) => return Err(Errno::ISCONN),
            _ => return Err(Errno::NOTCONN),
        }
        if payload.is_empty() {
            return Ok(0);
        }
        let sent = if stream {
            self.send_octets(payload, patience)
        } else {
            self.put(&[0; SEND_HEADER_LEN], payload, patience)
        };
        sent.map_err(|errno| match errno {
            Errno::CONNRESET | Errno::NOTCONN => Errno::PIPE,
            errno => errno,
        })
    }

    fn send_octets(&self, payload: &[u8], patience: Patience) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < payload.len() {
            let outcome = patiently(&self.fd, Interest::Writable, patience, |nonblocking| {
                socket::send(&self.fd, &payload[sent..], nonblocking)
            });
            match outcome {
                Ok(more) => sent += more,
                Err(errno) if sent == 0 => return Err(errno),
                Err(_) => break,
            }
            if patience == Patience::Now {
                break;
            }
        }
        Ok(sent)
    }

    /// Receives: a message, or what is there of a stream. 0 is the end of a connection that the peer shut down, or a message that came
    /// back ([`NodeSocket::recv_message`] tells).
    ///
    /// # Errors
    /// ENOTCONN, ECONNRESET when the peer or its node is gone, EAGAIN when nothing came in time, EINVAL for an empty buffer.
    #[inline]
    pub fn recv(&self, buf: &mut [u8], patience: Patience) -> Result<usize, Errno> {
        let message = self.recv_message(buf, patience)?;
        match message.event {
            Event::Data => Ok(message.len),
            Event::End(ErrorCode::Shutdown) => Ok(0),
            Event::End(_) => Err(Errno::CONNRESET),
            Event::Returned(_) | Event::MemberUp | Event::MemberDown => Ok(0),
        }
    }

    /// Receives, and tells what came, from whom and to which service.
    ///
    /// # Errors
    /// As [`NodeSocket::recv`], but the end of a connection is an event.
    #[inline]
    pub fn recv_message(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        self.receive(buf, patience, false)
    }

    /// As [`NodeSocket::recv_message`]; what was found stays to be received.
    ///
    /// # Errors
    /// As [`NodeSocket::recv_message`].
    pub fn peek(&self, buf: &mut [u8], patience: Patience) -> Result<Message, Errno> {
        self.receive(buf, patience, true)
    }

    fn receive(&self, buf: &mut [u8], patience: Patience, peek: bool) -> Result<Message, Errno> {
        if buf.is_empty() {
            return Err(Errno::INVAL);
        }
        if self.kind.is_connected_kind() {
            match self.state().phase {
                Phase::Connected => {}
                Phase::Listening => return Err(Errno::INVAL),
                Phase::Open | Phase::Connecting => return Err(Errno::NOTCONN),
                Phase::Disconnected if self.shut.load(Ordering::Relaxed) => {
                    // The kernel's two answers after one's own shutdown.
                    let waits = patience != Patience::Now;
                    return Err(if waits { Errno::NOTCONN } else { Errno::AGAIN });
                }
                Phase::Disconnected => {}
            }
            if self.kind == Kind::Stream {
                return self.receive_octets(buf, patience, peek);
            }
        }
        loop {
            let mut raw = [0; HEADER_LEN];
            let came = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
                records::recv(&self.fd, &mut raw, buf, nonblocking, peek)
            });
            let came = match came {
                Ok(came) if came.len >= HEADER_LEN => came,
                Ok(_) | Err(Errno::CONNRESET) => return self.end(),
                Err(errno) => return Err(errno),
            };
            if !peek {
                let consumed = self.daemon.word(self.opened.slot, slot::CONSUMED);
                consumed.fetch_add(1, Ordering::Release);
            }
            // What a later version may add is not for this one.
            let Some(header) = Header::decode(&raw) else { continue };
            let event = match header.kind {
                RecordKind::Data => Event::Data,
                RecordKind::Returned => Event::Returned(
                    ErrorCode::from_number(header.error).unwrap_or(ErrorCode::Other(0)),
                ),
                RecordKind::Member if header.gone => Event::MemberDown,
                RecordKind::Member => Event::MemberUp,
                RecordKind::Offer => continue,
            };
            let len = came.len - HEADER_LEN;
            return Ok(Message {
                event,
                len: len.min(buf.len()),
                truncated: came.truncated,
                from: header.from,
                service: header.service,
                member: header.member,
            });
        }
    }

    fn receive_octets(
        &self,
        buf: &mut [u8],
        patience: Patience,
        peek: bool,
    ) -> Result<Message, Errno> {
        let came = patiently(&self.fd, Interest::Readable, patience, |nonblocking| {
            if peek {
                records::recv(&self.fd, &mut [], buf, nonblocking, true).map(|came| came.len)
            } else {
                socket::recv(&self.fd, buf, nonblocking)
            }
        });
        match came {
            Ok(0) | Err(Errno::CONNRESET) => self.end(),
            Err(errno) => Err(errno),
            Ok(len) => Ok(Message {
                event: Event::Data,
                len,
                truncated: false,
                from: self.peer(),
                service: None,
                member: None,
            }),
        }
    }

    /// What stands behind the last message.
    #[cold]
    fn end(&self) -> Result<Message, Errno> {
        if !self.kind.is_connected_kind() {
            return Err(Errno::NETDOWN);
        }
        let code = match self.state().end {
            // The tipcd ended without a word, and its node with it.
            0 => ErrorCode::NoNode,
            end => ErrorCode::from_number(end).unwrap_or(ErrorCode::NoNode),
        };
        let from = self.peer();
        Ok(Message {
            event: Event::End(code),
            len: 0,
            truncated: false,
            from,
            service: None,
            member: None,
        })
    }

    fn peer(&self) -> SocketAddress {
        let word = self.daemon.word(self.opened.slot, slot::PEER).load(Ordering::Acquire);
        SocketAddress { port: (word >> 32) as u32, node: word as u32 }
    }

    /// Ends the connection in good order: the peer reads what is under way, then the end.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn shutdown(&self) -> Result<(), Errno> {
        match self.state().phase {
            Phase::Connected | Phase::Disconnected => {}
            _ => return Err(Errno::NOTCONN),
        }
        self.ask(&Request::Shutdown { token: self.opened.token })?;
        self.shut.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The socket's own address.
    ///
    /// # Errors
    /// ENETDOWN when the tipcd is gone.
    pub fn local_address(&self) -> Result<SocketAddress, Errno> {
        self.report().map(|report| report.local)
    }

    /// The other end of the connection.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_address(&self) -> Result<SocketAddress, Errno> {
        if self.kind.is_connected_kind() && self.state().phase == Phase::Connected {
            Ok(self.peer())
        } else {
            Err(Errno::NOTCONN)
        }
    }

    /// Addresses and queue.
    ///
    /// # Errors
    /// ENETDOWN when the tipcd is gone.
    pub fn report(&self) -> Result<Report, Errno> {
        let answer = self.ask(&Request::Report { token: self.opened.token })?;
        Report::decode(&mut Reader::new(&answer.octets)).ok_or(Errno::PROTO)
    }

    /// Sets an option of level SOL_TIPC by its number.
    ///
    /// # Errors
    /// EINVAL for a value out of range, an unknown option or one that can only be read, ENOPROTOOPT.
    pub fn set_option(&self, name: u32, value: u32) -> Result<(), Errno> {
        self.ask(&Request::SetOption { token: self.opened.token, name, value }).map(drop)
    }

    /// Reads an option of level SOL_TIPC by its number.
    ///
    /// # Errors
    /// EINVAL for an unknown option or one that can only be set.
    pub fn option(&self, name: u32) -> Result<u32, Errno> {
        let answer = self.ask(&Request::GetOption { token: self.opened.token, name })?;
        Reader::new(&answer.octets).u32().ok_or(Errno::PROTO)
    }

    /// Joins a group: struct tipc_group_req, {type, instance, scope, flags}.
    ///
    /// # Errors
    /// As the kernel's TIPC_GROUP_JOIN.
    pub fn join(&self, group: [u32; 4]) -> Result<(), Errno> {
        self.ask(&Request::Join { token: self.opened.token, group }).map(drop)
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// EINVAL when the socket is in none.
    pub fn leave(&self) -> Result<(), Errno> {
        self.ask(&Request::Leave { token: self.opened.token }).map(drop)
    }
}

fn errno_of(error: OsError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}
