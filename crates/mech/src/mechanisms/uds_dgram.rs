//! AF_UNIX datagrams: reliable and in order, but without a connection.

use std::os::fd::{AsFd, OwnedFd};

use crossway_sys::socket::{self, Address, SocketType};

use super::uds_seqpacket::{LARGER, max_message};
use super::uds_stream::{address_of, bound};
use crate::building_blocks::connection::set_buffers;
use crate::building_blocks::datagram::{Datagram, DatagramFamily, DatagramSocket};
use crate::{Carrier, Family, Offer, OpenError, Reliability, Spec, Transport};

/// The mechanism `uds-dgram`, unix(7) with SOCK_DGRAM. A sender sleeps while net.unix.max_dgram_qlen messages wait at
/// the receiver.
pub type UdsDgram = Datagram<UnixDatagrams>;

/// The family of [`UdsDgram`].
#[derive(Debug)]
pub struct UnixDatagrams;

impl DatagramFamily for UnixDatagrams {
    const NAME: &'static str = "uds-dgram";
    const SUMMARY: &'static str = "UNIX-domain datagram sockets";
    const CARRIER: Carrier = Carrier::new(Family::Unix, Transport::Unix);
    const RELIABILITY: Reliability = Reliability::Reliable;
    const LARGEST: Option<usize> = None;
    const CROSSES_HOSTS: bool = false;
    const HELLOS: usize = 1;
    const ADVICE: &'static str = LARGER;
    type Inbox = OwnedFd;
    type Sink = DatagramSocket;
    type Source = DatagramSocket;

    fn inbox_to_offer(spec: &Spec) -> Result<(OwnedFd, String), OpenError> {
        bound(SocketType::Dgram, spec)
    }

    fn inbox_for(spec: &Spec, _to: &Address) -> Result<OwnedFd, OpenError> {
        Ok(bound(SocketType::Dgram, spec)?.0)
    }

    fn address(offer: &Offer, name: &str) -> Result<Address, OpenError> {
        let word: String = offer.word(Self::NAME, name)?;
        Ok(address_of(&word)?)
    }

    fn halves(
        spec: &Spec,
        inbox: OwnedFd,
        to: &Address,
    ) -> Result<(DatagramSocket, DatagramSocket, usize), OpenError> {
        let outbox = socket::unix(SocketType::Dgram)?;
        set_buffers(outbox.as_fd(), spec)?;
        let max = max_message(&outbox)?;
        let name = match socket::abstract_name(to) {
            Some(name) => format!("abstract {}", String::from_utf8_lossy(&name)),
            None => "the peer's path".to_owned(),
        };
        let (sink, source) = DatagramSocket::both(outbox, inbox, to, name, |_, _| {})?;
        Ok((sink, source, max))
    }

    fn remedy() -> &'static str {
        "use a kernel with CONFIG_UNIX"
    }
}
