//! The record of one fault, as it stands in `faults.jsonl`; docs/RECORDS.md is its documentation.

use crossway_mech::Wait;
use serde::{Deserialize, Serialize};

use crate::record::Status;

/// [`FaultRecord::schema`].
pub const SCHEMA: u32 = 1;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The affected end is killed (`SIGKILL`).
    Kill,
    /// The affected end is stopped (`SIGSTOP`) for a while and then continued.
    Stop,
    /// The affected end writes random bytes over every descriptor and every shared page that the channel gave it, behind
    /// the back of the mechanism.
    Garbage,
    /// The affected end sends a message whose length is not the one that the survivor expects: longer than its buffer,
    /// or, on a byte stream, shorter, and then closes.
    WrongLength,
    /// Nothing is received until the channel is full.
    FullQueue,
    /// The file system of temporary files is full.
    FullDisk,
    /// `/dev/shm` is full.
    FullShm,
    /// No descriptor is left (RLIMIT_NOFILE).
    FullDescriptorTable,
    /// No memory may be locked (RLIMIT_MEMLOCK is 0 and there is no CAP_IPC_LOCK).
    LockedMemory,
}

/// What the affected end was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Opening its end.
    Opening,
    /// Nothing; the survivor waits to receive.
    Idle,
    /// Sending message after message.
    Sending,
    /// Receiving message after message.
    Receiving,
    /// Waiting for room in a full channel; the survivor then receives.
    Full,
    /// Not receiving, while the survivor waits for room in the full channel.
    NotReceiving,
    /// Inside the mechanism's critical part as a sender: it was handed the room for a message and is writing there.
    WritingInPlace,
    /// Inside the mechanism's critical part as a receiver: it was shown a message and has not given it back.
    ReadingInPlace,
}

/// An end, by its side of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// It listened.
    Listener,
    /// It connected.
    Connector,
}

impl Side {
    /// The opposite end.
    pub fn other(self) -> Side {
        match self {
            Side::Listener => Side::Connector,
            Side::Connector => Side::Listener,
        }
    }
}

/// What became of the survivor, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The fault changed nothing: everything sent arrived unaltered.
    Unaffected,
    /// It waited while the fault lasted, then went on; nothing was lost.
    Resumed,
    /// A call that it made, or was waiting in, returned an error that names the fault.
    Told,
    /// It was never told, and messages that the mechanism had accepted are lost.
    Unnoticed,
    /// A call without a deadline did not return while it was watched.
    Hung,
    /// It was given as a message what nobody sent.
    Deceived,
    /// Its process died.
    Died,
}

/// How the survivor learned of the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detection {
    /// The call that said so: `open`, `send` or `receive`.
    pub call: String,
    /// The error, as the mechanism words it.
    pub error: String,
    /// The error says that the peer is gone, which a program can act upon without reading words.
    pub peer_closed: bool,
}

/// What kind of thing stayed behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftoverKind {
    /// A file, FIFO or socket in the file system.
    Path,
    /// POSIX shared memory or a named semaphore, in `/dev/shm`.
    PosixShm,
    /// A POSIX message queue.
    PosixMq,
    /// A System V message queue.
    SysvMsg,
    /// A System V semaphore set.
    SysvSem,
    /// A System V shared memory segment.
    SysvShm,
}

/// What removed a leftover, or can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remover {
    /// It was gone when the survivor had closed its end.
    Survivor,
    /// It was gone after Crossway's leases were swept, as its reaper and its next start do. A program without leases must
    /// remove it by hand.
    LeaseSweep,
    /// Nothing removed it: its owner or root must, by [`Leftover::remedy`].
    ByHand,
}

/// Something that was not there before the channel was opened and is there after the affected end died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// Its name: a path, or the kernel's number.
    pub name: String,
    /// What removed it.
    pub remover: Remover,
    /// The command that removes it.
    pub remedy: String,
}

/// One fault, brought about once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Version of this form.
    pub schema: u32,
    /// The matrix it belongs to: its start in UTC and a random suffix.
    pub run: String,
    /// When, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// The machine's id, as in `env.json`.
    pub environment: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// What provides it; null where it is missing.
    pub mechanism_version: Option<String>,
    /// How both ends waited.
    pub wait: Wait,
    /// Length of the messages, bytes.
    pub size_bytes: u64,
    /// What went wrong.
    pub fault: Fault,
    /// What the affected end was doing.
    pub state: State,
    /// The end that it happened to.
    pub affected: Side,
    /// The end that was observed; for a resource that ran out, the affected end itself.
    pub survivor: Side,
    /// This attempt, from 0.
    pub trial: u32,
    /// `ok`: measured; `skipped`: it cannot be brought about here, or not to this mechanism; `failed`: the attempt itself went wrong.
    pub status: Status,
    /// Why it is not `ok`.
    pub reason: Option<String>,
    /// What makes it possible, where something does.
    pub remedy: Option<String>,
    /// What became of the survivor; null unless `ok`.
    pub outcome: Option<Outcome>,
    /// How it learned of the fault; null where it did not.
    pub detected_by: Option<Detection>,
    /// From the fault to the return of the call that told, nanoseconds; null where nothing told.
    pub detected_after_ns: Option<u64>,
    /// A call without a deadline did not return within `watched_ns`, although the peer was dead or the channel useless.
    pub hung: bool,
    /// How long a silent survivor was watched, nanoseconds.
    pub watched_ns: u64,
    /// Messages that the sending end's mechanism had accepted; null where nothing was sent.
    pub sent: Option<u64>,
    /// Of these, those that the receiving end got, unaltered.
    pub received: Option<u64>,
    /// Messages that the survivor was given and nobody had sent: other content, other length, or twice.
    pub received_not_sent: Option<u64>,
    /// Messages accepted and never received, unless the receiving end is the one that died.
    pub sent_lost: Option<u64>,
    /// What stayed behind when the affected end was dead; null where it was not looked for, with the reason in `warnings`.
    pub left_behind: Option<Vec<Leftover>>,
    /// What a reader should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}
