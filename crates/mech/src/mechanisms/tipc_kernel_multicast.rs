//! Service multicast of the kernel's TIPC (AF_TIPC, SOCK_RDM): one send reaches every socket that is bound to the
//! service.
//!
//! Every channel has two services: one to which all connecting ends are bound, so that one message of the listening end
//! reaches all of them, and one to which the listening end is bound, for the opposite direction. Both directions use
//! multicast. With two ends this is multicast to one receiver, which costs more than a plain message.
//!
//! Between nodes, the kernel sends a multicast message either once to all nodes (over the broadcast link) or once per
//! node, whichever it considers cheaper, and repairs losses in transit. A receiver whose buffer is full drops messages.
//! Unlike with plain RDM, nothing is returned to the sender.

use std::os::fd::OwnedFd;
use std::time::Instant;

use crossway_sys::socket::{self, Address, SocketType};
use crossway_sys::tipc::{self, TipcAddress};
use crossway_sys::{Errno, OsError};

use super::tipc_kernel::{REMEDY, offered, publish, service_of, tipc_socket};
use super::tipc_kernel_message::KernelTipc;
use crate::building_blocks::arrival;
use crate::building_blocks::datagram::{Datagram, DatagramFamily};
use crate::building_blocks::tipc_port::{PortSink, PortSource, Tipc, port_halves};
use crate::{Carrier, Family, Offer, OpenError, Privilege, Reliability, Spec, Transport};

/// Service multicast over RDM sockets.
pub type TipcKernelMulticast = Datagram<ServiceMulticast>;

/// The service type to which all connecting ends are bound. The instance is that of the listening end's own service.
const AUDIENCE: u32 = 0x4357_0004;

/// The family of multicast sockets.
#[derive(Debug)]
pub struct ServiceMulticast;

impl DatagramFamily for ServiceMulticast {
    const NAME: &'static str = "tipc-kernel-multicast";
    const SUMMARY: &'static str = "the kernel's TIPC, service multicast (RDM): one send reaches all members; full \
                                   receivers drop messages";
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc);
    const RELIABILITY: Reliability = Reliability::Lossy;
    const CARRIES_EMPTY: bool = false;
    const FAN_OUT: bool = true;
    const LARGEST: Option<usize> = Some(KernelTipc::LARGEST);
    const CROSSES_HOSTS: bool = true;
    const PRIVILEGE: Privilege = KernelTipc::PRIVILEGE;
    const HELLOS: usize = 1;
    const NOT_YET: &'static [Errno] = arrival::MESSAGE;
    const ADVICE: &'static str = KernelTipc::ADVICE;
    type Inbox = OwnedFd;
    type Sink = PortSink<OwnedFd>;
    type Source = PortSource<OwnedFd>;

    fn inbox_to_offer(spec: &Spec) -> Result<(OwnedFd, String), OpenError> {
        let fd = tipc_socket(SocketType::Rdm, spec)?;
        let service = publish(&fd)?;
        Ok((fd, service.to_string()))
    }

    fn inbox_for(spec: &Spec, to: &Address) -> Result<OwnedFd, OpenError> {
        let fd = tipc_socket(SocketType::Rdm, spec)?;
        let audience = audience_of(to)?;
        socket::bind(&fd, &audience.into(), &audience.to_string())?;
        Ok(fd)
    }

    fn address(offer: &Offer, name: &str) -> Result<Address, OpenError> {
        offered(Self::NAME, offer, name)
    }

    fn halves(
        spec: &Spec,
        inbox: OwnedFd,
        to: &Address,
    ) -> Result<(Self::Sink, Self::Source, usize), OpenError> {
        // A connecting end knows the other end's service; a listening end learned a socket's address from its greeting, and sends
        // to all such sockets.
        let to = match TipcAddress::from_any(to) {
            Some(service @ TipcAddress::Service { .. }) => service,
            _ => audience_of(&service_of(&inbox)?.into())?,
        };
        let TipcAddress::Service { kind, instance } = to else {
            return Err(no_service());
        };
        // Names spread over the cluster independently of messages, so they may arrive later than the greeting.
        if !tipc::await_service(to, Instant::now() + spec.open_timeout)? {
            return Err(OpenError::TimedOut { mechanism: Self::NAME, waited: spec.open_timeout });
        }
        let all = TipcAddress::Range { kind, lower: instance, upper: instance };
        let (sink, source) = port_halves(inbox, all.into(), KernelTipc::overflow(spec));
        Ok((sink, source, KernelTipc::LARGEST))
    }

    fn remedy() -> &'static str {
        REMEDY
    }
}

/// Returns the service of all ends that connect to the end with address `listener`.
fn audience_of(listener: &Address) -> Result<TipcAddress, OpenError> {
    match TipcAddress::from_any(listener) {
        Some(TipcAddress::Service { instance, .. }) => {
            Ok(TipcAddress::Service { kind: AUDIENCE, instance })
        }
        _ => Err(no_service()),
    }
}

fn no_service() -> OpenError {
    let why = std::io::Error::other("not a service address");
    OsError::new("tipc multicast", "the other end's address", why).into()
}
