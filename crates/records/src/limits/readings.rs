//! The readings of the loops that bound figures: wake-ups, exchanges, copies, and IPC objects.

use serde::{Deserialize, Serialize};

use super::{Limits, Spread};
use crate::stats::TRIALS_AT_LEAST;

/// How the sleeping thread is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeKind {
    /// FUTEX_WAKE.
    Futex,
    /// A write to an eventfd that the sleeping thread is reading.
    Eventfd,
}

/// The latency of one kind of wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// How the sleeping thread is woken.
    pub kind: WakeKind,
    /// The waking thread's CPU.
    pub a: u32,
    /// The sleeping thread's CPU.
    pub b: u32,
    /// How long the thread had slept, microseconds. During a sleep of up to 200 us, the waking thread spins; during a
    /// longer one, it sleeps too.
    pub idle_us: u64,
    /// Latency, nanoseconds.
    pub wake_to_run_ns: Spread,
}

/// How the two threads wake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeKind {
    /// FUTEX_WAKE and FUTEX_WAIT on two words.
    Futex,
    /// One byte through a pipe each way.
    Pipe,
}

/// The round trip of the faster kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// The CPU of the asking thread.
    pub a: u32,
    /// The CPU of the answering thread; may be the same.
    pub b: u32,
    /// How the two threads wake each other.
    pub kind: ExchangeKind,
    /// Round trip, nanoseconds.
    pub round_trip_ns: Spread,
}

/// The layout of the ring in the best measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Size of the ring, bytes.
    pub ring_bytes: u64,
    /// Number of bytes that the sender makes available to the receiver at a time; at least one message.
    pub hand_over_bytes: u64,
    /// Size of the sender's working set, bytes: that of a trial, but at least two messages.
    pub working_set_bytes: u64,
}

/// The throughput of one or two copies between two cores at one message size. The sender copies whole messages from its
/// working set into a ring, and the receiver adds up all of their 64-bit words. With two copies, the receiver first
/// copies the messages out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyLimit {
    /// Number of copies, 1 or 2.
    pub copies: u32,
    /// The sender's CPU.
    pub a: u32,
    /// The receiver's CPU.
    pub b: u32,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Messages per second.
    pub msgs_per_s: Spread,
    /// Messages per second if every message is made available individually. A mechanism has to do so if it does not
    /// know whether another message follows. This slows down small messages.
    pub each_by_itself_msgs_per_s: Spread,
    /// Payload bytes per second.
    pub bytes_per_s: Spread,
    /// The layout of the best measurement.
    pub layout: Layout,
}

impl Limits {
    /// Whether the limit with two copies is certainly faster than `one`, the limit with a single copy between the same
    /// CPUs and at the same size: there are enough readings of both, and their middle 80 % do not overlap.
    pub fn two_copies_faster(&self, one: &CopyLimit) -> bool {
        let twin = |c: &&CopyLimit| {
            (c.copies, c.a, c.b, c.size_bytes) == (2, one.a, one.b, one.size_bytes)
        };
        let two = self.copies.iter().find(twin).filter(|_| one.copies == 1);
        two.is_some_and(|two| {
            let (one, two) = (one.bytes_per_s, two.bytes_per_s);
            one.n.min(two.n) >= TRIALS_AT_LEAST && two.p10 > one.p90
        })
    }
}

/// Explains a limit for which [`Limits::two_copies_faster`] holds.
pub const TWO_COPIES_FASTER: &str = "slower than with two copies, and not only within the scatter of the readings: copying a message out of the ring before reading it was faster here than \
     reading it in place; the limit of a mechanism with one copy is the faster of the two";

/// The rate of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlRate {
    /// Kind of object: `sysv-shm`, `sysv-mq`, `fifo`, `pipe` or `socketpair`.
    pub object: String,
    /// `create-remove`: creating and removing one object; `stat`: querying the state of an object.
    pub operation: String,
    /// Number of threads that perform the operation at the same time, each on its own objects.
    pub threads: u32,
    /// Operations per second of all threads together.
    pub per_s: Spread,
    /// Length of the window in which the operations of all threads are counted, milliseconds; null in files from before
    /// 2026-11-26. In those files, each thread's number of operations was divided by that thread's own time. Threads
    /// that take turns on a CPU were thus counted as if they worked at the same time, so the rates of several threads
    /// are too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u32>,
}

/// The note on the rates of several threads in files from before [`ControlRate::window_ms`].
pub const RATES_TOO_LARGE: &str = "The rates of several threads are too large: the earlier version of Crossway that \
     measured them counted threads that take turns on a CPU as if they worked at the same time.";

impl ControlRate {
    /// Whether [`RATES_TOO_LARGE`] applies to the rate.
    pub fn is_too_large(&self) -> bool {
        self.threads > 1 && self.window_ms.is_none()
    }
}
