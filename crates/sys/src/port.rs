//! The port of a switch in user space: receives and sends all frames of one interface, raw and in batches (AF_PACKET).
//! Needs CAP_NET_RAW.
//!
//! Each frame arrives with the kernel's `virtio_net_hdr`, which describes the remaining checksum and segmentation work,
//! and leaves with it. So frames pass unchanged, segmentation offload included.

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

/// Queue size in bytes that is requested from the kernel, which may grant less.
const QUEUE_BYTES: usize = 16 << 20;

/// A raw socket on one interface. Non-blocking.
#[derive(Debug)]
pub struct Port {
    fd: OwnedFd,
    name: String,
}

/// Buffers for the frames of one receive call.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Batch {
    /// Creates buffers for `frames` frames.
    pub fn new(frames: usize) -> Batch {
        Batch { frames: vec![vec![0; MAX_FRAME_BYTES]; frames], lengths: Vec::new() }
    }

    /// The frames of the last receive call, each preceded by its `virtio_net_hdr`.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().zip(&self.lengths).map(|(frame, length)| &frame[..*length])
    }
}

impl Port {
    /// Length in bytes of the `virtio_net_hdr` before each frame.
    pub const HEADER_BYTES: usize = 10;

    /// Opens a socket that receives every frame that arrives on an interface of the caller's network namespace, but no
    /// frame that leaves by it.
    ///
    /// # Errors
    /// There is no such interface, or the caller has no privilege.
    pub fn open(interface: &str) -> Result<Port, OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol the socket receives no frames before it is bound to this interface.
        let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|e| OsError::new("socket(AF_PACKET)", interface, e))?;
        let port = Port { fd, name: interface.to_owned() };
        port.switch_on(libc::PACKET_VNET_HDR, "PACKET_VNET_HDR")?;
        port.switch_on(libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING")?;
        // The queues that fill up should be those of the traffic shaper being modelled, not those of this socket.
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

    /// Receives the frames that are ready, as many as fit; returns how many, possibly 0.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down, and other errors of the kernel.
    pub fn receive(&self, batch: &mut Batch) -> Result<usize, Errno> {
        batch.lengths.clear();
        let mut parts: Vec<libc::iovec> = batch
            .frames
            .iter_mut()
            .map(|f| libc::iovec { iov_base: f.as_mut_ptr().cast(), iov_len: f.len() })
            .collect();
        let mut messages = headers(&mut parts);
        let count = loop {
            // SAFETY: each header points at one part, each part at a buffer of the length it states; all outlive the
            // call.
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

    /// Sends frames (each with its `virtio_net_hdr`) in order. Returns the number of frames that the interface did not
    /// accept because a queue is full or the interface is down: these are lost, as on a switch.
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
                // The next frame was refused; a later one may be smaller.
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
        // Without privilege, opening the socket itself fails.
        assert!(error.contains("no-such-if0"), "{error}");
    }
}
