//! The functions of the C library and of liburing that this library replaces.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(super) use crossway_sys::real::c_library::*;
use libc::{FILE, iovec, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t};

crossway_sys::real_functions! {
    pub(super)
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    fn closefrom(first: c_int) -> ();
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t;
    fn splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int;
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: size_t) -> c_int;
    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
}
