//! Calls that wait for descriptors. With a CPU budget, those that wait for a connection look at it for a moment before they
//! sleep; without one, they are the kernel's.

use std::ffi::c_int;
use std::ptr::null;
use std::time::Duration;

use crossway_sys::real::{errno, set_errno};
use crossway_sys::socket::twin;
use libc::{epoll_event, nfds_t, pollfd, sigset_t, size_t, ssize_t, timespec};

use super::receiving::limit_of;
use super::{borrow, events, lent, real};
use crate::spin;
use crate::table::{self, Kind};

/// Entries of a poll that are searched for a connection.
const SEARCHED: usize = 64;

/// The first connection among the descriptors of a poll that the kernel has read.
///
/// # Safety
/// `fds` is NULL or points to `count` structures.
unsafe fn connection(fds: *const pollfd, count: nfds_t) -> Option<c_int> {
    if fds.is_null() {
        return None;
    }
    // SAFETY: `count` structures, as guaranteed by the caller.
    let fds = unsafe { std::slice::from_raw_parts(fds, count as usize) };
    fds.iter().take(SEARCHED).map(|entry| entry.fd).find(|fd| spin::is_connection(*fd))
}

/// The epoll instance, if connections are registered with it.
#[inline]
fn instance(epoll: c_int) -> Option<c_int> {
    (spin::is_on() && table::get(epoll).kind() == Kind::Epoll).then_some(epoll)
}

/// Waits for `fd` by `real`, which is passed the time that is left and the signals to hold back (NULL: those that are held
/// back), until it returns something else than 0.
pub(super) fn awaited(
    fd: c_int,
    limit: Option<Duration>,
    real: impl Fn(Option<Duration>, *const sigset_t) -> c_int,
) -> c_int {
    let errno_before = errno();
    let ready = real(Some(Duration::ZERO), null());
    if ready != 0 || limit.is_some_and(|limit| limit.is_zero()) {
        if ready >= 0 {
            set_errno(errno_before);
        }
        return ready;
    }
    awaited_again(fd, limit, real)
}

/// The same after a look in vain.
fn awaited_again(
    fd: c_int,
    limit: Option<Duration>,
    real: impl Fn(Option<Duration>, *const sigset_t) -> c_int,
) -> c_int {
    let errno_before = errno();
    let look = || Some(real(Some(Duration::ZERO), null())).filter(|ready| *ready != 0);
    let ready = spin::wait(fd, limit, look, |spent, signals| {
        // Those that have come meanwhile interrupt the call.
        let mask = signals.as_ref().map_or(null(), |held| std::ptr::from_ref(held.before()));
        real(limit.map(|limit| limit.saturating_sub(spent)), mask)
    });
    if ready >= 0 {
        set_errno(errno_before);
    }
    ready
}

/// A limit of poll and epoll_wait; negative for none.
fn of_ms(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// The same for the call: rounded up, since it must not end early.
fn in_ms(limit: Option<Duration>) -> c_int {
    limit
        .map_or(-1, |limit| c_int::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX))
}

/// A valid limit of ppoll, epoll_pwait2 and pselect; the error is one that the kernel refuses.
///
/// # Safety
/// `limit` is NULL or points to a structure.
pub(super) unsafe fn of_timespec(limit: *const timespec) -> Result<Option<Duration>, ()> {
    // SAFETY: guaranteed by the caller.
    unsafe { limit.as_ref() }
        .map(super::messages::duration)
        .map_or(Ok(None), |limit| limit.map(Some).ok_or(()))
}

/// Calls `real` with a limit as these functions take it.
pub(super) fn with_timespec<T>(
    limit: Option<Duration>,
    real: impl FnOnce(*const timespec) -> T,
) -> T {
    let left = limit.map(crossway_sys::clock::timespec);
    real(left.as_ref().map_or(null(), std::ptr::from_ref))
}

/// What a look returns while nothing is there.
fn is_empty(outcome: ssize_t) -> bool {
    outcome < 0 && errno() == libc::EAGAIN
}

/// Receives by `sleep`, which may block, and looks by `look`, which does not, for a moment before, if the descriptor is a
/// connection that may be awaited actively.
#[inline]
pub(super) fn awaiting_bytes(
    fd: c_int,
    flags: c_int,
    look: impl Fn() -> ssize_t,
    sleep: impl FnOnce() -> ssize_t,
) -> ssize_t {
    // With MSG_WAITALL, a look would take a part of what is waited for.
    const NOT_SO: c_int = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_ERRQUEUE;
    if !spin::is_on() || flags & NOT_SO != 0 || !spin::is_connection(fd) {
        return sleep();
    }
    let before = errno();
    let first = look();
    if !is_empty(first) {
        if first >= 0 {
            set_errno(before);
        }
        return first;
    }
    if borrow(fd).and_then(twin::waits_plainly) != Some(false) {
        set_errno(libc::EAGAIN);
        return first;
    }
    let found = || Some(look()).filter(|outcome| !is_empty(*outcome));
    let outcome = spin::wait(fd, None, found, |_, signals| {
        let interrupts =
            signals.as_ref().is_some_and(|held| held.interrupts(|| limit_of(fd).is_some()));
        // The program handles them now.
        drop(signals);
        if interrupts {
            set_errno(libc::EINTR);
            return -1;
        }
        sleep()
    });
    if outcome >= 0 {
        set_errno(before);
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { events::polled(fds, count, poll_awaited(fds, count, timeout)) }
}

/// As poll, with the events of the streams of moved connections.
///
/// # Safety
/// As for poll.
unsafe fn poll_awaited(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if timeout == 0 || !spin::may_look() {
            return real::poll(fds, count, timeout);
        }
        let ready = real::poll(fds, count, 0);
        if ready != 0 {
            return ready;
        }
        match connection(fds, count) {
            Some(fd) => awaited_again(fd, of_ms(timeout), |left, mask| match mask.is_null() {
                true => real::poll(fds, count, in_ms(left)),
                false => with_timespec(left, |left| real::ppoll(fds, count, left, mask)),
            }),
            None => real::poll(fds, count, timeout),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    // The original ends the program if there is not enough room.
    // SAFETY: guaranteed by the caller.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__poll_chk(fds, count, timeout, room);
        }
        poll(fds, count, timeout)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { events::polled(fds, count, ppoll_awaited(fds, count, limit, mask)) }
}

/// As ppoll, with the events of the streams of moved connections.
///
/// # Safety
/// As for ppoll.
unsafe fn ppoll_awaited(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if spin::may_look()
            && let Ok(whole) = of_timespec(limit)
        {
            // The kernel reads the structures first, and refuses a bad pointer.
            let ready =
                with_timespec(Some(Duration::ZERO), |now| real::ppoll(fds, count, now, mask));
            if ready != 0 || whole.is_some_and(|whole| whole.is_zero()) {
                return ready;
            }
            if let Some(fd) = connection(fds, count) {
                return awaited_again(fd, whole, |left, held| {
                    let mask = if mask.is_null() { held } else { mask };
                    with_timespec(left, |left| real::ppoll(fds, count, left, mask))
                });
            }
        }
        real::ppoll(fds, count, limit, mask)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: as for __poll_chk.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__ppoll_chk(fds, count, limit, mask, room);
        }
        ppoll(fds, count, limit, mask)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let outcome = match instance(epoll) {
            Some(fd) => awaited(fd, of_ms(timeout), |left, mask| {
                real::epoll_pwait(epoll, events, room, in_ms(left), mask)
            }),
            None => real::epoll_wait(epoll, events, room, timeout),
        };
        events::reported(epoll, events, outcome)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let outcome = match instance(epoll) {
            Some(fd) => awaited(fd, of_ms(timeout), |left, held| {
                let mask = if mask.is_null() { held } else { mask };
                real::epoll_pwait(epoll, events, room, in_ms(left), mask)
            }),
            None => real::epoll_pwait(epoll, events, room, timeout, mask),
        };
        events::reported(epoll, events, outcome)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let outcome = if let Some(fd) = instance(epoll)
            && (limit.is_null() || lent::is_readable(limit, 1))
            && let Ok(limit) = of_timespec(limit)
        {
            awaited(fd, limit, |left, held| {
                let mask = if mask.is_null() { held } else { mask };
                with_timespec(left, |left| real::epoll_pwait2(epoll, events, room, left, mask))
            })
        } else {
            real::epoll_pwait2(epoll, events, room, limit, mask)
        };
        events::reported(epoll, events, outcome)
    }
}
