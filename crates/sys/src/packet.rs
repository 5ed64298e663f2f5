//! Frames of one EtherType on one interface (AF_PACKET). Needs CAP_NET_RAW.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::OsError;
use crate::error::last_errno;
use crate::seccomp::{statement, unless_equal};
use crate::socket::{self, Address};

/// A pair of sockets for the frames of one EtherType on one interface. Frames include their Ethernet header.
#[derive(Debug)]
pub struct EtherSocket {
    /// The receiving socket, bound to the interface.
    pub fd: OwnedFd,
    /// The sending socket, which receives nothing. It is separate because the kernel wakes the threads that wait for a
    /// socket each time a frame sent through it has left; nothing waits for this socket.
    pub sender: OwnedFd,
    /// The interface's hardware address.
    pub mac: [u8; 6],
    /// The interface's index.
    pub index: u32,
    ether_type: u16,
}

/// Length of an Ethernet header in bytes: two addresses and the type.
pub const ETHERNET_HEADER_LEN: usize = 14;

struct LinkLayer(libc::sockaddr_ll);

// SAFETY: the pointer passed on is that of a live sockaddr_ll and the length its size; the callee only reads it.
unsafe impl SocketAddrArg for LinkLayer {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let len = size_of::<libc::sockaddr_ll>() as SocketAddrLen;
        f((&raw const self.0).cast(), len)
    }
}

fn link_layer(interface: u32, ether_type: u16) -> Address {
    LinkLayer(libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ether_type.to_be(),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    })
    .as_any()
}

impl EtherSocket {
    /// Opens sockets for frames of `ether_type` on the named interface.
    pub fn open(interface: &str, ether_type: u16) -> Result<Self, OsError> {
        Self::prepared(interface, ether_type, |_| Ok(()))
    }

    /// As [`EtherSocket::open`], but receives only frames whose content begins with `mark`, so that
    /// others of the same EtherType take no room.
    ///
    /// # Errors
    /// As [`EtherSocket::open`]; or the kernel refuses the filter.
    pub fn open_marked(interface: &str, ether_type: u16, mark: [u8; 8]) -> Result<Self, OsError> {
        Self::prepared(interface, ether_type, |fd| {
            accept_only(fd, mark)
                .map_err(|e| OsError::new("setsockopt(SO_ATTACH_FILTER)", interface, e))
        })
    }

    /// Opens sockets, and prepares the receiving one before any frame can reach it.
    fn prepared(
        interface: &str,
        ether_type: u16,
        prepare: impl FnOnce(&OwnedFd) -> Result<(), OsError>,
    ) -> Result<Self, OsError> {
        // Without a protocol the sockets receive nothing before they are bound, neither from other interfaces nor
        // anything that closing would have to wait for.
        let socket = || {
            let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
            rustix::net::socket_with(family, SocketType::RAW, flags, None)
                .map_err(|e| OsError::new("socket(AF_PACKET)", interface, e))
        };
        let (fd, sender) = (socket()?, socket()?);
        prepare(&fd)?;
        let index = netdevice::name_to_index(&fd, interface)
            .map_err(|e| OsError::new("ioctl(SIOCGIFINDEX)", interface, e))?;
        bind_to_interface(&fd, index, ether_type, interface)?;
        // Bound without a protocol, it receives nothing.
        bind_to_interface(&sender, index, 0, interface)?;
        let mac = hardware_address(&socket::local_address(&fd)?)
            .ok_or_else(|| OsError::new("getsockname(AF_PACKET)", interface, Errno::AFNOSUPPORT))?;
        Ok(Self { fd, sender, mac, index, ether_type })
    }

    /// The Ethernet header for frames to a station. With the header in the frame, the kernel need not check and look up
    /// an address for each send.
    pub fn header_to(&self, station: [u8; 6]) -> [u8; ETHERNET_HEADER_LEN] {
        let mut header = [0; ETHERNET_HEADER_LEN];
        header[..6].copy_from_slice(&station);
        header[6..12].copy_from_slice(&self.mac);
        header[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        header
    }
}

/// Makes the kernel drop frames whose content does not begin with `mark`, before it copies them.
fn accept_only(fd: &OwnedFd, mark: [u8; 8]) -> Result<(), Errno> {
    let [high, low] = [0, 4].map(|at| {
        let half = mark[at..at + 4].try_into().expect("four of the eight bytes");
        (ETHERNET_HEADER_LEN + at, u32::from_be_bytes(half))
    });
    let load = |at: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32);
    let answer = |most_bytes| statement(libc::BPF_RET | libc::BPF_K, most_bytes);
    let mut filter = [
        load(high.0),
        unless_equal(high.1, 3),
        load(low.0),
        unless_equal(low.1, 1),
        answer(u32::MAX),
        answer(0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` points at `filter`, whose length it states; both outlive the call, and the
    // kernel copies them.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Number of frames that found a packet socket full since the last call (PACKET_STATISTICS).
///
/// # Errors
/// It is no packet socket.
pub fn take_drops(fd: impl AsFd) -> Result<u32, OsError> {
    // The number of frames, then how many of them were dropped.
    let mut counts = [0_u32; 2];
    let mut len = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: counts and len outlive the call, and len says how many bytes counts has.
    let outcome = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counts.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if outcome == 0 {
        Ok(counts[1])
    } else {
        Err(OsError::new("getsockopt(PACKET_STATISTICS)", "", last_errno()))
    }
}

/// Binds a packet socket to one interface and one EtherType.
pub(crate) fn bind_to_interface(
    fd: &OwnedFd,
    index: u32,
    ether_type: u16,
    name: &str,
) -> Result<(), OsError> {
    socket::bind(fd, &link_layer(index, ether_type), name)
}

/// The hardware address in an AF_PACKET address; `None` if the address is of another family, or its hardware address
/// does not have 6 bytes.
pub fn hardware_address(address: &Address) -> Option<[u8; 6]> {
    let len = address.addr_len() as usize;
    if address.address_family() != AddressFamily::PACKET || len < size_of::<libc::sockaddr_ll>() - 2
    {
        return None;
    }
    // SAFETY: the storage behind the pointer is a whole sockaddr_storage, larger and more strictly aligned than
    // sockaddr_ll, and every bit pattern is a valid sockaddr_ll.
    let ll = unsafe { address.as_ptr().cast::<libc::sockaddr_ll>().read() };
    let mac: [u8; 6] = ll.sll_addr[..6].try_into().ok()?;
    (ll.sll_halen == 6).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_six_bytes_is_a_hardware_address() {
        assert_eq!(hardware_address(&link_layer(3, 0x88ca)), None, "bound, not addressed");
        assert_eq!(hardware_address(&socket::unnamed_address()), None);
    }

    #[test]
    fn an_unknown_interface_is_named_in_the_error() {
        match EtherSocket::open("no-such-if0", 0x88ca) {
            Err(e) => assert!(e.to_string().contains("no-such-if0"), "{e}"),
            Ok(_) => panic!("opened an interface that does not exist"),
        }
    }

    /// Sends frames of an EtherType of its own, each a mark and a byte, and returns the bytes that
    /// arrive by the socket that asks for `mark`; `None` without the privilege.
    fn passed(mark: [u8; 8], sent: &[([u8; 8], u8)]) -> Option<Vec<u8>> {
        // The second EtherType for experiments (IEEE 802); marks of this test keep others away.
        let socket = match EtherSocket::open_marked("lo", 0x88b6, mark) {
            Ok(socket) => socket,
            Err(e) => {
                eprintln!("SKIP marked frames: {e}; run as root");
                return None;
            }
        };
        let header = socket.header_to(socket.mac);
        for (mark, byte) in sent {
            let body = [&mark[..], &[*byte]].concat();
            crate::records::send(&socket.sender, &header, &body, false).unwrap();
        }
        let mut bytes = Vec::new();
        let mut frame = [0; ETHERNET_HEADER_LEN + 9];
        // Frames over loopback have arrived when the send returns.
        while let Ok(len) = socket::recv_message(&socket.fd, &mut frame, true) {
            assert_eq!(len, frame.len());
            bytes.push(frame[len - 1]);
        }
        assert_eq!(take_drops(&socket.fd).unwrap(), 0);
        Some(bytes)
    }

    #[test]
    fn only_frames_with_the_mark_arrive() {
        let mark = *b"crosswa1";
        let sent = [(mark, 1), (*b"crosswa2", 2), (*b"drosswa1", 3), (mark, 4)];
        if let Some(bytes) = passed(mark, &sent) {
            assert_eq!(bytes, [1, 4]);
        }
    }

    #[test]
    fn frames_that_find_a_socket_full_are_counted() {
        let Ok(socket) = EtherSocket::open_marked("lo", 0x88b6, *b"crosswa3") else {
            return eprintln!("SKIP dropped frames: run as root");
        };
        let header = [&socket.header_to(socket.mac)[..], b"crosswa3"].concat();
        let sent = 5000;
        for _ in 0..sent {
            crate::records::send(&socket.sender, &header, &[0; 1000], false).unwrap();
        }
        let mut received = 0;
        while socket::recv_message(&socket.fd, &mut [0; 2000], true).is_ok() {
            received += 1;
        }
        let dropped = take_drops(&socket.fd).unwrap();
        assert!(dropped > 0, "{received} of {sent} were received");
        assert_eq!(received + dropped, sent);
        assert_eq!(take_drops(&socket.fd).unwrap(), 0, "counted twice");
    }
}
