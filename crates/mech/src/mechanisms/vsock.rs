//! vsock(7) over its loopback: the sockets with which a virtual machine and its host communicate.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::socket::{self, SocketType};
use crossway_sys::vsock::VsockAddress;

use crate::building_blocks::connection::{BACKLOG, ConnectionFamily, Dialling, set_buffers};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::{Caps, Carrier, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `vsock`: AF_VSOCK with SOCK_STREAM to VMADDR_CID_LOCAL; one call and one copy per message at each end.
#[derive(Debug)]
pub struct Vsock;

fn stream_socket(spec: &Spec) -> Result<OwnedFd, OpenError> {
    let fd = socket::of_family(crossway_sys::vsock::FAMILY, SocketType::Stream, "AF_VSOCK")?;
    set_buffers(fd.as_fd(), spec)?;
    Ok(fd)
}

impl ConnectionFamily for Vsock {
    const NAME: &'static str = "vsock";
    const SUMMARY: &'static str = "VM socket over its loopback (VMADDR_CID_LOCAL)";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Vsock);
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;

    fn capabilities() -> Caps {
        stream_caps(false, Privilege::Module)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        let fd = stream_socket(spec)?;
        socket::bind(&fd, &VsockAddress::LOCAL_ANY_PORT.into(), "the local vsock address")?;
        socket::listen(&fd, BACKLOG)?;
        let address = VsockAddress::of(&fd)?;
        Ok((fd, Offer::new().with_word("port", address.port)))
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        let address =
            VsockAddress { port: offer.word(Self::NAME, "port")?, ..VsockAddress::LOCAL_ANY_PORT };
        Ok((stream_socket(spec)?, address.into()))
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        channel(spec, fd)
    }

    fn remedy() -> &'static str {
        "load the loopback transport as root: modprobe vsock_loopback (CONFIG_VSOCKETS_LOOPBACK); if the kernel has no such \
         module, use a guest with another kernel: crossway guest run --kernel 6.12"
    }
}
