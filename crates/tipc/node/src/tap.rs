//! Passes the frames of all bearers to an operator's program, and never waits for that program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use crossway_sys::{Errno, OsError, socket};
use crossway_tipc_client::admin::{Station, encode_frame};
use crossway_tipc_proto::addr::MediaAddr;
use crossway_tipc_proto::node::Destination;

use crate::bearer::{Bearer, ETHERNET_BROADCAST};

/// Size in bytes requested for the buffer of frames that the program has not read yet.
const WAITING_BYTES: usize = 8 << 20;

/// The tipcd's end of a running trace.
#[derive(Debug)]
pub(crate) struct Tap {
    fd: OwnedFd,
    lost: u64,
    record: Vec<u8>,
}

const fn station(addr: &MediaAddr) -> Station {
    match addr {
        MediaAddr::Ethernet(mac) => Station::Ethernet(*mac),
        MediaAddr::Udp { ip, port } => Station::Udp(SocketAddr::new(*ip, *port)),
    }
}

/// Returns the unspecified address of the family of `like`, with port 0.
const fn unknown(like: IpAddr) -> SocketAddr {
    match like {
        IpAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        IpAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

impl Tap {
    /// Creates a trace and returns the program's end.
    pub(crate) fn new() -> Result<(Self, OwnedFd), OsError> {
        let (ours, theirs) = socket::unix_pair(socket::SocketType::Seqpacket)?;
        socket::set_buffers(&ours, WAITING_BYTES)?;
        Ok((Self { fd: ours, lost: 0, record: Vec::new() }, theirs))
    }

    /// Passes on a received frame. Returns false if the program has ended the trace.
    pub(crate) fn show_received(
        &mut self,
        bearer: &Bearer,
        from: Option<&MediaAddr>,
        frame: &[u8],
    ) -> bool {
        let to = bearer.addr();
        // The address of a sender unknown to the node is not known either.
        let nobody = match to {
            MediaAddr::Ethernet(_) => Station::Ethernet([0; 6]),
            MediaAddr::Udp { ip, .. } => Station::Udp(unknown(ip)),
        };
        self.show(true, (from.map_or(nobody, station), station(&to)), frame)
    }

    /// Passes on a sent frame. Returns false if the program has ended the trace.
    pub(crate) fn show_sent(&mut self, bearer: &Bearer, dest: &Destination, frame: &[u8]) -> bool {
        let from = station(&bearer.addr());
        match dest {
            Destination::Unicast(to) => self.show(false, (from, station(to)), frame),
            Destination::Broadcast if bearer.remotes().is_empty() => {
                self.show(false, (from, Station::Ethernet(ETHERNET_BROADCAST)), frame)
            }
            // Each copy is a separate frame on the medium.
            Destination::Broadcast => bearer
                .remotes()
                .iter()
                .all(|remote| self.show(false, (from, Station::Udp(*remote)), frame)),
        }
    }

    fn show(&mut self, inward: bool, ends: (Station, Station), frame: &[u8]) -> bool {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.record.clear();
        encode_frame(at.as_nanos() as u64, self.lost, inward, ends, frame, &mut self.record);
        match socket::send(&self.fd, &self.record, true) {
            Ok(_) => true,
            // The program is too slow: the next frame tells it how many it missed.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::MSGSIZE) => {
                self.lost += 1;
                true
            }
            Err(_) => false,
        }
    }
}
