//! AF_UNIX stream sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crossway_sys::OsError;
use crossway_sys::lease::{self, Resource};
use crossway_sys::socket::{self, Address, SocketType};

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
        let (fd, name) = bound(SocketType::Stream, spec)?;
        socket::listen(&fd, BACKLOG)?;
        Ok((fd, offer_of(name)))
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

/// The name of an offer's abstract address.
const ABSTRACT: &str = "abstract";

/// Creates a socket, and returns it with its name. The name is an abstract one that the kernel chose, which does not appear
/// in the file system and disappears with the socket, even after kill -9; or, with [`unix_path`], a path.
///
/// [`unix_path`]: crate::Bind::unix_path
pub(super) fn bound(kind: SocketType, spec: &Spec) -> Result<(OwnedFd, String), OpenError> {
    let fd = socket::unix(kind)?;
    set_buffers(fd.as_fd(), spec)?;
    if spec.bind.unix_path {
        let path = lease::fresh_path("uds")?;
        let lease = lease::hold(Resource::Path { path: path.clone() })?;
        socket::bind(&fd, &socket::path_address(&path)?, &path.display().to_string())?;
        // Connecting ends need the path for longer than this call. It is removed with this process's folder of leases.
        std::mem::forget(lease);
        return Ok((fd, path.display().to_string()));
    }
    socket::bind(&fd, &socket::unnamed_address(), "a free abstract address")?;
    let name = socket::abstract_name(&socket::local_address(&fd)?).unwrap_or_default();
    Ok((fd, String::from_utf8_lossy(&name).into_owned()))
}

/// The address of a socket with a name that [`bound`] returned.
pub(super) fn address_of(name: &str) -> Result<Address, OsError> {
    // The kernel's own abstract names are hexadecimal digits.
    match name.starts_with('/') {
        true => socket::path_address(Path::new(name)),
        false => socket::abstract_address(name.as_bytes()),
    }
}

/// The offer of a listening socket with a name that [`bound`] returned.
pub(super) fn offer_of(name: String) -> Offer {
    Offer::new().with_word(if name.starts_with('/') { "path" } else { ABSTRACT }, name)
}

/// Reads the address in an offer that [`offer_of`] made.
pub(super) fn offered_address(
    mechanism: &'static str,
    offer: &Offer,
) -> Result<Address, OpenError> {
    let name: String =
        offer.word(mechanism, "path").or_else(|_| offer.word(mechanism, ABSTRACT))?;
    Ok(address_of(&name)?)
}
