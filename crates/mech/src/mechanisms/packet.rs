//! Frames of the loopback interface, with an EtherType of their own: below IP, so that no address,
//! route, firewall rule or checksum is involved.
//!
//! Every packet socket of the network namespace is offered the frames of its EtherType. So the
//! content of a frame begins with the number of the socket that it is for, drawn at random, and a
//! filter in the kernel (SO_ATTACH_FILTER) lets a socket see no others. The number of the sender
//! follows, by which a connecting end introduces itself.
//!
//! The interface hands a frame to its receiver within the sender's call. A full receiver drops it,
//! and counts it: [`dropped_messages`](crate::contract::COUNTERS). Neither end learns that the
//! other one is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crossway_sys::packet::{ETHERNET_HEADER_LEN, EtherSocket, take_drops};
use crossway_sys::{Errno, netns, random, records};

use crate::building_blocks::connection::{buffer_facts, set_buffers};
use crate::building_blocks::datagram::{Datagram, DatagramFamily, Inbox};
use crate::building_blocks::message_socket::{MessageSink, MessageSource, Received};
use crate::{Carrier, Facts, Family, Offer, OpenError, Privilege, Reliability, Spec, Transport};

/// The mechanism `packet`, packet(7) with SOCK_RAW: one call and one copy per message at each end.
pub type Packet = Datagram<Frames>;

/// The family of [`Packet`].
#[derive(Debug)]
pub struct Frames;

/// The interface that both ends use.
const INTERFACE: &str = "lo";
/// The first EtherType for experiments (IEEE 802).
const ETHER_TYPE: u16 = 0x88b5;
/// Length in bytes of the numbers of the receiver and of the sender.
const NUMBERS_LEN: usize = 16;
/// Length in bytes of what precedes a message.
const HEADER_LEN: usize = ETHERNET_HEADER_LEN + NUMBERS_LEN;

/// What precedes a message in its frame.
type Header = [u8; HEADER_LEN];

/// A receiving socket and its number, with the socket by which its owner sends.
#[derive(Debug)]
pub struct FrameInbox {
    socket: EtherSocket,
    number: u64,
}

impl FrameInbox {
    fn open(spec: &Spec) -> Result<Self, OpenError> {
        let number = random::unguessable()?;
        let socket = EtherSocket::open_marked(INTERFACE, ETHER_TYPE, number.to_be_bytes())?;
        set_buffers(socket.fd.as_fd(), spec)?;
        set_buffers(socket.sender.as_fd(), spec)?;
        Ok(FrameInbox { socket, number })
    }

    /// What precedes messages to the socket with the number `to`.
    fn header_to(&self, to: u64) -> Header {
        let mut header = [0; HEADER_LEN];
        let (ethernet, numbers) = header.split_at_mut(ETHERNET_HEADER_LEN);
        ethernet.copy_from_slice(&self.socket.header_to(self.socket.mac));
        numbers[..8].copy_from_slice(&to.to_be_bytes());
        numbers[8..].copy_from_slice(&self.number.to_be_bytes());
        header
    }
}

/// The number of the sender of a frame.
fn sender_of(header: &Header) -> u64 {
    let number = header[HEADER_LEN - 8..].try_into().expect("eight bytes");
    u64::from_be_bytes(number)
}

/// Receives a frame for this socket. Returns the length of its message, in bytes, and what precedes
/// it; EAGAIN if there is none and `nonblocking` is set.
#[inline]
fn receive(fd: impl AsFd, buf: &mut [u8], nonblocking: bool) -> Result<(usize, Header), Errno> {
    let mut header = [0; HEADER_LEN];
    loop {
        let came = records::recv(&fd, &mut header, buf, nonblocking, false)?;
        // One that ends before the sender's number is from a stranger.
        if let Some(len) = came.len.checked_sub(HEADER_LEN) {
            return Ok((len, header));
        }
    }
}

impl AsFd for FrameInbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

impl Inbox for FrameInbox {
    type Address = u64;

    fn greet(&self, to: &u64, word: &[u8], _within: Duration) -> Result<(), Errno> {
        records::send(&self.socket.sender, &self.header_to(*to), word, true).map(drop)
    }

    fn hear(&self, buf: &mut [u8]) -> Result<(usize, Option<u64>), Errno> {
        receive(self, buf, true).map(|(len, header)| (len, Some(sender_of(&header))))
    }
}

/// Sends to one socket.
#[derive(Debug)]
pub struct FrameSink {
    fd: OwnedFd,
    header: Header,
    mtu: usize,
}

impl MessageSink for FrameSink {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        records::send(&self.fd, &self.header, msg, nonblocking).map(drop)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn facts(&self) -> Facts {
        let mut facts = buffer_facts(self.fd.as_fd());
        facts.extend(crate::contract::facts_of([("mtu_bytes", self.mtu)]));
        facts
    }
}

/// Receives what is sent to one socket.
#[derive(Debug)]
pub struct FrameSource {
    fd: OwnedFd,
    /// Number of messages that found the socket full.
    dropped: AtomicI64,
}

impl MessageSource for FrameSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        receive(&self.fd, buf, nonblocking).map(|(len, _)| Received::Message(len))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn facts(&self) -> Facts {
        let mut facts = buffer_facts(self.fd.as_fd());
        if let Ok(more) = take_drops(&self.fd) {
            let dropped = self.dropped.fetch_add(more.into(), Ordering::Relaxed) + i64::from(more);
            facts.insert("dropped_messages".to_owned(), dropped);
        }
        facts
    }
}

impl DatagramFamily for Frames {
    const NAME: &'static str = "packet";
    const SUMMARY: &'static str = "frames of the loopback interface (AF_PACKET), below IP; a full \
         receiver drops messages silently";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Packet);
    const RELIABILITY: Reliability = Reliability::Lossy;
    const LARGEST: Option<usize> = None;
    const CROSSES_HOSTS: bool = false;
    const PRIVILEGE: Privilege = Privilege::NetRaw;
    const HELLOS: usize = 3;
    const ADVICE: &'static str =
        "request smaller messages, or raise the loopback interface's MTU: ip link set lo mtu BYTES";
    type Inbox = FrameInbox;
    type Sink = FrameSink;
    type Source = FrameSource;

    fn inbox_to_offer(spec: &Spec) -> Result<(FrameInbox, String), OpenError> {
        let inbox = FrameInbox::open(spec)?;
        let word = inbox.number.to_string();
        Ok((inbox, word))
    }

    fn inbox_for(spec: &Spec, _to: &u64) -> Result<FrameInbox, OpenError> {
        FrameInbox::open(spec)
    }

    fn address(offer: &Offer, name: &str) -> Result<u64, OpenError> {
        offer.word(Self::NAME, name)
    }

    fn halves(
        _spec: &Spec,
        inbox: FrameInbox,
        to: &u64,
    ) -> Result<(FrameSink, FrameSource, usize), OpenError> {
        let header = inbox.header_to(*to);
        let mtu = netns::interface_mtu(INTERFACE)?;
        let EtherSocket { fd, sender, .. } = inbox.socket;
        let sink = FrameSink { fd: sender, header, mtu };
        let source = FrameSource { fd, dropped: AtomicI64::new(0) };
        Ok((sink, source, mtu.saturating_sub(NUMBERS_LEN)))
    }

    fn remedy() -> &'static str {
        "run as root or with CAP_NET_RAW (setcap cap_net_raw+ep PROGRAM; in a container --cap-add \
         NET_RAW), with the loopback interface up: ip link set lo up"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, Mechanism, Probe, RecvError, Rx, Tx};

    type Ends = [(<Packet as Mechanism>::Tx, <Packet as Mechanism>::Rx); 2];

    /// Both ends of a channel, the listening one first; `None` where it is missing.
    fn channel() -> Option<Ends> {
        if let Probe::Missing(missing) = Packet::probe() {
            eprintln!("SKIP packet: {missing}");
            return None;
        }
        let spec = Spec::default();
        let (mut listener, mut offer) =
            Packet::listen(&Spec { max_message: 1024, ..spec }).unwrap();
        let spec = Spec { max_message: 1024, ..Spec::default() };
        let connected = Packet::connect(&spec, &mut offer).unwrap();
        Some([listener.accept(None).unwrap(), connected])
    }

    #[test]
    fn frames_of_others_are_not_received() {
        let (Some([mut ours, mut theirs]), Some([mut others, _])) = (channel(), channel()) else {
            return;
        };
        let stranger = EtherSocket::open(INTERFACE, ETHER_TYPE).unwrap();
        let header = stranger.header_to(stranger.mac);
        records::send(&stranger.sender, &header, &[0; 64], false).unwrap();
        others.0.send(b"to another channel", None).unwrap();
        let mut buf = [0; 64];
        for rx in [&mut ours.1, &mut theirs.1] {
            assert!(matches!(rx.try_recv(&mut buf), Err(RecvError::Empty)));
        }
        ours.0.send(b"ours", None).unwrap();
        assert_eq!(theirs.1.try_recv(&mut buf).unwrap(), 4);
    }

    #[test]
    fn what_is_lost_is_counted_once() {
        let Some([mut ours, mut theirs]) = channel() else { return };
        let sent = 5000;
        for _ in 0..sent {
            ours.0.send(&[1; 1000], None).unwrap();
        }
        let mut received = 0;
        while theirs.1.try_recv(&mut [0; 1000]).is_ok() {
            received += 1;
        }
        let dropped = theirs.1.facts()["dropped_messages"];
        assert!(dropped > 0, "{received} of {sent} were received");
        assert_eq!(received + dropped, sent);
        assert_eq!(theirs.1.facts()["dropped_messages"], dropped, "read twice");
    }
}
