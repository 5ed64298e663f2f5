//! The rates of a trial, in particular of messages and requests that are sent at a fixed rate.

use super::cost::per_second;
use crate::control::Outcome;
use crossway_records::histogram;
use crossway_records::inputs::{Extent, Workload};
use crossway_records::record::{Counts, Lateness, Pacing, RATE_REACHED, Span, Throughput};

/// Remedy if the offered rate was not achieved.
pub(super) const SLOWER: &str =
    "choose a lower rate, measure longer, or measure while the machine is idle";

/// Remedy if there were too few send times.
pub(super) const MORE_MESSAGES: &str = "send more messages";

/// Duration of a paced stream's schedule: from the first instant to the last, plus one period for the last burst;
/// `None` for other workloads.
fn scheduled_ns(workload: Workload, outcomes: &[Outcome]) -> Option<u64> {
    let Extent::Instants { period_ns, .. } = workload.facts().extent else { return None };
    let seen = outcomes.iter().find_map(|o| o.pacing.as_ref())?;
    Some((seen.bursts * period_ns).max(1))
}

/// The time in which a paced stream delivered its messages, nanoseconds; `None` for other workloads. If all arrived within
/// the schedule, it is that of the schedule, which includes the last period: without it, the stream would seem to exceed
/// the offered rate. If the last ones arrived later, it is the time until then. But a mechanism that delivers late without
/// falling behind, such as TCP with its delayed acknowledgement, achieves the rate: if the sender itself ended on time, the
/// time is longer only by the growth of the latencies.
pub(super) fn paced_ns(workload: Workload, outcomes: &[Outcome], wall_ns: u64) -> Option<u64> {
    let scheduled_ns = scheduled_ns(workload, outcomes)?;
    let late_ns = outcomes.iter().find_map(|o| o.pacing.as_ref()).map_or(0, |seen| seen.drift_ns);
    let on_time = (late_ns as f64) < scheduled_ns as f64 * (1.0 - RATE_REACHED);
    let growth = outcomes.iter().find_map(|o| o.latency_growth).filter(|_| on_time);
    let grown_ns = growth.map_or(u64::MAX, |g| (scheduled_ns as f64 * (1.0 + g.max(0.0))) as u64);
    Some(wall_ns.min(grown_ns).max(scheduled_ns))
}

/// The rates at which messages arrived; `paced_ns` is [`paced_ns`]. If `from_first_receipt`, the time begins with the first receipt, so the first message does not count.
pub(super) fn throughput(
    counts: &Counts,
    wall_ns: u64,
    paced_ns: Option<u64>,
    from_first_receipt: bool,
) -> Throughput {
    let (share, span_ns) = match (paced_ns, counts.received) {
        (Some(paced_ns), _) => (1.0, paced_ns),
        (None, n) if n > 1 && from_first_receipt => ((n - 1) as f64 / n as f64, wall_ns),
        (None, _) => (1.0, wall_ns),
    };
    Throughput {
        wall_ns,
        msgs_per_s: per_second(counts.received as f64 * share, span_ns),
        bytes_per_s: per_second(counts.bytes as f64 * share, span_ns),
        sender_wall_ns: None,
    }
}

/// Computes the achieved pacing; `None` for workloads that are not paced. `size` is the size of the messages that
/// arrive: of the replies, if there are any.
pub(super) fn pacing(
    workload: Workload,
    size: u64,
    outcomes: &[Outcome],
    counts: &Counts,
    wall_ns: u64,
) -> Option<Pacing> {
    let seen = outcomes.iter().find_map(|o| o.pacing.as_ref())?;
    let intended_ns = scheduled_ns(workload, outcomes)? as f64;
    let reached_ns = paced_ns(workload, outcomes, wall_ns)? as f64;
    Some(Pacing {
        bursts: seen.bursts,
        late_bursts: seen.late_bursts,
        drift_ns: seen.drift_ns,
        intended_bits_per_s: (counts.sent * size * 8) as f64 * 1e9 / intended_ns,
        reached_bits_per_s: (counts.bytes * 8) as f64 * 1e9 / reached_ns,
        lateness_ns: histogram::decode(&seen.lateness).filter(|h| !h.is_empty()).map(|h| {
            let summary = histogram::summary(Span::OneWay, &h, 1, None);
            Lateness { n: summary.n, p50: summary.p50, p99: summary.p99, max: summary.max }
        }),
    })
}

/// The reason why a paced trial does not represent its rate, if there is one.
pub(super) fn rate_missed(pacing: &Pacing, arriving_bytes: u64) -> Option<String> {
    let intended = pacing.intended_msgs_per_s(arriving_bytes);
    pacing.missed().then(|| {
        format!(
            "the rate was not achieved: {:.0} of {intended:.0} messages/s ({:.1} %)",
            intended * pacing.reached_share(),
            pacing.reached_share() * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::PaceSeen;

    #[test]
    fn a_paced_stream_never_achieves_more_than_it_was_offered() {
        // Thirty messages, one a millisecond: the last arrives after 29 periods.
        let counts = Counts { sent: 30, received: 30, bytes: 1920, ..Counts::default() };
        let (wall_ns, scheduled_ns) = (29_000_000, 30_000_000);
        let paced_by = |drift_ns, wall_ns, latency_growth| {
            let workload = Workload::Requests { period_ns: 1_000_000 };
            let lateness = String::new();
            let seen = PaceSeen { bursts: 30, late_bursts: 0, drift_ns, lateness };
            let outcome = Outcome { pacing: Some(seen), latency_growth, ..Outcome::default() };
            paced_ns(workload, &[outcome], wall_ns)
        };
        let paced = |wall_ns, growth| paced_by(0, wall_ns, growth);
        assert_eq!(paced_by(5_000_000, 36_000_000, Some(0.0)), Some(36_000_000), "late sender");
        for from_first_receipt in [false, true] {
            let paced_ns = paced(wall_ns, Some(0.2));
            assert_eq!(paced_ns, Some(scheduled_ns), "everything arrived in time");
            let seen = throughput(&counts, wall_ns, paced_ns, from_first_receipt);
            assert_eq!((seen.msgs_per_s, seen.bytes_per_s, seen.wall_ns), (1e3, 64e3, wall_ns));
        }
        // One that takes longer than its schedule has the rate of that time, unless it only delivers late.
        for (growth, msgs_per_s) in [
            (None, 500.0),
            (Some(1.0), 500.0),
            (Some(0.0), 1e3),
            (Some(-0.3), 1e3),
            (Some(0.25), 800.0),
        ] {
            let late = throughput(&counts, 60_000_000, paced(60_000_000, growth), false);
            assert_eq!(late.msgs_per_s, msgs_per_s, "{growth:?}");
        }
        // A stream that nothing paces has the rate of its window.
        assert_eq!(throughput(&counts, 30_000_000, None, false).msgs_per_s, 1e3);
        assert_eq!(throughput(&counts, 29_000_000, None, true).msgs_per_s, 1e3);
    }
}
