//! The transports of a channel, as an enum. Choosing the transport costs a predictable branch per message, and no
//! virtual call.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crossway_mech::mechanisms::shm_eventfd::{ShmEventfd, ShmEventfdRx, ShmEventfdTx};
use crossway_mech::mechanisms::shm_futex::{ShmFutex, ShmFutexRx, ShmFutexTx};
use crossway_mech::mechanisms::shm_spin::{ShmSpin, ShmSpinRx, ShmSpinTx};
use crossway_mech::mechanisms::uds_seqpacket::UdsSeqpacket;
use crossway_mech::{ConnectionFamily, Listener, Mechanism, Offer, OpenError, Spec, Wait};
use crossway_ring::region::SharedRing;
use crossway_sys::socket::{self, SocketType};
use serde::{Deserialize, Serialize};

use crate::net::datagrams::{Datagrams, MAX_LOSSY_MESSAGE};
use crate::net::lossy::{self, LossyRx, LossyTx};
use crate::net::session::{NetRx, NetTx, Session};
use crate::protocol::MARKER_LEN;

/// The sending half of an AF_UNIX socket.
pub(crate) type UdsTx = <UdsSeqpacket as Mechanism>::Tx;
/// The receiving half of an AF_UNIX socket.
pub(crate) type UdsRx = <UdsSeqpacket as Mechanism>::Rx;

/// The carrier of a channel's messages. The transports within a host are the mechanisms of `crossway-mech` with the
/// same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Ring in shared memory; both ends spin while they wait.
    ShmSpin,
    /// Ring in shared memory; ends that wait sleep on a futex.
    ShmFutex,
    /// Ring in shared memory; ends that wait sleep on eventfds, which can be polled.
    ShmEventfd,
    /// A pair of AF_UNIX sockets.
    UdsSeqpacket,
    /// TCP, to another host.
    Tcp,
    /// UDP, to another host, if both programs allow loss ([`Policy::lossy`](crate::Policy)).
    Udp,
    /// A TIPC stream socket, of the kernel or of a `tipcd`, to another host.
    Tipc,
    /// No transport: messages wait at their sender. A channel is parked while it is handed to another process.
    Parked,
}

impl Transport {
    /// All transports that carry messages.
    pub const ALL: [Transport; 7] = [
        Transport::ShmSpin,
        Transport::ShmFutex,
        Transport::ShmEventfd,
        Transport::UdsSeqpacket,
        Transport::Tcp,
        Transport::Udp,
        Transport::Tipc,
    ];
    /// The transports within a host.
    pub const LOCAL: [Transport; 4] =
        [Transport::ShmSpin, Transport::ShmFutex, Transport::ShmEventfd, Transport::UdsSeqpacket];

    /// Returns the stable id, such as `shm-futex`.
    pub const fn id(self) -> &'static str {
        match self {
            Transport::ShmSpin => ShmSpin::ID,
            Transport::ShmFutex => ShmFutex::ID,
            Transport::ShmEventfd => ShmEventfd::ID,
            Transport::UdsSeqpacket => UdsSeqpacket::NAME,
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Tipc => "tipc",
            Transport::Parked => "parked",
        }
    }

    /// Whether an end that waits keeps its CPU busy.
    pub const fn spins(self) -> bool {
        matches!(self, Transport::ShmSpin)
    }

    /// Whether the receiver has a descriptor that can be polled.
    pub const fn pollable(self) -> bool {
        use Transport::{ShmEventfd, Tcp, Tipc, Udp, UdsSeqpacket};
        matches!(self, ShmEventfd | UdsSeqpacket | Tcp | Udp | Tipc)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// The error when a name is parsed that belongs to no transport.
#[derive(Debug, thiserror::Error)]
#[error("unknown transport '{name}'; a channel can use {}", Transport::ALL.map(Transport::id).join(", "))]
pub struct UnknownTransport {
    /// The unknown name.
    name: String,
}

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        let found = Transport::ALL.into_iter().find(|transport| transport.id() == name);
        found.ok_or_else(|| UnknownTransport { name: name.to_owned() })
    }
}

/// A sending half of any transport.
pub(crate) enum TxHalf {
    Spin(ShmSpinTx),
    Futex(ShmFutexTx),
    Eventfd(ShmEventfdTx),
    Uds(UdsTx),
    Net(NetTx),
    Lossy(LossyTx),
    Parked,
}

/// A receiving half of any transport.
pub(crate) enum RxHalf {
    Spin(ShmSpinRx),
    Futex(ShmFutexRx),
    Eventfd(ShmEventfdRx),
    Uds(UdsRx),
    Net(NetRx),
    Lossy(LossyRx),
    Parked,
}

/// Both halves of one end.
pub(crate) type Halves = (TxHalf, RxHalf);

impl Transport {
    /// Returns this end's halves of a session between hosts.
    pub(crate) fn halves_of(self, session: &Arc<Session>) -> Halves {
        debug_assert!(!Transport::LOCAL.contains(&self));
        let (tx, rx) = session.halves();
        (TxHalf::Net(tx), RxHalf::Net(rx))
    }
}

impl TxHalf {
    /// Returns the session; `None` within a host.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match self {
            TxHalf::Net(tx) => Some(tx.session()),
            TxHalf::Lossy(tx) => Some(tx.session()),
            _ => None,
        }
    }

    /// Returns the ring, if the transport is one.
    pub(crate) fn ring(&self) -> Option<&SharedRing> {
        match self {
            TxHalf::Spin(tx) => Some(tx.memory()),
            TxHalf::Futex(tx) => Some(tx.memory()),
            TxHalf::Eventfd(tx) => Some(tx.memory()),
            TxHalf::Uds(_) | TxHalf::Net(_) | TxHalf::Lossy(_) | TxHalf::Parked => None,
        }
    }

    /// Returns the UDP socket, if the transport is UDP.
    pub(crate) fn datagrams(&self) -> Option<&Arc<Datagrams>> {
        match self {
            TxHalf::Lossy(tx) => Some(tx.datagrams()),
            _ => None,
        }
    }
}

impl RxHalf {
    /// Returns the ring, if the transport is one.
    pub(crate) fn ring(&self) -> Option<&SharedRing> {
        match self {
            RxHalf::Spin(rx) => Some(rx.memory()),
            RxHalf::Futex(rx) => Some(rx.memory()),
            RxHalf::Eventfd(rx) => Some(rx.memory()),
            RxHalf::Uds(_) | RxHalf::Net(_) | RxHalf::Lossy(_) | RxHalf::Parked => None,
        }
    }
}

/// The sizes that both ends must know to open a transport for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Longest message of the channel, in bytes.
    pub(crate) max_message: usize,
    /// Size in bytes of a ring; `None` for the mechanism's default.
    pub(crate) capacity_bytes: Option<usize>,
}

impl Shape {
    fn spec(self, wait: Wait) -> Spec {
        Spec {
            max_message: self.max_message.max(MARKER_LEN),
            wait,
            capacity_bytes: self.capacity_bytes,
            // Thousands of page faults in one go would keep an end off its CPU for milliseconds.
            fault_in: false,
            ..Spec::default()
        }
    }

    /// Returns the specification for a socket. Its buffer must hold the longest message; the kernel doubles the
    /// requested size.
    fn socket_spec(self) -> Spec {
        const DEFAULT: usize = 200 << 10;
        let buffer = (self.max_message > DEFAULT).then_some(self.max_message);
        Spec { socket_buffer_bytes: buffer, ..self.spec(Wait::Block) }
    }

    /// Creates a transport: this end's halves, and the offer from which the peer opens its own.
    pub(crate) fn make(self, transport: Transport) -> Result<(Halves, Offer), OpenError> {
        fn ring<M: Mechanism>(spec: &Spec) -> Result<(M::Tx, M::Rx, Offer), OpenError> {
            let (mut listener, offer) = M::listen(spec)?;
            // Complete when it is made; nothing is waited for.
            let (tx, rx) = listener.accept(None)?;
            Ok((tx, rx, offer))
        }
        Ok(match transport {
            Transport::ShmSpin => {
                let (tx, rx, offer) = ring::<ShmSpin>(&self.spec(Wait::Spin))?;
                ((TxHalf::Spin(tx), RxHalf::Spin(rx)), offer)
            }
            Transport::ShmFutex => {
                let (tx, rx, offer) = ring::<ShmFutex>(&self.spec(Wait::Block))?;
                ((TxHalf::Futex(tx), RxHalf::Futex(rx)), offer)
            }
            Transport::ShmEventfd => {
                let (tx, rx, offer) = ring::<ShmEventfd>(&self.spec(Wait::Block))?;
                ((TxHalf::Eventfd(tx), RxHalf::Eventfd(rx)), offer)
            }
            Transport::UdsSeqpacket => {
                let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket)?;
                let (tx, rx) = UdsSeqpacket::channel(&self.socket_spec(), ours)?;
                let offer = Offer::new().with_fd("socket", theirs);
                ((TxHalf::Uds(tx), RxHalf::Uds(rx)), offer)
            }
            // The peer connects once it has opened its end.
            Transport::Tcp | Transport::Tipc => (self.session(transport), Offer::new()),
            Transport::Udp => return Err(self.needs_addresses()),
            Transport::Parked => ((TxHalf::Parked, RxHalf::Parked), Offer::new()),
        })
    }

    /// Opens the transport that the peer has created.
    pub(crate) fn open(self, transport: Transport, offer: &mut Offer) -> Result<Halves, OpenError> {
        Ok(match transport {
            Transport::ShmSpin => {
                let (tx, rx) = ShmSpin::connect(&self.spec(Wait::Spin), offer)?;
                (TxHalf::Spin(tx), RxHalf::Spin(rx))
            }
            Transport::ShmFutex => {
                let (tx, rx) = ShmFutex::connect(&self.spec(Wait::Block), offer)?;
                (TxHalf::Futex(tx), RxHalf::Futex(rx))
            }
            Transport::ShmEventfd => {
                let (tx, rx) = ShmEventfd::connect(&self.spec(Wait::Block), offer)?;
                (TxHalf::Eventfd(tx), RxHalf::Eventfd(rx))
            }
            Transport::UdsSeqpacket => {
                let socket = offer.take_fd(UdsSeqpacket::NAME, "socket")?;
                let (tx, rx) = UdsSeqpacket::channel(&self.socket_spec(), socket)?;
                (TxHalf::Uds(tx), RxHalf::Uds(rx))
            }
            Transport::Tcp | Transport::Tipc => self.session(transport),
            Transport::Udp => return Err(self.needs_addresses()),
            Transport::Parked => (TxHalf::Parked, RxHalf::Parked),
        })
    }

    /// Returns this end's halves of a transport whose messages travel in datagrams.
    pub(crate) fn lossy(self, datagrams: Arc<Datagrams>) -> Result<Halves, OpenError> {
        let session = Session::new(self.max_message.max(MARKER_LEN), self.capacity_bytes);
        let (tx, rx) = lossy::halves(&session, datagrams)?;
        Ok((TxHalf::Lossy(tx), RxHalf::Lossy(rx)))
    }

    /// Whether messages of this shape fit into datagrams.
    pub(crate) const fn fits_datagrams(self) -> bool {
        self.max_message <= MAX_LOSSY_MESSAGE
    }

    fn needs_addresses(self) -> OpenError {
        let why = "a channel begins on another transport".to_owned();
        OpenError::Unsupported { mechanism: Transport::Udp.id(), why }
    }

    /// Returns the halves of a session between hosts, which gets its connections later.
    fn session(self, transport: Transport) -> Halves {
        transport.halves_of(&Session::new(self.max_message.max(MARKER_LEN), self.capacity_bytes))
    }

    /// Returns the transport on which a channel of this shape begins. Sockets always work, so only a channel with
    /// messages that are too long for a socket begins in a ring.
    pub(crate) fn first(self, pollable: bool) -> (Transport, Result<(Halves, Offer), OpenError>) {
        match (self.make(Transport::UdsSeqpacket), pollable) {
            (Ok(made), _) => (Transport::UdsSeqpacket, Ok(made)),
            (Err(_), true) => (Transport::ShmEventfd, self.make(Transport::ShmEventfd)),
            (Err(_), false) => (Transport::ShmFutex, self.make(Transport::ShmFutex)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_mech::{Rx, Tx};

    #[test]
    fn names_read_back_and_unknown_ones_are_refused_with_those_there_are() {
        for transport in Transport::ALL {
            assert_eq!(transport.id().parse::<Transport>().unwrap(), transport);
            let text = serde_json::to_string(&transport).unwrap();
            assert_eq!(text, format!("\"{transport}\""), "one name everywhere");
        }
        let error = "smoke".parse::<Transport>().unwrap_err().to_string();
        assert!(error.contains("smoke") && error.contains("shm-futex"), "{error}");
    }

    #[test]
    fn what_no_socket_holds_begins_in_a_ring() {
        let shape = |max_message| Shape { max_message, capacity_bytes: None };
        assert_eq!(shape(64 << 10).first(false).0, Transport::UdsSeqpacket);
        let (transport, made) = shape(64 << 20).first(true);
        assert_eq!(transport, Transport::ShmEventfd);
        made.unwrap();
    }

    #[test]
    fn a_message_of_the_longest_length_passes_a_socket() {
        let shape = Shape { max_message: 300 << 10, capacity_bytes: None };
        let Ok(((TxHalf::Uds(mut tx), _), mut offer)) = shape.make(Transport::UdsSeqpacket) else {
            return eprintln!("SKIP: sockets hold less here; remedy: raise net.core.wmem_max");
        };
        let (_, RxHalf::Uds(mut rx)) = shape.open(Transport::UdsSeqpacket, &mut offer).unwrap()
        else {
            panic!("another transport");
        };
        tx.try_send(&vec![7; 300 << 10]).unwrap();
        assert_eq!(rx.recv(&mut vec![0; 300 << 10], None).unwrap(), 300 << 10);
    }
}
