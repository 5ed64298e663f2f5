//! The kernel's TIPC without connections: AF_TIPC with SOCK_RDM and SOCK_DGRAM.

use std::os::fd::OwnedFd;

use crossway_sys::Errno;
use crossway_sys::socket::{self, Address, SocketType};
use crossway_sys::tipc::{self, TipcMessage};
use crossway_tipc_client::SocketKind;

use super::tipc_kernel::{REMEDY, offered, publish, tipc_socket};
use crate::building_blocks::datagram::Datagram;
use crate::building_blocks::tipc_port::{Arrival, MessageType, PortSocket, Tipc, TipcMessages};
use crate::{Carrier, Family, Offer, OpenError, Privilege, Spec, Transport};

/// RDM (reliably delivered messages): messages are not lost in transit, but a full receiver rejects them.
pub type TipcKernelRdm = Datagram<TipcMessages<Rdm>>;
/// Datagrams, which may also be dropped in transit.
pub type TipcKernelDgram = Datagram<TipcMessages<Dgram>>;

/// The socket type of [`TipcKernelRdm`], SOCK_RDM.
#[derive(Debug)]
pub struct Rdm;

impl MessageType for Rdm {
    const NAME: &'static str = "tipc-kernel-rdm";
    const SUMMARY: &'static str =
        "the kernel's TIPC, RDM messages; an overloaded receiver rejects messages";
    const KIND: SocketKind = SocketKind::Rdm;
    type Tipc = KernelTipc;
}

/// The socket type of [`TipcKernelDgram`], SOCK_DGRAM.
#[derive(Debug)]
pub struct Dgram;

impl MessageType for Dgram {
    const NAME: &'static str = "tipc-kernel-dgram";
    const SUMMARY: &'static str =
        "the kernel's TIPC, datagrams; an overloaded receiver rejects messages";
    const KIND: SocketKind = SocketKind::Dgram;
    type Tipc = KernelTipc;
}

/// The kernel's TIPC. Its sockets are used directly, not through [`crossway_tipc_client::Socket`]. The receive call of
/// that socket type also requests the sender's address and all of TIPC's control data, so it costs more than the call
/// of an ordinary program.
#[derive(Debug)]
pub struct KernelTipc;

impl Tipc for KernelTipc {
    type Socket = OwnedFd;
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc);
    const PRIVILEGE: Privilege = Privilege::Module;
    const LARGEST: usize = tipc::MAX_MESSAGE_BYTES;
    const ADVICE: &'static str = "this is the limit of TIPC; use tipc-kernel-stream for more";
    const REMEDY: &'static str = REMEDY;

    fn port(kind: SocketKind, spec: &Spec) -> Result<OwnedFd, OpenError> {
        let kind = if kind == SocketKind::Dgram { SocketType::Dgram } else { SocketType::Rdm };
        let fd = tipc_socket(kind, spec)?;
        tipc::return_undeliverable(&fd)?;
        Ok(fd)
    }

    fn publish(fd: &OwnedFd) -> Result<String, OpenError> {
        publish(fd).map(|service| service.to_string())
    }

    fn offered(mechanism: &'static str, offer: &Offer, name: &str) -> Result<Address, OpenError> {
        offered(mechanism, offer, name)
    }

    fn overflow(spec: &Spec) -> Vec<u8> {
        vec![0; spec.max_message]
    }

    fn version() -> String {
        crate::self_test::kernel_version()
    }
}

impl PortSocket for OwnedFd {
    #[inline]
    fn send_to(&self, msg: &[u8], to: &Address, nonblocking: bool) -> Result<(), Errno> {
        socket::send_to(self, msg, to, nonblocking).map(drop)
    }

    #[inline]
    fn receive(
        &self,
        buf: &mut [u8],
        overflow: &mut [u8],
        nonblocking: bool,
    ) -> Result<Arrival, Errno> {
        Ok(match tipc::recv(self, buf, overflow, false, nonblocking)? {
            TipcMessage::Data(len) => Arrival::Message(len),
            TipcMessage::Returned(tipc::REASON_OVERLOAD) => Arrival::Rejected,
            TipcMessage::Returned(_) => Arrival::Unreachable,
        })
    }
}
