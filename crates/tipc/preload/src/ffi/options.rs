//! Calls for socket options, and ioctl.

use std::ffi::{c_int, c_ulong, c_void};

use crossway_sys::Errno;
use libc::socklen_t;

use super::outcome::done;
use super::{lent, real};
use crate::option::{self, Value};
use crate::table::find;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let mut theirs = find(fd).is_none();
    let mut outcome = 0;
    if let Some(socket) = find(fd) {
        outcome = done(|| {
            let len = c_int::try_from(len).map_err(|_| Errno::INVAL)?.unsigned_abs() as usize;
            let bytes = if value.is_null() {
                None
            } else {
                lent::readable(value, len)?;
                // SAFETY: `len` bytes, as guaranteed by the caller.
                Some(unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) })
            };
            theirs = !socket.set_option(level, name, bytes, len)?;
            Ok(())
        });
    }
    if theirs {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::setsockopt(fd, level, name, value, len) };
    }
    outcome
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let mut theirs = find(fd).is_none();
    let mut outcome = 0;
    if let Some(socket) = find(fd) {
        outcome = done(|| {
            let Some(got) = socket.option(level, name)? else {
                theirs = true;
                return Ok(());
            };
            let (bytes, most) = match &got {
                Value::Integer(number) => (&number.to_ne_bytes()[..], 4),
                Value::Bytes(bytes) => (&bytes[..], bytes.len()),
                Value::None => (&[][..], 0),
            };
            lent::writable(len.cast(), size_of::<socklen_t>())?;
            // SAFETY: checked above to be readable and writable.
            let room = c_int::try_from(unsafe { *len }).map_err(|_| Errno::INVAL)?;
            let room = room.unsigned_abs() as usize;
            // TIPC's own options are not returned partially.
            if level != libc::SOL_SOCKET && room < most {
                return Err(Errno::INVAL);
            }
            let count = room.min(most);
            lent::writable(value, count)?;
            // SAFETY: there is room for this many bytes, as guaranteed by the caller.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count);
                *len = count as socklen_t;
            }
            Ok(())
        });
    }
    if theirs {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::getsockopt(fd, level, name, value, len) };
    }
    outcome
}

/// The ioctl requests SIOCGETLINKNAME and SIOCGETNODEID of linux/tipc.h.
const LINK_NAME: c_ulong = 0x89e0;
const NODE_ID: c_ulong = 0x89e1;
/// The ioctl request SIOCATMARK, for which libc has no constant.
const AT_MARK: c_ulong = 0x8905;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ioctl(
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
) -> c_int {
    // Some C libraries declare it as an int, so the upper half is meaningless.
    let number = request & 0xffff_ffff;
    if find(fd).is_none()
        || !matches!(number, LINK_NAME | NODE_ID | libc::FIONREAD | libc::TIOCOUTQ | AT_MARK)
    {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    done(|| {
        let words = argument.cast::<u32>();
        match number {
            LINK_NAME | NODE_ID if lent::readable(argument, 8).is_err() => Err(Errno::FAULT),
            // SAFETY: {u32 peer, u32 bearer, char name[68]}, as the caller promises.
            LINK_NAME => unsafe {
                let name =
                    option::link_name(words.read_unaligned(), words.add(1).read_unaligned())?;
                lent::writable(words.add(2).cast(), name.len())?;
                std::ptr::copy_nonoverlapping(name.as_ptr(), words.add(2).cast(), name.len());
                Ok(())
            },
            // SAFETY: {u32 peer, char id[16]}, as the caller promises.
            NODE_ID => unsafe {
                let id = option::identity(words.read_unaligned())?;
                lent::writable(words.add(1).cast(), id.len())?;
                std::ptr::copy_nonoverlapping(id.as_ptr(), words.add(1).cast(), id.len());
                Ok(())
            },
            _ => Err(Errno::NOTTY),
        }
    })
}
