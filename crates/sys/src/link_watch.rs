//! Reports when a network interface stops carrying frames (it went down, lost its carrier or was deleted) and when it
//! carries them again; see rtnetlink(7).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::OsError;
use crate::netns::interface_runs;
use crate::socket::recv;

/// A change of an interface's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The interface no longer carries frames.
    Lost,
    /// The interface carries frames again.
    Back,
}

/// Number of bytes at the beginning of a message that contain everything needed: a `nlmsghdr` and an `ifinfomsg`.
const HEAD: usize = 16 + 16;

/// Flags that an interface has when it carries frames.
const CARRIES: u32 = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOWER_UP) as u32;

/// Reports state changes of one interface in the network namespace where the watch was opened.
#[derive(Debug)]
pub struct LinkWatch {
    fd: OwnedFd,
    name: String,
    index: u32,
    carries: bool,
}

impl LinkWatch {
    /// Watches the interface with this name and index. Needs no privilege.
    ///
    /// # Errors
    /// The process cannot use rtnetlink, or there is no such interface.
    pub fn open(name: &str, index: u32) -> Result<Self, OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)
            .map_err(|e| OsError::new("socket(AF_NETLINK)", name, e))?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, libc::RTMGRP_LINK as u32))
            .map_err(|e| OsError::new("bind(RTMGRP_LINK)", name, e))?;
        // Read only after the socket is bound, so that no change is missed between the two.
        let carries = interface_runs(name)?;
        Ok(Self { fd, name: name.to_owned(), index, carries })
    }

    /// The next change, without waiting; `None` if there is none yet. A loss that was followed by a recovery is
    /// reported, too.
    pub fn next_change(&mut self) -> Option<LinkChange> {
        // A longer message is truncated; the rest is not needed.
        let mut bytes = [0; HEAD];
        loop {
            let carries = match recv(&self.fd, &mut bytes, true) {
                Ok(len) => self.told(&bytes[..len]),
                // Messages were lost: read the state itself.
                Err(Errno::NOBUFS) => Some(interface_runs(&self.name).unwrap_or(false)),
                Err(_) => return None,
            };
            if let Some(carries) = carries.filter(|carries| *carries != self.carries) {
                self.carries = carries;
                return Some(if carries { LinkChange::Back } else { LinkChange::Lost });
            }
        }
    }

    /// Whether the interface carries frames according to a message; `None` if the message is about something else. Only
    /// the kernel can send messages here.
    fn told(&self, message: &[u8]) -> Option<bool> {
        let word = |at: usize| {
            let bytes = message.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let half = message.get(4..6)?;
        let kind = u16::from_ne_bytes(half.try_into().ok()?);
        // A bridge reports its ports in messages of another family.
        let of_interface = *message.get(16)? == libc::AF_UNSPEC as u8 && word(20)? == self.index;
        match kind {
            libc::RTM_NEWLINK if of_interface => Some(word(24)? & CARRIES == CARRIES),
            libc::RTM_DELLINK if of_interface => Some(false),
            _ => None,
        }
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn message(kind: u16, family: u8, index: u32, flags: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[..4].copy_from_slice(&(HEAD as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[16] = family;
        bytes[20..24].copy_from_slice(&index.to_ne_bytes());
        bytes[24..28].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_messages_of_the_interface_itself_count() {
        let watch = LinkWatch::open("lo", 1).unwrap();
        let bridge = libc::AF_BRIDGE as u8;
        for (bytes, said) in [
            (message(libc::RTM_NEWLINK, 0, 1, CARRIES), Some(true)),
            (message(libc::RTM_NEWLINK, 0, 1, CARRIES & !(libc::IFF_LOWER_UP as u32)), Some(false)),
            (message(libc::RTM_DELLINK, 0, 1, CARRIES), Some(false)),
            (message(libc::RTM_DELLINK, bridge, 1, CARRIES), None),
            (message(libc::RTM_NEWLINK, 0, 2, 0), None),
            (message(libc::RTM_NEWADDR, 0, 1, 0), None),
        ] {
            assert_eq!(watch.told(&bytes), said, "{bytes:?}");
            assert_eq!(watch.told(&bytes[..HEAD - 9]), None, "cut short");
        }
        assert_eq!(watch.told(&[]), None);
    }

    #[test]
    fn an_unknown_interface_is_named_in_the_error() {
        let error = LinkWatch::open("no-such-if0", 77).unwrap_err().to_string();
        assert!(error.contains("no-such-if0"), "{error}");
    }

    /// Runs `ip`; false when that is not possible here.
    fn ip(line: &str) -> bool {
        let out = Command::new("ip").args(line.split(' ')).output();
        out.is_ok_and(|out| out.status.success())
    }

    /// Deletes the veth pair when dropped.
    struct Veth(String);

    impl Drop for Veth {
        fn drop(&mut self) {
            ip(&format!("link del {}", self.0));
        }
    }

    #[test]
    fn changes_of_the_carrier_and_the_end_of_the_interface_are_reported() {
        let id = std::process::id() % 100_000;
        let (near, far) = (format!("cwn{id}"), format!("cwf{id}"));
        if !ip(&format!("link add {near} type veth peer name {far}")) {
            return eprintln!(
                "SKIP link watch: cannot make a veth pair; run as root with iproute2"
            );
        }
        let _veth = Veth(near.clone());
        let step = |watch: &mut LinkWatch, line: &str| {
            assert!(ip(line), "{line}");
            let until = Instant::now() + Duration::from_secs(120);
            loop {
                if let Some(change) = watch.next_change() {
                    return change;
                }
                let ready = poll::any_readable(&[watch.as_fd()], Some(until)).unwrap();
                assert_eq!(ready, [true], "no message after {line}");
            }
        };
        assert!(ip(&format!("link set {near} up")) && ip(&format!("link set {far} up")));
        let index = std::fs::read_to_string(format!("/sys/class/net/{near}/ifindex")).unwrap();
        let mut watch = LinkWatch::open(&near, index.trim().parse().unwrap()).unwrap();
        if !watch.carries {
            assert_eq!(step(&mut watch, &format!("link set {far} up")), LinkChange::Back);
        }
        assert_eq!(step(&mut watch, &format!("link set {far} down")), LinkChange::Lost);
        assert_eq!(step(&mut watch, &format!("link set {far} up")), LinkChange::Back);
        assert_eq!(step(&mut watch, &format!("link set {near} down")), LinkChange::Lost);
        assert_eq!(step(&mut watch, &format!("link set {near} up")), LinkChange::Back);
        assert_eq!(step(&mut watch, &format!("link del {near}")), LinkChange::Lost);
        assert_eq!(watch.next_change(), None);
    }
}
