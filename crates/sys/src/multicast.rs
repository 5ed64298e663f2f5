//! Multicast options of UDP sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use rustix::net::{netdevice, sockopt};

use crate::OsError;
use crate::socket::set_raw;

/// The interface on which a group is joined, or through which datagrams for a group are sent.
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

/// Joins a multicast group on one interface. An IPv4 socket then receives no datagrams for groups that it has not
/// joined, and none for this group that arrive on other interfaces; an IPv6 socket must be bound to the group for that.
///
/// Errors: the errno of the option that failed; `EINVAL` when group and interface belong to different
/// address families.
pub fn join(fd: impl AsFd, group: IpAddr, through: Through) -> Result<(), OsError> {
    let os = |call: &'static str| move |e| OsError::new(call, group, e);
    match (group, through) {
        (IpAddr::V4(group), Through::V4(local)) => {
            sockopt::set_ip_add_membership(&fd, &group, &local)
                .map_err(os("setsockopt(IP_ADD_MEMBERSHIP)"))?;
            let off = 0_i32.to_ne_bytes();
            set_raw(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, Some(&off))
                .map_err(os("setsockopt(IP_MULTICAST_ALL)"))
        }
        // A socket bound to a group of this scope is bound to an interface too.
        (IpAddr::V6(group), Through::V6(index)) => {
            sockopt::set_ipv6_add_membership(&fd, &group, index)
                .map_err(os("setsockopt(IPV6_ADD_MEMBERSHIP)"))
        }
        _ => Err(OsError::new("join group", group, rustix::io::Errno::INVAL)),
    }
}

/// Makes the socket send multicast datagrams through this interface, without a copy to this host (loopback).
///
/// Errors: the errno of the option that failed.
pub fn send_through(fd: impl AsFd, through: Through) -> Result<(), OsError> {
    let os = |call: &'static str| move |e| OsError::new(call, "", e);
    match through {
        Through::V4(local) => {
            sockopt::set_ip_multicast_if(&fd, &local).map_err(os("setsockopt(IP_MULTICAST_IF)"))?;
            sockopt::set_ip_multicast_loop(&fd, false).map_err(os("setsockopt(IP_MULTICAST_LOOP)"))
        }
        Through::V6(index) => {
            sockopt::set_ipv6_multicast_if(&fd, index)
                .map_err(os("setsockopt(IPV6_MULTICAST_IF)"))?;
            sockopt::set_ipv6_multicast_loop(&fd, false)
                .map_err(os("setsockopt(IPV6_MULTICAST_LOOP)"))
        }
    }
}
