//! Calls that bypass the C library's functions. On a TIPC socket, `syscall(2)` does the same as the function that has
//! the system call's name. io_uring is refused unless the user permits it, because no library can redirect its
//! operations.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use libc::{iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, timespec};

use super::descriptors::refused;
use super::outcome::{errno, set_errno};
use super::{calls, descriptors, options, real, receiving, sending, waiting};
use crate::table::{self, find};

/// Name and value of the environment variable that permits io_uring.
const PERMIT: (&str, &str) = ("TIPCD_IO_URING", "allow");

/// Whether the program may use io_uring. If not, reports this once on standard error, because the program itself gets
/// only an errno.
fn may_use_io_uring() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| {
        let (name, value) = PERMIT;
        let permitted = std::env::var_os(name).is_some_and(|is| is == value);
        if !permitted {
            eprintln!(
                "crossway-tipc-preload: io_uring is refused (ENOSYS), because its operations would bypass this library, \
                 which provides the program's TIPC sockets; configure the program to use plain system calls or, if it \
                 never uses io_uring on TIPC sockets, set {name}={value}"
            );
        }
        permitted
    })
}

/// Whether a system call must be handled by this library's function of that name: because it concerns a TIPC socket,
/// may receive one, or closes or replaces a descriptor.
///
/// # Safety
/// `words` are the arguments of the system call.
unsafe fn is_ours(number: c_long, words: [c_long; 6]) -> bool {
    let is_socket = |word: c_long| find(word as c_int).is_some();
    match number {
        libc::SYS_socket | libc::SYS_socketpair => words[0] as c_int == libc::AF_TIPC,
        // The message may contain a TIPC socket.
        libc::SYS_recvmsg => true,
        // Even if there is no TIPC socket: the library's own descriptor must survive.
        libc::SYS_close | libc::SYS_close_range | libc::SYS_dup3 => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => true,
        _ if table::is_empty() => false,
        libc::SYS_splice => is_socket(words[0]) || is_socket(words[2]),
        // SAFETY: guaranteed by the caller.
        libc::SYS_ppoll => unsafe { waiting::has_socket(words[0] as _, words[1] as nfds_t) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: guaranteed by the caller.
        libc::SYS_poll => unsafe { waiting::has_socket(words[0] as _, words[1] as nfds_t) },
        _ => is_socket(words[0]),
    }
}

/// Handles a system call with this library's function of the same name. Returns `None` if there is no such function.
/// Unlike the system call, ppoll does not change its timeout.
///
/// # Safety
/// The same as for the function of that name.
unsafe fn made(number: c_long, words: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = words;
    let (fd, long) = (a as c_int, |outcome: c_int| c_long::from(outcome));
    // SAFETY: the arguments are those of the function of that name, as guaranteed by the caller; pointers are as wide as a long.
    Some(unsafe {
        match number {
            libc::SYS_socket => long(calls::socket(fd, b as c_int, c as c_int)),
            libc::SYS_socketpair => {
                long(calls::socketpair(fd, b as c_int, c as c_int, d as *mut c_int))
            }
            libc::SYS_bind => long(calls::bind(fd, b as *const sockaddr, c as socklen_t)),
            libc::SYS_connect => long(calls::connect(fd, b as *const sockaddr, c as socklen_t)),
            libc::SYS_listen => long(calls::listen(fd, b as c_int)),
            libc::SYS_accept => long(calls::accept(fd, b as *mut sockaddr, c as *mut socklen_t)),
            libc::SYS_accept4 => {
                long(calls::accept4(fd, b as *mut sockaddr, c as *mut socklen_t, d as c_int))
            }
            libc::SYS_getsockname => {
                long(calls::getsockname(fd, b as *mut sockaddr, c as *mut socklen_t))
            }
            libc::SYS_getpeername => {
                long(calls::getpeername(fd, b as *mut sockaddr, c as *mut socklen_t))
            }
            libc::SYS_shutdown => long(calls::shutdown(fd, b as c_int)),
            libc::SYS_setsockopt => long(options::setsockopt(
                fd,
                b as c_int,
                c as c_int,
                d as *const c_void,
                e as socklen_t,
            )),
            libc::SYS_getsockopt => long(options::getsockopt(
                fd,
                b as c_int,
                c as c_int,
                d as *mut c_void,
                e as *mut socklen_t,
            )),
            libc::SYS_ioctl => long(options::ioctl(fd, b as c_ulong, c as *mut c_void)),
            libc::SYS_sendto => sending::sendto(
                fd,
                b as *const c_void,
                c as size_t,
                d as c_int,
                e as *const sockaddr,
                f as socklen_t,
            ) as c_long,
            libc::SYS_sendmsg => sending::sendmsg(fd, b as *const msghdr, c as c_int) as c_long,
            libc::SYS_sendmmsg => {
                long(sending::sendmmsg(fd, b as *mut mmsghdr, c as c_uint, d as c_int))
            }
            libc::SYS_write => sending::write(fd, b as *const c_void, c as size_t) as c_long,
            libc::SYS_writev => sending::writev(fd, b as *const iovec, c as c_int) as c_long,
            libc::SYS_recvfrom => receiving::recvfrom(
                fd,
                b as *mut c_void,
                c as size_t,
                d as c_int,
                e as *mut sockaddr,
                f as *mut socklen_t,
            ) as c_long,
            libc::SYS_recvmsg => receiving::recvmsg(fd, b as *mut msghdr, c as c_int) as c_long,
            libc::SYS_recvmmsg => long(receiving::recvmmsg(
                fd,
                b as *mut mmsghdr,
                c as c_uint,
                d as c_int,
                e as *mut timespec,
            )),
            libc::SYS_read => receiving::read(fd, b as *mut c_void, c as size_t) as c_long,
            libc::SYS_readv => receiving::readv(fd, b as *const iovec, c as c_int) as c_long,
            libc::SYS_preadv2 | libc::SYS_pwritev2 => refused(libc::EOPNOTSUPP) as c_long,
            libc::SYS_sendfile => {
                descriptors::sendfile(fd, b as c_int, c as *mut off_t, d as size_t) as c_long
            }
            libc::SYS_splice => descriptors::splice(
                fd,
                b as *mut off_t,
                c as c_int,
                d as *mut off_t,
                e as size_t,
                f as c_uint,
            ) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => long(waiting::poll(a as *mut pollfd, b as nfds_t, c as c_int)),
            libc::SYS_ppoll => long(waiting::ppoll(
                a as *mut pollfd,
                b as nfds_t,
                c as *const timespec,
                d as *const libc::sigset_t,
            )),
            libc::SYS_close => long(descriptors::close(fd)),
            libc::SYS_close_range => {
                long(descriptors::close_range(a as c_uint, b as c_uint, c as c_int))
            }
            libc::SYS_dup => long(descriptors::dup(fd)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => long(descriptors::dup2(fd, b as c_int)),
            libc::SYS_dup3 => long(descriptors::dup3(fd, b as c_int, c as c_int)),
            libc::SYS_fcntl => long(descriptors::fcntl(fd, b as c_int, c)),
            _ => return None,
        }
    })
}

/// In C, `syscall` is variadic. Its arguments are passed in the same registers and places as six fixed arguments.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let words = [a, b, c, d, e, f];
    if number == libc::SYS_io_uring_setup && !may_use_io_uring() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the arguments of a system call are those of the function of that name; if there is none here, the C library's makes the call.
    unsafe {
        let outcome = if is_ours(number, words) { made(number, words) } else { None };
        outcome.unwrap_or_else(|| real::syscall(number, a, b, c, d, e, f))
    }
}

/// Defines the functions with which liburing creates a ring. They return -ENOSYS if io_uring is refused or liburing
/// lacks the function.
macro_rules! rings {
    ($(fn $name:ident($($arg:ident: $kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> c_int {
                if !may_use_io_uring() {
                    return -libc::ENOSYS;
                }
                let before = errno();
                set_errno(0);
                // SAFETY: guaranteed by the caller.
                let outcome = unsafe { real::$name($($arg),*) };
                // This library sets it if there is no such function; liburing does not.
                let missing = errno() == libc::ENOSYS;
                set_errno(before);
                if missing { -libc::ENOSYS } else { outcome }
            }
        )*
    };
}

rings! {
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void);
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: size_t);
    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, flags: c_uint);
}
