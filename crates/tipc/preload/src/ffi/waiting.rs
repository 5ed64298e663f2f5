//! Calls that poll: they return the kernel's results, corrected for TIPC sockets whose connection has ended.

use std::ffi::{c_int, c_short};

use crossway_sys::fd_sets::FdSets;
use crossway_tipc_client::protocol::slot::Phase;
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::real;
use crate::socket::SHUT_IN_VAIN;
use crate::table::{self, find};
use crate::traffic;

const OVER: c_short = libc::POLLIN | libc::POLLRDNORM;

/// Whether the descriptor is a TIPC socket whose connection has ended.
fn is_over(fd: c_int) -> bool {
    find(fd).is_some_and(|s| s.kind.is_connected_kind() && s.state().phase == Phase::Disconnected)
}

/// Events that AF_TIPC reports on request. The kernel would report others for the UNIX socket beneath, such as POLLWRBAND, or
/// POLLWRNORM along with POLLOUT.
const KNOWN: c_short = libc::POLLIN
    | libc::POLLRDNORM
    | libc::POLLOUT
    | libc::POLLRDHUP
    | libc::POLLERR
    | libc::POLLHUP;

/// Corrects the results for connections that have ended, as AF_TIPC reports them: readable and hung up, and no longer
/// writable. Returns the number of ready entries.
fn amended(fds: &mut [pollfd], ready: c_int) -> c_int {
    if ready < 0 {
        return ready;
    }
    let mut ready = ready;
    for wanted in fds.iter_mut() {
        let Some(socket) = find(wanted.fd) else { continue };
        let was_ready = wanted.revents != 0;
        if is_over(wanted.fd) {
            wanted.revents = OVER & wanted.events | libc::POLLHUP;
        } else if socket.has_mark(SHUT_IN_VAIN) {
            wanted.revents |= (OVER | libc::POLLRDHUP) & wanted.events | libc::POLLHUP;
        }
        wanted.revents &= KNOWN;
        ready += c_int::from(wanted.revents != 0) - c_int::from(was_ready);
    }
    ready
}

/// Maximum number of entries per call for which the end of a connection wakes the caller. For any further entry, the
/// end of the connection is reported only when the call returns for another reason.
const WATCHED: usize = 1024;

/// Makes the end of a connection wake the caller, whatever events the caller waits for, and nothing that AF_TIPC does not
/// report. AF_TIPC always reports the end (POLLHUP). Here, the end half-closes the descriptor, which the kernel reports only
/// on request (POLLRDHUP), so the request is added to the entries.
struct Ends<'a> {
    fds: &'a mut [pollfd],
    /// The events that the caller requested.
    events: [c_short; WATCHED],
}

impl<'a> Ends<'a> {
    fn watched(fds: &'a mut [pollfd]) -> Self {
        let mut events = [0; WATCHED];
        for (wanted, events) in fds.iter_mut().zip(&mut events) {
            *events = wanted.events;
            if let Some(socket) = find(wanted.fd) {
                wanted.events &= KNOWN;
                if socket.kind.is_connected_kind() {
                    wanted.events |= libc::POLLRDHUP;
                }
            }
        }
        Self { fds, events }
    }
}

/// Restores the events that the caller requested, even if the thread is cancelled.
impl Drop for Ends<'_> {
    fn drop(&mut self) {
        for (wanted, events) in self.fds.iter_mut().zip(&self.events) {
            if wanted.events != *events {
                wanted.events = *events;
                // The end is reported in AF_TIPC's way.
                wanted.revents &= *events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
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

/// Calls `real`, which is passed whether it must not wait: if a connection among `fds` has ended, that is reported immediately,
/// whatever events the caller waits for. `glances` says whether the caller does not wait anyway: what is on its way through
/// tipcd is then delivered first.
///
/// # Safety
/// `fds` is NULL or points to `count` structures.
unsafe fn polled(
    fds: *mut pollfd,
    count: nfds_t,
    glances: bool,
    real: impl Fn(*mut pollfd, bool) -> c_int,
) -> c_int {
    if table::is_empty() || fds.is_null() {
        return real(fds, false);
    }
    // SAFETY: `count` structures, as guaranteed by the caller.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let pending = traffic::is_pending() && fds.iter().any(|wanted| find(wanted.fd).is_some());
    if pending && glances {
        traffic::settle();
    }
    let is_over_now = |fd: c_int| is_over(fd) || find(fd).is_some_and(|s| s.has_mark(SHUT_IN_VAIN));
    let is_any_over = fds.iter().any(|wanted| is_over_now(wanted.fd));
    let ends = Ends::watched(fds);
    let mut ready = real(ends.fds.as_mut_ptr(), is_any_over);
    if ready == 0 && pending && !glances && !is_any_over {
        // The time was over before tipcd had delivered what was there in time.
        traffic::settle();
        ready = real(ends.fds.as_mut_ptr(), true);
    }
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
        polled(fds, count, timeout == 0, |fds, over| {
            real::poll(fds, count, if over { 0 } else { timeout })
        })
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
        polled(fds, count, timeout == 0, |fds, over| {
            real::__poll_chk(fds, count, if over { 0 } else { timeout }, room)
        })
    }
}

/// Whether a time limit says not to wait.
///
/// # Safety
/// `limit` is NULL or points to a structure.
unsafe fn is_zero(limit: *const timespec) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { limit.as_ref() }.is_some_and(|limit| limit.tv_sec == 0 && limit.tv_nsec == 0)
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
        polled(fds, count, is_zero(timeout), |fds, over| {
            real::ppoll(fds, count, if over { &AT_ONCE } else { timeout }, mask)
        })
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: as for __poll_chk.
    unsafe {
        polled(fds, count, is_zero(timeout), |fds, over| {
            real::__ppoll_chk(fds, count, if over { &AT_ONCE } else { timeout }, mask, room)
        })
    }
}

/// Calls `real`, which waits for events of an epoll instance or of sets of descriptors and is passed whether it must not wait.
/// If it finds nothing although something is on its way through tipcd, calls it once more after that has been delivered.
/// `glances` says whether the caller does not wait anyway, `may_repeat` whether the call can be repeated.
fn awaited(glances: bool, may_repeat: bool, mut real: impl FnMut(bool) -> c_int) -> c_int {
    if table::is_empty() || !may_repeat || !traffic::is_pending() {
        return real(false);
    }
    if glances {
        traffic::settle();
        return real(true);
    }
    let ready = real(false);
    if ready != 0 {
        return ready;
    }
    traffic::settle();
    real(true)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    awaited(timeout == 0, true, |at_once| {
        // SAFETY: guaranteed by the caller.
        unsafe { real::epoll_wait(epoll, events, room, if at_once { 0 } else { timeout }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    awaited(timeout == 0, true, |at_once| {
        // SAFETY: guaranteed by the caller.
        unsafe { real::epoll_pwait(epoll, events, room, if at_once { 0 } else { timeout }, mask) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn select(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let glances = limit.as_ref().is_some_and(|limit| limit.tv_sec == 0 && limit.tv_usec == 0);
        let mut sets = FdSets::of([readable, writable, exceptional], count);
        let are_whole = sets.are_whole();
        let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
        awaited(glances, are_whole, |at_once| {
            if at_once {
                sets.restore();
            }
            let limit = if at_once { &raw mut zero } else { limit };
            real::select(count, readable, writable, exceptional, limit)
        })
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sets = FdSets::of([readable, writable, exceptional], count);
        let are_whole = sets.are_whole();
        awaited(is_zero(limit), are_whole, |at_once| {
            if at_once {
                sets.restore();
            }
            let limit = if at_once { &raw const AT_ONCE } else { limit };
            real::pselect(count, readable, writable, exceptional, limit, mask)
        })
    }
}
