//! What poll and epoll report of a moved connection that has ended. A UNIX stream hangs up when its peer closes; a TCP connection
//! does so only when both ends have closed it, or by a reset, which it shows as an error until it is reported.

use std::ffi::{c_int, c_short};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crossway_sys::real::{errno, set_errno};
use libc::{epoll_event, nfds_t, pollfd};

use super::real;
use crate::table::{self, Kind, RESET};

// The events of epoll have the same numbers.
const HUNG_UP: u32 = libc::POLLHUP as u32;
const FAILED: u32 = libc::POLLERR as u32;

/// What TCP reports of the connection of which its stream has reported `shown`, which contains [`HUNG_UP`].
fn as_tcp(fd: c_int, shown: u32) -> u32 {
    let Some(entry) = table::moved(fd) else { return shown };
    let Some(aside) = entry.aside() else { return shown };
    let mut both = [fd, aside].map(|fd| pollfd { fd, events: 0, revents: 0 });
    let before = errno();
    // SAFETY: two structures, which outlive the call.
    let outcome = unsafe { real::poll(both.as_mut_ptr(), 2, 0) };
    set_errno(before);
    let [stream, tcp] = both.map(|one| u32::from(one.revents.cast_unsigned()));
    // An event of epoll may be that of another descriptor, for which the program has passed the same data.
    if outcome < 0 || stream & HUNG_UP == 0 {
        return shown;
    }
    let shown = shown | tcp & FAILED;
    let is_reset = shown & FAILED != 0 || entry.has(RESET);
    // Who waits for nothing else would wait in vain, and be woken all the time.
    if is_reset || tcp & HUNG_UP != 0 || shown == HUNG_UP { shown } else { shown & !HUNG_UP }
}

/// Corrects what poll has reported of these descriptors. Returns its `outcome`.
///
/// # Safety
/// `fds` points to `count` structures if `outcome` is positive.
#[inline]
pub(super) unsafe fn polled(fds: *mut pollfd, count: nfds_t, outcome: c_int) -> c_int {
    if outcome > 0 && table::has_moved() {
        for n in 0..count as usize {
            // SAFETY: guaranteed by the caller.
            let revents = unsafe { &raw mut (*fds.add(n)).revents };
            // SAFETY: as above. The program's structures may lie anywhere.
            let shown = u32::from(unsafe { revents.read_unaligned() }.cast_unsigned());
            if shown & (HUNG_UP | FAILED) == HUNG_UP {
                // SAFETY: as above; the kernel has written there.
                unsafe {
                    let fd = (&raw const (*fds.add(n)).fd).read_unaligned();
                    revents.write_unaligned(as_tcp(fd, shown) as c_short);
                }
            }
        }
    }
    outcome
}

/// A registration with epoll.
struct Registration {
    /// The instance plus 1, or 0.
    epoll: AtomicI32,
    data: AtomicU64,
}

/// The last registration of each moved descriptor. An event names its descriptor only by the data.
static REGISTRATIONS: [Registration; 16_384] =
    [const { Registration { epoll: AtomicI32::new(0), data: AtomicU64::new(0) } }; 16_384];
/// The highest descriptor that has one.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// Notes that a moved descriptor is registered with an epoll instance.
#[inline]
pub(super) fn registered(fd: c_int, epoll: c_int, data: u64) {
    if let Some(place) = usize::try_from(fd).ok().and_then(|fd| REGISTRATIONS.get(fd)) {
        place.data.store(data, Ordering::Relaxed);
        place.epoll.store(epoll + 1, Ordering::Relaxed);
        if HIGHEST.load(Ordering::Relaxed) < fd {
            HIGHEST.fetch_max(fd, Ordering::Relaxed);
        }
    }
}

/// The moved descriptor that is registered with this data.
fn find(epoll: c_int, data: u64) -> Option<c_int> {
    let is_it = |fd: c_int| {
        let place = usize::try_from(fd).ok().and_then(|fd| REGISTRATIONS.get(fd));
        place.is_some_and(|place| {
            place.epoll.load(Ordering::Relaxed) == epoll + 1
                && place.data.load(Ordering::Relaxed) == data
        }) && table::moved(fd).is_some()
    };
    // Many programs pass the number of the descriptor.
    let number = data as u32 as c_int;
    if is_it(number) {
        return Some(number);
    }
    let mut known = table::of_kind(Kind::Moved, 0, HIGHEST.load(Ordering::Relaxed));
    known.find(|(fd, _)| is_it(*fd)).map(|(fd, _)| fd)
}

/// Corrects the events that epoll has reported. Returns its `outcome`, their number.
///
/// # Safety
/// `events` points to at least `outcome` structures.
#[inline]
pub(super) unsafe fn reported(epoll: c_int, events: *mut epoll_event, outcome: c_int) -> c_int {
    if outcome > 0 && table::has_moved() {
        for n in 0..outcome as usize {
            // SAFETY: guaranteed by the caller; the structure may lie anywhere.
            let mut event = unsafe { events.add(n).read_unaligned() };
            if event.events & (HUNG_UP | FAILED) == HUNG_UP
                && let Some(fd) = find(epoll, event.u64)
            {
                event.events = as_tcp(fd, event.events);
                // SAFETY: as above; the kernel has written there.
                unsafe { events.add(n).write_unaligned(event) };
            }
        }
    }
    outcome
}
