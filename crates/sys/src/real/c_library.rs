//! The functions that every preloaded library replaces, as the C library has them.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    FILE, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

crate::real_functions! {
    pub
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    fn send(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn recv(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec) -> c_int;
    fn read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn __read_chk(fd: c_int, bytes: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, bytes: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(fd: c_int, bytes: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn select(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, limit: *mut timeval) -> c_int;
    fn pselect(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(old: c_int, new: c_int) -> c_int;
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn fclose(file: *mut FILE) -> c_int;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}
