//! AF_UNIX stream sockets.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::socket::{self, SocketType};

use crate::building_blocks::connection::{BACKLOG, ConnectionFamily, Dialling, set_buffers};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::{Caps, Carrier, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `uds-stream`, unix(7) with SOCK_STREAM: one call and one copy per message at each end.
#[derive(Debug)]
pub struct UdsStream;

impl ConnectionFamily for UdsStream {
    const NAME: &'static str = "uds-stream";
    const SUMMARY: &'static str = "UNIX-domain stream socket (ipc-bench: domain)";
    const CARRIER: Carrier = Carrier::new(Family::Unix, Transport::Unix);
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;

    fn capabilities() -> Caps {
        stream_caps(false, Privilege::None)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        // An accepted AF_UNIX socket has the default buffers, regardless of those of the listening one.
        set_buffers(fd.as_fd(), spec)?;
        channel(spec, fd)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        let (fd, offer) = bound(SocketType::Stream, spec)?;
        socket::listen(&fd, BACKLOG)?;
        Ok((fd, offer))
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        let fd = socket::unix(SocketType::Stream)?;
        set_buffers(fd.as_fd(), spec)?;
        Ok((fd, offered_address(Self::NAME, offer)?))
    }

    fn remedy() -> &'static str {
        "use a kernel with CONFIG_UNIX"
    }
}

/// Creates a socket with an abstract name that the kernel chose: it does not appear in the file system, and it
/// disappears with the socket, even after kill -9.
pub(super) fn bound(kind: SocketType, spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
    let fd = socket::unix(kind)?;
    set_buffers(fd.as_fd(), spec)?;
    socket::bind(&fd, &socket::unnamed_address(), "a free abstract address")?;
    let name = socket::abstract_name(&socket::local_address(&fd)?).unwrap_or_default();
    Ok((fd, Offer::new().with_word("abstract", String::from_utf8_lossy(&name))))
}

/// Reads the abstract address that [`bound`] offered.
pub(super) fn offered_address(
    mechanism: &'static str,
    offer: &Offer,
) -> Result<socket::Address, OpenError> {
    let name: String = offer.word(mechanism, "abstract")?;
    Ok(socket::abstract_address(name.as_bytes())?)
}
