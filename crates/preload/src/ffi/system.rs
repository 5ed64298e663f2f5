//! Calls on descriptors by their numbers, past the functions of this library.

use std::ffi::c_int;
use std::net::SocketAddr;

use crossway_sys::socket::internet;
use libc::{sockaddr, socklen_t};

use super::{events, lent, real};
use crate::spin;
use crate::watch::Watch;

/// The descriptors that are open in this process.
pub(crate) fn open_descriptors() -> Vec<c_int> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Registers a descriptor with an epoll instance. An instance that is gone needs no registration.
pub(crate) fn watch(fd: c_int, watch: Watch) {
    let mut event = libc::epoll_event { events: watch.events, u64: watch.data };
    // SAFETY: one structure, which outlives the call.
    let outcome = unsafe { real::epoll_ctl(watch.epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
    if outcome == 0 {
        spin::note_epoll(watch.epoll);
        events::registered(fd, watch.epoll, watch.data);
    }
}

/// Removes the registration of a descriptor.
pub(crate) fn unwatch(fd: c_int, watch: Watch) {
    // SAFETY: integers; the kernel ignores the pointer.
    unsafe {
        real::epoll_ctl(watch.epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut());
    }
}

/// Whether the address is the one that dissolves a connection, of the family AF_UNSPEC.
///
/// # Safety
/// As for connect.
pub(super) unsafe fn is_unspecified(pointer: *const sockaddr, len: socklen_t) -> bool {
    // SAFETY: long enough for the family.
    !pointer.is_null()
        && len as usize >= size_of::<u16>()
        && c_int::from(unsafe { pointer.cast::<u16>().read_unaligned() }) == libc::AF_UNSPEC
}

/// The Internet address behind a pointer; `None` if it is NULL, too short or of another family.
///
/// # Safety
/// `pointer` is NULL, or points to `len` readable bytes.
pub(super) unsafe fn internet_address(
    pointer: *const sockaddr,
    len: socklen_t,
) -> Option<SocketAddr> {
    if pointer.is_null() {
        return None;
    }
    let len = (len as usize).min(size_of::<libc::sockaddr_in6>());
    // SAFETY: readable, as guaranteed by the caller.
    internet::address_of(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
}

/// Writes as much of an address as fits to the program's buffer, and its full length to `len`. The error is that of getsockname.
///
/// # Safety
/// As for getsockname.
pub(super) unsafe fn give_address(
    address: SocketAddr,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), c_int> {
    let raw = internet::raw_address(address);
    if !lent::is_writable(len, 1) {
        return Err(libc::EFAULT);
    }
    // SAFETY: readable.
    let room = unsafe { len.read_unaligned() }.cast_signed();
    let room = usize::try_from(room).map_err(|_| libc::EINVAL)?.min(raw.len());
    if !lent::is_writable(to.cast::<u8>(), room) {
        return Err(libc::EFAULT);
    }
    // SAFETY: both are writable.
    unsafe {
        std::ptr::copy_nonoverlapping(raw.as_ptr(), to.cast(), room);
        len.write_unaligned(raw.len() as socklen_t);
    }
    Ok(())
}
