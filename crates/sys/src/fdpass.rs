//! Passes descriptors over a UNIX socket (SCM_RIGHTS), together with bytes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, recvmsg, sendmsg,
};

use crate::OsError;
use crate::socket::{recv_flags, send_flags};

/// Maximum number of descriptors passed by one call; the kernel's SCM_MAX_FD is 253.
pub const MAX_FDS: usize = 64;

/// Sends bytes with descriptors attached to the first of them; returns how many bytes were sent. The caller's
/// descriptors stay open. At least one byte must be sent for descriptors to be passed.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, OsError> {
    if fds.len() > MAX_FDS {
        let why = format!("{} descriptors at once; at most {MAX_FDS} are allowed", fds.len());
        return Err(OsError::new("sendmsg", "", std::io::Error::other(why)));
    }
    transmit(socket, bytes, fds, false).map_err(|e| OsError::new("sendmsg", "", e))
}

/// As [`send`], without waiting: EAGAIN when there is no room, EINVAL when there are too many descriptors.
pub fn try_send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    if fds.len() > MAX_FDS { Err(Errno::INVAL) } else { transmit(socket, bytes, fds, true) }
}

fn transmit(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    nonblocking: bool,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let (parts, flags) = ([IoSlice::new(bytes)], send_flags(nonblocking));
    retry_on_intr(|| sendmsg(socket.as_fd(), &parts, &mut control, flags))
}

/// Receives bytes, and appends the descriptors attached to them (set to close on exec) to `fds`. Returns the number of
/// bytes, 0 at the end of the stream.
pub fn recv(socket: impl AsFd, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, OsError> {
    receive(socket, bytes, fds, false).map_err(|e| OsError::new("recvmsg", "", e))
}

/// As [`recv`], but does not wait if `nonblocking`: EAGAIN when there is nothing to receive. Data that a peer sent
/// before it died is still received, even if that peer left data from this end unread.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    nonblocking: bool,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | recv_flags(nonblocking);
    let message = loop {
        match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags) {
            // Linux reports once that a peer has died with unread records, before the records that it has sent.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(errno) => return Err(errno),
            Ok(message) => break message,
        }
    };
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    Ok(message.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_arrives_and_works() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        assert_eq!(send(&a, b"x", &[there.as_fd()]).unwrap(), 1);
        drop(there);
        let mut byte = [0];
        let mut fds = Vec::new();
        assert_eq!(recv(&b, &mut byte, &mut fds).unwrap(), 1);
        assert_eq!(fds.len(), 1);
        File::from(fds.remove(0)).write_all(b"hello").unwrap();
        let mut text = String::new();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn what_a_peer_sent_before_it_closed_with_unread_records_is_received() {
        let (a, b) = crate::socket::unix_pair(crate::socket::SocketType::Seqpacket).unwrap();
        send(&a, b"unread", &[]).unwrap();
        send(&b, b"sent", &[a.as_fd()]).unwrap();
        drop(b);
        let (mut bytes, mut fds) = ([0; 8], Vec::new());
        assert_eq!(receive(&a, &mut bytes, &mut fds, true), Ok(4));
        assert_eq!((&bytes[..4], fds.len()), (&b"sent"[..], 1));
        assert_eq!(receive(&a, &mut bytes, &mut fds, true), Ok(0));
    }

    #[test]
    fn too_many_descriptors_are_refused_before_any_byte_goes() {
        let (a, _b) = UnixStream::pair().unwrap();
        let many = vec![a.as_fd(); MAX_FDS + 1];
        assert!(send(&a, b"x", &many).unwrap_err().to_string().contains("at most"));
    }
}
