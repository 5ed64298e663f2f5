//! Messages between Crossway and a contender's program, version 1: one JSON object per line, with orders on the
//! program's standard input and answers on its standard output. docs/CONTENDERS.md describes the protocol for authors
//! of contenders.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The protocol's version.
pub const VERSION: u32 = 1;

/// An order to a program. Each is answered by one [`Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum Ask {
    /// Become one end of a channel; answered by `offer`.
    Begin {
        /// Version of the protocol, [`VERSION`].
        protocol: u32,
        /// `sender`, `receiver`, `client` or `server`.
        part: String,
        /// Whether the program listens; otherwise it connects.
        listens: bool,
        /// Maximum message size in bytes.
        size_bytes: u64,
        /// How the program waits: `block` or `spin`.
        wait: String,
        /// The logical CPU on which the program was started; `None` if it was not pinned.
        cpu: Option<u32>,
        /// The address to listen on, if the contender uses addresses.
        bind: String,
        /// A private directory for sockets and other files; removed afterwards.
        dir: PathBuf,
        /// Prefix of names in `/dev/shm` that are removed afterwards.
        shm_prefix: String,
        /// Capacity between the ends, if the plan requests one.
        capacity_bytes: Option<u64>,
        /// Size of socket buffers, if the plan requests one.
        socket_buffer_bytes: Option<u64>,
    },
    /// Connect to the other end with its offer; answered by `opened`.
    Connect {
        /// The named values of the other end's offer.
        words: BTreeMap<String, String>,
    },
    /// Wait for the other end to connect; answered by `opened`.
    Accept,
    /// Send or receive messages of these lengths, which are stored one after another in the file; answered by
    /// `verified`.
    Verify {
        /// Whether to send the contents of the file; otherwise, messages are received and written to the file.
        sends: bool,
        /// Length of each message in bytes.
        lengths: Vec<u64>,
        /// Path of the file.
        path: PathBuf,
    },
    /// Read the payload and allocate what the next window needs; answered by `ready`.
    Prepare {
        /// Number of messages, or round trips, in the window.
        messages: u64,
        /// Round trips per timed sample.
        batch: u64,
        /// The number of the first message to send.
        first: u64,
        /// The messages to send, if this end sends.
        payload: Option<Payload>,
    },
    /// Run the prepared window; answered by `done`.
    Go,
    /// Report the results of the window; answered by `result`.
    Result,
    /// Close everything; answered by `closed`, after which the program exits.
    Close,
}

/// Prepared messages that are sent in turn; each window begins with the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of messages.
    pub count: u64,
    /// Distance from the start of one message to the start of the next, bytes.
    pub stride: u64,
}

/// An answer from a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum Reply {
    /// The first line, sent without an order.
    Hello(Greeting),
    /// The program listens, or is ready to connect.
    Offer {
        /// Named values that the other end needs to connect, such as `path` or `port`.
        #[serde(default)]
        words: BTreeMap<String, String>,
        /// Ids of processes that this program started and that work for both ends, such as a broker.
        #[serde(default)]
        servers: Vec<u32>,
    },
    /// The channel is open.
    Opened {
        /// Values read back from the system; each name ends in the unit.
        #[serde(default)]
        facts: BTreeMap<String, i64>,
    },
    /// The messages were sent or received.
    Verified {
        /// Length of each message received; may be omitted by the sender.
        #[serde(default)]
        lengths: Vec<u64>,
    },
    /// The window is prepared.
    Ready,
    /// The window has ended.
    Done {
        /// Time immediately before the first operation, CLOCK_MONOTONIC, nanoseconds.
        start_ns: u64,
        /// Time immediately after the last operation, CLOCK_MONOTONIC, nanoseconds.
        end_ns: u64,
        /// Messages sent.
        #[serde(default)]
        sent: u64,
        /// Messages received.
        #[serde(default)]
        received: u64,
        /// Messages with a number other than that of the previous message plus 1.
        #[serde(default)]
        out_of_order: u64,
    },
    /// The results of the window.
    Result {
        /// Wrapping sum of the checksums of the messages received, in hexadecimal.
        #[serde(default)]
        checksum: Option<String>,
        /// Sample values in nanoseconds, each with the number of times it occurred.
        #[serde(default)]
        histogram: Vec<(u64, u64)>,
    },
    /// Everything is closed.
    Closed,
    /// The program cannot continue.
    Failed {
        /// The reason, in one sentence.
        reason: String,
        /// Whether the program merely does not support what was requested, as opposed to a failure.
        #[serde(default)]
        unsupported: bool,
    },
}

impl Reply {
    /// The answer's name in the protocol.
    pub fn name(&self) -> &'static str {
        match self {
            Reply::Hello(_) => "hello",
            Reply::Offer { .. } => "offer",
            Reply::Opened { .. } => "opened",
            Reply::Verified { .. } => "verified",
            Reply::Ready => "ready",
            Reply::Done { .. } => "done",
            Reply::Result { .. } => "result",
            Reply::Closed => "closed",
            Reply::Failed { .. } => "failed",
        }
    }
}

/// The first line of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of the protocol that the program uses.
    pub protocol: u32,
    /// The library that the program measures, with its version.
    pub library: String,
    /// The kind of checksum that the program computes.
    #[serde(default)]
    pub checksum: Checksum,
}

/// The checksum with which a receiver proves that it has read every byte of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// The wrapping sum of the message's 64-bit little-endian words, the last padded with zeros.
    #[default]
    Sum64,
    /// Adler-32 (RFC 1950), for languages that have it in the standard library but cannot sum words fast.
    Adler32,
}
