//! Workloads that run concurrently with a case (`beside`): their resolved inputs, and why some combinations are
//! impossible.

use crossway_mech::{Reliability, Wait};
use crossway_sys::Obstacle;
use crossway_sys::topology::Topology;

use super::natural_wait;
use crate::catalogue;
use crate::placement;
use crate::plan::BesideAxis;
use crossway_loops::payload::SEQUENCED_SIZE;
use crossway_records::inputs::{Beside, Inputs};

/// Resolves the concurrent workloads of a case whose own inputs are already resolved. Also returns the first reason why
/// they are impossible, if there is one.
pub(super) fn resolve(
    axis: &[BesideAxis],
    mechanism: &'static str,
    inputs: &Inputs,
    topology: &Topology,
) -> (Vec<Beside>, Option<Obstacle>) {
    let mut obstacle = None;
    let mut besides = Vec::new();
    for one in axis {
        let mechanism = one.mechanism.unwrap_or(mechanism);
        let Some(entry) = catalogue::find(mechanism) else { continue };
        let mut beside = Beside {
            mechanism: mechanism.to_owned(),
            workload: one.workload,
            size_bytes: one.size_bytes,
            wait: one.wait.unwrap_or(natural_wait(&entry.caps())),
            placement: one.placement.unwrap_or(inputs.placement),
            cpus: Vec::new(),
        };
        match placement::resolve(beside.placement, beside.wait, entry.caps().can_block, topology) {
            Ok(cpus) => beside.cpus = cpus,
            Err(why) => obstacle = obstacle.or(Some(why)),
        }
        obstacle = obstacle.or_else(|| impossible(&beside, inputs));
        besides.push(beside);
    }
    (besides, obstacle)
}

fn impossible(beside: &Beside, inputs: &Inputs) -> Option<Obstacle> {
    let mechanism = &beside.mechanism;
    let no = |why: String, remedy: &str| Some(Obstacle { why, remedy: remedy.to_owned() });
    if inputs.testbed.is_some() {
        let why = "concurrent workloads run on this machine only".to_owned();
        return no(why, "set testbed = \"local\", or omit `beside`");
    }
    if catalogue::is_contender(mechanism) {
        let why =
            format!("the contender {mechanism} cannot run concurrently with another workload");
        return no(why, "set `mechanism` in `beside` to one of Crossway's own mechanisms");
    }
    let caps = catalogue::find(mechanism)?.caps();
    let waits = match beside.wait {
        Wait::Block => caps.can_block,
        Wait::Spin => caps.can_spin,
        Wait::Hybrid { .. } => caps.can_block && caps.can_spin,
    };
    if !waits {
        return no(
            format!("{mechanism} in `beside` does not support this way of waiting"),
            "set another `wait` in `beside`",
        );
    }
    if caps.reliability == Reliability::Lossy {
        let why = format!("{mechanism} may lose the message that ends the concurrent workload");
        return no(why, "set `mechanism` in `beside` to a mechanism that loses no messages");
    }
    let least = SEQUENCED_SIZE as u64;
    if beside.size_bytes < least {
        let why = format!("messages in `beside` need room for a sequence number of {least} bytes");
        return no(why, "set `size_bytes` to at least 8 in `beside`");
    }
    if let Some(max) = caps.max_message
        && beside.size_bytes > max as u64
    {
        let why = format!("the largest message of {mechanism} here is {max} bytes");
        return no(why, "set a smaller `size_bytes` in `beside`");
    }
    let spins = inputs.wait == Wait::Spin || beside.wait == Wait::Spin;
    if spins && inputs.cpus.iter().any(|cpu| beside.cpus.contains(cpu)) {
        let why = "one of the two workloads would spin on a CPU that the other one needs";
        return no(
            why.to_owned(),
            "set wait = \"block\" in both, or a separate `placement` in `beside`",
        );
    }
    None
}
