//! Multicast options of UDP sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use rustix::net::{netdevice, sockopt};

use crate::OsError;

/// The interface through which a group is joined and addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// The interface that owns this IPv4 address.
    V4(Ipv4Addr),
    /// The interface with this index; 0 lets the kernel choose.
    V6(u32),
}

/// The index of a network interface.
pub fn interface_index(fd: impl AsFd, name: &str) -> Result<u32, OsError> {
    netdevice::name_to_index(fd, name).map_err(|e| OsError::new("ioctl(SIOCGIFINDEX)", name, e))
}

/// Joins a group, sends to groups through the same interface, and disables loopback of its own
/// datagrams.
///
/// Errors: the errno of the option that failed; `EINVAL` when group and interface belong to different
/// address families.
pub fn join(fd: impl AsFd, group: IpAddr, through: Through) -> Result<(), OsError> {
    let os = |call: &'static str| move |e| OsError::new(call, group, e);
    match (group, through) {
        (IpAddr::V4(group), Through::V4(local)) => {
            sockopt::set_ip_add_membership(&fd, &group, &local)
                .map_err(os("setsockopt(IP_ADD_MEMBERSHIP)"))?;
            sockopt::set_ip_multicast_if(&fd, &local).map_err(os("setsockopt(IP_MULTICAST_IF)"))?;
            sockopt::set_ip_multicast_loop(&fd, false).map_err(os("setsockopt(IP_MULTICAST_LOOP)"))
        }
        (IpAddr::V6(group), Through::V6(index)) => {
            let group: &Ipv6Addr = &group;
            sockopt::set_ipv6_add_membership(&fd, group, index)
                .map_err(os("setsockopt(IPV6_ADD_MEMBERSHIP)"))?;
            sockopt::set_ipv6_multicast_if(&fd, index)
                .map_err(os("setsockopt(IPV6_MULTICAST_IF)"))?;
            sockopt::set_ipv6_multicast_loop(&fd, false)
                .map_err(os("setsockopt(IPV6_MULTICAST_LOOP)"))
        }
        _ => Err(OsError::new("join group", group, rustix::io::Errno::INVAL)),
    }
}
