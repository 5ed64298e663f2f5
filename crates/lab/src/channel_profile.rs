//! The cost of a message on each transport of a channel, computed from a run's records.
//!
//! The costs per message and per byte are the coefficients of a line through the median times per message of the
//! streams, one for each size, with the least squares of relative distances, so that a small size counts as much as a
//! large one and a few wild trials do not count. The cost of a wake-up is half the time by which a round trip exceeds
//! the cost of two messages. Only the placement with the most trials is used. A transport whose trials scatter too much,
//! or do not lie on a line, gets no costs.

use std::collections::BTreeMap;

use crossway_channel::{Cost, Profile, Transport};
use crossway_mech::{Access, Wait};

use crossway_records::figure::Figure;
use crossway_records::fit::{Point, SIZES_AT_LEAST, weighted_line};
use crossway_records::inputs::{Ends, Placement, Workload};
use crossway_records::record::{Record, Status};
use crossway_records::stats::{Estimate, TRIALS_AT_LEAST, median};

/// Largest ratio between the ends of the 95 % interval of a size's median time.
const SCATTER_MOST: f64 = 3.0;
/// Largest ratio between a size's median time and the line.
const DISTANCE_MOST: f64 = 1.5;

/// What the costs of a transport are based on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    /// Number of trials of streams.
    pub streams: usize,
    /// Number of trials of round trips.
    pub round_trips: usize,
    /// How far the line is from the median time of a size.
    pub distance: f64,
    /// How far the ends of the 95 % interval of a size's median time are from each other.
    pub scatter: f64,
}

/// Costs computed from a run, and what they are based on.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The costs of the transports whose trials allow a statement.
    pub profile: Profile,
    /// What the costs of each of these transports are based on.
    pub bases: BTreeMap<Transport, Basis>,
    /// Why the trials of other transports allow no statement.
    pub refused: BTreeMap<Transport, String>,
}

/// Whether a record contributes to the cost of a transport.
fn bears_on(record: &Record, transport: Transport) -> bool {
    let inputs = &record.inputs;
    let between = matches!(transport, Transport::Tcp | Transport::Tipc);
    let placed = match between {
        true => inputs.testbed.is_some() && inputs.ends == Ends::Between,
        false => inputs.testbed.is_none() && inputs.placement != Placement::SameCore,
    };
    let named = match transport {
        Transport::Tipc => {
            ["tipc-node-stream", "tipc-kernel-stream"].contains(&record.mechanism.as_str())
        }
        other => record.mechanism == other.id(),
    };
    let waits = if transport.spins() { Wait::Spin } else { Wait::Block };
    named
        && placed
        && record.status == Status::Ok
        && inputs.wait == waits
        && inputs.access == Access::Copy
        && inputs.load.is_idle()
        && inputs.beside.is_empty()
}

/// Computes the costs from records; `None` if no transport has streams of at least three sizes.
pub fn of(records: &[Record]) -> Option<Measured> {
    let mut measured = Measured {
        profile: Profile { costs: BTreeMap::new() },
        bases: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    // Only transports that are chosen by their costs.
    for transport in Profile::default().costs.into_keys() {
        let mut places: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
        for record in records.iter().filter(|record| bears_on(record, transport)) {
            let inputs = &record.inputs;
            let place = format!("{:?} {}", inputs.testbed, inputs.placement.word());
            places.entry(place).or_default().push(record);
        }
        let Some(records) = places.into_values().max_by_key(Vec::len) else { continue };
        match cost(&records, transport) {
            None => {}
            Some(Ok((cost, basis))) => {
                measured.profile.costs.insert(transport, cost);
                measured.bases.insert(transport, basis);
            }
            Some(Err(why)) => {
                measured.refused.insert(transport, why);
            }
        }
    }
    (!measured.bases.is_empty() || !measured.refused.is_empty()).then_some(measured)
}

/// The cost of a transport, or why its trials allow no statement; `None` if they have too few sizes.
fn cost(records: &[&Record], transport: Transport) -> Option<Result<(Cost, Basis), String>> {
    let of = |workload: Workload| records.iter().filter(move |r| r.inputs.workload == workload);
    let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for record in of(Workload::Throughput) {
        if let Some(ns) = Figure::MessageRate.ns(record).filter(|ns| *ns > 0.0 && ns.is_finite()) {
            sizes.entry(record.inputs.size_bytes).or_default().push(ns);
        }
    }
    if sizes.len() < SIZES_AT_LEAST {
        return None;
    }
    let streams = sizes.values().map(Vec::len).sum();
    let mut medians: Vec<Point> = Vec::new();
    let mut scatter: f64 = 1.0;
    for (&size_bytes, times) in &sizes {
        let time = Estimate::of(times)?;
        let Some((low, high)) = time.interval() else {
            return Some(Err(format!(
                "only {} of its trials at {size_bytes} B can be used; at least {TRIALS_AT_LEAST} are needed",
                times.len()
            )));
        };
        let ratio = high / low;
        if ratio > SCATTER_MOST {
            return Some(Err(format!(
                "its times at {size_bytes} B scatter: the 95 % interval of their median {:.0} ns is {:.0} to {:.0} ns",
                time.value, low, high
            )));
        }
        scatter = scatter.max(ratio);
        medians.push(Point { size_bytes: size_bytes as f64, time_ns: time.value });
    }
    let weights: Vec<f64> = medians.iter().map(|p| p.time_ns.powi(-2)).collect();
    let (startup_ns, per_byte_ns) = weighted_line(&medians, &weights)?;
    let byte_ns = per_byte_ns.max(0.0);
    // If the relation is curved, the line may begin below 0; the cost of the shortest messages is used instead.
    let message_ns = match startup_ns {
        ns if ns > 0.0 => ns,
        _ => (medians[0].time_ns - byte_ns * medians[0].size_bytes).max(1.0),
    };
    let mut distance: f64 = 1.0;
    for point in &medians {
        let line = message_ns + byte_ns * point.size_bytes;
        let ratio = (line / point.time_ns).max(point.time_ns / line);
        if ratio > DISTANCE_MOST {
            return Some(Err(format!(
                "its times are not on a line: at {} B their median is {:.0} ns, but the line through all sizes {line:.0} ns",
                point.size_bytes, point.time_ns
            )));
        }
        distance = distance.max(ratio);
    }
    let there: Vec<f64> = of(Workload::PingPong)
        .filter_map(|r| {
            let busy = message_ns + byte_ns * r.inputs.size_bytes as f64;
            Some((Figure::ROUND_TRIP.of(r)? / 2.0 - busy).max(0.0))
        })
        .collect();
    let default = Profile::default().costs.get(&transport).map_or(0.0, |cost| cost.wake_ns);
    let wake_ns = median(&there).unwrap_or(default);
    let basis = Basis { streams, round_trips: there.len(), distance, scatter };
    Some(Ok((Cost { message_ns, byte_ns, wake_ns }, basis)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::samples;

    /// Streams of shm-futex whose times per message, in nanoseconds, are these at 64 B, and on a line of 80 ns and
    /// 0.05 ns per byte at larger sizes.
    fn streams(at_64_bytes: &[f64]) -> Vec<Record> {
        let times = [(64, at_64_bytes.to_vec())].into_iter();
        let larger = [4096_u64, 65_536].map(|size| {
            let line = 80.0 + 0.05 * size as f64;
            (size, [0.9, 1.0, 1.1, 0.95, 1.05].map(|wobble| line * wobble).to_vec())
        });
        let mut records = Vec::new();
        for (size, times) in times.chain(larger) {
            for (trial, time_ns) in (0..).zip(times) {
                let mut record = samples::ping_pong("shm-futex", size, trial, 1000, 100.0);
                record.inputs.workload = Workload::Throughput;
                record.latency_ns.clear();
                let throughput = record.throughput.as_mut().expect("a rate");
                throughput.msgs_per_s = 1e9 / time_ns;
                records.push(record);
            }
        }
        records
    }

    #[test]
    fn the_costs_agree_with_the_medians_although_some_trials_are_far_too_fast() {
        let mut times = [83.0, 82.0, 84.0, 81.0, 85.0].repeat(3);
        times.extend([15.0, 8.0]);
        let measured = of(&streams(&times)).unwrap();
        let cost = measured.profile.costs[&Transport::ShmFutex];
        assert!((cost.message_ns / 80.0 - 1.0).abs() < 0.05, "{cost:?}");
        assert!((cost.byte_ns / 0.05 - 1.0).abs() < 0.05, "{cost:?}");
        let basis = measured.bases[&Transport::ShmFutex];
        assert_eq!((basis.streams, basis.round_trips), (27, 0));
        assert!(basis.distance < 1.05, "{basis:?}");
    }

    #[test]
    fn trials_that_allow_no_statement_give_no_costs() {
        for (times, why) in [
            (&[20.0, 81.0, 91.0, 85.0, 15.0][..], "its times at 64 B scatter"),
            (&[80.0, 81.0, 82.0, 83.0], "only 4 of its trials at 64 B"),
            (&[400.0, 401.0, 402.0, 403.0, 404.0], "its times are not on a line"),
        ] {
            let measured = of(&streams(times)).unwrap();
            assert!(measured.profile.costs.is_empty(), "{measured:?}");
            let refused = &measured.refused[&Transport::ShmFutex];
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(of(&[]), None);
    }
}
