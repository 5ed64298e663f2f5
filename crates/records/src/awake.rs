//! Detects ends that may block but hardly ever slept: they are "busy". Their round trips are as short as those of
//! spinning ends, and each of them keeps a CPU busy, as a spinning end does.
//!
//! This happens on virtual machines: a wait with a time-out takes so long to arm its timer that a fast answer arrives
//! before the end sleeps.

use crossway_mech::Wait;

use crate::inputs::Workload;
use crate::record::Record;
use crate::stats;

/// What such ends did, in words; the subject is "its ends".
pub const SLEPT: &str = "slept in fewer than one of ten waits in most trials, so each kept its CPU busy, as spinning ends do";

/// A round trip with fewer voluntary context switches than this, of both ends together, counts as one in which the ends
/// hardly slept. If each end sleeps once, the number is two.
const SWITCHES: f64 = 0.2;

/// Explains the word "busy", which names the class of such mechanisms.
pub fn busy_explained() -> String {
    format!("busy: its ends may block, but {SLEPT}; ranked only against other busy ones")
}

/// The number of times that the ends of a trial slept, per received message: the voluntary context switches of all
/// roles. `None` if the trial did not count them or received nothing.
pub fn sleeps_per_msg(record: &Record) -> Option<f64> {
    let switches: u64 = record.roles.iter().map(|role| role.switches_voluntary).sum();
    let messages = record.counts.map(|c| c.received).filter(|n| *n > 0)?;
    (!record.roles.is_empty()).then_some(switches as f64 / messages as f64)
}

/// Returns whether the ends of these trials of one case may block, but hardly slept in the median
/// trial. False for every workload except ping-pong: a receiver of a stream, for example, need not
/// sleep if the next message is already there.
pub fn is_busy(trials: &[&Record]) -> bool {
    let Some(first) = trials.first().filter(|r| r.inputs.wait == Wait::Block) else { return false };
    let sleeps: Vec<f64> = trials.iter().filter_map(|r| sleeps_per_msg(r)).collect();
    first.inputs.workload == Workload::PingPong
        && stats::median(&sleeps).is_some_and(|sleeps| sleeps < SWITCHES)
}
