//! Lets connections to other hosts travel by TIPC (`crossway run --via tipc`): what the connecting
//! and the accepting end do before the programs see the connection. The porter
//! (`crossway_run::via`) finds the other host.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_run::explain::{self, Program};
use crossway_run::reason::{self, Reason};
use crossway_run::via::{self, Agreement, CARRIED, Porter};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, internet, twin};

use crate::replacing::{self, Place, Ready};
use crate::table::{self, Entry, Kind, SHAPED};
use crate::{ffi, moving, process};

/// How long a non-blocking connect waits for TCP to connect. Most networks need less; with others,
/// the connection stays with TCP.
const HASTE: Duration = Duration::from_millis(200);
/// How long the end of TCP may come after the end of the stream.
const SAME_END: Duration = Duration::from_secs(1);

/// The porter, if the user wants connections to travel so.
pub(crate) fn porter() -> Option<&'static Porter> {
    Porter::of_environment()
}

/// Keeps a descriptor that the program does not know, as long as this process or a child of it
/// lives.
fn hide(connection: Option<OwnedFd>) {
    if let Some(Ok(high)) = connection.map(replacing::copy) {
        table::put(high.into_raw_fd(), Entry::new(Kind::Aside, 0, 0, 0));
    }
}

/// Tells the porter that this process is there.
pub(crate) fn stay() {
    hide(porter().and_then(Porter::stay));
}

/// Tells the porter of a socket that listens. A program that changed its user has none.
pub(crate) fn listens(socket: BorrowedFd<'_>) {
    let at = || twin::own_end(socket).filter(|at| !at.ip().is_loopback());
    if let Some(porter) = porter()
        && let Some(at) = at()
    {
        hide(porter.listen(at));
    }
}

/// Whether a connection to this address may travel so.
pub(crate) fn reaches(to: SocketAddr) -> bool {
    porter().is_some() && !internet::is_own_address(to)
}

/// A stream to the host of the listening end, and what else a connecting program needs.
pub(crate) struct Dialled {
    ready: Ready,
    stream: OwnedFd,
    own: SocketAddr,
    to: SocketAddr,
}

/// Gets a stream for a socket that is about to be connected. The error is why the connection stays
/// with TCP.
pub(crate) fn dial(fd: c_int, fresh: Entry, to: SocketAddr, six: bool) -> Result<Dialled, Reason> {
    let porter = porter().ok_or(reason::ANOTHER_HOST)?;
    let ready = Ready::new(fd, fresh)?;
    let socket = ffi::borrow(fd).ok_or("not a descriptor")?;
    let own = own_end(socket, to, six).ok_or("its own address is not known")?;
    let stream = porter.dial(own, to).ok_or(reason::NOBODY_EXPECTS)?;
    Ok(Dialled { ready, stream, own, to })
}

/// The address that a socket will connect from, which it is bound to if it is not yet.
fn own_end(socket: BorrowedFd<'_>, to: SocketAddr, six: bool) -> Option<SocketAddr> {
    let bound = twin::own_end(socket)?;
    if bound.port() != 0 && !bound.ip().is_unspecified() {
        return Some(bound);
    }
    let ip = internet::own_address_towards(to)?;
    let ip = match ip {
        IpAddr::V4(four) if six => four.to_ipv6_mapped().into(),
        ip => ip,
    };
    if bound.port() == 0 {
        socket::bind(socket, &socket::inet_address(SocketAddr::new(ip, 0)), "").ok()?;
    }
    let port = twin::own_end(socket)?.port();
    Some(SocketAddr::new(ip.to_canonical(), port))
}

impl Dialled {
    /// Lets the connection travel, once TCP has connected; `has_connected`: it has. The error is
    /// why it stays with TCP.
    pub(crate) fn settle(
        self,
        fd: c_int,
        connecting: Entry,
        has_connected: bool,
    ) -> Result<(), Reason> {
        let socket = ffi::borrow(fd).ok_or("not a descriptor")?;
        let until = Instant::now() + HASTE;
        if !has_connected
            && (wait_ready(socket, Interest::Writable, Some(until)) != Ok(true)
                || !twin::is_established(socket))
        {
            return Err(reason::NOT_AT_ONCE);
        }
        match via::agree(&self.stream) {
            Agreement::Made => {}
            Agreement::None => return Err(reason::WITHDRAWN),
            Agreement::Unknown => {
                socket::shutdown_send(socket);
                socket::shutdown_recv(socket);
                return Err("the other host does not answer, so the connection ends");
            }
        }
        let _ = moving::take_over(&self.ready.aside, &self.stream, connecting.has(SHAPED));
        let _ = socket::set_waiting(&self.stream, !self.ready.is_nonblocking);
        replacing::put(fd, connecting, self.stream, self.ready.aside, Place::CARRIED);
        explain::say(Program::own, "connects", Some(self.own), self.to, &CARRIED);
        Ok(())
    }
}

/// Lets a connection travel that has just been accepted as `fd`, if its other end does. Returns
/// false if it stays as it is.
/// `is_shaped`: the listener may have options that the accepted socket has inherited.
pub(crate) fn accepted(fd: c_int, is_nonblocking: bool, is_shaped: bool) -> bool {
    let Some(porter) = porter().filter(|_| process::owns_memory()) else { return false };
    let Some(socket) = ffi::borrow(fd) else { return false };
    let Some((own, peer)) = twin::ends(socket) else { return false };
    if internet::stays_local(own.ip(), peer.ip()) {
        return false;
    }
    let Some(stream) = porter.claim(own, peer) else { return false };
    // From here on, the other end uses the stream.
    let aside = match replacing::copy(socket) {
        Ok(aside) => aside,
        Err(_) => {
            socket::shutdown_send(socket);
            socket::shutdown_recv(socket);
            return true;
        }
    };
    let _ = moving::take_over(socket, &stream, is_shaped);
    let _ = socket::set_waiting(&stream, !is_nonblocking);
    replacing::put(fd, table::get(fd), stream, aside, Place::CARRIED_ACCEPTED);
    explain::say(Program::own, "accepts", Some(peer), own, &CARRIED);
    true
}

/// Whether a stream has ended although its connection has not: the `tipcd` of one of the hosts has,
/// or their link.
pub(crate) fn is_broken(aside: BorrowedFd<'_>) -> bool {
    let until = Instant::now() + SAME_END;
    // The end of TCP was sent first, but by another way.
    while twin::is_established(aside) {
        if Instant::now() > until {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}
