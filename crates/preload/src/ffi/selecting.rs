//! Calls that wait for sets of descriptors.

use std::ffi::c_int;
use std::time::Duration;

use crossway_sys::fd_sets::FdSets;
use libc::{fd_set, sigset_t, timespec, timeval};

use super::waiting::{awaited, of_timespec, with_timespec};
use super::{lent, real};
use crate::spin;

/// Waits for the sets of a select, which are restored before `real` reads them. Returns its result; `None` if no connection is
/// among them.
///
/// # Safety
/// As for select.
unsafe fn selected(
    count: c_int,
    places: [*mut fd_set; 3],
    limit: Option<Duration>,
    real: impl Fn(Option<Duration>, *const sigset_t) -> c_int,
) -> Option<c_int> {
    // The kernel refuses sets that it cannot read.
    let words = usize::try_from(count).unwrap_or(0).div_ceil(usize::BITS as usize);
    let are_lent =
        |place: &*mut fd_set| place.is_null() || lent::is_writable(place.cast::<usize>(), words);
    if !places.iter().all(are_lent) {
        return None;
    }
    // SAFETY: readable.
    let sets = unsafe { FdSets::of(places, count) };
    let fd = sets.first(spin::is_connection).filter(|_| sets.are_whole())?;
    let sets = std::cell::RefCell::new(sets);
    Some(awaited(fd, limit, |left, mask| {
        // SAFETY: as above. The first call finds what is kept.
        unsafe { sets.borrow_mut().restore() };
        real(left, mask)
    }))
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
        if !spin::may_look() {
            return real::select(count, readable, writable, exceptional, limit);
        }
        let whole = limit.as_ref().map(|limit| {
            let micros = u64::try_from(limit.tv_usec).ok()?;
            Some(
                Duration::from_secs(u64::try_from(limit.tv_sec).ok()?)
                    + Duration::from_micros(micros),
            )
        });
        let sets = [readable, writable, exceptional];
        // The kernel refuses negative limits.
        if whole != Some(None) {
            let begin = std::time::Instant::now();
            // Unlike select, pselect does not say what is left of the limit.
            let real = |left, mask| {
                with_timespec(left, |left| {
                    real::pselect(count, readable, writable, exceptional, left, mask)
                })
            };
            if let Some(ready) = selected(count, sets, whole.flatten(), real) {
                // Linux says what is left of the limit.
                if let (Some(limit), Some(whole)) = (limit.as_mut(), whole.flatten()) {
                    let left = whole.saturating_sub(begin.elapsed());
                    limit.tv_sec = left.as_secs().try_into().unwrap_or(libc::time_t::MAX);
                    limit.tv_usec = left.subsec_micros() as libc::suseconds_t;
                }
                return ready;
            }
        }
        real::select(count, readable, writable, exceptional, limit)
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
        if spin::may_look()
            && let Ok(whole) = of_timespec(limit)
            && let Some(ready) =
                selected(count, [readable, writable, exceptional], whole, |left, held| {
                    let mask = if mask.is_null() { held } else { mask };
                    with_timespec(left, |left| {
                        real::pselect(count, readable, writable, exceptional, left, mask)
                    })
                })
        {
            return ready;
        }
        real::pselect(count, readable, writable, exceptional, limit, mask)
    }
}
