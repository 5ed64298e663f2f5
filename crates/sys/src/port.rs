//! All frames of one interface, raw, in batches (AF_PACKET): the port of a switch in user space. Needs CAP_NET_RAW.
//!
//! Each frame comes with the kernel's `virtio_net_hdr`, which says what checksum and segmentation work is still to be done,
//! and goes out with it. So frames pass unchanged, segmentation offload included.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::error::last_errno;
use crate::packet::bind_to_interface;
use crate::{OsError, socket};

/// `ETH_P_ALL`: every protocol.
const EVERY_PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// Longest frame with its header: 64 KiB of segmentation offload, link-layer header and `virtio_net_hdr`.
const MAX_FRAME_BYTES: usize = 65536 + 64;

/// Asked of the kernel for queues; it takes what it can.
const QUEUE_BYTES: usize = 16 << 20;

/// A raw socket on one interface. Non-blocking.
#[derive(Debug)]
pub struct Port {
    fd: OwnedFd,
    name: String,
}

/// Room for the frames of one receive call.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Batch {
    /// Room for so many.
    pub fn new(frames: usize) -> Batch {
        Batch { frames: vec![vec![0; MAX_FRAME_BYTES]; frames], lengths: Vec::new() }
    }

    /// What the last receive call brought, each with its `virtio_net_hdr` in front.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().zip(&self.lengths).map(|(frame, length)| &frame[..*length])
    }
}

impl Port {
    /// Bytes of `virtio_net_hdr` in front of each frame.
    pub const HEADER_BYTES: usize = 10;

    /// Opens every frame that arrives on an interface of the caller's network namespace; not those that leave by it.
    ///
    /// # Errors
    /// No such interface, or not privileged.
    pub fn open(interface: &str) -> Result<Port, OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it takes no frame of any interface before it is bound to this one.
        let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|e| OsError::new("socket(AF_PACKET)", interface, e))?;
        let port = Port { fd, name: interface.to_owned() };
        port.switch_on(libc::PACKET_VNET_HDR, "PACKET_VNET_HDR")?;
        port.switch_on(libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING")?;
        // Queues of the shaper behind this socket, not of the socket, should fill: they are what is modelled.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&port.fd, QUEUE_BYTES);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&port.fd, QUEUE_BYTES);
        let index = netdevice::name_to_index(&port.fd, interface)
            .map_err(|e| OsError::new("ioctl(SIOCGIFINDEX)", interface, e))?;
        bind_to_interface(&port.fd, index, EVERY_PROTOCOL, interface)?;
        Ok(port)
    }

    fn switch_on(&self, option: i32, name: &'static str) -> Result<(), OsError> {
        let on = 1_i32.to_ne_bytes();
        socket::set_raw(&self.fd, libc::SOL_PACKET, option, Some(&on))
            .map_err(|e| OsError::new("setsockopt", format!("{name} on {}", self.name), e))
    }

    /// Takes the frames that lie ready, as many as fit; returns how many. 0: none.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down; what else the kernel says.
    pub fn receive(&self, batch: &mut Batch) -> Result<usize, Errno> {
        batch.lengths.clear();
        let mut parts: Vec<libc::iovec> = batch
            .frames
            .iter_mut()
            .map(|f| libc::iovec { iov_base: f.as_mut_ptr().cast(), iov_len: f.len() })
            .collect();
        let mut messages = headers(&mut parts);
        let count = loop {
            // SAFETY: each header points at one part, each part at a buffer of the length it states; all outlive the call.
            let count = unsafe {
                libc::recvmmsg(
                    self.fd.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as u32,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            match usize::try_from(count) {
                Ok(count) => break count,
                Err(_) => match last_errno() {
                    Errno::INTR => {}
                    Errno::AGAIN => return Ok(0),
                    other => return Err(other),
                },
            }
        };
        batch.lengths.extend(messages[..count].iter().map(|m| m.msg_len as usize));
        Ok(count)
    }

    /// Sends frames (each with its `virtio_net_hdr`) in order; returns how many the interface did not take because a queue is
    /// full or it is down: these are lost, as on a switch.
    pub fn send(&self, frames: &[Vec<u8>]) -> usize {
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .map(|f| libc::iovec { iov_base: f.as_ptr().cast_mut().cast(), iov_len: f.len() })
            .collect();
        let mut messages = headers(&mut parts);
        let (mut at, mut lost) = (0, 0);
        while at < messages.len() {
            let rest = &mut messages[at..];
            // SAFETY: as in `receive`; the kernel only reads what the parts point at.
            let count = unsafe {
                libc::sendmmsg(
                    self.fd.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(count) {
                Ok(count) if count > 0 => at += count,
                _ if last_errno() == Errno::INTR => {}
                // The first of the rest was refused; the next may be smaller.
                _ => {
                    at += 1;
                    lost += 1;
                }
            }
        }
        lost
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn headers(parts: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    parts
        .iter_mut()
        .map(|part| {
            // SAFETY: mmsghdr is integers and pointers; all zeroes is a value of it: no name, no control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named_in_the_error() {
        let error = Port::open("no-such-if0").unwrap_err().to_string();
        // Without privilege the socket itself is refused.
        assert!(error.contains("no-such-if0"), "{error}");
    }
}
