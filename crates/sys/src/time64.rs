//! Functions with times of 64 bits, on processors whose C library has two forms of them: programs compiled for the later form
//! (`_TIME_BITS=64`, as Debian compiles for ARM) call them by other names.
//!
//! A preloaded library leads them to its functions of the earlier form ([`time64_functions!`](crate::time64_functions)). Times
//! that these cannot express, of more than 68 years, become the longest that they can. Options and control data with
//! times have numbers of their own in the later form, which the kernel knows since Linux 5.1, so they are passed on as they are.

use std::time::Duration;

use libc::{suseconds_t, time_t, timespec, timeval};

use crate::clock;

/// `struct timespec` with 64 bits for the seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timespec64 {
    seconds: i64,
    // On processors with the most significant byte first, the C library has them in the other order.
    nanoseconds: i32,
    _padding: i32,
}

/// `struct timeval` with 64 bits for both.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeval64 {
    seconds: i64,
    microseconds: i64,
}

/// The nearest number that fits.
fn nearest<T: TryFrom<i64>>(number: i64, least: T, most: T) -> T {
    number.try_into().unwrap_or(if number < 0 { least } else { most })
}

/// As 64 bits.
fn whole(number: impl Into<i64>) -> i64 {
    number.into()
}

impl Timespec64 {
    /// The earlier form; a time that is not valid is not valid in it either.
    pub fn earlier(self) -> timespec {
        let tv_sec = nearest(self.seconds, time_t::MIN, time_t::MAX);
        timespec { tv_sec, tv_nsec: self.nanoseconds as libc::c_long }
    }

    /// From the earlier form.
    pub fn later(time: timespec) -> Self {
        let nanoseconds = whole(time.tv_nsec) as i32;
        Self { seconds: whole(time.tv_sec), nanoseconds, _padding: 0 }
    }
}

impl Timeval64 {
    /// The earlier form; a time that is not valid is not valid in it either.
    pub fn earlier(self) -> timeval {
        // The C library accepts more than a million microseconds.
        if let (Ok(seconds), Ok(micros)) = (self.seconds.try_into(), self.microseconds.try_into())
            && let Some(time) =
                Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))
        {
            let time = clock::timespec(time);
            return timeval { tv_sec: time.tv_sec, tv_usec: (time.tv_nsec / 1000) as suseconds_t };
        }
        timeval { tv_sec: -1, tv_usec: 0 }
    }

    /// From the earlier form.
    pub fn later(time: timeval) -> Self {
        Self { seconds: whole(time.tv_sec), microseconds: whole(time.tv_usec) }
    }
}

/// Defines the functions with times of 64 bits by those of the earlier form, given by their paths in the calling module; that
/// of epoll_pwait2 only if it is named. Does nothing on processors whose C library has only one form.
#[macro_export]
macro_rules! time64_functions {
    (use {$($places:tt)*} $(with $epoll_pwait2:ident)?) => {
        #[cfg(all(target_env = "gnu", target_arch = "arm"))]
        mod time64_functions {
            use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
            use std::ptr::{null, null_mut};

            use super::{$($places)*};
            use $crate::time64::{Timespec64, Timeval64};
            use libc::{
                fd_set, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, socklen_t, ssize_t,
                timespec,
            };

            /// Calls `earlier` with a limit that is only read.
            ///
            /// # Safety
            /// `limit` is NULL or points to a structure.
            unsafe fn with<T>(
                limit: *const Timespec64,
                earlier: impl FnOnce(*const timespec) -> T,
            ) -> T {
                // SAFETY: guaranteed by the caller; the program's structure may lie anywhere.
                let limit = (!limit.is_null()).then(|| unsafe { limit.read_unaligned() }.earlier());
                earlier(limit.as_ref().map_or(null(), std::ptr::from_ref))
            }

            $crate::time64_functions!(@same
                __setsockopt64 = setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
                __getsockopt64 = getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
                __sendmsg64 = sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
                __sendmmsg64 = sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
                __recvmsg64 = recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
                __ioctl_time64 = ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
                __fcntl_time64 = fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;
            );

            $crate::time64_functions!(@limited
                __ppoll64 = ppoll(fds: *mut pollfd, count: nfds_t; mask: *const sigset_t);
                __ppoll64_chk = __ppoll_chk(fds: *mut pollfd, count: nfds_t; mask: *const sigset_t, room: size_t);
                __pselect64 = pselect(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set; mask: *const sigset_t);
            );

            $($crate::time64_functions!(@limited
                __epoll_pwait2_time64 = $epoll_pwait2(epoll: c_int, events: *mut libc::epoll_event, room: c_int; mask: *const sigset_t);
            );)?

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn __select64(
                count: c_int,
                readable: *mut fd_set,
                writable: *mut fd_set,
                exceptional: *mut fd_set,
                limit: *mut Timeval64,
            ) -> c_int {
                // SAFETY: guaranteed by the caller; the program's structure may lie anywhere.
                unsafe {
                    if limit.is_null() {
                        return select(count, readable, writable, exceptional, null_mut());
                    }
                    let mut left = limit.read_unaligned().earlier();
                    let ready = select(count, readable, writable, exceptional, &mut left);
                    limit.write_unaligned(Timeval64::later(left));
                    ready
                }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn __recvmmsg64(
                fd: c_int,
                messages: *mut mmsghdr,
                count: c_uint,
                flags: c_int,
                limit: *mut Timespec64,
            ) -> c_int {
                // SAFETY: as above.
                unsafe {
                    if limit.is_null() {
                        return recvmmsg(fd, messages, count, flags, null_mut());
                    }
                    let mut left = limit.read_unaligned().earlier();
                    let received = recvmmsg(fd, messages, count, flags, &mut left);
                    limit.write_unaligned(Timespec64::later(left));
                    received
                }
            }
        }
    };
    (@same $($name:ident = $earlier:ident($($arg:ident: $kind:ty),*) -> $ret:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $ret {
                // SAFETY: guaranteed by the caller.
                unsafe { $earlier($($arg),*) }
            }
        )*
    };
    (@limited $($name:ident = $earlier:ident($($arg:ident: $kind:ty),*; $($more:ident: $of:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $kind,)* limit: *const Timespec64, $($more: $of),*) -> c_int {
                // SAFETY: guaranteed by the caller.
                unsafe { with(limit, |limit| $earlier($($arg,)* limit, $($more),*)) }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_meaning_in_the_earlier_form() {
        let spec = |seconds, nanoseconds| Timespec64 { seconds, nanoseconds, _padding: 0 };
        for valid in [spec(0, 0), spec(5, 999_999_999), spec(i64::from(i32::MAX), 1)] {
            assert_eq!(Timespec64::later(valid.earlier()), valid);
        }
        assert_eq!(spec(i64::MAX, 7).earlier().tv_sec, time_t::MAX);
        assert!(spec(i64::MIN, 7).earlier().tv_sec < 0);
        assert!(spec(1, -1).earlier().tv_nsec < 0);
        let value = |seconds, microseconds| Timeval64 { seconds, microseconds };
        assert_eq!(Timeval64::later(value(2, 3).earlier()), value(2, 3));
        assert_eq!(Timeval64::later(value(2, 3_000_000_007).earlier()), value(3002, 7));
        assert_eq!(value(i64::MAX, 0).earlier().tv_sec, time_t::MAX);
        for refused in [value(-1, 0), value(0, -1), value(i64::MIN, 5)] {
            assert!(refused.earlier().tv_sec < 0);
        }
    }

    /// The structures of the C library (bits/types.h, struct___timespec64.h, struct___timeval64.h).
    const _: () = assert!(size_of::<Timespec64>() == 16 && size_of::<Timeval64>() == 16);
}
