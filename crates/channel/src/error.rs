//! The reasons why a channel did not open or a message was not received.

use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::OpenError;
use crossway_sys::OsError;

use crate::net::BadNetwork;

/// The reason why a channel could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is invalid.
    #[error("'{name}' is not a valid channel name: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No listener appeared before the deadline.
    #[error(
        "nobody listens on channel '{name}' (waited {waited:.1?}, looked in {}{elsewhere}); start the listener, or \
         give both ends the same CROSSWAY_CHANNEL_DIR (on one host) or CROSSWAY_CHANNEL_HOSTS (on several hosts)",
        directory.display()
    )]
    NobodyListens {
        /// The channel's name.
        name: String,
        /// The directory in which it was looked up.
        directory: PathBuf,
        /// The answers of other hosts, as text; empty if none were asked.
        elsewhere: String,
        /// How long this process waited for a listener.
        waited: Duration,
    },
    /// A listener exists, but did not answer before the deadline.
    #[error("no valid answer from the listener of channel '{name}': {why}")]
    NoAnswer {
        /// The channel's name.
        name: String,
        /// What happened instead of an answer.
        why: String,
    },
    /// The listener refused the channel.
    #[error("the listener refused channel '{name}': {why}")]
    Refused {
        /// The channel's name.
        name: String,
        /// The listener's reason.
        why: String,
    },
    /// A channel between hosts would be neither encrypted nor authenticated, and neither the program nor its
    /// environment allows that.
    #[error(
        "channel '{name}' may be on another host, but no key is configured: set CROSSWAY_CHANNEL_KEY to a key file \
         that all hosts have (create one with: crossway channel key), or set CROSSWAY_CHANNEL_PLAIN=1 to allow \
         unencrypted connections"
    )]
    Unprotected {
        /// The channel's name.
        name: String,
    },
    /// The settings for other hosts are invalid.
    #[error("{0}")]
    Network(#[from] BadNetwork),
    /// Two hosts do not agree on the key or on the protocol.
    #[error("the listener of channel '{name}' at {place} cannot be used: {why}")]
    Disagreed {
        /// The channel's name.
        name: String,
        /// The address of the listener.
        place: String,
        /// The point of disagreement, such as the key.
        why: String,
    },
    /// The list of hosts has addresses of the name, but none of them belongs to this host.
    #[error(
        "cannot listen on channel '{name}': the list of hosts has {addresses} for it, but none of these is an address \
         of this host; add an address of this host to the list"
    )]
    NotHere {
        /// The channel's name.
        name: String,
        /// The addresses in the list of hosts.
        addresses: String,
    },
    /// The listener answered, but shares no memory with this process.
    #[error(
        "the listener of channel '{name}' shares no memory with this process: {why}; connect the two over the network instead"
    )]
    NotLocal {
        /// The channel's name.
        name: String,
        /// What was wrong with the proof of shared memory.
        why: String,
    },
    /// A channel cannot be handed to a process on another host.
    #[error(
        "channel '{name}' cannot be handed to another host, because its connecting end cannot follow: {why}"
    )]
    CannotFollow {
        /// The channel's name.
        name: String,
        /// The reason that the connecting end gave.
        why: String,
    },
    /// Handing channels over from one process to another failed.
    #[error("handing over channels failed: {0}")]
    HandOver(String),
    /// No process asked to take the channels over before the deadline.
    #[error(
        "no process asked to take over the channels of '{name}' within {waited:.1?}; they are closed"
    )]
    NobodyTookOver {
        /// The channels' name.
        name: String,
        /// How long the listener waited.
        waited: Duration,
    },
    /// Nobody connected before the deadline.
    #[error("nobody connected to channel '{name}' within {waited:.1?}")]
    NobodyConnected {
        /// The channel's name.
        name: String,
        /// How long the listener waited.
        waited: Duration,
    },
    /// The policy allows no transport, or allows loss while the longest message does not fit into a datagram.
    #[error("{0}")]
    Policy(String),
    /// The transport could not be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// The reason why no message was received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// No message is waiting (`try_recv` only).
    #[error("nothing to receive")]
    Empty,
    /// No message arrived before the deadline.
    #[error("no message arrived before the deadline")]
    TimedOut,
    /// The message is larger than the buffer. The next call can still receive it.
    #[error("the message of {need} bytes does not fit into the buffer of {have} bytes")]
    TooSmall {
        /// Length of the message in bytes.
        need: usize,
        /// Length of the buffer in bytes.
        have: usize,
    },
    /// The peer closed its sender, and everything it had sent has been received.
    #[error("the peer closed the channel")]
    Closed,
    /// The peer died or its connection broke. Everything that arrived before has been received, in order and, unless
    /// loss is allowed, without gaps; whether the peer had sent or wanted to send more is unknown.
    #[error("the peer died or its connection broke")]
    PeerDied,
    /// The shared memory or the connection contains data that no correct peer writes.
    #[error("the channel is damaged: {0}")]
    Damaged(String),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}
