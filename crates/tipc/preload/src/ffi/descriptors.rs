//! Calls that copy or close descriptors, and calls that would bypass this library on a TIPC socket (streams, sendfile,
//! splice).

use std::ffi::{c_char, c_int, c_long, c_uint};

use crossway_tipc_client::SocketKind;
use crossway_tipc_client::protocol::slot::Phase;
use libc::{FILE, iovec, off_t, off64_t, size_t, ssize_t};

use super::outcome::{errno, set_errno};
use super::{real, without_signals};
use crate::control::{hidden_in, is_hidden, step_aside};
use crate::process::is_borrowed;
use crate::socket::Handle;
use crate::table::{self, find};
use crate::traffic;

/// Unregisters a descriptor that is about to be closed, unless a child of vfork closes it: the table is its parent's.
fn forget(fd: c_int) {
    if find(fd).is_some() && !is_borrowed() {
        without_signals(|| table::forget(fd));
    }
}

/// Registers `fd`, a new copy of a descriptor, as the TIPC socket `what`; unregisters `fd` if `what` is `None`. Returns
/// `fd`, or -1 with errno set.
fn became(fd: c_int, what: Option<Handle>) -> c_int {
    if fd < 0 || (what.is_none() && find(fd).is_none()) || is_borrowed() {
        return fd;
    }
    let noted = without_signals(|| match what {
        Some(socket) => table::put(&Handle { fd, ..socket }),
        None => {
            table::forget(fd);
            true
        }
    });
    if noted {
        return fd;
    }
    super::close_really(fd);
    set_errno(libc::EMFILE);
    -1
}

/// Closes descriptors that may be TIPC sockets: what was sent to them before counts as sent before, and their end is visible
/// when the call has returned.
fn closing<R>(is_socket: bool, close: impl FnOnce() -> R) -> R {
    if !is_socket || is_borrowed() {
        return close();
    }
    if traffic::is_pending() {
        traffic::settle();
    }
    let outcome = close();
    traffic::note_change();
    outcome
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let is_socket = find(fd).is_some();
    closing(is_socket, || close_now(fd))
}

fn close_now(fd: c_int) -> c_int {
    forget(fd);
    if is_hidden(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: an integer.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: an integer.
    unsafe { close(fd) }
}

/// Flag of close_range(2): only set close-on-exec (linux/close_range.h).
const CLOSE_RANGE_CLOEXEC: c_int = 4;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last {
        // SAFETY: integers.
        return unsafe { real::close_range(first, last, flags) };
    }
    let number = |n: c_uint| c_int::try_from(n).unwrap_or(c_int::MAX);
    table::in_range(number(first), number(last)).for_each(|socket| forget(socket.fd));
    let Some(hidden) = hidden_in(number(first), number(last)).map(c_int::unsigned_abs) else {
        // SAFETY: integers.
        return unsafe { real::close_range(first, last, flags) };
    };
    let close = |first: c_uint, last: c_uint| {
        // SAFETY: integers.
        if first > last { 0 } else { unsafe { real::close_range(first, last, flags) } }
    };
    let below = if hidden > 0 { close(first, hidden - 1) } else { 0 };
    if below < 0 { below } else { close(hidden + 1, last) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: integers.
    if unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) } < 0 {
        // SAFETY: an integer.
        unsafe { real::closefrom(first) };
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    let what = find(fd);
    // SAFETY: an integer.
    became(unsafe { real::dup(fd) }, what)
}

/// Moves the library's own descriptor to another number if it has this number.
fn make_room(fd: c_int) {
    if is_hidden(fd) && !is_borrowed() {
        step_aside();
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    make_room(new);
    let what = find(old);
    // SAFETY: integers.
    became(unsafe { real::dup2(old, new) }, what)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: integers.
    unsafe { dup2(old, new) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    make_room(new);
    let what = find(old);
    // SAFETY: integers.
    became(unsafe { real::dup3(old, new, flags) }, what)
}

pub(super) fn copies(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    let what = find(fd);
    // SAFETY: guaranteed by the caller; a pointer argument is as wide as a long.
    let outcome = unsafe { real::fcntl(fd, command, argument) };
    if what.is_some() && copies(command) { became(outcome, what) } else { outcome }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn fcntl64(
    fd: c_int,
    command: c_int,
    argument: c_long,
) -> c_int {
    let what = find(fd);
    // SAFETY: as for fcntl.
    let outcome = unsafe { real::fcntl64(fd, command, argument) };
    if what.is_some() && copies(command) { became(outcome, what) } else { outcome }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    if !table::is_empty() {
        let before = errno();
        // SAFETY: an open stream, as guaranteed by the caller.
        forget(unsafe { libc::fileno(file) });
        set_errno(before);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::fclose(file) }
}

/// The C library's streams bypass this library. This works only for connected stream sockets, whose bytes are
/// transferred unchanged; any other TIPC socket is refused (EOPNOTSUPP).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if let Some(socket) = find(fd)
        && !(socket.kind == SocketKind::Stream && socket.state().phase == Phase::Connected)
    {
        set_errno(libc::EOPNOTSUPP);
        return std::ptr::null_mut();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::fdopen(fd, mode) }
}

/// Sets errno and returns -1, for a call that this library cannot support, so that the program falls back to copying
/// the data.
pub(super) fn refused(errno: c_int) -> ssize_t {
    set_errno(errno);
    -1
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if find(to).is_some() {
        return refused(libc::EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::sendfile(to, from, offset, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: size_t,
) -> ssize_t {
    if find(to).is_some() {
        return refused(libc::EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::sendfile64(to, from, offset, count) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if find(from).is_some() || find(to).is_some() {
        return refused(libc::EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::splice(from, from_offset, to, to_offset, len, flags) }
}

/// Defines functions with the arguments parts, offset and flags. They fail with EOPNOTSUPP on TIPC sockets.
macro_rules! refused_on_sockets {
    ($($name:ident: $offset:ty),*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                fd: c_int,
                parts: *const iovec,
                count: c_int,
                offset: $offset,
                flags: c_int,
            ) -> ssize_t {
                if find(fd).is_some() {
                    return refused(libc::EOPNOTSUPP);
                }
                // SAFETY: guaranteed by the caller.
                unsafe { real::$name(fd, parts, count, offset, flags) }
            }
        )*
    };
}

refused_on_sockets!(preadv2: off_t, preadv64v2: off64_t, pwritev2: off_t, pwritev64v2: off64_t);
