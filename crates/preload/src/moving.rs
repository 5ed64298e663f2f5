//! Moves a new connection: what the connecting and the accepting program's library do before the programs see it.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Display;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_run::ends::{self, Connecting, MOVED};
use crossway_run::explain::{self, Program};
use crossway_run::name::Connection;
use crossway_run::reason::{self, Reason};
use crossway_run::rendezvous::{self, Offer};
use crossway_run::wishes::Family;
use crossway_sys::socket::{self, internet, twin};
use crossway_sys::{Errno, proc};

use crate::replacing::{self, Place, Ready};
use crate::table::{self, ACCEPTED, COPIED, Entry, Kind, SHAPED, SPECIAL, WATCHED};
use crate::{ffi, process, spin, via, watch};

/// Reads the environment before the program can change it.
pub(crate) fn prepare() {
    let _ = (explain::is_wanted(), ends::is_patient(), rendezvous::table(), via::porter());
}

/// Says why a connection stays with TCP.
fn explain(end: &str, connecting: Option<SocketAddr>, accepting: SocketAddr, why: &dyn Display) {
    explain::say(Program::own, end, connecting, accepting, &format_args!("TCP: {why}"));
}

/// Connects a socket with `real`, and moves its connection if the other end can do so, too. Returns the result of `real`, with
/// its errno.
pub(crate) fn connect(fd: c_int, to: SocketAddr, real: impl FnOnce() -> c_int) -> c_int {
    let fresh = table::get(fd);
    // A socket can only be connected to an address of its family.
    let six = to.is_ipv6();
    let to = internet::plain(to);
    let way = match without_errno(|| way(fd, fresh, to, six)) {
        Ok(way) => way,
        Err(why) => {
            if let Some(why) = why {
                explain("connects", None, to, &why);
            }
            return stays(fd, fresh, real);
        }
    };
    let connecting =
        Entry::new(Kind::Connecting, fresh.flags() & (WATCHED | SHAPED), fresh.number(), 0);
    if !table::replace(fd, fresh, connecting) {
        return real();
    }
    let outcome = real();
    let errno = crossway_sys::real::errno();
    if outcome == 0 || errno == libc::EINPROGRESS {
        let own = ffi::borrow(fd).and_then(twin::own_end);
        let to = (!to.ip().is_unspecified()).then_some(to);
        let to = to.or_else(|| ffi::borrow(fd).and_then(twin::ends).map(|(_, peer)| peer));
        let ends = own.zip(to);
        let moved = match way {
            Way::Pair(prepared, offer) => {
                prepared.settle(fd, connecting, offer, ends, outcome == 0)
            }
            Way::Tipc(dialled) => dialled.settle(fd, connecting, outcome == 0),
        };
        if let Err(why) = moved {
            if let Some(to) = to {
                explain("connects", own, to, &why);
            }
            if table::get(fd).kind() == Kind::Connecting {
                table::put(fd, spin::plain(Family::Tcp));
                watch::find(fd).inspect(|watch| spin::note_epoll(watch.epoll));
            }
        }
        if fresh.has(WATCHED) {
            watch::forget(fd);
        }
    } else {
        // The program may try again with the same socket.
        drop(way);
        table::replace(fd, connecting, fresh);
    }
    crossway_sys::real::set_errno(errno);
    outcome
}

/// How a connection is to be moved, with what its connecting end needs.
enum Way {
    /// Within this host, to an end of a UNIX stream pair.
    Pair(Prepared, Offer<'static>),
    /// To another host, by TIPC.
    Tipc(via::Dialled),
}

fn way(fd: c_int, fresh: Entry, to: SocketAddr, six: bool) -> Result<Way, Option<Reason>> {
    if via::reaches(to) {
        return via::dial(fd, fresh, to, six).map(Way::Tipc).map_err(Some);
    }
    offer(fd, fresh, to, six).map(|(prepared, offer)| Way::Pair(prepared, offer))
}

/// What the connecting end of a socket needs to move, announced to the program that listens at `to`. The error is why that is
/// impossible, or `None` if nobody needs to be told.
fn offer(
    fd: c_int,
    fresh: Entry,
    to: SocketAddr,
    six: bool,
) -> Result<(Prepared, Offer<'static>), Option<Reason>> {
    let table = rendezvous::table().ok_or(None)?;
    let Some((listener, own_alone)) = table.find_listener(std::process::id(), to.port()) else {
        let is_here = explain::is_wanted() && to.ip().is_loopback();
        return Err(is_here.then_some(reason::NOBODY_LISTENS));
    };
    if table.is_paused(listener) {
        return Err(Some(reason::PAUSED));
    }
    if !table.is_of_this_user() {
        return Err(Some(reason::CHANGED_USER));
    }
    if !internet::is_own_address(to) {
        return Err(Some(reason::ANOTHER_HOST));
    }
    let prepared = Prepared::new(fd, fresh, six, own_alone).map_err(Some)?;
    let offer = table.announce(listener, to.port(), prepared.offered.note());
    let offer = offer.ok_or(Some(reason::NO_PLACE))?;
    Ok((prepared, offer))
}

/// Connects a socket that stays what it is. When it is connected, it is no longer told from others: with a program that
/// changes its registration with epoll for every message, they cost a quarter of its rate.
fn stays(fd: c_int, fresh: Entry, real: impl FnOnce() -> c_int) -> c_int {
    let outcome = real();
    let errno = crossway_sys::real::errno();
    let stays = outcome == 0 || errno == libc::EINPROGRESS;
    if stays && table::replace(fd, fresh, spin::plain(Family::Tcp)) {
        if fresh.has(WATCHED) {
            watch::find(fd).inspect(|watch| spin::note_epoll(watch.epoll));
            watch::forget(fd);
        }
        crossway_sys::real::set_errno(errno);
    }
    outcome
}

fn without_errno<T>(what: impl FnOnce() -> T) -> T {
    let errno = crossway_sys::real::errno();
    let outcome = what();
    crossway_sys::real::set_errno(errno);
    outcome
}

/// What a connecting program needs in any case, so that nothing can fail once the other end has decided.
struct Prepared {
    ready: Ready,
    offered: Connecting,
    /// Holds a number for the UNIX stream.
    place: OwnedFd,
}

impl Prepared {
    fn new(fd: c_int, fresh: Entry, six: bool, own_alone: bool) -> Result<Self, Reason> {
        let ready = Ready::new(fd, fresh)?;
        if own_alone && is_single_threaded() {
            return Err("both ends belong to one thread");
        }
        let place = replacing::copy(&ready.aside)?;
        let offered = Connecting::new(&ready.aside, six)?;
        Ok(Self { ready, offered, place })
    }

    /// Waits until the other program has accepted the connection, and moves it.
    fn settle(
        self,
        fd: c_int,
        connecting: Entry,
        mut offer: Offer<'_>,
        ends: Option<(SocketAddr, SocketAddr)>,
        has_connected: bool,
    ) -> Result<(), Reason> {
        let socket = ffi::borrow(fd).ok_or("not a descriptor")?;
        if !has_connected && !twin::is_established(socket) {
            return Err(reason::NOT_AT_ONCE);
        }
        let ends = ends.ok_or(reason::HAS_ENDED)?;
        let Self { ready: Ready { aside, is_nonblocking }, offered, place } = self;
        let end = offered.wait(socket, &mut offer, ends, is_nonblocking, Some(place))?;
        let _ = take_over(&aside, &end, connecting.has(SHAPED));
        if is_nonblocking {
            let _ = socket::set_nonblocking(&end);
        }
        replacing::put(fd, connecting, end, aside, Place::connected_to(offer.listener));
        explain::say(Program::own, "connects", Some(ends.0), ends.1, &MOVED);
        Ok(())
    }
}

fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Gives the end of a stream what the program has set on the TCP connection, or on the listener that
/// has accepted it.
pub(crate) fn take_over(tcp: impl AsFd, end: impl AsFd, is_shaped: bool) -> Result<(), Errno> {
    if is_shaped { twin::take_over(tcp, end) } else { twin::take_over_defaults(tcp, end) }
}

/// Notes that a connection whose aside has this entry ends: whether moving it was worth the effort.
pub(crate) fn ended(aside: Entry) {
    if let (Some(listener), Some(table)) = (aside.number().checked_sub(1), rendezvous::table())
        && !ends::is_patient()
    {
        table.judge_life(listener as usize, aside.age_ms(replacing::now_ms()));
    }
}

/// Dissolves a moved connection (connect to AF_UNSPEC) with `real`, and puts its TCP socket back in its place, where it stays.
/// Returns the result of `real`, with its errno.
pub(crate) fn dissolve(fd: c_int, aside: c_int, real: impl FnOnce() -> c_int) -> c_int {
    // First, so that the peer finds a reset when it finds the end of the stream.
    let outcome = real();
    if outcome != 0 {
        return outcome;
    }
    without_errno(|| {
        ffi::without_signals(|| {
            let _locked = process::lock();
            let (Some(stream), Some(tcp)) = (ffi::borrow(fd), ffi::borrow(aside)) else { return };
            let entry = table::get(fd);
            if let Some(is_nonblocking) = twin::waits_plainly(stream) {
                let _ = socket::set_waiting(tcp, !is_nonblocking);
            }
            if entry.aside() != Some(aside)
                || twin::put_at(tcp, fd, twin::closes_on_exec(stream)).is_err()
            {
                return;
            }
            table::put(fd, Entry::OTHER);
            let mut others = table::of_kind(Kind::Moved, 0, c_int::MAX);
            if entry.has(COPIED) && others.any(|(_, other)| other.aside() == Some(aside)) {
                return;
            }
            ended(table::get(aside));
            table::put(aside, Entry::OTHER);
            ffi::close_really(aside);
        });
    });
    outcome
}

/// Moves the connection that a listening socket with this port has just accepted as `fd`, if its other end offers it.
/// `is_shaped`: the listener may have options that the accepted socket has inherited.
pub(crate) fn accepted(fd: c_int, port: u16, is_nonblocking: bool, is_shaped: bool) {
    if via::accepted(fd, is_nonblocking, is_shaped) {
        return;
    }
    let Some(table) = rendezvous::table().filter(|table| table.expects(port)) else { return };
    if !process::owns_memory() || !table.is_of_this_user() {
        return;
    }
    let Some(socket) = ffi::borrow(fd) else { return };
    let Some((own, peer)) = twin::ends(socket) else { return };
    let Some(claim) = ends::claim(table, socket, own, peer) else { return };
    let moved = (|| {
        let end = ends::accepted_end(socket, &claim, own, peer)?;
        let aside = replacing::copy(socket)?;
        if !is_nonblocking {
            socket::set_waiting(&end, true).map_err(|_| "ioctl failed")?;
        }
        take_over(socket, &end, is_shaped).map_err(|_| reason::NO_OPTION)?;
        let old = table::get(fd);
        if !claim.agree() {
            return Err(reason::WITHDRAWN);
        }
        replacing::put(fd, old, end, aside, Place::ACCEPTED);
        Ok(())
    })();
    match moved {
        Err(why) => explain("accepts", Some(peer), own, &why),
        Ok(()) => explain::say(Program::own, "accepts", Some(peer), own, &MOVED),
    }
}

/// Registers the descriptors that the process has inherited across exec.
pub(crate) fn adopt_inherited() {
    let all = ffi::open_descriptors();
    // Their TCP connections may have come along.
    let asides = LazyCell::new(|| -> HashMap<_, _> {
        let from = replacing::places().map_or(c_int::MAX, |places| places.start);
        let high = all.iter().filter(|at| **at >= from);
        let sockets = high.filter_map(|at| ffi::borrow(*at).map(|socket| (*at, socket)));
        let tcp = sockets.filter(|(_, socket)| twin::is_tcp(socket));
        tcp.filter_map(|(at, socket)| Some((twin::ends(socket)?, at))).collect()
    });
    for fd in &all {
        adopt(*fd, |ends, _| asides.get(&ends).copied());
        listens(*fd);
    }
}

/// Registers a descriptor that the process has received from another one. It may be a copy of one that this process has.
pub(crate) fn adopt_received(fd: c_int) {
    adopt(fd, |ends, inode| {
        let mut known = table::of_kind(Kind::Moved, 0, c_int::MAX);
        let (_, copied) = known.find(|(_, other)| other.aside().is_some() && other.is_of(inode))?;
        let aside = copied.aside()?;
        (ffi::borrow(aside).and_then(twin::ends) == Some(ends)).then_some(aside)
    });
}

/// Registers a descriptor that this process did not move itself, if it is an end of a pair. `find_aside` is passed the addresses
/// of its TCP connection and its inode.
fn adopt(fd: c_int, find_aside: impl FnOnce((SocketAddr, SocketAddr), u64) -> Option<c_int>) {
    let Some(socket) = ffi::borrow(fd) else { return };
    if table::get(fd).kind() == Kind::Moved {
        return;
    }
    if !proc::is_unix_socket(socket) {
        return spin::note(fd);
    }
    let Some((connection, flags)) = connection_of(socket) else { return spin::note(fd) };
    let (own, peer) = connection.seen_from(flags & ACCEPTED != 0);
    let inode = twin::inode(socket);
    let aside = find_aside((internet::plain(own), internet::plain(peer)), inode);
    let number = aside.map_or(0, |at| {
        if table::get(at).kind() != Kind::Aside {
            table::put(at, Entry::new(Kind::Aside, 0, 0, 0));
        }
        at.unsigned_abs() + 1
    });
    // Another copy may have been adopted before.
    table::put(fd, Entry::new(Kind::Moved, flags | COPIED, number, inode));
    spin::see();
}

/// The TCP connection that an end of a pair stands for, and [`ACCEPTED`] if it is the accepted one.
pub(crate) fn connection_of(socket: BorrowedFd<'_>) -> Option<(Connection, u8)> {
    let (connection, is_accepted) = ends::connection_of(socket)?;
    Some((connection, if is_accepted { ACCEPTED } else { 0 }))
}

/// Notes a socket that has begun to listen, or that accepts without being known to listen. Returns its port if it is a TCP
/// socket whose connections can be moved.
pub(crate) fn listens(fd: c_int) -> Option<u16> {
    let before = table::get(fd);
    let socket = ffi::borrow(fd)?;
    if !twin::is_listening(socket) {
        return None;
    }
    let port = twin::local_port(socket).filter(|_| twin::is_tcp(socket) && !before.has(SPECIAL));
    let (Some(port), Ok(network)) = (port, twin::network(socket)) else {
        table::put(fd, Entry::new(Kind::OtherListener, 0, 0, 0));
        return None;
    };
    // Whoever connects to a noted listener waits for it, so one that cannot move connections now is looked at again later.
    let is_ours = |table: &&rendezvous::Table| {
        process::owns_memory() && table.is_of_this_user() && replacing::places().is_some()
    };
    if let Some(table) = rendezvous::table().filter(is_ours) {
        // Nobody knows what was set on a socket that comes from elsewhere.
        let flags = before.flags() | if before.kind() == Kind::Other { SHAPED } else { 0 };
        table::put(fd, Entry::new(Kind::Listener, flags, port.into(), 0));
        table.note_listener(std::process::id(), port, network);
        // A forked child has inherited its parent's word.
        if before.kind() != Kind::Listener {
            via::listens(socket);
        }
    }
    Some(port)
}

/// Notes the listeners of this process again, which was forked.
pub(crate) fn listens_still() {
    for (fd, _) in table::of_kind(Kind::Listener, 0, c_int::MAX) {
        listens(fd);
    }
}
