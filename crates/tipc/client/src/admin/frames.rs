//! The frames of a trace, and the records in which a tipcd passes them to the tracing program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, socket};

/// Length in bytes of the header before a frame: time (8 bytes), number of frames lost before it (8), direction,
/// medium, 2 unused bytes, two addresses (20 each).
const HEADER_LEN: usize = 60;
const ADDRESS_LEN: usize = 20;
/// Maximum length of a frame in bytes: no UDP datagram is longer.
const FRAME_LEN_MAX: usize = 65_536;

/// Address of a station on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// Hardware address of an Ethernet device, in the order of its bytes on the wire.
    Ethernet([u8; 6]),
    /// IP address and port.
    Udp(SocketAddr),
}

/// A frame sent or received on a bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedFrame {
    /// Time of capture in nanoseconds since 1970.
    pub at_ns: u64,
    /// Number of frames dropped since the trace began because the reader was too slow.
    pub lost: u64,
    /// Whether the frame was received rather than sent.
    pub inward: bool,
    /// The station that sent the frame.
    pub from: Station,
    /// The station, or the broadcast or multicast address, that the frame was sent to.
    pub to: Station,
    /// The bytes of the TIPC frame.
    pub bytes: Vec<u8>,
}

fn put(station: Station, out: &mut [u8]) {
    match station {
        Station::Ethernet(mac) => out[..6].copy_from_slice(&mac),
        Station::Udp(address) => {
            match address.ip() {
                IpAddr::V4(ip) => {
                    out[0] = 4;
                    out[4..8].copy_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    out[0] = 6;
                    out[4..20].copy_from_slice(&ip.octets());
                }
            }
            out[2..4].copy_from_slice(&address.port().to_ne_bytes());
        }
    }
}

fn take(ethernet: bool, raw: &[u8; ADDRESS_LEN]) -> Station {
    if ethernet {
        return Station::Ethernet([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]]);
    }
    let mut ip = [0; 16];
    ip.copy_from_slice(&raw[4..]);
    let address = if raw[0] == 6 {
        IpAddr::V6(Ipv6Addr::from(ip))
    } else {
        IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]))
    };
    Station::Udp(SocketAddr::new(address, u16::from_ne_bytes([raw[2], raw[3]])))
}

impl TracedFrame {
    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_frame(self.at_ns, self.lost, self.inward, (self.from, self.to), &self.bytes, out);
    }

    /// Decodes a record; `None` if it is invalid.
    pub fn decode(record: &[u8]) -> Option<Self> {
        let (header, bytes) = record.split_first_chunk::<HEADER_LEN>()?;
        let number = |at: usize| header[at..at + 8].first_chunk().map(|n| u64::from_ne_bytes(*n));
        let ethernet = header[17] != 0;
        Some(Self {
            at_ns: number(0)?,
            lost: number(8)?,
            inward: header[16] != 0,
            from: take(ethernet, header[20..40].first_chunk()?),
            to: take(ethernet, header[40..60].first_chunk()?),
            bytes: bytes.to_vec(),
        })
    }
}

/// Encodes a frame as a record; see [`TracedFrame`] for the fields.
pub fn encode_frame(
    at_ns: u64,
    lost: u64,
    inward: bool,
    (from, to): (Station, Station),
    bytes: &[u8],
    out: &mut Vec<u8>,
) {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&at_ns.to_ne_bytes());
    header[8..16].copy_from_slice(&lost.to_ne_bytes());
    header[16] = inward.into();
    header[17] = matches!(from, Station::Ethernet(_)).into();
    put(from, &mut header[20..40]);
    put(to, &mut header[40..60]);
    out.extend_from_slice(&header);
    out.extend_from_slice(bytes);
}

/// The frames of a trace that is running.
#[derive(Debug)]
pub struct Frames {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Frames {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, buffer: vec![0; HEADER_LEN + FRAME_LEN_MAX] }
    }

    /// Returns the next frame; `None` if none is available yet, or if its record is invalid.
    ///
    /// # Errors
    /// [`Errno::PIPE`] if the tipcd has ended, otherwise the [`Errno`] of recv.
    pub fn try_next(&mut self) -> Result<Option<TracedFrame>, Errno> {
        match socket::recv(&self.fd, &mut self.buffer, true) {
            Ok(0) => Err(Errno::PIPE),
            Ok(len) => Ok(TracedFrame::decode(&self.buffer[..len])),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Waits for a frame or the end of the tipcd, at most until `until`, or without a limit if that is `None`. Returns
    /// false if neither came.
    ///
    /// # Errors
    /// The [`Errno`] of poll.
    pub fn wait(&self, until: Option<std::time::Instant>) -> Result<bool, Errno> {
        wait_ready(&self.fd, Interest::Readable, until)
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_from_their_records() {
        let udp = |text: &str| Station::Udp(text.parse().unwrap());
        for (from, to) in [
            (Station::Ethernet([1, 2, 3, 4, 5, 6]), Station::Ethernet([0xff; 6])),
            (udp("10.0.0.1:6118"), udp("228.0.18.103:6118")),
            (udp("[fd00::1]:7000"), udp("[ff02::4711]:6118")),
        ] {
            let bytes = b"frame".to_vec();
            let frame = TracedFrame { at_ns: 5, lost: 6, inward: true, from, to, bytes };
            let mut record = Vec::new();
            frame.encode(&mut record);
            assert_eq!(TracedFrame::decode(&record), Some(frame));
        }
        assert_eq!(TracedFrame::decode(&[0; HEADER_LEN - 1]), None);
    }
}
