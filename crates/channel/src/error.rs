//! Why a channel did not open, or a message was not received.

use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::OpenError;
use crossway_sys::OsError;

use crate::net::BadNetwork;

/// Why a channel could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a name.
    #[error("'{name}' is no channel name: {why}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No listener appeared before the deadline.
    #[error(
        "nobody listens on channel '{name}' ({waited:?} waited, in {}{elsewhere}); start the listener, or give both ends the same CROSSWAY_CHANNEL_DIR, or CROSSWAY_CHANNEL_HOSTS for another host", directory.display()
    )]
    NobodyListens {
        /// The channel's name.
        name: String,
        /// Where it was looked for.
        directory: PathBuf,
        /// What other hosts said, in words; empty if none were asked.
        elsewhere: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A listener exists, but did not answer before the deadline.
    #[error("the listener of channel '{name}' does not answer: {why}")]
    NoAnswer {
        /// The channel's name.
        name: String,
        /// What was seen.
        why: String,
    },
    /// The listener does not want the channel.
    #[error("the listener of channel '{name}' refuses: {why}")]
    Refused {
        /// The channel's name.
        name: String,
        /// In its words.
        why: String,
    },
    /// A channel between hosts would be neither encrypted nor authenticated, and nobody has said that it may be.
    #[error(
        "channel '{name}' may be on other hosts, and there is no key: set CROSSWAY_CHANNEL_KEY to a key file that all hosts have (crossway channel key makes one), or CROSSWAY_CHANNEL_PLAIN=1 to do without"
    )]
    Unprotected {
        /// The channel's name.
        name: String,
    },
    /// Settings for other hosts cannot be used.
    #[error("{0}")]
    Network(#[from] BadNetwork),
    /// Two hosts do not agree on a key.
    #[error("the listener of channel '{name}' at {place} and this end do not agree: {why}")]
    Disagreed {
        /// The channel's name.
        name: String,
        /// Where it listens.
        place: String,
        /// On what.
        why: String,
    },
    /// The list of hosts has addresses of the name, none of them this host's.
    #[error(
        "channel '{name}' cannot be listened on from here: the list of hosts has it at {addresses}, and none of these is an address of this host; add one"
    )]
    NotHere {
        /// The channel's name.
        name: String,
        /// Those of the list.
        addresses: String,
    },
    /// Both ends answer, but they share no memory.
    #[error(
        "the listener of channel '{name}' shares no memory with this process: {why}; connect the two by a network mechanism"
    )]
    NotLocal {
        /// The channel's name.
        name: String,
        /// What the proof lacked.
        why: String,
    },
    /// A channel cannot be handed to a process on another host.
    #[error("channel '{name}' cannot be handed to another host, its connecting end stays: {why}")]
    CannotFollow {
        /// The channel's name.
        name: String,
        /// In the connecting end's words.
        why: String,
    },
    /// No connection was accepted before the deadline.
    #[error("nobody connected to channel '{name}' within {waited:?}")]
    NobodyConnected {
        /// The channel's name.
        name: String,
        /// The time given.
        waited: Duration,
    },
    /// The policy leaves no transport.
    #[error("{0}")]
    Policy(String),
    /// The transport could not be made.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// Nothing there now (`try_recv` only).
    #[error("nothing to receive")]
    Empty,
    /// No message arrived before the deadline.
    #[error("nothing to receive until the deadline")]
    TimedOut,
    /// The message is larger than the buffer. It stays for the next call.
    #[error("message of {need} bytes does not fit the buffer of {have} bytes")]
    TooSmall {
        /// Its length.
        need: usize,
        /// The buffer's.
        have: usize,
    },
    /// The peer closed its sender, and everything it had sent has been received.
    #[error("the peer closed the channel")]
    Closed,
    /// The peer died or its connection broke. What it had sent until then has been received, in order and without gaps; whether that
    /// is all it wanted to send is unknown.
    #[error("the peer died")]
    PeerDied,
    /// The shared state is damaged: the peer wrote what no correct peer writes.
    #[error("damaged channel: {0}")]
    Damaged(String),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}
