//! How far a trial was from the recording that it replayed.

use std::collections::HashMap;

use crossway_records::histogram;
use crossway_records::record::{Quantiles, ReplayFigures, ReplayedChannel, distance};
use crossway_records::sorting::SortSmall;

use super::{AS_FAST_AS_POSSIBLE, Recorded, RecordedChannel, Replay};
use crate::control::{LineSeen, Outcome};
use crossway_records::inputs::Workload;

/// The figures of a trial with these outcomes, the first of which is that of the end that sends first.
pub(crate) fn figures(
    replay: &Replay,
    mechanism: &str,
    outcomes: &[Outcome],
    wall_ns: u64,
) -> Option<ReplayFigures> {
    let Workload::Replay { speed_percent, .. } = replay.workload else { return None };
    let Recorded { channels, sizes, method_share, .. } = &replay.recorded;
    let messages = outcomes.iter().find_map(|o| o.replayed.as_ref())?.messages;
    let in_part = (messages as usize).min(sizes.len());
    let sorted = |sizes: &[u32]| -> Vec<u64> {
        let mut sizes: Vec<u64> = sizes.iter().map(|s| u64::from(*s)).collect();
        sizes.sort_unstable();
        sizes
    };
    let (whole, part) = (sorted(sizes), sorted(&sizes[..in_part]));
    let timed = speed_percent != AS_FAST_AS_POSSIBLE;
    let recorded_gaps = |of: &dyn Fn(u16) -> bool| {
        if timed { gaps(&replay.recorded, in_part, of) } else { Vec::new() }
    };
    let seen = || outcomes.iter().filter_map(|o| o.replayed.as_ref());
    let replayed_gaps = samples(seen().map(|seen| &seen.gaps));
    let median_exchange = |times: &[u64]| {
        let median = Quantiles::of_sorted(times).map(|q| q.p50);
        median.filter(|_| speed_percent == 100)
    };
    let exchanges_ns = {
        let clients = channels.iter().filter(|c| c.by_client);
        let mut all: Vec<u64> = clients.flat_map(|c| c.exchanges_ns.iter().copied()).collect();
        all.sort_unstable();
        all
    };
    let by_channel = |number: u16, channel: &RecordedChannel| {
        let lines = || seen().flat_map(|seen| &seen.lines).filter(|line| line.channel == number);
        let (recorded, replayed) =
            (recorded_gaps(&|of| of == number), samples(lines().map(|line: &LineSeen| &line.gaps)));
        let messages = replay.recorded.ways.iter().filter(|(of, _)| *of == number).count();
        ReplayedChannel {
            channel: channel.number,
            carrier: channel.carrier.clone(),
            messages_recorded: messages as u64,
            gap_distance: distance(&recorded, &replayed),
            gap_ns_recorded: Quantiles::of_sorted(&recorded),
            gap_ns_replayed: Quantiles::of_sorted(&replayed),
            exchange_ns_recorded: median_exchange(&channel.exchanges_ns),
            exchange_ns_replayed: Quantiles::of_sorted(&samples(lines().map(|l| &l.exchanges)))
                .map(|q| q.p50),
        }
    };
    let mut by_channel: Vec<ReplayedChannel> = (0_u16..)
        .zip(channels)
        .filter(|_| channels.len() > 1)
        .map(|(number, channel)| by_channel(number, channel))
        .collect();
    by_channel.sort_small_by_key(|channel| channel.channel);
    let mut carriers: Vec<&str> = channels.iter().map(|c| c.carrier.as_str()).collect();
    carriers.sort_unstable();
    carriers.dedup();
    let recorded_gaps = recorded_gaps(&|_| true);
    let part_ns = match messages / u64::from(replay.script.messages).max(1) {
        0 => replay.recorded.sent_ns.get(in_part).copied().unwrap_or(replay.recorded.span_ns),
        rounds => rounds * replay.recorded.span_ns,
    };
    let per_second = |ns: u64| messages as f64 * 1e9 / ns.max(1) as f64;
    Some(ReplayFigures {
        carrier: carriers.join(", "),
        same_mechanism: carriers.iter().all(|carrier| carries(mechanism, carrier)),
        messages,
        size_bytes_recorded: Quantiles::of_sorted(&whole)?,
        size_bytes_replayed: Quantiles::of_sorted(&part)?,
        size_distance: distance(&whole, &part)?,
        gap_ns_recorded: Quantiles::of_sorted(&recorded_gaps),
        gap_ns_replayed: Quantiles::of_sorted(&replayed_gaps),
        gap_distance: distance(&recorded_gaps, &replayed_gaps),
        msgs_per_s_recorded: timed.then(|| per_second(part_ns)),
        msgs_per_s_replayed: per_second(wall_ns),
        exchange_ns_recorded: median_exchange(&exchanges_ns),
        method_share: *method_share,
        computed_ns: seen().map(|seen| seen.computed_ns).sum(),
        channels: by_channel,
    })
}

/// The values of encoded histograms, ascending.
fn samples<'a>(encoded: impl Iterator<Item = &'a String>) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    for histogram in encoded.filter_map(|text| histogram::decode(text)) {
        for value in histogram.iter_recorded() {
            let count = value.count_at_value() as usize;
            all.extend(std::iter::repeat_n(value.value_iterated_to(), count));
        }
    }
    all.sort_unstable();
    all
}

/// The gaps between the sends of each direction of some channels among the first messages, ascending.
fn gaps(recorded: &Recorded, messages: usize, of: impl Fn(u16) -> bool) -> Vec<u64> {
    let mut before: HashMap<(u16, bool), u64> = HashMap::new();
    let mut gaps = Vec::with_capacity(messages);
    let those = recorded.sent_ns.iter().zip(&recorded.ways).take(messages);
    for (at, way) in those.filter(|(_, (channel, _))| of(*channel)) {
        if let Some(before) = before.insert(*way, *at) {
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
