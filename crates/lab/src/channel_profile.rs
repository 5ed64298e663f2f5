//! The cost of a message on each transport of a channel, computed from a run's records.
//!
//! The costs per message and per byte are the coefficients of a line fitted to the streams' times per message. The cost
//! of a wake-up is half the time by which a round trip exceeds the cost of two messages. Only the placement with the
//! most trials is used.

use std::collections::BTreeMap;

use crossway_channel::{Cost, Profile, Transport};
use crossway_mech::{Access, Wait};

use crate::fit::{self, Point};
use crate::inputs::{Ends, Placement, Workload};
use crate::record::{Record, Span, Status};
use crate::stats::median;

/// Costs computed from a run, and the number of trials behind them.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The costs of the transports that the run measured.
    pub profile: Profile,
    /// Number of trials per transport: of streams, and of round trips.
    pub trials: BTreeMap<Transport, (usize, usize)>,
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
    let mut measured =
        Measured { profile: Profile { costs: BTreeMap::new() }, trials: BTreeMap::new() };
    // Only transports that are chosen by their costs.
    for transport in Profile::default().costs.into_keys() {
        let mut places: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
        for record in records.iter().filter(|record| bears_on(record, transport)) {
            let inputs = &record.inputs;
            let place = format!("{:?} {}", inputs.testbed, inputs.placement.word());
            places.entry(place).or_default().push(record);
        }
        let Some(records) = places.into_values().max_by_key(Vec::len) else { continue };
        if let Some((cost, trials)) = cost(&records, transport) {
            measured.profile.costs.insert(transport, cost);
            measured.trials.insert(transport, trials);
        }
    }
    (!measured.trials.is_empty()).then_some(measured)
}

fn cost(records: &[&Record], transport: Transport) -> Option<(Cost, (usize, usize))> {
    let of = |workload: Workload| records.iter().filter(move |r| r.inputs.workload == workload);
    let streams: Vec<Point> = of(Workload::Throughput)
        .filter_map(|r| {
            let rate = r.throughput?.msgs_per_s;
            let size_bytes = r.inputs.size_bytes as f64;
            (rate > 0.0).then_some(Point { size_bytes, time_ns: 1e9 / rate })
        })
        .collect();
    let line = fit::fit(&streams)?;
    let byte_ns = line.per_byte_ns.max(0.0);
    // If the relation is curved, the line may begin below 0; the cost of the shortest messages is used instead.
    let shortest = streams.iter().map(|p| p.size_bytes).fold(f64::INFINITY, f64::min);
    let of_shortest: Vec<f64> =
        streams.iter().filter(|p| p.size_bytes == shortest).map(|p| p.time_ns).collect();
    let message_ns = match line.startup_ns {
        ns if ns > 0.0 => ns,
        _ => (median(&of_shortest)? - byte_ns * shortest).max(1.0),
    };
    let there: Vec<f64> = of(Workload::PingPong)
        .filter_map(|r| {
            let trip = r.latency_ns.iter().find(|latency| latency.span == Span::RoundTrip)?;
            let busy = message_ns + byte_ns * r.inputs.size_bytes as f64;
            Some((trip.p50 as f64 / 2.0 - busy).max(0.0))
        })
        .collect();
    let default = Profile::default().costs.get(&transport).map_or(0.0, |cost| cost.wake_ns);
    let wake_ns = median(&there).unwrap_or(default);
    Some((Cost { message_ns, byte_ns, wake_ns }, (streams.len(), there.len())))
}
