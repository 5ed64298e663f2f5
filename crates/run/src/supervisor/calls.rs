//! What is done for each call of a supervised program that the filter stops.

use std::fmt::Display;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use crossway_sys::Errno;
use crossway_sys::socket::{self, internet, twin};
use crossway_sys::supervision::{self, Call};

use super::moving::{Accepted, Attempt};
use super::{Site, lock};
use crate::ends::{self, MOVED};
use crate::explain::{self, Program};
use crate::name::Connection;
use crate::reason;
use crate::rendezvous::{self, Table};

// From the headers of the system, as a filter compares them.
pub(super) const IPPROTO_IP: u32 = 0;
pub(super) const IPPROTO_TCP: u32 = 6;
pub(super) const IPPROTO_IPV6: u32 = 41;
pub(super) const SOL_SOCKET: u32 = 1;
pub(super) const SO_PROTOCOL: u32 = 38;
pub(super) const SO_DOMAIN: u32 = 39;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const SOCK_NONBLOCK: u64 = 0o4000;
const SOCK_CLOEXEC: u64 = 0o2_000_000;

/// The longest Internet address, and the longest value of an option that is passed on.
const ADDRESS_MAX: usize = 28;
const OPTION_MAX: usize = 512;

fn number(argument: u64) -> RawFd {
    argument as u32 as RawFd
}

impl Site {
    /// Answers a call.
    pub(super) fn answer(self: &Arc<Self>, call: Call) {
        let is_done = match call.number {
            supervision::SYS_connect => self.connect(&call),
            supervision::SYS_listen => self.listen(&call),
            supervision::SYS_accept => self.accept(&call, 0),
            supervision::SYS_accept4 => self.accept(&call, call.arguments[3]),
            supervision::SYS_getsockname => self.name(&call, false),
            supervision::SYS_getpeername => self.name(&call, true),
            supervision::SYS_getsockopt => self.get_option(&call),
            supervision::SYS_setsockopt => self.set_option(&call),
            _ => None,
        };
        if is_done.is_none() {
            self.supervisor.proceed(&call);
        }
    }

    fn table(&self) -> Option<&'static Table> {
        rendezvous::table().filter(|table| table.is_of_this_user())
    }

    fn descriptor(&self, call: &Call) -> Option<OwnedFd> {
        self.supervisor.descriptor(call, number(call.arguments[0])).ok()
    }

    fn descriptor_of_tcp(&self, call: &Call) -> Option<OwnedFd> {
        self.descriptor(call).filter(|socket| twin::is_tcp(socket))
    }

    /// Keeps the TCP connection of a moved one as long as the stream is open.
    pub(super) fn keep(&self, end: impl AsFd, aside: OwnedFd) {
        lock(&self.asides).insert(twin::inode(end), aside);
    }

    fn connect(self: &Arc<Self>, call: &Call) -> Option<()> {
        let len = usize::try_from(call.arguments[2]).ok()?.min(ADDRESS_MAX);
        let mut raw = [0; ADDRESS_MAX];
        self.supervisor.read(call, call.arguments[1], &mut raw[..len]).ok()?;
        let to = internet::address_of(&raw[..len])?;
        let socket = self.descriptor(call)?;
        if ends::connection_of(&socket).is_some() {
            self.supervisor.answer(call, Err(Errno::ISCONN));
            return Some(());
        }
        if !twin::is_tcp(&socket) || twin::is_listening(&socket) {
            return None;
        }
        let table = self.table()?;
        let plain = internet::plain(to);
        let own = std::process::id();
        let Some((listener, _)) = table.find_listener(own, plain.port()) else {
            if plain.ip().is_loopback() {
                let why = reason::NOBODY_LISTENS;
                explain(call, "connects", None, plain, &why);
            }
            return None;
        };
        let pid = supervision::process_of(call.thread).ok()?;
        let attempt = Attempt {
            call: *call,
            fd: number(call.arguments[0]),
            pid,
            is_nonblocking: false,
            socket,
            to,
            listener,
        };
        match attempt.check(table) {
            Ok(attempt) => {
                let site = self.clone();
                // The other end may be a program that is supervised, too.
                std::thread::spawn(move || attempt.run(&site, table));
                Some(())
            }
            Err(why) => {
                explain(call, "connects", None, plain, &why);
                None
            }
        }
    }

    fn listen(&self, call: &Call) -> Option<()> {
        let socket = self.descriptor_of_tcp(call)?;
        let outcome = twin::listen_as(&socket, number(call.arguments[1]));
        self.supervisor.answer(call, outcome.map(|()| 0));
        if outcome.is_ok() && twin::waits_plainly(&socket) == Some(true) {
            self.note(call, &socket);
        }
        Some(())
    }

    /// Notes that the program has a listener.
    fn note(&self, call: &Call, socket: &OwnedFd) -> Option<u16> {
        let inode = twin::inode(socket);
        if let Some(port) = lock(&self.noted).get(&inode) {
            return Some(*port);
        }
        let (table, port) = (self.table()?, twin::local_port(socket)?);
        let pid = supervision::process_of(call.thread).ok()?;
        table.note_listener(pid, port, twin::network(socket).ok()?);
        lock(&self.noted).insert(inode, port);
        Some(port)
    }

    /// Accepts for a program whose listener is non-blocking. One that waits in accept is left alone: it must be possible to
    /// interrupt it by a signal.
    fn accept(self: &Arc<Self>, call: &Call, flags: u64) -> Option<()> {
        let listener = self.descriptor_of_tcp(call)?;
        if twin::waits_plainly(&listener) != Some(true) || !twin::is_listening(&listener) {
            return None;
        }
        let port = self.note(call, &listener)?;
        let inode = twin::inode(&listener);
        let earlier = lock(&self.waiting).get_mut(&inode).and_then(Vec::pop);
        let is_nonblocking = flags & SOCK_NONBLOCK != 0;
        let accepted = match earlier {
            Some(socket) => Ok(socket),
            None => twin::accept_as(&listener, is_nonblocking).map(|(socket, _)| socket),
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(errno) => {
                self.supervisor.answer(call, Err(errno));
                return Some(());
            }
        };
        let closes = flags & SOCK_CLOEXEC != 0;
        let at = match self.supervisor.give(call, &socket, None, closes) {
            Ok(at) => at,
            Err(errno) => {
                // The program has no free descriptor: the connection waits, as in the listener's queue.
                lock(&self.waiting).entry(inode).or_default().push(socket);
                self.supervisor.answer(call, Err(errno));
                return Some(());
            }
        };
        let accepted = Accepted { call: *call, socket, at, is_nonblocking, closes };
        match self.table().filter(|table| table.expects(port)) {
            Some(table) => {
                let site = self.clone();
                // The other end may be a program that is supervised, too.
                std::thread::spawn(move || accepted.settle(&site, Some(table)));
            }
            None => accepted.settle(self, None),
        }
        Some(())
    }

    /// Writes an address as getsockname and accept do. Returns the result of the call.
    pub(super) fn give_address(&self, call: &Call, address: SocketAddr) -> Result<(), Errno> {
        let (to, len_at) = (call.arguments[1], call.arguments[2]);
        let mut len = [0; 4];
        self.supervisor.read(call, len_at, &mut len)?;
        let room = usize::try_from(i32::from_ne_bytes(len)).map_err(|_| Errno::INVAL)?;
        let raw = internet::raw_address(address);
        self.supervisor.write(call, to, &raw[..raw.len().min(room)])?;
        self.supervisor.write(call, len_at, &(raw.len() as u32).to_ne_bytes())
    }

    fn name(&self, call: &Call, is_peer: bool) -> Option<()> {
        let (connection, is_accepted) = ends::connection_of(self.descriptor(call)?)?;
        let (own, peer) = connection.seen_from(is_accepted);
        let outcome = self.give_address(call, if is_peer { peer } else { own });
        self.supervisor.answer(call, outcome.map(|()| 0));
        Some(())
    }

    /// The TCP connection of a moved descriptor, or else a TCP socket that is not connected.
    fn tcp(&self, end: &OwnedFd, six: bool) -> Option<OwnedFd> {
        if let Some(aside) = lock(&self.asides).get(&twin::inode(end)) {
            return aside.try_clone().ok();
        }
        let any = if six { "[::1]:0" } else { "127.0.0.1:0" };
        socket::inet(socket::Inet::Tcp, any.parse().ok()?).ok()
    }

    fn get_option(&self, call: &Call) -> Option<()> {
        let end = self.descriptor(call)?;
        let six = is_six(ends::connection_of(&end)?);
        let [_, level, name, ..] = call.arguments.map(|argument| argument as u32);
        let read = || {
            let mut len = [0; 4];
            self.supervisor.read(call, call.arguments[4], &mut len)?;
            let room = usize::try_from(i32::from_ne_bytes(len)).map_err(|_| Errno::INVAL)?;
            let mut value = [0; OPTION_MAX];
            let value = &mut value[..room.min(OPTION_MAX)];
            let len = if level == SOL_SOCKET {
                let what = match (name == SO_PROTOCOL, six) {
                    (true, _) => IPPROTO_TCP.cast_signed(),
                    (false, true) => AF_INET6,
                    (false, false) => AF_INET,
                };
                let len = value.len().min(4);
                value[..len].copy_from_slice(&what.to_ne_bytes()[..len]);
                len
            } else {
                let tcp = self.tcp(&end, six).ok_or(Errno::NOBUFS)?;
                twin::read_option(tcp, level.cast_signed(), name.cast_signed(), value)?
            };
            self.supervisor.write(call, call.arguments[3], &value[..len])?;
            self.supervisor.write(call, call.arguments[4], &(len as u32).to_ne_bytes())
        };
        self.supervisor.answer(call, read().map(|()| 0));
        Some(())
    }

    fn set_option(&self, call: &Call) -> Option<()> {
        /// TCP_REPAIR and TCP_ULP (linux/tcp.h): what they do would have to be done to the stream.
        const REFUSED: [u32; 2] = [19, 31];
        let end = self.descriptor(call)?;
        let six = is_six(ends::connection_of(&end)?);
        let [_, level, name, _, len, _] = call.arguments.map(|argument| argument as u32);
        let set = || {
            if level == IPPROTO_TCP && REFUSED.contains(&name) {
                return Err(Errno::NOENT);
            }
            let len = usize::try_from(len.cast_signed()).map_err(|_| Errno::INVAL)?;
            let mut value = [0; OPTION_MAX];
            let value = &mut value[..len.min(OPTION_MAX)];
            self.supervisor.read(call, call.arguments[3], value)?;
            let tcp = self.tcp(&end, six).ok_or(Errno::NOBUFS)?;
            twin::write_option(tcp, level.cast_signed(), name.cast_signed(), value)
        };
        self.supervisor.answer(call, set().map(|()| 0));
        Some(())
    }
}

fn is_six((connection, is_accepted): (Connection, bool)) -> bool {
    connection.seen_from(is_accepted).0.is_ipv6()
}

fn program(call: &Call) -> Program {
    let pid = supervision::process_of(call.thread).unwrap_or(call.thread);
    let name = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
    Program { name: name.unwrap_or_default().trim_end().to_owned(), pid }
}

/// Says why a connection stays with TCP.
pub(super) fn explain(
    call: &Call,
    end: &str,
    connecting: Option<SocketAddr>,
    accepting: SocketAddr,
    why: &dyn Display,
) {
    let why = format_args!("TCP: {why}");
    explain::say(|| program(call), end, connecting, accepting, &why);
}

pub(super) fn explain_moved(call: &Call, end: &str, connecting: SocketAddr, accepting: SocketAddr) {
    explain::say(|| program(call), end, Some(connecting), accepting, &MOVED);
}
