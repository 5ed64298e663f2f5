//! What a contender's program is told and what it answers, version 1: one JSON object per line, orders on its standard input,
//! answers on its standard output. docs/CONTENDERS.md is the description for those who write one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The protocol's version.
pub const VERSION: u32 = 1;

/// What a program is told. Each is answered by one [`Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum Ask {
    /// Become one end of a channel; answered by `offer`.
    Begin {
        /// [`VERSION`].
        protocol: u32,
        /// `sender`, `receiver`, `client` or `server`.
        part: String,
        /// Whether it listens; the other end connects.
        listens: bool,
        /// No message is longer.
        size_bytes: u64,
        /// `block` or `spin`: how it waits.
        wait: String,
        /// The logical CPU that it was started on.
        cpu: Option<u32>,
        /// The address to listen at, where it listens at addresses.
        bind: String,
        /// A private directory for sockets and the like; removed afterwards.
        dir: PathBuf,
        /// Whatever in `/dev/shm` has a name that begins so is removed afterwards.
        shm_prefix: String,
        /// Room between the ends, where the plan asks for one.
        capacity_bytes: Option<u64>,
        /// Socket buffers, where the plan asks for them.
        socket_buffer_bytes: Option<u64>,
    },
    /// Connect to what the other end offers; answered by `opened`.
    Connect {
        /// The other end's words.
        words: BTreeMap<String, String>,
    },
    /// Wait for the other end; answered by `opened`.
    Accept,
    /// Send or receive messages of these lengths, whose bytes stand one behind the other in the file; answered by `verified`.
    Verify {
        /// Whether it sends the file, or receives and writes it.
        sends: bool,
        /// Bytes of each message.
        lengths: Vec<u64>,
        /// The file.
        path: PathBuf,
    },
    /// Read the payload and allocate what the next window needs; answered by `ready`.
    Prepare {
        /// Messages, or round trips, of the window.
        messages: u64,
        /// Round trips per timed sample.
        batch: u64,
        /// The number of the first message that it sends.
        first: u64,
        /// What it sends, if it sends.
        payload: Option<Payload>,
    },
    /// Do it now; answered by `done`.
    Go,
    /// Give account of the window; answered by `result`.
    Result,
    /// Close everything; answered by `closed`, then the program ends.
    Close,
}

/// Prepared messages, used in turn, the first one first in each window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// The file.
    pub path: PathBuf,
    /// How many messages.
    pub count: u64,
    /// From the begin of one to the begin of the next, bytes.
    pub stride: u64,
}

/// What a program says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum Reply {
    /// Unasked, first of all.
    Hello(Greeting),
    /// It listens, or is ready to connect.
    Offer {
        /// From which the other end connects.
        #[serde(default)]
        words: BTreeMap<String, String>,
        /// Processes that work for both ends, started by this one.
        #[serde(default)]
        servers: Vec<u32>,
    },
    /// The channel is open.
    Opened {
        /// Values read back, with the unit in the name.
        #[serde(default)]
        facts: BTreeMap<String, i64>,
    },
    /// Sent or received.
    Verified {
        /// Bytes of each message as it was received; the sender's may be left out.
        #[serde(default)]
        lengths: Vec<u64>,
    },
    /// Prepared.
    Ready,
    /// The window is over.
    Done {
        /// Right before the first act, CLOCK_MONOTONIC, nanoseconds.
        start_ns: u64,
        /// Right after the last act.
        end_ns: u64,
        /// Messages sent.
        #[serde(default)]
        sent: u64,
        /// Messages received.
        #[serde(default)]
        received: u64,
        /// Messages whose number was not the one after the former's.
        #[serde(default)]
        out_of_order: u64,
    },
    /// The window's account.
    Result {
        /// Sum of the checksums of the messages received, wrapping, hexadecimal.
        #[serde(default)]
        checksum: Option<String>,
        /// Nanoseconds of a sample and how many there were.
        #[serde(default)]
        histogram: Vec<(u64, u64)>,
    },
    /// Closed.
    Closed,
    /// It cannot go on.
    Failed {
        /// Why, in one sentence.
        reason: String,
        /// What was asked cannot be done with it; nothing broke.
        #[serde(default)]
        unsupported: bool,
    },
}

impl Reply {
    /// Its name on the line.
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

/// A program's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The version that it speaks.
    pub protocol: u32,
    /// The library that it measures, with its version.
    pub library: String,
    /// How it sums up what it receives.
    #[serde(default)]
    pub checksum: Checksum,
}

/// How a receiver proves that it has read each byte of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// The sum of its 64-bit little-endian words, the last padded with zeros, wrapping.
    #[default]
    Sum64,
    /// Adler-32 (RFC 1950), for languages whose library has that and no fast sum.
    Adler32,
}
