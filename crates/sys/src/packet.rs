//! Frames of one EtherType on one interface (AF_PACKET). Needs CAP_NET_RAW.

use std::os::fd::OwnedFd;

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::OsError;
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
        // Without a protocol the sockets receive nothing before they are bound, neither from other interfaces nor
        // anything that closing would have to wait for.
        let socket = || {
            let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
            rustix::net::socket_with(family, SocketType::RAW, flags, None)
                .map_err(|e| OsError::new("socket(AF_PACKET)", interface, e))
        };
        let (fd, sender) = (socket()?, socket()?);
        let index = netdevice::name_to_index(&fd, interface)
            .map_err(|e| OsError::new("ioctl(SIOCGIFINDEX)", interface, e))?;
        bind_to_interface(&fd, index, ether_type, interface)?;
        // Bound without a protocol, it receives nothing.
        bind_to_interface(&sender, index, 0, interface)?;
        let mac = hardware_address(&socket::local_address(&fd)?).ok_or_else(|| {
            OsError::new("getsockname(AF_PACKET)", interface, rustix::io::Errno::AFNOSUPPORT)
        })?;
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
}
