//! Calls on descriptors by their numbers, past the functions of this library.

use std::ffi::c_int;
use std::net::SocketAddr;

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
    if pointer.is_null() || (len as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: long enough for the family, and for the structure of the family that is read.
    unsafe {
        match c_int::from(pointer.cast::<u16>().read_unaligned()) {
            libc::AF_INET => {
                let four = pointer.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = std::net::Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(four.sin_port)))
            }
            libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
                let six = pointer.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = std::net::Ipv6Addr::from(six.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(six.sin6_port)))
            }
            _ => None,
        }
    }
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
    let give = |raw: *const u8, full: usize| {
        if !lent::is_writable(len, 1) {
            return Err(libc::EFAULT);
        }
        // SAFETY: readable.
        let room = unsafe { len.read_unaligned() }.cast_signed();
        let room = usize::try_from(room).map_err(|_| libc::EINVAL)?.min(full);
        if !lent::is_writable(to.cast::<u8>(), room) {
            return Err(libc::EFAULT);
        }
        // SAFETY: both are writable, and `raw` is readable for `full` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(raw, to.cast(), room);
            len.write_unaligned(full as socklen_t);
        }
        Ok(())
    };
    match address {
        SocketAddr::V4(four) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: four.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*four.ip()).to_be() },
                sin_zero: [0; 8],
            };
            give((&raw const raw).cast(), size_of_val(&raw))
        }
        SocketAddr::V6(six) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: six.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: six.ip().octets() },
                sin6_scope_id: six.scope_id(),
            };
            give((&raw const raw).cast(), size_of_val(&raw))
        }
    }
}
