//! Calls that poll: they return the kernel's results, corrected for TIPC sockets whose connection has ended.

use std::ffi::{c_int, c_short};

use crossway_tipc_client::protocol::slot::Phase;
use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use super::real;
use crate::table::{self, find};

const OVER: c_short = libc::POLLIN | libc::POLLRDNORM;

/// Whether the descriptor is a TIPC socket whose connection has ended.
fn is_over(fd: c_int) -> bool {
    find(fd).is_some_and(|s| s.kind.is_connected_kind() && s.state().phase == Phase::Disconnected)
}

/// Corrects the results for connections that have ended, as AF_TIPC reports them: readable and hung up, and no longer
/// writable. Returns the number of ready entries.
fn amended(fds: &mut [pollfd], ready: c_int) -> c_int {
    if ready < 0 {
        return ready;
    }
    let mut ready = ready;
    for wanted in fds.iter_mut().filter(|wanted| is_over(wanted.fd)) {
        ready += c_int::from(wanted.revents == 0);
        wanted.revents = OVER & wanted.events | libc::POLLHUP;
    }
    ready
}

/// Maximum number of entries per call for which the end of a connection wakes the caller. For any further entry, the
/// end of the connection is reported only when the call returns for another reason.
const WATCHED: usize = 1024;

/// Makes the end of a connection wake the caller, whatever events the caller waits for. AF_TIPC always reports the end
/// (POLLHUP). Here, the end half-closes the descriptor, which the kernel reports only on request (POLLRDHUP), so the
/// request is added to the entries.
struct Ends<'a> {
    fds: &'a mut [pollfd],
    /// One bit per entry: set if POLLRDHUP was added to the entry.
    asked: [u64; WATCHED / 64],
}

impl<'a> Ends<'a> {
    fn watched(fds: &'a mut [pollfd]) -> Self {
        let mut asked = [0; WATCHED / 64];
        for (n, wanted) in fds.iter_mut().enumerate().take(WATCHED) {
            let of_connection = find(wanted.fd).is_some_and(|s| s.kind.is_connected_kind());
            if of_connection && wanted.events & libc::POLLRDHUP == 0 {
                wanted.events |= libc::POLLRDHUP;
                asked[n / 64] |= 1 << (n % 64);
            }
        }
        Self { fds, asked }
    }
}

/// Removes POLLRDHUP from these entries again, even if the thread is cancelled.
impl Drop for Ends<'_> {
    fn drop(&mut self) {
        for (n, wanted) in self.fds.iter_mut().enumerate().take(WATCHED) {
            if self.asked[n / 64] & 1 << (n % 64) != 0 {
                wanted.events &= !libc::POLLRDHUP;
                // The end is reported in AF_TIPC's way.
                wanted.revents &= !libc::POLLRDHUP;
            }
        }
    }
}

/// Whether there is a TIPC socket among the descriptors.
///
/// # Safety
/// `fds` is NULL or points to `count` structures.
pub(super) unsafe fn has_socket(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: `count` structures, as guaranteed by the caller.
    !fds.is_null() && (0..count as usize).any(|n| find(unsafe { (*fds.add(n)).fd }).is_some())
}

/// Calls `real`, which waits unless a connection among `fds` has ended: the end of a connection is reported
/// immediately, whatever events the caller waits for.
///
/// # Safety
/// `fds` is NULL or points to `count` structures.
unsafe fn polled(
    fds: *mut pollfd,
    count: nfds_t,
    real: impl FnOnce(*mut pollfd, bool) -> c_int,
) -> c_int {
    if table::is_empty() || fds.is_null() {
        return real(fds, false);
    }
    // SAFETY: `count` structures, as guaranteed by the caller.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let is_any_over = fds.iter().any(|wanted| is_over(wanted.fd));
    let ends = Ends::watched(fds);
    let ready = real(ends.fds.as_mut_ptr(), is_any_over);
    amended(ends.fds, ready)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn poll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        polled(fds, count, |fds, over| real::poll(fds, count, if over { 0 } else { timeout }))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    // SAFETY: guaranteed by the caller; the called function handles violations of its own checks.
    unsafe {
        polled(fds, count, |fds, over| {
            real::__poll_chk(fds, count, if over { 0 } else { timeout }, room)
        })
    }
}

static AT_ONCE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        polled(fds, count, |fds, over| {
            real::ppoll(fds, count, if over { &AT_ONCE } else { timeout }, mask)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: as for __poll_chk.
    unsafe {
        polled(fds, count, |fds, over| {
            real::__ppoll_chk(fds, count, if over { &AT_ONCE } else { timeout }, mask, room)
        })
    }
}
