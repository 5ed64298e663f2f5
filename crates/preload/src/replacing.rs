//! Replaces a TCP socket by an end of a stream: when that is possible, and how.

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use crossway_run::reason::{self, Reason};
use crossway_sys::proc;
use crossway_sys::socket::twin;

use crate::table::{self, ACCEPTED, CARRIED, COPIED, Entry, Kind, SPECIAL, UNKNOWN_WATCH, WATCHED};
use crate::{ffi, process, spin, watch};

/// The numbers for asides: high enough that programs do not meet them, and a quarter of the limit of descriptors, of which the
/// program keeps the rest. `None` if the limit is low, because a program may need all of it.
fn places_within(limit: usize) -> Option<Range<c_int>> {
    let from = match limit {
        ..1024 => return None,
        1024..16_384 => limit / 4 * 3,
        _ => 8192,
    };
    Some(c_int::try_from(from).ok()?..c_int::try_from(from + limit / 4).unwrap_or(c_int::MAX))
}

/// The numbers for asides of this process.
pub(crate) fn places() -> Option<Range<c_int>> {
    places_within(proc::descriptor_limit())
}

/// A copy of a socket at a number for asides.
pub(crate) fn copy(socket: impl AsFd) -> Result<OwnedFd, Reason> {
    let places = places().ok_or("the limit of descriptors is below 1,024")?;
    let copy = twin::copy_above(socket, places.start, true);
    copy.ok()
        .filter(|copy| places.contains(&copy.as_raw_fd()))
        .ok_or("no descriptor is free, or a quarter of them is used for moved connections")
}

/// A socket that is about to be connected, and can be replaced.
pub(crate) struct Ready {
    pub(crate) aside: OwnedFd,
    pub(crate) is_nonblocking: bool,
}

impl Ready {
    /// Prepares a socket whose entry is `fresh`. The error is why it cannot be replaced.
    pub(crate) fn new(fd: c_int, fresh: Entry) -> Result<Self, Reason> {
        let socket = ffi::borrow(fd).ok_or("not a descriptor")?;
        if !process::owns_memory() {
            return Err("a child of vfork connects");
        }
        let is_nonblocking = check(socket, fresh)?;
        Ok(Self { aside: copy(socket)?, is_nonblocking })
    }
}

/// Whether nothing but its number refers to the socket, so that it can be replaced without anybody
/// noticing. Returns whether it is non-blocking.
fn check(socket: BorrowedFd<'_>, fresh: Entry) -> Result<bool, Reason> {
    if fresh.number() != process::forks() {
        return Err("a child process has the socket, too");
    }
    for (flag, why) in [
        (COPIED, reason::COPIED),
        (UNKNOWN_WATCH, "the socket was registered with several epoll instances"),
        (SPECIAL, reason::ONLY_TCP),
    ] {
        if fresh.has(flag) {
            return Err(why);
        }
    }
    if !twin::is_tcp(socket) {
        return Err("the socket is not a TCP socket");
    }
    twin::waits_plainly(socket).ok_or(reason::RAISES_SIGNALS)
}

/// Which end of which kind of stream takes a socket's place.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    flags: u8,
    /// The place of the listener in the rendezvous table, plus 1, or 0.
    listener: u32,
}

impl Place {
    /// The accepted end of a UNIX stream pair.
    pub(crate) const ACCEPTED: Place = Place { flags: ACCEPTED, listener: 0 };
    /// The connecting end of a stream to another host.
    pub(crate) const CARRIED: Place = Place { flags: CARRIED, listener: 0 };
    /// The accepted end of one.
    pub(crate) const CARRIED_ACCEPTED: Place = Place { flags: CARRIED | ACCEPTED, listener: 0 };

    /// The end of a UNIX stream pair that has connected to this listener.
    pub(crate) fn connected_to(listener: usize) -> Self {
        Self { flags: 0, listener: listener as u32 + 1 }
    }
}

/// Puts one end of a pair in the place of a TCP socket whose entry still is `old`. If the program
/// has closed it meanwhile, both are closed.
pub(crate) fn put(fd: c_int, old: Entry, end: OwnedFd, aside: OwnedFd, place: Place) {
    ffi::without_signals(|| {
        let _locked = process::lock();
        let Some(socket) = ffi::borrow(fd) else { return };
        // A flag that another thread adds meanwhile must not end the connection.
        if table::get(fd).kind() != old.kind() {
            return;
        }
        let watch = old.has(WATCHED).then(|| watch::find(fd)).flatten();
        if let Some(watch) = watch {
            ffi::unwatch(fd, watch);
        }
        let closes = twin::closes_on_exec(socket);
        if !closes {
            twin::set_close_on_exec(&aside, false);
        }
        let inode = twin::inode(&end);
        if twin::put_at(&end, fd, closes).is_err() {
            return;
        }
        if let Some(watch) = watch {
            ffi::watch(fd, watch);
        }
        let number = aside.into_raw_fd();
        table::put(number, Entry::new(Kind::Aside, 0, place.listener, now_ms()));
        let number = number.unsigned_abs() + 1;
        table::put(fd, Entry::new(Kind::Moved, place.flags, number, inode));
        spin::see();
    });
}

/// The time, in milliseconds since some point in the past.
pub(crate) fn now_ms() -> u64 {
    crossway_sys::clock::monotonic_ns() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_three_quarters_of_its_descriptors() {
        assert_eq!(places_within(1023), None);
        for (limit, places) in [
            (1024, 768..1024),
            (16_383, 12_285..16_380),
            (16_384, 8192..12_288),
            (20_000, 8192..13_192),
            (usize::MAX, 8192..c_int::MAX),
        ] {
            assert_eq!(places_within(limit), Some(places), "{limit}");
        }
    }
}
