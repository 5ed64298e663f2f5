//! Netlink between programs: the sockets by which programs talk to the kernel, in the protocol that
//! is left to programs.
//!
//! A sender sleeps while its receiver's buffer is full. It cannot poll for that, so one with a
//! deadline sleeps in the call itself, which has a time limit (SO_SNDTIMEO).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_sys::socket::{self, Address};

use crate::building_blocks::connection::set_buffers;
use crate::building_blocks::datagram::{Datagram, DatagramFamily, DatagramSocket};
use crate::building_blocks::message_socket::MessageSink;
use crate::{Carrier, Facts, Family, Offer, OpenError, Reliability, Spec, Transport};

/// The mechanism `netlink`, netlink(7) with NETLINK_USERSOCK: one call and one copy per message at
/// each end.
pub type Netlink = Datagram<NetlinkDatagrams>;

/// The family of [`Netlink`].
#[derive(Debug)]
pub struct NetlinkDatagrams;

/// A sending socket, whose descriptor always polls writable.
#[derive(Debug)]
pub struct NetlinkSink {
    socket: DatagramSocket,
    /// Whether the next send may sleep for the socket's time limit.
    has_patience: bool,
}

impl MessageSink for NetlinkSink {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        let has_patience = std::mem::take(&mut self.has_patience);
        self.socket.send(msg, nonblocking && !has_patience)
    }

    fn await_room(&mut self, until: Instant) -> Result<(), Errno> {
        let left = until.saturating_duration_since(Instant::now()).max(SHORTEST);
        socket::set_send_timeout(&self.socket, Some(left))?;
        self.has_patience = true;
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        MessageSink::facts(&self.socket)
    }
}

/// The shortest time limit of a call, because 0 means none.
const SHORTEST: Duration = Duration::from_millis(1);

/// A socket with a number of its own.
fn bound(spec: &Spec) -> Result<OwnedFd, OpenError> {
    let fd = socket::netlink()?;
    set_buffers(fd.as_fd(), spec)?;
    socket::bind(&fd, &socket::netlink_address(0), "a free netlink address")?;
    Ok(fd)
}

impl DatagramFamily for NetlinkDatagrams {
    const NAME: &'static str = "netlink";
    const SUMMARY: &'static str = "netlink between programs (NETLINK_USERSOCK)";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Netlink);
    const RELIABILITY: Reliability = Reliability::Reliable;
    const CARRIES_EMPTY: bool = false;
    const LARGEST: Option<usize> = None;
    const CROSSES_HOSTS: bool = false;
    const HELLOS: usize = 1;
    const ADVICE: &'static str = super::uds_seqpacket::LARGER;
    type Inbox = OwnedFd;
    type Sink = NetlinkSink;
    type Source = DatagramSocket;

    fn inbox_to_offer(spec: &Spec) -> Result<(OwnedFd, String), OpenError> {
        let fd = bound(spec)?;
        let port = socket::netlink_port(&socket::local_address(&fd)?).unwrap_or_default();
        Ok((fd, port.to_string()))
    }

    fn inbox_for(spec: &Spec, _to: &Address) -> Result<OwnedFd, OpenError> {
        bound(spec)
    }

    fn address(offer: &Offer, name: &str) -> Result<Address, OpenError> {
        Ok(socket::netlink_address(offer.word(Self::NAME, name)?))
    }

    fn halves(
        spec: &Spec,
        inbox: OwnedFd,
        to: &Address,
    ) -> Result<(NetlinkSink, DatagramSocket, usize), OpenError> {
        let outbox = bound(spec)?;
        // The kernel sets 32 bytes aside (net/netlink/af_netlink.c).
        let max = socket::send_buffer_bytes(&outbox)?.saturating_sub(32);
        let name = format!("netlink {}", socket::netlink_port(to).unwrap_or_default());
        let (sink, source) = DatagramSocket::both(outbox, inbox, to, name, |_, _| {})?;
        Ok((NetlinkSink { socket: sink, has_patience: false }, source, max))
    }

    fn remedy() -> &'static str {
        "use a kernel with CONFIG_NET; a sandbox may refuse AF_NETLINK"
    }
}
