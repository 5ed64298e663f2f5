//! Calls that receive messages with descriptors and other control data, which only UNIX sockets have; a moved connection is one
//! without them for the program.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, Instant};

use crossway_sys::real::set_errno;
use libc::{mmsghdr, msghdr, ssize_t, timespec};

use super::receiving::{DIFFERENT, at_end, receive_different, received};
use super::sending::{has_parts, len_of};
use super::waiting::awaiting_bytes;
use super::{lent, real};
use crate::moving;
use crate::table::{self, Entry};

/// Registers the descriptors in a received message that are ends of pairs.
///
/// # Safety
/// `message` has been filled in by recvmsg.
unsafe fn adopt_received(message: &msghdr) {
    // SAFETY: filled in by the kernel; the macros stay within the control data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(part) = header.as_ref() {
            if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(part).cast::<c_int>();
                let room = part.cmsg_len - libc::CMSG_LEN(0) as usize;
                for n in 0..room / size_of::<c_int>() {
                    let fd = data.add(n).read_unaligned();
                    if table::get(fd) != Entry::OTHER {
                        table::put(fd, Entry::OTHER);
                    }
                    moving::adopt_received(fd);
                }
            }
            header = libc::CMSG_NXTHDR(message, part);
        }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let Some(entry) = table::moved(fd).filter(|_| lent::is_writable(message, 1)) else {
        // SAFETY: guaranteed by the caller.
        let receive = |more| unsafe { real::recvmsg(fd, message, flags | more) };
        let outcome = awaiting_bytes(fd, flags, || receive(libc::MSG_DONTWAIT), || receive(0));
        // SAFETY: a message that was received without an error is readable.
        if outcome >= 0 && unsafe { (*message).msg_controllen } > 0 {
            let errno = crossway_sys::real::errno();
            // SAFETY: as above.
            unsafe { adopt_received(&*message) };
            set_errno(errno);
        }
        return outcome;
    };
    // SAFETY: readable and writable; the program's structure may lie anywhere.
    unsafe {
        let mut plain = message.read_unaligned();
        let has_name = !plain.msg_name.is_null();
        if has_name && plain.msg_namelen.cast_signed() < 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        plain.msg_name = std::ptr::null_mut();
        plain.msg_namelen = 0;
        // The kernel refuses parts that it cannot read.
        let outcome = if flags & DIFFERENT != 0 && has_parts(&plain) {
            let bytes = match plain.msg_iovlen {
                0 => std::ptr::null_mut(),
                _ => plain.msg_iov.read_unaligned().iov_base,
            };
            plain.msg_controllen = 0;
            plain.msg_flags = 0;
            receive_different(fd, entry, bytes, len_of(&plain), flags)
        } else {
            let plain = &raw mut plain;
            let receive = |more| real::recvmsg(fd, plain, flags | more);
            awaiting_bytes(fd, flags, || receive(libc::MSG_DONTWAIT), || receive(0))
        };
        if outcome < 0 {
            return received(fd, 1, outcome);
        }
        if has_name {
            (&raw mut (*message).msg_namelen).write_unaligned(0);
        }
        (&raw mut (*message).msg_controllen).write_unaligned(plain.msg_controllen);
        (&raw mut (*message).msg_flags).write_unaligned(plain.msg_flags);
        if outcome == 0 && len_of(&plain) > 0 { at_end(fd, entry) } else { outcome }
    }
}

/// The kernel's maximum number of messages per call (UIO_MAXIOV).
const MOST_MESSAGES: c_uint = 1024;

/// The time in a structure of the program; `None` if it is not valid.
pub(super) fn duration(limit: &timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(limit.tv_nsec).ok().filter(|ns| *ns < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(limit.tv_sec).ok()?, nanoseconds))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    if table::moved(fd).is_none() {
        // SAFETY: guaranteed by the caller.
        let outcome = unsafe { real::recvmmsg(fd, messages, count, flags, limit) };
        for n in 0..usize::try_from(outcome).unwrap_or(0) {
            // SAFETY: the kernel has filled in these messages.
            let message = unsafe { &(*messages.add(n)).msg_hdr };
            if message.msg_controllen > 0 {
                // SAFETY: as above.
                unsafe { adopt_received(message) };
            }
        }
        return outcome;
    }
    if !limit.is_null() && !lent::is_writable(limit, 1) {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: NULL, or readable; the program's structure may lie anywhere.
    let time = (!limit.is_null()).then(|| duration(&unsafe { limit.read_unaligned() }));
    if time == Some(None) {
        set_errno(libc::EINVAL);
        return -1;
    }
    let until = time.flatten().and_then(|time| Instant::now().checked_add(time));
    let mut flags = flags;
    let mut done = 0;
    while done < count.min(MOST_MESSAGES) {
        let message = messages.wrapping_add(done as usize);
        if !lent::is_writable(message, 1) {
            set_errno(libc::EFAULT);
            break;
        }
        let only_once = flags & !libc::MSG_WAITFORONE;
        // SAFETY: writable, and as guaranteed by the caller.
        let outcome = unsafe { recvmsg(fd, &raw mut (*message).msg_hdr, only_once) };
        if outcome < 0 {
            break;
        }
        // SAFETY: as above.
        unsafe { (&raw mut (*message).msg_len).write_unaligned(outcome as c_uint) };
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        // The kernel, too, looks at the time only after a message.
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
    }
    if done == 0 && count > 0 {
        return -1;
    }
    if let Some(until) = until {
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: writable, as there is a time.
        unsafe { limit.write_unaligned(crossway_sys::clock::timespec(left)) };
    }
    done as c_int
}
