//! Messages in datagrams between hosts. The network may lose, duplicate and reorder them, so they are numbered and
//! sealed. Repeated datagrams, and datagrams that arrive after a later one, are dropped.
//!
//! A datagram consists of a number of eight bytes and the sealed message; the number is the cipher's nonce. Each epoch
//! has its own sockets and two keys, one per direction. The keys travel with the offer on the control connection. If
//! that is encrypted, nobody else knows the keys; if it is plain, they only distinguish the datagrams of this channel
//! from others.
//!
//! Number 0 is a greeting. The follower repeats it until the leader has answered with one of its own; the follower's
//! greeting tells the leader the follower's port. Only then is the transport open, so a network that drops all
//! datagrams costs no message.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossway_mech::{Offer, OpenError};
use crossway_sys::socket::{self, Inet};
use crossway_sys::{Errno, OsError};
use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Cipher;

use super::frames::TAG;
use super::network::Key;
use crate::transport::Transport;

/// Longest message, in bytes, of a channel that may use datagrams. A datagram with such a message fits into one
/// Ethernet frame, even over IPv6.
pub const MAX_LOSSY_MESSAGE: usize = 1400;
/// Size in bytes of a datagram's number.
const NUMBER: usize = 8;
/// The number of a greeting.
const GREETING: u64 = 0;
/// Size in bytes requested for the socket's buffers. Messages that arrive while the receive buffer is full are lost.
const BUFFER: usize = 1 << 20;
/// Names of an offer's text entries: the leader's port, and the cipher key of each direction.
const WORDS: [&str; 3] = ["port", "key_of_leader", "key_of_follower"];

/// Space for one sealed datagram and the message in it.
pub(super) struct Buffer {
    sealed: Vec<u8>,
    open: Vec<u8>,
}

impl Buffer {
    pub(super) fn new() -> Buffer {
        let sealed = vec![0; NUMBER + MAX_LOSSY_MESSAGE + TAG];
        Buffer { sealed, open: vec![0; MAX_LOSSY_MESSAGE + TAG] }
    }

    /// Returns the message received last, which is `len` bytes long.
    pub(super) fn message(&self, len: usize) -> &[u8] {
        &self.open[..len]
    }
}

/// The result of an attempt to receive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// The next message: its number and its length in bytes.
    Message(u64, usize),
    /// A datagram that was dropped: repeated, late, or not sealed by the peer.
    Useless,
    /// There is no datagram now.
    Nothing,
}

/// One end's UDP socket for one epoch, with the keys of both directions.
pub(crate) struct Datagrams {
    socket: OwnedFd,
    ours: Box<dyn Cipher>,
    theirs: Box<dyn Cipher>,
    peer: SocketAddr,
    leads: bool,
    /// Whether the halves receive from the socket, so that the control thread must not.
    in_use: AtomicBool,
}

fn cipher(key: &Key) -> Result<Box<dyn Cipher>, OpenError> {
    let cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly);
    let mut cipher = cipher.ok_or_else(|| bad_offer("the cipher is not built in"))?;
    cipher.set(key.bytes());
    Ok(cipher)
}

fn bad_offer(why: &str) -> OpenError {
    OpenError::BadOffer { mechanism: Transport::Udp.id(), why: why.to_owned() }
}

/// Creates a UDP socket bound to an address and a port that the system chooses.
fn bound(mut local: SocketAddr) -> Result<OwnedFd, OsError> {
    local.set_port(0);
    let socket = socket::inet(Inet::Udp, local)?;
    socket::set_nonblocking(&socket)?;
    socket::set_buffers(&socket, BUFFER)?;
    socket::bind(&socket, &socket::inet_address(local), &local.to_string())?;
    Ok(socket)
}

impl Datagrams {
    /// Creates the leader's end, and the offer from which the follower opens its end. `local` and `peer` are the
    /// addresses of the control connection.
    pub(crate) fn offer(
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<(Arc<Datagrams>, Offer), OpenError> {
        let socket = bound(local)?;
        let own = socket::local_address(&socket)?;
        let port = socket::as_inet(&own).map_or(0, |own| own.port());
        let (ours, theirs) = (Key::generate()?, Key::generate()?);
        let offer = Offer::new()
            .with_word(WORDS[0], port)
            .with_word(WORDS[1], ours.to_hex())
            .with_word(WORDS[2], theirs.to_hex());
        Ok((Self::with(socket, &ours, &theirs, peer, true)?, offer))
    }

    /// Opens the follower's end.
    pub(crate) fn open(
        local: SocketAddr,
        mut peer: SocketAddr,
        offer: &Offer,
    ) -> Result<Arc<Datagrams>, OpenError> {
        let id = Transport::Udp.id();
        peer.set_port(offer.word(id, WORDS[0])?);
        let key = |name| {
            let text: String = offer.word(id, name)?;
            Key::parse(&text).ok_or_else(|| bad_offer("a key is malformed"))
        };
        let (theirs, ours) = (key(WORDS[1])?, key(WORDS[2])?);
        let socket = bound(local)?;
        socket::connect(&socket, &socket::inet_address(peer))
            .map_err(|e| OsError::new("connect", peer, e))?;
        Self::with(socket, &ours, &theirs, peer, false)
    }

    fn with(
        socket: OwnedFd,
        ours: &Key,
        theirs: &Key,
        peer: SocketAddr,
        leads: bool,
    ) -> Result<Arc<Datagrams>, OpenError> {
        let (ours, theirs) = (cipher(ours)?, cipher(theirs)?);
        let in_use = AtomicBool::new(false);
        Ok(Arc::new(Datagrams { socket, ours, theirs, peer, leads, in_use }))
    }

    /// Seals and sends a message. Its number must not have been used before, since it is the nonce. EAGAIN means that
    /// there is no room; after any other error the message is lost.
    pub(super) fn send(
        &self,
        number: u64,
        message: &[u8],
        buffer: &mut Buffer,
    ) -> Result<(), Errno> {
        let sealed = &mut buffer.sealed[..NUMBER + message.len() + TAG];
        sealed[..NUMBER].copy_from_slice(&number.to_le_bytes());
        self.ours.encrypt(number, &[], message, &mut sealed[NUMBER..]);
        socket::send(&self.socket, sealed, true).map(drop)
    }

    /// Receives the next datagram. A datagram whose number is not above `last` is dropped.
    pub(super) fn receive(&self, last: u64, buffer: &mut Buffer) -> Came {
        match socket::recv_message(&self.socket, &mut buffer.sealed, true) {
            Ok(len) => match self.unseal(len, buffer, |number| number > last) {
                Some((number, len)) => Came::Message(number, len),
                None => Came::Useless,
            },
            // The peer's host reports that a datagram could not be delivered there.
            Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => Came::Useless,
            Err(_) => Came::Nothing,
        }
    }

    /// Decrypts a datagram of `len` bytes and returns the message's number and length. `None` if the number is not
    /// wanted, or if the datagram was not sealed by the peer.
    fn unseal(
        &self,
        len: usize,
        buffer: &mut Buffer,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<(u64, usize)> {
        let datagram = buffer.sealed.get(..len)?;
        let (number, sealed) = datagram.split_first_chunk::<NUMBER>()?;
        let number = Some(u64::from_le_bytes(*number)).filter(|number| is_wanted(*number))?;
        // The cipher requires that there is a tag.
        let message = sealed.len().checked_sub(TAG)?;
        self.theirs.decrypt(number, &[], sealed, &mut buffer.open).ok()?;
        Some((number, message))
    }

    /// Sends a greeting. The follower's greeting tells the leader the follower's port; the leader's answers it.
    pub(crate) fn greet(&self) {
        // A lost greeting is repeated.
        let _ = self.send(GREETING, &[], &mut Buffer::new());
    }

    /// Reads the datagrams that have arrived; returns whether a greeting from the peer was among them. The leader also
    /// answers it. The control thread calls this until the halves are in use.
    pub(crate) fn hear(&self) -> bool {
        let mut buffer = Buffer::new();
        let mut heard = false;
        while let Ok((len, from)) =
            socket::recv_message_from(&self.socket, &mut buffer.sealed, true)
        {
            let from = from.and_then(|from| socket::as_inet(&from));
            let Some(from) = from.filter(|from| from.ip() == self.peer.ip()) else { continue };
            if self.unseal(len, &mut buffer, |number| number == GREETING).is_none() {
                continue;
            }
            heard = true;
            if self.leads && socket::connect(&self.socket, &socket::inet_address(from)).is_ok() {
                self.greet();
            }
        }
        heard
    }

    /// Whether this end made the offer.
    pub(crate) const fn leads(&self) -> bool {
        self.leads
    }

    /// Records that the halves receive from the socket from now on.
    pub(crate) fn take_into_use(&self) {
        self.in_use.store(true, Ordering::Release);
    }

    /// Whether the halves receive from the socket.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crossway_sys::poll;

    use super::*;

    const HERE: &str = "127.0.0.1:0";

    /// Waits until a datagram has arrived: on a busy machine, the kernel delivers it after the call that sent it.
    fn await_datagram(end: &Datagrams) {
        let until = Some(Instant::now() + Duration::from_secs(60));
        assert!(poll::any_readable(&[end.as_fd()], until).unwrap()[0]);
    }

    /// Returns both ends, after they have greeted each other.
    fn ends() -> (Arc<Datagrams>, Arc<Datagrams>) {
        let here: SocketAddr = HERE.parse().unwrap();
        let (leader, offer) = Datagrams::offer(here, here).unwrap();
        let follower = Datagrams::open(here, here, &offer).unwrap();
        assert!(!leader.hear() && !follower.hear(), "nothing was said");
        follower.greet();
        await_datagram(&leader);
        assert!(leader.hear());
        await_datagram(&follower);
        assert!(follower.hear());
        (leader, follower)
    }

    #[test]
    fn a_message_is_received_once_and_not_after_a_later_one() {
        let (leader, follower) = ends();
        let mut buffer = Buffer::new();
        for number in [1, 3, 3, 2, 4] {
            leader.send(number, &number.to_le_bytes(), &mut buffer).unwrap();
        }
        let mut received = Vec::new();
        let mut last = 0;
        loop {
            match follower.receive(last, &mut buffer) {
                Came::Message(number, len) => {
                    assert_eq!(buffer.message(len), number.to_le_bytes());
                    last = number;
                    received.push(number);
                }
                Came::Useless => {}
                Came::Nothing if last == 4 => break,
                Came::Nothing => await_datagram(&follower),
            }
        }
        assert_eq!(received, [1, 3, 4]);
    }

    #[test]
    fn the_longest_and_the_empty_message_pass_both_ways() {
        let (leader, follower) = ends();
        let mut buffer = Buffer::new();
        let mut number = 0;
        for (from, to) in [(&leader, &follower), (&follower, &leader)] {
            for len in [0, 1, MAX_LOSSY_MESSAGE] {
                number += 1;
                from.send(number, &vec![7; len], &mut buffer).unwrap();
                await_datagram(to);
                assert_eq!(to.receive(number - 1, &mut buffer), Came::Message(number, len));
                assert_eq!(buffer.message(len), vec![7; len]);
            }
        }
    }

    #[test]
    fn what_is_not_sealed_by_the_peer_is_not_received() {
        let (leader, follower) = ends();
        let (other, _) = ends();
        let mut buffer = Buffer::new();
        // What the peer's socket sends is the peer's only if it was sealed with its key and under its number.
        let mut datagram = |seal: &Datagrams, number: u64, change: fn(&mut Vec<u8>)| {
            let _ = seal.send(number, b"message", &mut buffer);
            let mut bytes = buffer.sealed[..NUMBER + 7 + TAG].to_vec();
            change(&mut bytes);
            let _ = socket::send(&leader.socket, &bytes, true);
        };
        datagram(&other, 1, |_| {});
        datagram(&follower, 1, |_| {});
        datagram(&other, 1, |bytes| bytes.truncate(3));
        datagram(&other, 1, |bytes| bytes.truncate(NUMBER + TAG - 1));
        datagram(&leader, 1, |bytes| bytes[0] = 9);
        datagram(&leader, 1, |bytes| *bytes.last_mut().unwrap() ^= 1);
        datagram(&leader, 1, |bytes| bytes.extend([0; 2000]));
        let mut numbers = Vec::new();
        let mut last = 0;
        loop {
            match follower.receive(last, &mut buffer) {
                Came::Message(number, _) => {
                    last = number;
                    numbers.push(number);
                }
                Came::Useless => {}
                Came::Nothing => break,
            }
        }
        // The leader's own, which each change of it followed; nothing else.
        assert_eq!(numbers, [1]);
    }

    #[test]
    fn a_greeting_of_a_stranger_is_not_answered() {
        let here: SocketAddr = HERE.parse().unwrap();
        let (leader, offer) = Datagrams::offer(here, here).unwrap();
        let (_, other) = Datagrams::offer(here, here).unwrap();
        let mut wrong = Offer::new().with_word("port", &offer.words["port"]);
        for key in &WORDS[1..] {
            wrong = wrong.with_word(key, &other.words[*key]);
        }
        let stranger = Datagrams::open(here, here, &wrong).unwrap();
        stranger.greet();
        assert!(!leader.hear());
        // Nor is one that comes from another host than the control connection.
        let (leader, offer) = Datagrams::offer(here, "127.0.0.3:0".parse().unwrap()).unwrap();
        Datagrams::open(here, here, &offer).unwrap().greet();
        assert!(!leader.hear());
    }
}
