//! The records that the programs in the kernel write: `struct call` and so on in `bpf/recorder.bpf.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::recording::Operation;

/// A call that moved bytes or waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) operation: Operation,
    pub(super) cpu: u32,
    pub(super) thread: u32,
    /// On the kernel's monotonic clock, nanoseconds.
    pub(super) began_ns: u64,
    pub(super) took_ns: u64,
    /// Of it, the time in which the thread had no CPU.
    pub(super) off_cpu_ns: u64,
    /// 0: none.
    pub(super) object: u64,
    pub(super) size_bytes: u64,
    /// To or from where, if the socket exchanges with anyone.
    pub(super) with: Option<SocketAddr>,
}

/// What an object is; written before the first call that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) object: u64,
    /// The object at the other end of a UNIX socket; 0: not known yet.
    pub(super) peer: u64,
    /// A thread that has the object at this descriptor.
    pub(super) thread: u32,
    pub(super) descriptor: u32,
    /// A FIFO or another object with a path.
    pub(super) named: bool,
    /// Address family of a socket, 0 for other objects.
    pub(super) family: u16,
    pub(super) socket_type: u16,
    pub(super) protocol: u16,
    pub(super) namespace: u32,
    pub(super) local: SocketAddr,
    /// Port 0: not connected.
    pub(super) remote: SocketAddr,
    /// Path of a UNIX socket, with `@` in place of the zero of an abstract one.
    pub(super) path: String,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Call(Moved),
    Object(Described),
    Started {
        thread: u32,
        child: u32,
        same_process: bool,
    },
    Named {
        thread: u32,
        name: String,
    },
    /// A thread ended, and has used this CPU time since it was first observed.
    Ended {
        thread: u32,
        cpu_ns: u64,
    },
}

/// Reads numbers of this machine's byte order at fixed positions.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }
}

impl Record {
    /// `None` if the bytes are not a record, which only a defect can cause.
    pub(super) fn parse(bytes: &[u8]) -> Option<Record> {
        let from = Bytes(bytes);
        match *bytes.first()? {
            1 => Some(Record::Call(call(&from, None)?)),
            2 => Some(Record::Call(call(&from, sockaddr(bytes.get(48..)?))?)),
            3 => Some(Record::Object(object(&from)?)),
            4 => Some(Record::Started {
                thread: from.u32(4)?,
                child: from.u32(8)?,
                same_process: *bytes.get(1)? != 0,
            }),
            5 => Some(Record::Named { thread: from.u32(4)?, name: text(bytes.get(8..24)?) }),
            6 => Some(Record::Ended { thread: from.u32(4)?, cpu_ns: from.u64(8)? }),
            _ => None,
        }
    }
}

fn call(from: &Bytes<'_>, with: Option<SocketAddr>) -> Option<Moved> {
    let operation = match *from.0.get(1)? {
        0 => Operation::Send,
        1 => Operation::Receive,
        2 => Operation::Wait,
        _ => return None,
    };
    Some(Moved {
        operation,
        cpu: u32::from(from.u16(2)?),
        thread: from.u32(4)?,
        began_ns: from.u64(8)?,
        took_ns: from.u64(16)?,
        object: from.u64(24)?,
        size_bytes: from.u64(32)?,
        off_cpu_ns: from.u64(40)?,
        with,
    })
}

fn object(from: &Bytes<'_>) -> Option<Described> {
    let family = from.u16(2)?;
    let address = |at: usize, port: u16| -> Option<SocketAddr> {
        let ip = if family == AF_INET6 {
            IpAddr::V6(Ipv6Addr::from(from.array::<16>(at)?))
        } else {
            IpAddr::V4(Ipv4Addr::from(from.array::<4>(at)?))
        };
        // A server that takes IPv4 as well sees addresses in another form than its clients.
        Some(SocketAddr::new(ip.to_canonical(), port))
    };
    let length = (from.u32(72)? as usize).min(PATH);
    let path = from.0.get(76..76 + length)?;
    Some(Described {
        named: *from.0.get(1)? != 0,
        family,
        thread: from.u32(4)?,
        object: from.u64(8)?,
        peer: from.u64(16)?,
        descriptor: from.u32(24)?,
        namespace: from.u32(28)?,
        socket_type: from.u16(32)?,
        protocol: from.u16(34)?,
        local: address(40, from.u16(36)?)?,
        remote: address(56, u16::from_be(from.u16(38)?))?,
        path: match path.split_first() {
            Some((0, name)) => format!("@{}", text(name)),
            _ => text(path),
        },
    })
}

/// Bytes for the path of a UNIX socket.
const PATH: usize = 108;
/// Linux' numbers of address families.
pub(super) const AF_UNIX: u16 = 1;
pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 10;

/// The address that a program passed to a call, or got from it.
fn sockaddr(bytes: &[u8]) -> Option<SocketAddr> {
    let from = Bytes(bytes);
    let port = u16::from_be(from.u16(2)?);
    match from.u16(0)? {
        AF_INET => Some(SocketAddr::new(Ipv4Addr::from(from.array::<4>(4)?).into(), port)),
        AF_INET6 => {
            let ip = IpAddr::V6(Ipv6Addr::from(from.array::<16>(8)?));
            Some(SocketAddr::new(ip.to_canonical(), port))
        }
        _ => None,
    }
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_at_their_positions_and_short_ones_refused() {
        let mut call = [0_u8; 80];
        call[..4].copy_from_slice(&[2, 1, 3, 0]);
        call[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        for (at, value) in [(8, 100_u64), (16, 20), (24, 5), (32, 64), (40, 15)] {
            call[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        call[48..50].copy_from_slice(&AF_INET.to_ne_bytes());
        call[50..56].copy_from_slice(&[0, 53, 127, 0, 0, 1]);
        let Some(Record::Call(moved)) = Record::parse(&call) else { panic!("a call") };
        let expected = Moved {
            operation: Operation::Receive,
            cpu: 3,
            thread: 7,
            began_ns: 100,
            took_ns: 20,
            off_cpu_ns: 15,
            object: 5,
            size_bytes: 64,
            with: Some("127.0.0.1:53".parse().unwrap()),
        };
        assert_eq!(moved, expected);

        let mut object = [0_u8; 184];
        object[..2].copy_from_slice(&[3, 0]);
        object[2..4].copy_from_slice(&AF_UNIX.to_ne_bytes());
        object[72] = 5;
        object[76..81].copy_from_slice(b"\0name");
        let Some(Record::Object(described)) = Record::parse(&object) else { panic!("an object") };
        assert_eq!((described.path.as_str(), described.family), ("@name", AF_UNIX));

        let named = [&[5_u8, 0, 0, 0, 9, 0, 0, 0][..], b"redis\0garbage..."].concat();
        let expected = Record::Named { thread: 9, name: "redis".to_owned() };
        assert_eq!(Record::parse(&named), Some(expected));
        let ended = [&[6_u8, 0, 0, 0, 9, 0, 0, 0][..], &7_u64.to_ne_bytes()].concat();
        assert_eq!(Record::parse(&ended), Some(Record::Ended { thread: 9, cpu_ns: 7 }));
        for length in 0..48 {
            assert_eq!(Record::parse(&call[..length]), None);
            assert_eq!(Record::parse(&object[..length]), None);
        }
        assert_eq!(Record::parse(&[9; 64]), None);
    }
}
