//! Socket options, ioctl and fcntl.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use crossway_sys::real::set_errno;
use crossway_sys::socket::twin;
use libc::socklen_t;

use super::calls::{moved, on_tcp, refused};
use super::descriptors::{closes_on_exec_now, copied};
use super::{borrow, real};
use crate::table::{self, Entry, RESET, SHAPED, SPECIAL};

/// From linux/tcp.h and asm-generic/socket.h, where the libc crate lacks them.
const TCP_REPAIR: c_int = 19;
const TCP_ULP: c_int = 31;
const TCP_FASTOPEN_CONNECT: c_int = 30;
const SO_TXTIME: c_int = 61;
const SO_ZEROCOPY: c_int = 60;
const SO_ATTACH_BPF: c_int = 50;
/// SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING with 64-bit structures.
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPING_NEW: c_int = 65;

/// Whether a UNIX stream cannot do what the option asks for. A socket that has it is not moved; a moved one refuses it.
pub(super) const fn is_special(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_ATTACH_FILTER
                | SO_ATTACH_BPF
                | SO_ZEROCOPY
                | SO_TXTIME
                | libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPNS
                | libc::SO_TIMESTAMPING
                | SO_TIMESTAMP_NEW
                ..=SO_TIMESTAMPING_NEW | libc::SO_MAX_PACING_RATE | libc::SO_PEEK_OFF
        ),
        libc::IPPROTO_TCP => matches!(
            name,
            TCP_REPAIR
                | TCP_ULP
                | TCP_FASTOPEN_CONNECT
                | libc::TCP_DEFER_ACCEPT
                | libc::TCP_MD5SIG
                | libc::TCP_CONGESTION
        ),
        _ => false,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let set = |fd| unsafe { real::setsockopt(fd, level, name, value, len) };
    let Some(entry) = moved(fd) else {
        if is_special(level, name) {
            table::mark(fd, SPECIAL);
        } else if level == libc::SOL_SOCKET && twin::shapes(name) {
            table::mark(fd, SHAPED);
        }
        return set(fd);
    };
    if refused(level, name) && name != libc::TCP_CONGESTION {
        set_errno(if level == libc::SOL_SOCKET { libc::EOPNOTSUPP } else { libc::ENOENT });
        return -1;
    }
    let outcome = on_tcp(entry, set);
    if outcome == 0 && level == libc::SOL_SOCKET && twin::is_shared_option(name) {
        set(fd);
        if name == libc::SO_SNDBUF {
            on_tcp(entry, |tcp| {
                if let (Some(tcp), Some(unix)) = (borrow(tcp), borrow(fd)) {
                    let _ = twin::make_room(tcp, unix);
                }
            });
        }
    }
    outcome
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let get = |fd| unsafe { real::getsockopt(fd, level, name, value, len) };
    let Some(entry) = moved(fd) else { return get(fd) };
    if level == libc::SOL_SOCKET && name == libc::SO_ERROR {
        // SAFETY: the call has succeeded, so both pointers are valid; an int may have been cut short by the program.
        let said = |outcome: c_int| unsafe {
            let is_whole = outcome == 0 && *len as usize == size_of::<c_int>();
            is_whole.then(|| value.cast::<c_int>().read_unaligned())
        };
        let mut outcome = get(fd);
        if said(outcome) == Some(0) && entry.aside().is_some() {
            outcome = on_tcp(entry, get);
        }
        if said(outcome) == Some(libc::ECONNRESET) {
            table::mark_all(fd, RESET);
        }
        return outcome;
    }
    on_tcp(entry, get)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ioctl(
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
) -> c_int {
    /// The request of SIOCOUTQNSD (linux/sockios.h).
    const SIOCOUTQNSD: c_ulong = 0x894b;
    // What the peer has not acknowledged: as on a TCP connection within a host, nothing.
    let asks_tcp = matches!(request, libc::TIOCOUTQ | SIOCOUTQNSD);
    let aside = if asks_tcp { moved(fd).and_then(Entry::aside) } else { None };
    let at = aside.unwrap_or(fd);
    // SAFETY: guaranteed by the caller.
    let outcome = unsafe { real::ioctl(at, request, argument) };
    if matches!(request, libc::FIOCLEX | libc::FIONCLEX) && outcome == 0 {
        closes_on_exec_now(fd);
    }
    outcome
}

/// Calls fcntl as `real`, with what it does beyond the call itself.
fn controlled(fd: c_int, command: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return copied(fd, real);
    }
    let outcome = real();
    if command == libc::F_SETFD && outcome >= 0 {
        closes_on_exec_now(fd);
    }
    outcome
}

macro_rules! controls {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C-unwind" fn $name(
                fd: c_int,
                command: c_int,
                argument: c_long,
            ) -> c_int {
                // SAFETY: guaranteed by the caller; a pointer argument is as wide as a long.
                let real = || unsafe { real::$name(fd, command, argument) };
                controlled(fd, command, real)
            }
        )*
    };
}

controls!(fcntl fcntl64);
