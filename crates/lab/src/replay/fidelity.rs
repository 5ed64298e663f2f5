//! How far a trial was from the recording that it replayed.

use crossway_records::histogram;
use crossway_records::record::{Quantiles, ReplayFigures, distance};

use super::{AS_FAST_AS_POSSIBLE, Recorded, Replay};
use crate::control::Outcome;
use crossway_records::inputs::Workload;

/// The figures of a trial with these outcomes, the first of which is that of the end that sends first.
pub(crate) fn figures(
    replay: &Replay,
    mechanism: &str,
    outcomes: &[Outcome],
    wall_ns: u64,
) -> Option<ReplayFigures> {
    let Workload::Replay { speed_percent, .. } = replay.workload else { return None };
    let Recorded { carrier, sizes, exchanges_ns, method_share, .. } = &replay.recorded;
    let messages = outcomes.iter().find_map(|o| o.replayed.as_ref())?.messages;
    let in_part = (messages as usize).min(sizes.len());
    let sorted = |sizes: &[u32]| -> Vec<u64> {
        let mut sizes: Vec<u64> = sizes.iter().map(|s| u64::from(*s)).collect();
        sizes.sort_unstable();
        sizes
    };
    let (whole, part) = (sorted(sizes), sorted(&sizes[..in_part]));
    let timed = speed_percent != AS_FAST_AS_POSSIBLE;
    let recorded_gaps = if timed { gaps(&replay.recorded, in_part) } else { Vec::new() };
    let replayed_gaps = {
        let mut all: Vec<u64> = Vec::new();
        for outcome in outcomes {
            let gaps = outcome.replayed.as_ref().and_then(|seen| histogram::decode(&seen.gaps));
            for value in gaps.iter().flat_map(|h| h.iter_recorded()) {
                let count = value.count_at_value() as usize;
                all.extend(std::iter::repeat_n(value.value_iterated_to(), count));
            }
        }
        all.sort_unstable();
        all
    };
    let part_ns = match messages / u64::from(replay.script.messages).max(1) {
        0 => replay.recorded.sent_ns.get(in_part).copied().unwrap_or(replay.recorded.span_ns),
        rounds => rounds * replay.recorded.span_ns,
    };
    let per_second = |ns: u64| messages as f64 * 1e9 / ns.max(1) as f64;
    Some(ReplayFigures {
        carrier: carrier.clone(),
        same_mechanism: carries(mechanism, carrier),
        messages,
        size_bytes_recorded: Quantiles::of_sorted(&whole)?,
        size_bytes_replayed: Quantiles::of_sorted(&part)?,
        size_distance: distance(&whole, &part)?,
        gap_ns_recorded: Quantiles::of_sorted(&recorded_gaps),
        gap_ns_replayed: Quantiles::of_sorted(&replayed_gaps),
        gap_distance: distance(&recorded_gaps, &replayed_gaps),
        msgs_per_s_recorded: timed.then(|| per_second(part_ns)),
        msgs_per_s_replayed: per_second(wall_ns),
        exchange_ns_recorded: (speed_percent == 100)
            .then(|| Quantiles::of_sorted(exchanges_ns).map(|q| q.p50))
            .flatten(),
        method_share: *method_share,
        computed_ns: outcomes
            .iter()
            .filter_map(|o| o.replayed.as_ref())
            .map(|seen| seen.computed_ns)
            .sum(),
    })
}

/// The gaps between the sends of each direction among the first messages, ascending.
fn gaps(recorded: &Recorded, messages: usize) -> Vec<u64> {
    let mut before = [None; 2];
    let mut gaps = Vec::with_capacity(messages);
    for (at, client) in recorded.sent_ns.iter().zip(&recorded.by_client).take(messages) {
        if let Some(before) = before[usize::from(*client)].replace(*at) {
            gaps.push(at.saturating_sub(before));
        }
    }
    gaps.sort_unstable();
    gaps
}

/// Whether the mechanism is what carried the recorded channel.
fn carries(mechanism: &str, carrier: &str) -> bool {
    same_as(carrier).contains(&mechanism)
}

/// The mechanisms that work as the carrier of a recorded channel does; empty for one that Crossway does not measure.
pub fn same_as(carrier: &str) -> &'static [&'static str] {
    match carrier {
        "pipe" => &["pipe"],
        "fifo" => &["fifo"],
        "pty" => &["pty"],
        "unix-stream" => &["uds-stream"],
        "unix-datagram" => &["uds-dgram"],
        "unix-seqpacket" => &["uds-seqpacket"],
        "tcp-local" => &["tcp", "tcp-nodelay"],
        "udp-local" => &["udp"],
        "sctp" => &["sctp", "sctp-nodelay"],
        "vsock" => &["vsock"],
        "posix-queue" => &["posix-mq"],
        "sysv-queue" => &["sysv-mq"],
        _ => &[],
    }
}
