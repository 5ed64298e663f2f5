//! Calls that make, name, connect and end sockets.

use std::ffi::c_int;

use crossway_run::wishes::Family;
use crossway_sys::real::set_errno;
use crossway_sys::socket::twin;
use libc::{sockaddr, socklen_t};

use super::descriptors::closed_unseen;
use super::system::{give_address, internet_address, is_unspecified};
use super::{borrow, events, lent, options, real};
use crate::table::{self, ACCEPTED, ENDED, Entry, Kind, RESET, SHAPED, UNKNOWN_WATCH, WATCHED};
use crate::watch::{self, Watch};
use crate::{moving, process, spin};

/// The entry of a moved descriptor, if its number still is that descriptor: a program may have closed it by a raw system call,
/// which this library does not see.
pub(super) fn moved(fd: c_int) -> Option<Entry> {
    let entry = table::moved(fd)?;
    if borrow(fd).is_some_and(|socket| entry.is_of(twin::inode(socket))) {
        return Some(entry);
    }
    closed_unseen(fd, entry);
    None
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: three integers.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd < 0 {
        return fd;
    }
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & 0xf == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    let stale = table::get(fd) != Entry::OTHER;
    if stale {
        closed_unseen(fd, table::get(fd));
    }
    // A child of vfork must not replace what its parent knows. What it adds, its parent never asks for.
    if (is_tcp || stale) && (!stale || process::owns_memory()) {
        let fresh = Entry::new(Kind::Fresh, 0, process::forks(), 0);
        table::put(fd, if is_tcp { fresh } else { Entry::OTHER });
    }
    fd
}

/// The longest Internet address.
const LONGEST_ADDRESS: usize = size_of::<libc::sockaddr_in6>();

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let entry = table::get(fd);
    let at = match entry.kind() {
        Kind::Moved => moved(fd).and_then(Entry::aside).unwrap_or(fd),
        _ => fd,
    };
    // SAFETY: guaranteed by the caller.
    let real = || unsafe { real::connect(at, address, len) };
    if !lent::is_readable(address.cast::<u8>(), (len as usize).min(LONGEST_ADDRESS)) {
        return real();
    }
    // SAFETY: as above.
    if at != fd && unsafe { is_unspecified(address, len) } {
        return moving::dissolve(fd, at, real);
    }
    // SAFETY: as above.
    match unsafe { internet_address(address, len) } {
        Some(to) if entry.kind() == Kind::Fresh => return moving::connect(fd, to, real),
        _ => {}
    }
    let outcome = real();
    if outcome == 0 && process::owns_memory() {
        let errno = crossway_sys::real::errno();
        spin::note(fd);
        set_errno(errno);
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let outcome = unsafe { real::socketpair(domain, kind, protocol, pair) };
    if outcome == 0 && process::owns_memory() {
        for n in 0..2 {
            // SAFETY: the call has written both.
            let fd = unsafe { pair.add(n).read_unaligned() };
            if table::get(fd) != Entry::OTHER {
                closed_unseen(fd, table::get(fd));
                table::put(fd, Entry::OTHER);
            }
            spin::note(fd);
        }
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let at = moved(fd).and_then(Entry::aside).unwrap_or(fd);
    // SAFETY: integers.
    let outcome = unsafe { real::listen(at, backlog) };
    if outcome == 0 {
        moving::listens(fd);
    }
    outcome
}

/// Moves a connection that has been accepted as `fd` on `listener` with these flags, if it can be moved. Returns `fd`.
fn accepted(listener: c_int, fd: c_int, flags: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    let errno = crossway_sys::real::errno();
    if table::get(fd) != Entry::OTHER && process::owns_memory() {
        closed_unseen(fd, table::get(fd));
        table::put(fd, Entry::OTHER);
    }
    let entry = table::get(listener);
    let port = match entry.kind() {
        Kind::Listener => Some(entry.number() as u16),
        Kind::OtherListener => None,
        _ => moving::listens(listener),
    };
    if let Some(port) = port {
        let is_shaped = table::get(listener).has(SHAPED);
        moving::accepted(fd, port, flags & libc::SOCK_NONBLOCK != 0, is_shaped);
        if table::get(fd) == Entry::OTHER && process::owns_memory() {
            table::put(fd, spin::plain(Family::Tcp));
        }
    } else if process::owns_memory() {
        spin::note(fd);
    }
    set_errno(errno);
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let at = moved(fd).and_then(Entry::aside).unwrap_or(fd);
    // SAFETY: guaranteed by the caller.
    accepted(fd, unsafe { real::accept(at, address, len) }, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let at = moved(fd).and_then(Entry::aside).unwrap_or(fd);
    // SAFETY: guaranteed by the caller.
    accepted(fd, unsafe { real::accept4(at, address, len, flags) }, flags)
}

/// Gives the own or the peer's address of a moved descriptor whose TCP connection this process does not have, from the name
/// of the pair.
///
/// # Safety
/// As for getsockname.
unsafe fn from_name(
    fd: c_int,
    is_peer: bool,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Option<c_int> {
    let (connection, flags) = moving::connection_of(borrow(fd)?)?;
    let (own, peer) = connection.seen_from(flags & ACCEPTED != 0);
    // SAFETY: guaranteed by the caller.
    let given = unsafe { give_address(if is_peer { peer } else { own }, address, len) };
    Some(given.map_or_else(
        |why| {
            set_errno(why);
            -1
        },
        |()| 0,
    ))
}

macro_rules! names {
    ($($name:ident: $is_peer:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                fd: c_int,
                address: *mut sockaddr,
                len: *mut socklen_t,
            ) -> c_int {
                let entry = moved(fd);
                if $is_peer && entry.is_some_and(|entry| entry.has(RESET)) {
                    set_errno(libc::ENOTCONN);
                    return -1;
                }
                let aside = entry.and_then(Entry::aside);
                if entry.is_some() && aside.is_none() {
                    // SAFETY: guaranteed by the caller.
                    if let Some(outcome) = unsafe { from_name(fd, $is_peer, address, len) } {
                        return outcome;
                    }
                }
                // SAFETY: guaranteed by the caller.
                unsafe { real::$name(aside.unwrap_or(fd), address, len) }
            }
        )*
    };
}

names! {
    getsockname: false;
    getpeername: true;
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let Some(entry) = moved(fd) else {
        // SAFETY: integers.
        return unsafe { real::shutdown(fd, how) };
    };
    if entry.has(RESET) {
        set_errno(libc::ENOTCONN);
        return -1;
    }
    if matches!(how, libc::SHUT_WR | libc::SHUT_RDWR) {
        table::mark_all(fd, ENDED);
    }
    // The stream first: what the peer finds at its end, it may compare with the TCP connection.
    // SAFETY: integers.
    let outcome = unsafe { real::shutdown(fd, how) };
    match entry.aside() {
        // SAFETY: integers.
        Some(aside) => unsafe { real::shutdown(aside, how) },
        None => outcome,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let outcome = unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    if outcome == 0 && spin::is_connection(fd) {
        spin::note_epoll(epoll);
    }
    if outcome == 0 && operation != libc::EPOLL_CTL_DEL && table::moved(fd).is_some() {
        // SAFETY: the call has read the structure.
        events::registered(fd, epoll, unsafe { event.read_unaligned() }.u64);
    }
    if outcome == 0 && table::get(fd).kind() == Kind::Fresh && process::owns_memory() {
        let watch = || {
            // SAFETY: the call has read the structure.
            let event = unsafe { event.read_unaligned() };
            Watch { epoll, events: event.events, data: event.u64 }
        };
        match operation {
            libc::EPOLL_CTL_ADD => {
                let known = watch::add(fd, watch());
                table::mark(fd, if known { WATCHED } else { WATCHED | UNKNOWN_WATCH });
            }
            libc::EPOLL_CTL_MOD => watch::change(fd, watch()),
            _ => watch::forget(fd),
        }
    }
    outcome
}

/// Calls on a moved descriptor that its TCP connection answers: the aside, or, if this process has none, a TCP socket that is
/// not connected, which is made for the call.
pub(super) fn on_tcp<T>(entry: Entry, what: impl FnOnce(c_int) -> T) -> T {
    if let Some(aside) = entry.aside() {
        return what(aside);
    }
    // SAFETY: integers.
    let standin = unsafe { real::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let outcome = what(standin);
    super::close_really(standin);
    outcome
}

/// Whether an option cannot be set on a moved connection, because a UNIX stream does not have it: a program then does without.
pub(super) const fn refused(level: c_int, name: c_int) -> bool {
    options::is_special(level, name)
}
