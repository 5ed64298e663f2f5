//! What one end of a UNIX stream pair needs to take the place of one end of a TCP connection.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{DupFlags, Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, ipproto};

use super::internet::plain;
use crate::error::last_errno;

/// SO_NETNS_COOKIE (asm-generic/socket.h), since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;
/// The state of an established connection in struct tcp_info (linux/tcp.h).
const TCP_ESTABLISHED: u8 = 1;
/// The state of one that the peer has closed.
const TCP_CLOSE_WAIT: u8 = 8;

/// Reads an option as plain bytes.
fn option<const LEN: usize>(fd: impl AsFd, level: i32, name: i32) -> Result<[u8; LEN], Errno> {
    let mut value = [0; LEN];
    read_option(fd, level, name, &mut value).map(|_| value)
}

/// Reads an option as a program asks for it: as many bytes as there is room for; returns how many were written.
///
/// # Errors
/// [`Errno`] of getsockopt.
pub fn read_option(fd: impl AsFd, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: value and len outlive the call, and len says how many bytes value has.
    let outcome = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len)
    };
    if outcome == 0 { Ok((len as usize).min(value.len())) } else { Err(last_errno()) }
}

/// Sets an option as a program asks for it, on a TCP socket that nothing depends on.
///
/// # Errors
/// [`Errno`] of setsockopt.
pub fn write_option(fd: impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let (fd, len) = (fd.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: value outlives the call, and len says how many bytes it has. No option of a socket takes addresses of memory
    // that the kernel would write to later.
    let outcome = unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

/// A number that identifies the network namespace of a socket until the host restarts.
///
/// # Errors
/// Not a socket, or a kernel before 5.14.
pub fn network(fd: impl AsFd) -> Result<u64, Errno> {
    option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).map(u64::from_ne_bytes)
}

/// Whether the descriptor is a TCP socket over IPv4 or IPv6.
pub fn is_tcp(fd: impl AsFd) -> bool {
    sockopt::socket_protocol(fd) == Ok(Some(ipproto::TCP))
}

/// Whether the descriptor is a socket that listens for connections.
pub fn is_listening(fd: impl AsFd) -> bool {
    sockopt::socket_acceptconn(fd) == Ok(true)
}

/// Whether a TCP socket's connection is established, and neither end has closed it.
pub fn is_established(fd: impl AsFd) -> bool {
    // The state is the first byte of struct tcp_info.
    option::<1>(fd, libc::IPPROTO_TCP, libc::TCP_INFO) == Ok([TCP_ESTABLISHED])
}

/// Whether a TCP connection no longer takes bytes to send, because this end has shut down sending, in whichever process.
pub fn has_ended(fd: impl AsFd) -> bool {
    // All states but those of a connection, or of one that the peer alone has closed.
    option::<1>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
        .is_ok_and(|[state]| !matches!(state, TCP_ESTABLISHED | TCP_CLOSE_WAIT))
}

/// Whether the peer ended a TCP connection by a reset. Reports this once, like SO_ERROR.
pub fn was_reset(fd: impl AsFd) -> bool {
    matches!(sockopt::socket_error(fd), Ok(Err(Errno::CONNRESET)))
}

/// Reads and clears the error of a socket (SO_ERROR).
pub fn pending_error(fd: impl AsFd) -> Option<Errno> {
    sockopt::socket_error(fd).ok()?.err()
}

/// The own address of a connected socket, IPv4 addresses of IPv6 sockets as IPv4 addresses.
pub fn own_end(fd: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok().map(plain)
}

/// The two addresses of a connection as its `local` and its `remote` end; IPv4 addresses that IPv6 sockets report are given as
/// IPv4 addresses.
pub fn ends(fd: impl AsFd) -> Option<(SocketAddr, SocketAddr)> {
    let peer = rustix::net::getpeername(&fd).ok()??;
    Some((own_end(fd)?, SocketAddr::try_from(peer).ok().map(plain)?))
}

/// The port that a socket is bound to; `None` if it is not an Internet socket.
pub fn local_port(fd: impl AsFd) -> Option<u16> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok().map(|a| a.port())
}

/// Whether the descriptor is non-blocking; `None` if signals are sent for it (O_ASYNC, or an owner for SIGURG).
pub fn waits_plainly(fd: impl AsFd) -> Option<bool> {
    // SAFETY: F_GETOWN has no argument.
    let owner = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETOWN) };
    let flags = fcntl_getfl(fd).ok()?;
    let raises = owner != 0 || flags.bits() & libc::O_ASYNC as u32 != 0;
    (!raises).then(|| flags.contains(OFlags::NONBLOCK))
}

/// Makes a non-blocking UNIX stream socket, closed on exec.
///
/// # Errors
/// [`Errno`] of socket.
pub fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, rustix::net::SocketType::STREAM, flags, None)
}

/// Whether the descriptor is closed by exec.
pub fn closes_on_exec(fd: impl AsFd) -> bool {
    fcntl_getfd(fd).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
}

/// Lets exec close the descriptor or not.
pub fn set_close_on_exec(fd: impl AsFd, closes: bool) {
    let _ = fcntl_setfd(fd, if closes { FdFlags::CLOEXEC } else { FdFlags::empty() });
}

/// Whether a TCP socket has an option set that a UNIX stream cannot provide, among those that can be asked for.
pub fn is_special(tcp: impl AsFd) -> bool {
    /// From asm-generic/socket.h and linux/tcp.h, where the libc crate lacks them.
    const SO_ZEROCOPY: i32 = 60;
    const TCP_FASTOPEN_CONNECT: i32 = 30;
    const TCP_ULP: i32 = 31;
    let set = |level, name| option::<4>(&tcp, level, name).is_ok_and(|value| value != [0; 4]);
    /// The options of time stamps with 64-bit structures: SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING.
    const LATER: [i32; 3] = [63, 64, 65];
    [SO_ZEROCOPY, libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING]
        .into_iter()
        .chain(LATER)
        .any(|name| set(libc::SOL_SOCKET, name))
        || [TCP_ULP, TCP_FASTOPEN_CONNECT, libc::TCP_DEFER_ACCEPT, libc::TCP_REPAIR]
            .into_iter()
            .any(|name| set(libc::IPPROTO_TCP, name))
}

/// Options that decide how calls on the descriptor wait, which both families have.
const SHARED: [(i32, usize); 4] = [
    (libc::SO_RCVTIMEO, 16),
    (libc::SO_SNDTIMEO, 16),
    (libc::SO_RCVLOWAT, 4),
    (libc::SO_OOBINLINE, 4),
];

/// Whether an option of SOL_SOCKET must be set on the UNIX stream, too, when a program sets it on the TCP connection.
pub fn is_shared_option(name: i32) -> bool {
    /// SO_RCVTIMEO and SO_SNDTIMEO with 64-bit structures (asm-generic/socket.h).
    const LATER: [i32; 2] = [66, 67];
    SHARED.iter().any(|(shared, _)| *shared == name)
        || name == libc::SO_SNDBUF
        || LATER.contains(&name)
}

/// Gives a UNIX stream what the program has set on the TCP connection, and as much room ([`make_room`]).
///
/// # Errors
/// An option could not be read or set.
pub fn take_over(tcp: impl AsFd, unix: impl AsFd) -> Result<(), Errno> {
    for (name, len) in SHARED {
        let done =
            if len == 4 { copy::<4>(&tcp, &unix, name) } else { copy::<16>(&tcp, &unix, name) };
        done?;
    }
    make_room(&tcp, &unix)
}

/// As [`take_over`], if the program has set none of these options ([`shapes`]): then all connections of this host have the
/// same room, which is asked for once.
///
/// # Errors
/// An option could not be read or set.
pub fn take_over_defaults(tcp: impl AsFd, unix: impl AsFd) -> Result<(), Errno> {
    static ROOM: AtomicUsize = AtomicUsize::new(0);
    let mut room = ROOM.load(Ordering::Relaxed);
    if room == 0 {
        room = room_of(tcp)?;
        ROOM.store(room, Ordering::Relaxed);
    }
    sockopt::set_socket_send_buffer_size(&unix, room)
}

/// Whether an option of SOL_SOCKET changes what [`take_over`] gives to a UNIX stream.
pub fn shapes(name: i32) -> bool {
    is_shared_option(name)
        || matches!(name, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE | libc::SO_SNDBUFFORCE)
}

/// Gives a UNIX stream as much room for sending as a TCP connection has, as far as net.core.wmem_max allows. What a sender may
/// send ahead of its receiver is limited by the sender's buffer on a UNIX stream, and by the buffers of both ends on a TCP
/// connection; the peer's is taken to be as large as the own one.
///
/// # Errors
/// An option could not be read or set.
pub fn make_room(tcp: impl AsFd, unix: impl AsFd) -> Result<(), Errno> {
    sockopt::set_socket_send_buffer_size(&unix, room_of(tcp)?)
}

/// What the buffer for sending of a UNIX stream must be set to for as much room as a TCP connection has.
fn room_of(tcp: impl AsFd) -> Result<usize, Errno> {
    let sent = sockopt::socket_send_buffer_size(&tcp)?;
    let received = sockopt::socket_recv_buffer_size(&tcp)?;
    // The kernel doubles what is set.
    Ok(sent.saturating_add(received) / 2)
}

/// Whether the descriptor is open.
pub fn is_open(fd: impl AsFd) -> bool {
    fcntl_getfd(fd).is_ok()
}

fn copy<const LEN: usize>(tcp: impl AsFd, unix: impl AsFd, name: i32) -> Result<(), Errno> {
    let value = option::<LEN>(tcp, libc::SOL_SOCKET, name)?;
    let as_new =
        value == [0; LEN] || (name == libc::SO_RCVLOWAT && value[..4] == 1_i32.to_ne_bytes());
    if as_new { Ok(()) } else { write_option(unix, libc::SOL_SOCKET, name, &value) }
}

/// Accepts a connection without waiting; the new descriptor is blocking and closed on exec.
///
/// # Errors
/// EAGAIN if there is none, EMFILE if no descriptor is free.
pub fn accept_now(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(fd, SocketFlags::CLOEXEC)
}

/// Accepts a connection as a program asks for it, closed on exec in this process.
///
/// # Errors
/// [`Errno`] of accept4.
pub fn accept_as(
    fd: impl AsFd,
    is_nonblocking: bool,
) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = if is_nonblocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let (new, from) = rustix::net::acceptfrom_with(fd, flags | SocketFlags::CLOEXEC)?;
    Ok((new, from.and_then(|from| SocketAddr::try_from(from).ok())))
}

/// Lets a socket listen.
///
/// # Errors
/// [`Errno`] of listen.
pub fn listen_as(fd: impl AsFd, backlog: i32) -> Result<(), Errno> {
    rustix::net::listen(fd, backlog)
}

/// Connects a socket as a program asks for it.
///
/// # Errors
/// [`Errno`] of connect.
pub fn connect_as(fd: impl AsFd, to: SocketAddr) -> Result<(), Errno> {
    rustix::net::connect(fd, &to)
}

/// A copy of a descriptor whose number is at least `from`.
///
/// # Errors
/// EMFILE, or EINVAL if the limit of descriptors is not above `from`.
pub fn copy_above(fd: impl AsFd, from: RawFd, closes_on_exec: bool) -> Result<OwnedFd, Errno> {
    if closes_on_exec {
        rustix::io::fcntl_dupfd_cloexec(fd, from)
    } else {
        // SAFETY: F_DUPFD takes an integer.
        let new = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD, from) };
        if new < 0 {
            return Err(last_errno());
        }
        // SAFETY: the call above made this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(new) })
    }
}

/// Puts a copy of `new` at the number `at`, in place of what is there; nobody sees the number free.
///
/// # Errors
/// [`Errno`] of dup3.
pub fn put_at(new: impl AsFd, at: RawFd, closes_on_exec: bool) -> Result<(), Errno> {
    let flags = if closes_on_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
    // SAFETY: dup3 only changes the process's table of descriptors; the caller answers for the number, which is not
    // closed here.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(at) });
    loop {
        match rustix::io::dup3(&new, &mut place, flags) {
            // Another thread is opening a file at this number.
            Err(Errno::BUSY | Errno::INTR) => std::thread::yield_now(),
            outcome => return outcome,
        }
    }
}

/// The number by which the kernel identifies the file behind a descriptor; 0 if it is not open.
pub fn inode(fd: impl AsFd) -> u64 {
    rustix::fs::fstat(fd).map_or(0, |about| about.st_ino)
}

/// Whether the descriptor is an IPv6 socket.
pub fn is_six(fd: impl AsFd) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::INET6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_takes_over_what_was_set_on_the_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tcp.set_read_timeout(Some(std::time::Duration::from_millis(1500))).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let (unix, _) = std::os::unix::net::UnixStream::pair().unwrap();
        take_over(&tcp, &unix).unwrap();
        assert_eq!(unix.read_timeout().unwrap(), tcp.read_timeout().unwrap());
        assert_eq!(waits_plainly(&tcp), Some(true));
        assert!(is_tcp(&tcp) && !is_tcp(&unix));
        assert!(is_established(&tcp) && is_listening(&listener) && !is_listening(&tcp));
        assert_eq!(network(&tcp).unwrap(), network(&listener).unwrap());
        drop(listener.accept().unwrap());
        assert!(!is_established(&tcp));
    }
}
