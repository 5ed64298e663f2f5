//! Sending and receiving on sockets.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags};

use super::Address;

/// The flags of a send: waiting or not, and without SIGPIPE.
#[inline]
pub(crate) fn send_flags(nonblocking: bool) -> SendFlags {
    if nonblocking { SendFlags::NOSIGNAL | SendFlags::DONTWAIT } else { SendFlags::NOSIGNAL }
}

/// The flags of a receive: waiting or not.
#[inline]
pub(crate) fn recv_flags(nonblocking: bool) -> RecvFlags {
    if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() }
}

/// Sends to the connected peer; never raises SIGPIPE.
#[inline]
pub fn send(fd: impl AsFd, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
    retry_on_intr(|| rustix::net::send(&fd, bytes, send_flags(nonblocking)))
}

/// Sends a message to `to`.
#[inline]
pub fn send_to(
    fd: impl AsFd,
    bytes: &[u8],
    to: &Address,
    nonblocking: bool,
) -> Result<usize, Errno> {
    retry_on_intr(|| rustix::net::sendto(&fd, bytes, send_flags(nonblocking), to))
}

/// Receives available bytes of a stream, at most as many as `buf` holds; returns 0 at the end.
#[inline]
pub fn recv(fd: impl AsFd, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
    let (_, len) = retry_on_intr(|| rustix::net::recv(&fd, &mut *buf, recv_flags(nonblocking)))?;
    Ok(len)
}

/// As [`recv`], into several buffers; descriptors that were sent along are closed.
#[inline]
pub fn recv_parts(
    fd: impl AsFd,
    parts: &mut [std::io::IoSliceMut<'_>],
    nonblocking: bool,
) -> Result<usize, Errno> {
    let control = &mut rustix::net::RecvAncillaryBuffer::default();
    let flags = recv_flags(nonblocking);
    retry_on_intr(|| rustix::net::recvmsg(&fd, parts, control, flags)).map(|got| got.bytes)
}

/// As [`recv`], but appends at most `most` bytes to a vector, within its capacity.
#[inline]
pub fn recv_behind(
    fd: impl AsFd,
    buf: &mut Vec<u8>,
    most: usize,
    nonblocking: bool,
) -> Result<usize, Errno> {
    crate::heap::append(buf, most, |room| {
        let flags = recv_flags(nonblocking);
        retry_on_intr(|| rustix::net::recv(&fd, &mut *room, flags).map(|((got, _), _)| got.len()))
    })
}

/// Receives a piece of a message, at most as many bytes as `buf` holds; returns its length and whether it is the last
/// piece (MSG_EOR). A length of 0 is the end of the connection. For protocols that preserve message boundaries and
/// deliver large messages in pieces.
#[inline]
pub fn recv_piece(
    fd: impl AsFd,
    buf: &mut [u8],
    nonblocking: bool,
) -> Result<(usize, bool), Errno> {
    let mut parts = [IoSliceMut::new(buf)];
    let got = retry_on_intr(|| {
        let control = &mut RecvAncillaryBuffer::default();
        let got = rustix::net::recvmsg(&fd, &mut parts, control, recv_flags(nonblocking))?;
        Ok((got.bytes, got.flags))
    })?;
    Ok((got.0, got.1.contains(ReturnFlags::EOR)))
}

/// Receives one message and returns its full length, which is larger than `buf` if it was truncated (MSG_TRUNC).
#[inline]
pub fn recv_message(fd: impl AsFd, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
    let flags = recv_flags(nonblocking) | RecvFlags::TRUNC;
    let (_, len) = retry_on_intr(|| rustix::net::recv(&fd, &mut *buf, flags))?;
    Ok(len)
}

/// As [`recv_message`], and returns the sender's address; `None` where the sender has no address or there was no
/// message.
#[inline]
pub fn recv_message_from(
    fd: impl AsFd,
    buf: &mut [u8],
    nonblocking: bool,
) -> Result<(usize, Option<Address>), Errno> {
    let flags = recv_flags(nonblocking) | RecvFlags::TRUNC;
    let (_, len, from) = retry_on_intr(|| rustix::net::recvfrom(&fd, &mut *buf, flags))?;
    Ok((len, from))
}

/// Whether a message, possibly an empty one, is waiting. It is recognised by its sender's address, which the end of the
/// stream does not have.
pub fn has_message(fd: impl AsFd) -> Result<bool, Errno> {
    match rustix::net::recvfrom(&fd, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, len, from)) => Ok(len > 0 || from.is_some()),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno) => Err(errno),
    }
}
