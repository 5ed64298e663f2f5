//! What is set on a socket and read back from it.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{self, Timeout};

use crate::OsError;
use crate::error::last_errno;
use crate::patience::Patience;

/// Who is at the other end of an AF_UNIX connection, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process; 0 for one that this process's PID namespace has no number for.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Reads SO_PEERCRED. A process of another PID namespace has the number 0.
pub fn peer_credentials(fd: impl AsFd) -> Result<Credentials, OsError> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: cred and len outlive the call, and len says how many bytes cred has; every bit pattern is a valid ucred.
    let outcome = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut len,
        )
    };
    if outcome != 0 {
        return Err(OsError::new(
            "getsockopt(SO_PEERCRED)",
            "",
            std::io::Error::from(last_errno()),
        ));
    }
    Ok(Credentials { pid: cred.pid.unsigned_abs(), uid: cred.uid, gid: cred.gid })
}

/// Whether the other end of an AF_UNIX connection has received all that was sent on this one, or is gone (SIOCOUTQ counts the memory of
/// what it has not).
pub fn is_all_received(fd: impl AsFd) -> Result<bool, Errno> {
    let mut octets: libc::c_int = 0;
    // SAFETY: the call writes one integer to where the pointer leads.
    let outcome = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
    if outcome != 0 {
        return Err(last_errno());
    }
    // While the kernel tells a writer that there is room again, one octet of what was received is still counted (sock_wfree in net/core/sock.c); a
    // message that was not received counts for some hundred.
    Ok(octets <= 1)
}

/// The number that the kernel gives to a socket for its life (SO_COOKIE); the same through every copy of the descriptor.
pub fn cookie(fd: impl AsFd) -> Result<u64, OsError> {
    sockopt::socket_cookie(fd).map_err(|e| OsError::new("getsockopt(SO_COOKIE)", "", e))
}

/// Has every call on the descriptor answer EAGAIN instead of waiting.
pub fn set_nonblocking(fd: impl AsFd) -> Result<(), OsError> {
    set_waiting(fd, false).map_err(|e| OsError::new("ioctl(FIONBIO)", "", e))
}

/// Has the descriptor wait, or not.
pub fn set_waiting(fd: impl AsFd, waits: bool) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(fd, !waits)
}

/// Bounds how long a blocking send or connect may sleep; `None`: for ever. The kernel counts in its own ticks.
pub fn set_send_timeout(fd: impl AsFd, limit: Option<Duration>) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, Timeout::Send, limit)
}

/// Bounds how long a blocking receive may sleep; `None`: for ever.
pub fn set_receive_timeout(fd: impl AsFd, limit: Option<Duration>) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, Timeout::Recv, limit)
}

/// Whether a plain send on the descriptor waits without limit: neither O_NONBLOCK nor SO_SNDTIMEO is set.
pub fn waits_for_ever(fd: impl AsFd) -> Result<bool, Errno> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(!flags.contains(rustix::fs::OFlags::NONBLOCK)
        && sockopt::socket_timeout(&fd, Timeout::Send)?.is_none())
}

/// How long a plain receive on the descriptor waits: not at all with O_NONBLOCK, as SO_RCVTIMEO says from now on, or for ever.
pub fn receive_patience(fd: impl AsFd) -> Result<Patience, Errno> {
    if rustix::fs::fcntl_getfl(&fd)?.contains(rustix::fs::OFlags::NONBLOCK) {
        return Ok(Patience::Now);
    }
    let limit = sockopt::socket_timeout(&fd, Timeout::Recv)?;
    Ok(Patience::from_deadline(limit.and_then(|limit| Instant::now().checked_add(limit))))
}

/// Octets that the receiver of a stream, or of messages on a connection, would find now (FIONREAD).
pub fn readable_octets(fd: impl AsFd) -> Result<usize, Errno> {
    rustix::io::ioctl_fionread(fd).map(|octets| usize::try_from(octets).unwrap_or(usize::MAX))
}

/// Asks for SO_SNDBUF and SO_RCVBUF; the kernel doubles and clamps (socket(7)).
pub fn set_buffers(fd: impl AsFd, bytes: usize) -> Result<(), OsError> {
    sockopt::set_socket_send_buffer_size(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_SNDBUF)", bytes, e))?;
    sockopt::set_socket_recv_buffer_size(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_RCVBUF)", bytes, e))
}

/// Asks for SO_RCVBUF beyond what the system allows its users (net.core.rmem_max).
///
/// Errors: `EPERM` without CAP_NET_ADMIN in the initial user namespace.
pub fn force_recv_buffer(fd: impl AsFd, bytes: usize) -> Result<(), OsError> {
    sockopt::set_socket_recv_buffer_size_force(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_RCVBUFFORCE)", bytes, e))
}

/// SO_SNDBUF in bytes as the kernel reports it, doubled.
pub fn send_buffer_bytes(fd: impl AsFd) -> Result<usize, OsError> {
    sockopt::socket_send_buffer_size(fd).map_err(|e| OsError::new("getsockopt(SO_SNDBUF)", "", e))
}

/// SO_RCVBUF in bytes as the kernel reports it, doubled.
pub fn recv_buffer_bytes(fd: impl AsFd) -> Result<usize, OsError> {
    sockopt::socket_recv_buffer_size(fd).map_err(|e| OsError::new("getsockopt(SO_RCVBUF)", "", e))
}

/// Switches Nagle's algorithm off (true) or on.
pub fn set_tcp_nodelay(fd: impl AsFd, on: bool) -> Result<(), OsError> {
    sockopt::set_tcp_nodelay(fd, on).map_err(|e| OsError::new("setsockopt(TCP_NODELAY)", "", e))
}

/// Whether Nagle's algorithm is off.
pub fn tcp_nodelay(fd: impl AsFd) -> Result<bool, OsError> {
    sockopt::tcp_nodelay(fd).map_err(|e| OsError::new("getsockopt(TCP_NODELAY)", "", e))
}

/// RFC 6458 section 8.1.5, linux/sctp.h.
const SCTP_NODELAY: i32 = 3;

/// Switches SCTP's like of Nagle's algorithm off (true) or on.
pub fn set_sctp_nodelay(fd: impl AsFd, on: bool) -> Result<(), OsError> {
    set_raw(fd, libc::IPPROTO_SCTP, SCTP_NODELAY, Some(&u32::from(on).to_ne_bytes()))
        .map_err(|e| OsError::new("setsockopt(SCTP_NODELAY)", on, e))
}

/// Whether it is off.
pub fn sctp_nodelay(fd: impl AsFd) -> Result<bool, OsError> {
    get_int(fd, libc::IPPROTO_SCTP, SCTP_NODELAY)
        .map(|on| on != 0)
        .map_err(|e| OsError::new("getsockopt(SCTP_NODELAY)", "", e))
}

/// Lets a server take its port again while old connections linger in TIME_WAIT.
pub fn set_reuse_address(fd: impl AsFd) -> Result<(), OsError> {
    sockopt::set_socket_reuseaddr(fd, true)
        .map_err(|e| OsError::new("setsockopt(SO_REUSEADDR)", "", e))
}

/// The size of the segments that TCP cuts the stream into (TCP_MAXSEG).
pub fn tcp_max_segment_bytes(fd: impl AsFd) -> Result<u32, OsError> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG)
        .map_err(|e| OsError::new("getsockopt(TCP_MAXSEG)", "", e))
}

/// Takes a descriptor's pending error (SO_ERROR) away, such as that of a device that went down; one with an error polls readable.
///
/// # Errors
/// The errno of the call.
pub fn take_error(fd: impl AsFd) -> Result<Option<Errno>, Errno> {
    sockopt::socket_error(fd).map(Result::err)
}

/// Sets an option that rustix does not know; `None` for those that take no value.
pub(crate) fn set_raw(
    fd: impl AsFd,
    level: i32,
    name: i32,
    value: Option<&[u8]>,
) -> Result<(), Errno> {
    let (start, len) = value.map_or((std::ptr::null(), 0), |v| (v.as_ptr(), v.len()));
    // SAFETY: the pointer and the length describe live octets, or none, which the kernel copies.
    let outcome = unsafe {
        let len = len as libc::socklen_t;
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, start.cast(), len)
    };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Reads an integer option that rustix does not know.
pub(crate) fn get_int(fd: impl AsFd, level: i32, name: i32) -> Result<u32, Errno> {
    let mut value = 0_u32;
    let mut len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: value and len outlive the call, and len says how many bytes value has.
    let outcome = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &mut len)
    };
    if outcome == 0 { Ok(value) } else { Err(last_errno()) }
}

/// The largest packet that the path of a connected socket takes whole (IP_MTU, IPV6_MTU).
pub fn ip_mtu_bytes(fd: impl AsFd) -> Result<u32, OsError> {
    let outcome = match sockopt::socket_domain(&fd) {
        Ok(AddressFamily::INET6) => get_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU),
        _ => get_int(&fd, libc::IPPROTO_IP, libc::IP_MTU),
    };
    outcome.map_err(|e| OsError::new("getsockopt(IP_MTU)", "", e))
}

/// Whether a connection made as MPTCP is one, and did not fall back to TCP: MPTCP_INFO answers of the former only.
pub fn mptcp_in_use(fd: impl AsFd) -> Result<bool, OsError> {
    const SOL_MPTCP: i32 = 284;
    const MPTCP_INFO: i32 = 1;
    match get_int(fd, SOL_MPTCP, MPTCP_INFO) {
        Ok(_) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(OsError::new("getsockopt(MPTCP_INFO)", "", e)),
    }
}
