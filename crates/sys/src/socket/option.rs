//! Options and other properties of sockets.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{self, Timeout};

use crate::OsError;
use crate::error::last_errno;
use crate::patience::Patience;

/// The peer of an AF_UNIX connection, as of the time it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The peer's process id; 0 if the process has no id in this process's PID namespace.
    pub pid: u32,
    /// The peer's effective user id when it connected or began to listen, as seen from this user namespace.
    pub uid: u32,
    /// The peer's effective group id at the same time.
    pub gid: u32,
}

/// Reads SO_PEERCRED. The pid is 0 for a process that is not visible in this PID namespace.
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

/// Reads SO_PEERGROUPS: the supplementary groups of the peer of an AF_UNIX connection, as of the time it connected.
pub fn peer_groups(fd: impl AsFd) -> Result<Vec<u32>, OsError> {
    let mut groups = vec![0_u32; 32];
    loop {
        let mut len = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: groups and len outlive the call, and len says how many bytes groups has; every bit pattern is a valid
        // id.
        let outcome = unsafe {
            libc::getsockopt(
                fd.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut len,
            )
        };
        let needed = len as usize / size_of::<u32>();
        if outcome == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        match last_errno() {
            // There are more: the kernel has returned the length for all of them.
            Errno::RANGE if needed > groups.len() => groups.resize(needed, 0),
            errno => {
                let error = std::io::Error::from(errno);
                return Err(OsError::new("getsockopt(SO_PEERGROUPS)", "", error));
            }
        }
    }
}

/// Whether the other end of an AF_UNIX connection has received everything sent on this one, or has closed (SIOCOUTQ
/// counts the memory of unreceived messages).
pub fn is_all_received(fd: impl AsFd) -> Result<bool, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one integer to where the pointer points.
    let outcome = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome != 0 {
        return Err(last_errno());
    }
    // While the kernel reports to a writer that there is room again, one byte of the received data is still counted
    // (sock_wfree in net/core/sock.c); an unreceived message counts for several hundred bytes.
    Ok(bytes <= 1)
}

/// The number that identifies a socket for its lifetime (SO_COOKIE); it is the same for every copy of the descriptor.
pub fn cookie(fd: impl AsFd) -> Result<u64, OsError> {
    sockopt::socket_cookie(fd).map_err(|e| OsError::new("getsockopt(SO_COOKIE)", "", e))
}

/// Makes every call on the descriptor return EAGAIN instead of waiting.
pub fn set_nonblocking(fd: impl AsFd) -> Result<(), OsError> {
    set_waiting(fd, false).map_err(|e| OsError::new("ioctl(FIONBIO)", "", e))
}

/// Makes the descriptor blocking or non-blocking.
pub fn set_waiting(fd: impl AsFd, waits: bool) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(fd, !waits)
}

/// Limits how long a blocking send or connect may sleep; `None`: for ever. The kernel rounds to its own ticks.
pub fn set_send_timeout(fd: impl AsFd, limit: Option<Duration>) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, Timeout::Send, limit)
}

/// Limits how long a blocking receive may sleep; `None`: for ever.
pub fn set_receive_timeout(fd: impl AsFd, limit: Option<Duration>) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, Timeout::Recv, limit)
}

/// Whether a plain send on the descriptor waits without limit: neither O_NONBLOCK nor SO_SNDTIMEO is set.
pub fn waits_for_ever(fd: impl AsFd) -> Result<bool, Errno> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(!flags.contains(rustix::fs::OFlags::NONBLOCK)
        && sockopt::socket_timeout(&fd, Timeout::Send)?.is_none())
}

/// How long a plain receive on the descriptor waits: not at all with O_NONBLOCK, for SO_RCVTIMEO from now if that is
/// set, otherwise for ever.
pub fn receive_patience(fd: impl AsFd) -> Result<Patience, Errno> {
    if rustix::fs::fcntl_getfl(&fd)?.contains(rustix::fs::OFlags::NONBLOCK) {
        return Ok(Patience::Now);
    }
    let limit = sockopt::socket_timeout(&fd, Timeout::Recv)?;
    Ok(Patience::from_deadline(limit.and_then(|limit| Instant::now().checked_add(limit))))
}

/// Number of bytes that are queued for receiving on an AF_UNIX socket (FIONREAD), summed over all messages.
pub fn readable_bytes(fd: impl AsFd) -> Result<usize, Errno> {
    rustix::io::ioctl_fionread(fd).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Requests sizes for SO_SNDBUF and SO_RCVBUF; the kernel doubles and clamps them (socket(7)).
pub fn set_buffers(fd: impl AsFd, bytes: usize) -> Result<(), OsError> {
    sockopt::set_socket_send_buffer_size(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_SNDBUF)", bytes, e))?;
    sockopt::set_socket_recv_buffer_size(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_RCVBUF)", bytes, e))
}

/// Sets SO_RCVBUF beyond the system's limit for unprivileged users (net.core.rmem_max).
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

/// Switches Nagle's algorithm off (true) or on (false).
pub fn set_tcp_nodelay(fd: impl AsFd, on: bool) -> Result<(), OsError> {
    sockopt::set_tcp_nodelay(fd, on).map_err(|e| OsError::new("setsockopt(TCP_NODELAY)", "", e))
}

/// Makes TCP abandon a connection whose peer is silent. TCP probes the peer after `idle` without traffic; it abandons
/// the connection if the peer does not answer, or if data stays unacknowledged for longer than `limit`. The error is
/// ETIMEDOUT in both cases. `idle` is rounded to whole seconds.
pub fn set_tcp_liveness(fd: impl AsFd, idle: Duration, limit: Duration) -> Result<(), OsError> {
    const PROBE_EVERY: Duration = Duration::from_secs(1);
    let failed = |e| OsError::new("setsockopt", "TCP keepalive", e);
    let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_socket_keepalive(&fd, true).map_err(failed)?;
    sockopt::set_tcp_keepidle(&fd, idle.max(PROBE_EVERY)).map_err(failed)?;
    sockopt::set_tcp_keepintvl(&fd, PROBE_EVERY).map_err(failed)?;
    sockopt::set_tcp_user_timeout(&fd, limit_ms).map_err(failed)
}

/// Whether Nagle's algorithm is off.
pub fn tcp_nodelay(fd: impl AsFd) -> Result<bool, OsError> {
    sockopt::tcp_nodelay(fd).map_err(|e| OsError::new("getsockopt(TCP_NODELAY)", "", e))
}

/// The option's number (RFC 6458 section 8.1.5, linux/sctp.h).
const SCTP_NODELAY: i32 = 3;

/// Switches SCTP's equivalent of Nagle's algorithm off (true) or on (false).
pub fn set_sctp_nodelay(fd: impl AsFd, on: bool) -> Result<(), OsError> {
    set_raw(fd, libc::IPPROTO_SCTP, SCTP_NODELAY, Some(&u32::from(on).to_ne_bytes()))
        .map_err(|e| OsError::new("setsockopt(SCTP_NODELAY)", on, e))
}

/// Whether SCTP's equivalent of Nagle's algorithm is off.
pub fn sctp_nodelay(fd: impl AsFd) -> Result<bool, OsError> {
    get_int(fd, libc::IPPROTO_SCTP, SCTP_NODELAY)
        .map(|on| on != 0)
        .map_err(|e| OsError::new("getsockopt(SCTP_NODELAY)", "", e))
}

/// Numbers of UDP-Lite's level and options (linux/udp.h).
const SOL_UDPLITE: i32 = 136;
const UDPLITE_SEND_CSCOV: i32 = 10;
const UDPLITE_RECV_CSCOV: i32 = 11;

/// Limits UDP-Lite's checksum to the first bytes of each message, at least 8, the header; a
/// receiver accepts no smaller limit.
///
/// # Errors
/// It is no socket of UDP-Lite.
pub fn set_udp_lite_coverage(fd: impl AsFd, bytes: u16) -> Result<(), OsError> {
    for option in [UDPLITE_SEND_CSCOV, UDPLITE_RECV_CSCOV] {
        set_raw(&fd, SOL_UDPLITE, option, Some(&u32::from(bytes).to_ne_bytes()))
            .map_err(|e| OsError::new("setsockopt(UDPLITE_CSCOV)", bytes, e))?;
    }
    Ok(())
}

/// Allows a server to reuse its port while old connections linger in TIME_WAIT.
pub fn set_reuse_address(fd: impl AsFd) -> Result<(), OsError> {
    sockopt::set_socket_reuseaddr(fd, true)
        .map_err(|e| OsError::new("setsockopt(SO_REUSEADDR)", "", e))
}

/// The size in bytes of the segments into which TCP divides the stream (TCP_MAXSEG).
pub fn tcp_max_segment_bytes(fd: impl AsFd) -> Result<u32, OsError> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG)
        .map_err(|e| OsError::new("getsockopt(TCP_MAXSEG)", "", e))
}

/// Number of bytes that TCP itself has received (`tcpi_bytes_received`); on an AF_SMC socket, those that were not
/// transferred by SMC.
pub fn tcp_bytes_received(fd: impl AsFd) -> Result<u64, OsError> {
    /// Offset of the field in the kernel's `struct tcp_info`, which only ever grows at its end.
    const AT: usize = 128;
    let mut info = [0_u8; AT + 8];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the buffer's length.
    let outcome = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    let failed = |errno| OsError::new("getsockopt(TCP_INFO)", "", errno);
    if outcome != 0 {
        return Err(failed(last_errno()));
    }
    // Kernels before 4.1 know less.
    if (len as usize) < info.len() {
        return Err(failed(Errno::OPNOTSUPP));
    }
    let (_, field) = info.split_at(AT);
    field.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(failed(Errno::INVAL))
}

/// Reads and clears a descriptor's pending error (SO_ERROR), for example that a device went down; a descriptor with an
/// error polls readable.
///
/// # Errors
/// The errno of the call.
pub fn take_error(fd: impl AsFd) -> Result<Option<Errno>, Errno> {
    sockopt::socket_error(fd).map(Result::err)
}

/// Sets an option that rustix does not support; `None` for options without a value.
pub(crate) fn set_raw(
    fd: impl AsFd,
    level: i32,
    name: i32,
    value: Option<&[u8]>,
) -> Result<(), Errno> {
    let (start, len) = value.map_or((std::ptr::null(), 0), |v| (v.as_ptr(), v.len()));
    // SAFETY: the pointer and the length describe live bytes, or none, which the kernel copies.
    let outcome = unsafe {
        let len = len as libc::socklen_t;
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, start.cast(), len)
    };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Reads an integer option that rustix does not support.
pub(crate) fn get_int(fd: impl AsFd, level: i32, name: i32) -> Result<u32, Errno> {
    let mut value = 0_u32;
    let mut len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: value and len outlive the call, and len says how many bytes value has.
    let outcome = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &mut len)
    };
    if outcome == 0 { Ok(value) } else { Err(last_errno()) }
}

/// The path MTU of a connected socket in bytes (IP_MTU, IPV6_MTU).
pub fn ip_mtu_bytes(fd: impl AsFd) -> Result<u32, OsError> {
    let outcome = match sockopt::socket_domain(&fd) {
        Ok(AddressFamily::INET6) => get_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU),
        _ => get_int(&fd, libc::IPPROTO_IP, libc::IP_MTU),
    };
    outcome.map_err(|e| OsError::new("getsockopt(IP_MTU)", "", e))
}

/// Whether a connection opened as MPTCP uses it and did not fall back to TCP: MPTCP_INFO fails after a fallback.
pub fn mptcp_in_use(fd: impl AsFd) -> Result<bool, OsError> {
    const SOL_MPTCP: i32 = 284;
    const MPTCP_INFO: i32 = 1;
    match get_int(fd, SOL_MPTCP, MPTCP_INFO) {
        Ok(_) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(OsError::new("getsockopt(MPTCP_INFO)", "", e)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn tcp_reports_how_much_it_has_received() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        assert_eq!(tcp_bytes_received(&receiver).unwrap(), 0);
        sender.write_all(&[7; 5000]).unwrap();
        receiver.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(tcp_bytes_received(&receiver).unwrap(), 5000);
    }

    #[test]
    fn a_peers_groups_are_those_of_its_process() {
        let (ours, _theirs) = crate::socket::unix_pair(crate::socket::SocketType::Stream).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut own: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let mut told = peer_groups(&ours).unwrap();
        own.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, own);
    }
}
