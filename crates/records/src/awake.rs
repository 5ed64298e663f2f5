//! Detects ends that may block but hardly ever slept. Their round trips are as short as those of spinning ends, and
//! each of them keeps a CPU busy, as a spinning end does.
//!
//! This happens on virtual machines: a wait with a time-out takes so long to arm its timer that a fast answer arrives
//! before the end sleeps.

use crate::inputs::Workload;

/// What such ends did, in words; the subject is "its ends".
pub const SLEPT: &str = "slept in fewer than one of ten waits in most trials, so each kept its CPU busy, as spinning ends do";

/// A round trip with fewer voluntary context switches than this, of both ends together, counts as one in which the ends
/// hardly slept. If each end sleeps once, the number is two.
const SWITCHES: f64 = 0.2;

/// Returns whether ends with this number of voluntary context switches per message hardly slept. False for every
/// workload except ping-pong: a receiver of a stream, for example, need not sleep if the next message is already there.
pub fn hardly_slept(workload: Workload, switches_per_msg: f64) -> bool {
    workload == Workload::PingPong && switches_per_msg < SWITCHES
}
