//! What a mechanism can do.

use serde::{Deserialize, Serialize};

/// Whether one send is one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundaries {
    /// A message sent is a message received, the empty one included where [`Caps::carries_empty`].
    Message,
    /// Bytes in order; [`Rx::recv`](crate::Rx::recv) collects as many as the buffer holds, over short reads. An empty send
    /// transfers nothing.
    Stream,
}

/// Whether messages arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// No promise.
    None,
}

/// Whether a message that was accepted arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// Arrives, or an end is told.
    Reliable,
    /// A full receiver drops silently (UDP).
    Lossy,
}

/// What a process needs to use the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    /// Nothing.
    None,
    /// Permission to trace the peer (`CAP_SYS_PTRACE`, or same user and a permissive `ptrace_scope`).
    Ptrace,
    /// A kernel module that only root can load.
    Module,
}

/// What a mechanism can do, stated once and checked by the conformance suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Message or stream.
    pub boundaries: Boundaries,
    /// Largest message in bytes that any configuration here can carry; `None`: bounded by memory only. What
    /// one channel carries is [`Facts`](crate::Facts)' `max_message_bytes`.
    pub max_message: Option<usize>,
    /// Order of delivery.
    pub order: Order,
    /// Delivery.
    pub reliability: Reliability,
    /// The empty message is a message: it arrives. Never so for streams. TIPC's connectionless sockets drop it.
    pub carries_empty: bool,
    /// The sender can write in place ([`Tx::send_in_place`](crate::Tx::send_in_place)) and the receiver read in place.
    pub in_place: bool,
    /// [`Rx::wait_fd`](crate::Rx::wait_fd) gives a descriptor for poll and epoll.
    pub waitable_fd: bool,
    /// Several [`Mechanism::connect`](crate::Mechanism::connect)s to one [`Offer`](crate::Offer) feed one [`Rx`](crate::Rx).
    pub fan_in: bool,
    /// One send of the [`Listener`](crate::Listener)'s [`Tx`](crate::Tx) reaches every end that connected to its [`Offer`](crate::Offer).
    pub fan_out: bool,
    /// [`Listener::accept`](crate::Listener::accept) and [`Mechanism::connect`](crate::Mechanism::connect) can be repeated on one offer, each giving a channel of
    /// its own.
    pub reconnects: bool,
    /// The ends may be on different hosts; the offer is then text only.
    pub crosses_hosts: bool,
    /// Waiting ends may sleep ([`Wait::Block`](crate::Wait::Block)).
    pub can_block: bool,
    /// Waiting ends may spin ([`Wait::Spin`](crate::Wait::Spin), [`Wait::Hybrid`](crate::Wait::Hybrid)).
    pub can_spin: bool,
    /// An end learns that its peer died, even by `kill -9`.
    pub detects_peer_death: bool,
    /// A send can wait with a deadline.
    pub send_deadline: bool,
    /// What it takes to use it.
    pub privilege: Privilege,
}

impl Caps {
    /// A plain channel between two ends on one host: whole messages of any size, in order, by copy, nothing lost. Mechanisms say
    /// what is otherwise with them.
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
