//! The Internet addresses of this host's interfaces.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::OsError;

/// The addresses of all interfaces that are up, most reachable first: IPv4, then IPv6, then loopback. IPv6 link-local
/// addresses are left out, because they are ambiguous without an interface.
pub fn own_addresses() -> Result<Vec<IpAddr>, OsError> {
    let mut addresses = Vec::new();
    for_each_up(|_, address| addresses.push(address))?;
    addresses.retain(|a| !is_link_local(a));
    addresses.sort_by_key(|a| (a.is_loopback(), a.is_ipv6()));
    addresses.dedup();
    Ok(addresses)
}

/// The name of the first interface that is up and has this address; `None` if there is no such interface.
pub fn interface_of(wanted: IpAddr) -> Result<Option<String>, OsError> {
    let mut found = None;
    for_each_up(|name, address| {
        if address == wanted && found.is_none() {
            found = Some(name.to_string_lossy().into_owned());
        }
    })?;
    Ok(found)
}

/// Calls `take` with the name and each address of every interface that is up.
fn for_each_up(mut take: impl FnMut(&CStr, IpAddr)) -> Result<(), OsError> {
    let mut first = std::ptr::null_mut();
    // SAFETY: getifaddrs writes a list's head to the pointer that it is given, or fails.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(OsError::new("getifaddrs", "", std::io::Error::last_os_error()));
    }
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is valid until freeifaddrs below; `next` is one of its entries.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 == 0 || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: a non-null address has at least its family, and the family determines the layout of the rest.
        let address = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let v4 = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
                }
                libc::AF_INET6 => {
                    let v6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
                }
                _ => None,
            }
        };
        if let Some(address) = address {
            // SAFETY: every entry has a name that ends in a zero and lives as long as the list.
            take(unsafe { CStr::from_ptr(entry.ifa_name) }, address);
        }
    }
    // SAFETY: `first` came from getifaddrs and nothing refers to the list any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(())
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_comes_last() {
        let addresses = own_addresses().unwrap();
        assert!(addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{addresses:?}");
        assert!(addresses.is_sorted_by_key(IpAddr::is_loopback), "{addresses:?}");
        let lo = interface_of(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert_eq!(lo.as_deref(), Some("lo"));
        assert_eq!(interface_of("192.0.2.77".parse().unwrap()).unwrap(), None);
    }
}
