//! The record of one attempt with a fault: a line of `faults.jsonl`, documented in docs/RECORDS.md.

use std::path::Path;

use crossway_mech::Wait;
use serde::{Deserialize, Serialize};

use crossway_records::record::Status;
use crossway_records::records_io::ReadError;
use crossway_records::side_records::{self, SideRecord};

/// File name of fault records, as saved by `crossway faults` and in a run's folder.
pub const FAULTS: &str = "faults.jsonl";

/// Current value of [`FaultRecord::schema`].
pub const SCHEMA: u32 = 1;

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The affected end is killed (`SIGKILL`).
    Kill,
    /// The affected end is stopped (`SIGSTOP`) for a while and then continued.
    Stop,
    /// The affected end writes random bytes to every descriptor and every shared page that it has for the channel,
    /// bypassing the mechanism.
    Garbage,
    /// The affected end sends a message with a length that the survivor does not expect: longer than the survivor's
    /// buffer or, on a byte stream, shorter, followed by a close.
    WrongLength,
    /// Nothing is received until the channel is full.
    FullQueue,
    /// The file system for temporary files is full.
    FullDisk,
    /// `/dev/shm` is full.
    FullShm,
    /// There are no free descriptors (RLIMIT_NOFILE).
    FullDescriptorTable,
    /// Memory cannot be locked (RLIMIT_MEMLOCK is 0 and there is no CAP_IPC_LOCK).
    LockedMemory,
}

/// What the affected end was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Opening its end.
    Opening,
    /// Nothing, while the survivor waits for a message.
    Idle,
    /// Sending one message after another.
    Sending,
    /// Receiving one message after another.
    Receiving,
    /// Waiting for room in a full channel; the survivor then receives.
    Full,
    /// Not receiving, while the survivor waits for room in the full channel.
    NotReceiving,
    /// In the sending side of the mechanism's critical section: it has reserved room for a message and is writing it in
    /// place.
    WritingInPlace,
    /// In the receiving side of the mechanism's critical section: it is reading a message in place and has not released
    /// it.
    ReadingInPlace,
}

/// An end, identified by its part in opening the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The end that listened.
    Listener,
    /// The end that connected.
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

/// Outcome for the survivor, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The fault changed nothing: everything sent arrived unaltered.
    Unaffected,
    /// The survivor waited during the fault and then continued; nothing was lost.
    Resumed,
    /// A call returned an error because of the fault. Called `told` in records of earlier builds.
    #[serde(alias = "told")]
    Detected,
    /// The survivor was never notified, and messages that the mechanism had accepted are lost.
    Unnoticed,
    /// A call without a deadline did not return while the survivor was watched.
    Hung,
    /// The survivor received a message that was never sent.
    Deceived,
    /// The survivor's process died.
    Died,
}

/// How the survivor was notified of the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detection {
    /// The call that returned the error: `open`, `send` or `receive`.
    pub call: String,
    /// The text of the mechanism's error.
    pub error: String,
    /// Whether the error's type, and not only its text, says that the peer is gone. A program can then handle the error
    /// without parsing text.
    pub peer_closed: bool,
}

/// Kind of a leftover object.
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

/// What removed a leftover object, or can remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remover {
    /// The object was gone after the survivor had closed its end.
    Survivor,
    /// The object was gone after a sweep of Crossway's leases, as done by its reaper and at its next start. A program
    /// without leases must remove the object itself.
    LeaseSweep,
    /// The object was not removed automatically: its owner or root must run [`Leftover::remedy`].
    ByHand,
}

/// An object that did not exist before the channel was opened and exists after the affected end died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Kind of the object.
    pub kind: LeftoverKind,
    /// The object's name: a path, or the number by which the kernel identifies the object.
    pub name: String,
    /// What removed the object, or can remove it.
    pub remover: Remover,
    /// The command that removes the object.
    pub remedy: String,
}

/// One attempt with one fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Version of the schema.
    pub schema: u32,
    /// Name of the matrix run: its start in UTC and a random suffix.
    pub run: String,
    /// Time of the attempt, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// The machine's id, as in `env.json`.
    pub environment: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// Version of what provides the mechanism, such as a kernel or a library; null if the mechanism is missing.
    pub mechanism_version: Option<String>,
    /// How both ends waited.
    pub wait: Wait,
    /// Message length in bytes.
    pub size_bytes: u64,
    /// The kind of fault.
    pub fault: Fault,
    /// What the affected end was doing.
    pub state: State,
    /// The end into which the fault was injected.
    pub affected: Side,
    /// The observed end. If the queue is full or a resource is exhausted, this is the affected end itself.
    pub survivor: Side,
    /// Number of this attempt, from 0.
    pub trial: u32,
    /// `ok`: measured; `skipped`: the fault is not possible here, or not for this mechanism; `failed`: the attempt
    /// itself failed.
    pub status: Status,
    /// Why the status is not `ok`.
    pub reason: Option<String>,
    /// The step that would make the attempt possible; null if there is none.
    pub remedy: Option<String>,
    /// Outcome for the survivor; null unless the status is `ok`.
    pub outcome: Option<Outcome>,
    /// How the survivor was notified of the fault; null if it was not.
    pub detected_by: Option<Detection>,
    /// Time from the fault to the return of the call that reported it, nanoseconds; null if none did.
    pub detected_after_ns: Option<u64>,
    /// Whether a call without a deadline did not return within `watched_ns`, although the peer was dead or the channel
    /// unusable.
    pub hung: bool,
    /// How long a silent survivor was watched, nanoseconds.
    pub watched_ns: u64,
    /// Number of messages that the mechanism accepted from the sending end; null if that was not counted.
    pub sent: Option<u64>,
    /// Number of the sent messages that the receiving end received unaltered; null if that was not counted.
    pub received: Option<u64>,
    /// Number of messages that the survivor received although they were never sent: wrong content, wrong length, or
    /// duplicates; null if that was not counted, e.g. because the receiving end died.
    pub received_not_sent: Option<u64>,
    /// Number of messages that were accepted but never received; null if that was not counted, e.g. because the
    /// receiving end died.
    pub sent_lost: Option<u64>,
    /// Objects left behind when the affected end had died; null if that was not checked, with the reason in `warnings`.
    pub left_behind: Option<Vec<Leftover>>,
    /// Remarks for the reader.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl SideRecord for FaultRecord {
    const FILE: &'static str = FAULTS;
    const SCHEMA: u32 = SCHEMA;
    const WHAT: &'static str = "fault record";
    const WRITTEN_BY: &'static str = "; `crossway faults --save FILE` writes such a file";

    fn schema(&self) -> u32 {
        self.schema
    }
}

/// Reads the fault records of a file, or of `faults.jsonl` in a folder.
///
/// # Errors
/// See [`side_records::read`].
pub fn read_faults(path: &Path) -> Result<Vec<FaultRecord>, ReadError> {
    side_records::read(path)
}
