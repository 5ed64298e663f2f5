//! What a mechanism can do.

use serde::{Deserialize, Serialize};

/// Whether one send corresponds to one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundaries {
    /// Each send corresponds to one receive. With [`Caps::carries_empty`], this also applies to the send of an empty
    /// message.
    Message,
    /// A sequence of bytes. [`Rx::recv`](crate::Rx::recv) fills its buffer, with several reads if necessary. An empty
    /// send transfers nothing.
    Stream,
}

/// Whether messages arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// Messages may overtake each other.
    None,
}

/// Whether every message that a send has accepted arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// A message arrives, or one of the ends gets an error.
    Reliable,
    /// A full receiver drops messages (UDP) or rejects them (TIPC without connections).
    Lossy,
}

/// What privilege a process needs to use the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    /// Any user may use the mechanism.
    None,
    /// Permission to trace the peer (`CAP_SYS_PTRACE`, or the same user and a permissive `ptrace_scope`).
    Ptrace,
    /// Permission to send frames of one's own (`CAP_NET_RAW`).
    NetRaw,
    /// A kernel module that only root can load.
    Module,
    /// Several capabilities that together are as much as root has.
    Root,
}

/// The capabilities of a mechanism, declared once and checked by the conformance suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Whether the mechanism carries messages, or a stream of bytes in which the receiver must know the boundaries.
    pub boundaries: Boundaries,
    /// Length in bytes of the largest message that any configuration on this machine can carry; `None` if only memory
    /// limits it. The limit of a particular channel is `max_message_bytes` in its [`Facts`](crate::Facts).
    pub max_message: Option<usize>,
    /// Whether messages arrive in the order in which they were sent.
    pub order: Order,
    /// Whether every accepted message arrives.
    pub reliability: Reliability,
    /// Whether an empty message arrives. Always false for streams and for TIPC's connectionless sockets, which drop it.
    pub carries_empty: bool,
    /// Whether the sender can write in place ([`Tx::send_in_place`](crate::Tx::send_in_place)) and the receiver read in
    /// place.
    pub in_place: bool,
    /// Whether [`Rx::wait_fd`](crate::Rx::wait_fd) returns a descriptor for poll and epoll.
    pub waitable_fd: bool,
    /// Whether several ends that [`Mechanism::connect`](crate::Mechanism::connect) to one [`Offer`](crate::Offer) send
    /// to the same [`Rx`](crate::Rx).
    pub fan_in: bool,
    /// Whether one send of the [`Listener`](crate::Listener)'s [`Tx`](crate::Tx) reaches every end connected to its
    /// [`Offer`](crate::Offer).
    pub fan_out: bool,
    /// Whether [`Listener::accept`](crate::Listener::accept) and [`Mechanism::connect`](crate::Mechanism::connect) can
    /// be repeated with one offer, and create a new channel each time.
    pub reconnects: bool,
    /// Whether the ends may be on different hosts. The offer is then text only.
    pub crosses_hosts: bool,
    /// Whether waiting ends may sleep ([`Wait::Block`](crate::Wait::Block)).
    pub can_block: bool,
    /// Whether waiting ends may spin ([`Wait::Spin`](crate::Wait::Spin), [`Wait::Hybrid`](crate::Wait::Hybrid)).
    pub can_spin: bool,
    /// Whether an end detects the death of its peer, even by `kill -9`.
    pub detects_peer_death: bool,
    /// Whether a send can wait with a deadline.
    pub send_deadline: bool,
    /// The privilege needed to use the mechanism.
    pub privilege: Privilege,
}

impl Caps {
    /// The capabilities of a plain channel between two ends on one host: whole messages of any size, in order, copied,
    /// without loss. Mechanisms override what differs.
    pub const PLAIN: Caps = Caps {
        boundaries: Boundaries::Message,
        max_message: None,
        order: Order::Fifo,
        reliability: Reliability::Reliable,
        carries_empty: true,
        in_place: false,
        waitable_fd: false,
        fan_in: false,
        fan_out: false,
        reconnects: false,
        crosses_hosts: false,
        can_block: true,
        can_spin: true,
        detects_peer_death: true,
        send_deadline: true,
        privilege: Privilege::None,
    };
}
