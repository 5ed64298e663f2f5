//! TIPC as the kernel speaks it, AF_TIPC: the four socket types, and multicast.
//!
//! A listening end binds a service address, `{SERVICE, its own port}`, which every node of the cluster can look up.
//!
//! Connections (stream, seqpacket) are reliable and flow-controlled. RDM and DGRAM are not, on one node: a receiver whose
//! buffer is full rejects, and nothing holds the sender back. Such messages come back to the sender (DEST_DROPPABLE is
//! off), who counts them (`returned_messages`); they are lost all the same. This is the raw mechanism, without a window of
//! Crossway's own.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::OsError;
use crossway_sys::socket::{self, Address, Kind};
use crossway_sys::tipc::{self, TipcAddress};

use super::connection::set_buffers;
use crate::{Offer, OpenError, Spec};

pub use super::tipc_kernel_connection::{TipcKernelSeqpacket, TipcKernelStream};
pub use super::tipc_kernel_message::{TipcKernelDgram, TipcKernelRdm};
pub use super::tipc_kernel_multicast::TipcKernelMulticast;

/// The service type of every Crossway channel; any number above 63 would do.
const SERVICE: u32 = 0x4357_0001;

/// What brings AF_TIPC here.
pub(super) const REMEDY: &str = "load the kernel's module as root: modprobe tipc (CONFIG_TIPC); where the kernel has none: a \
     guest with its own kernel, or Crossway's TIPC node in user space";

/// A socket of AF_TIPC.
pub(super) fn tipc_socket(kind: Kind, spec: &Spec) -> Result<OwnedFd, OpenError> {
    let fd = socket::of_family(tipc::FAMILY, kind, "AF_TIPC")?;
    set_buffers(fd.as_fd(), spec)?;
    Ok(fd)
}

/// The service address under which `fd` is to be found; its own port number makes it unique on the node, and the node's
/// generator of those numbers makes it as good as unique in the cluster.
pub(super) fn service_of(fd: &OwnedFd) -> Result<TipcAddress, OsError> {
    let instance = match TipcAddress::of(fd)? {
        TipcAddress::Socket { port, .. } => port,
        TipcAddress::Service { instance, .. } | TipcAddress::Range { lower: instance, .. } => {
            instance
        }
    };
    Ok(TipcAddress::Service { kind: SERVICE, instance })
}

/// Publishes the service address of `fd`. Peers can come from this moment on.
pub(super) fn publish(fd: &OwnedFd) -> Result<TipcAddress, OpenError> {
    let service = service_of(fd)?;
    socket::bind(fd, &service.into(), &service.to_string())?;
    Ok(service)
}

/// The address that an offer names.
pub(super) fn offered(
    mechanism: &'static str,
    offer: &Offer,
    name: &str,
) -> Result<Address, OpenError> {
    let address: TipcAddress = offer.word(mechanism, name)?;
    Ok(address.into())
}
