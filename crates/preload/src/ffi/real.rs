//! The functions of the C library that this library replaces.

use std::ffi::c_int;

pub(super) use crossway_sys::real::c_library::*;
use libc::{epoll_event, sigset_t, timespec};

crossway_sys::real_functions! {
    pub(super)
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_pwait2(epoll: c_int, events: *mut epoll_event, room: c_int, limit: *const timespec, mask: *const sigset_t) -> c_int;
}
