//! The kernel's TIPC, AF_TIPC: the four socket types, and multicast.
//!
//! A listening end binds a service address, `{SERVICE, its own port}`, which every node of the cluster can look up.
//!
//! Connections (stream, seqpacket) are reliable and flow-controlled. RDM and DGRAM are not flow-controlled, even on one
//! node: a receiver whose buffer is full rejects messages, and nothing slows down the sender. Such messages are
//! returned to the sender (DEST_DROPPABLE is off), which counts them (`returned_messages`), but they are lost. This is
//! the raw mechanism, without a flow-control window added by Crossway.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::OsError;
use crossway_sys::socket::{self, Address, SocketType};
use crossway_sys::tipc::{self, TipcAddress};

use crate::building_blocks::connection::set_buffers;
use crate::{Offer, OpenError, Spec};

pub use super::tipc_kernel_connection::{TipcKernelSeqpacket, TipcKernelStream};
pub use super::tipc_kernel_message::{TipcKernelDgram, TipcKernelRdm};
pub use super::tipc_kernel_multicast::TipcKernelMulticast;

/// The service type of every Crossway channel; any number above 63 would be possible.
const SERVICE: u32 = 0x4357_0001;

/// How to make AF_TIPC available.
pub(super) const REMEDY: &str = "load the kernel's module as root: modprobe tipc (CONFIG_TIPC); if the kernel has no \
                                 such module, use a guest with its own kernel (crossway guest run) or Crossway's TIPC \
                                 node in user space (crossway tipcd)";

/// Creates an AF_TIPC socket.
pub(super) fn tipc_socket(kind: SocketType, spec: &Spec) -> Result<OwnedFd, OpenError> {
    let fd = socket::of_family(tipc::FAMILY, kind, "AF_TIPC")?;
    set_buffers(fd.as_fd(), spec)?;
    Ok(fd)
}

/// Returns the service address by which peers find `fd`. Its instance is the port number of `fd`, which is unique on
/// the node and, since the node generates port numbers at random, practically unique in the cluster.
pub(super) fn service_of(fd: &OwnedFd) -> Result<TipcAddress, OsError> {
    let instance = match TipcAddress::of(fd)? {
        TipcAddress::Socket { port, .. } => port,
        TipcAddress::Service { instance, .. } | TipcAddress::Range { lower: instance, .. } => {
            instance
        }
    };
    Ok(TipcAddress::Service { kind: SERVICE, instance })
}

/// Publishes the service address of `fd`. Peers can connect from this moment on.
pub(super) fn publish(fd: &OwnedFd) -> Result<TipcAddress, OpenError> {
    let service = service_of(fd)?;
    socket::bind(fd, &service.into(), &service.to_string())?;
    Ok(service)
}

/// Reads the address that an offer has under `name`.
pub(super) fn offered(
    mechanism: &'static str,
    offer: &Offer,
    name: &str,
) -> Result<Address, OpenError> {
    let address: TipcAddress = offer.word(mechanism, name)?;
    Ok(address.into())
}
