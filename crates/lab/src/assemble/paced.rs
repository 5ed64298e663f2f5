//! The rates of a trial, in particular of messages and requests that are sent at a fixed rate.

use super::cost::per_second;
use crate::control::{Outcome, PaceSeen};
use crossway_records::histogram;
use crossway_records::inputs::{Extent, Workload};
use crossway_records::record::{Counts, Lateness, Pacing, RATE_REACHED, Span, Throughput};

/// Remedy if the offered rate was not achieved.
pub(super) const SLOWER: &str =
    "choose a lower rate, measure longer, or measure while the machine is idle";

/// Remedy if there were too few send times.
pub(super) const MORE_MESSAGES: &str = "send more messages";

/// Duration of a paced stream's schedule: from the first instant to the last, plus one period for the last burst; of
/// several clients, that of each. `None` for other workloads.
fn scheduled_ns(workload: Workload, outcomes: &[Outcome]) -> Option<u64> {
    let Extent::Instants { period_ns, .. } = workload.facts().extent else { return None };
    let bursts = paces(outcomes).map(|seen| seen.bursts).max()?;
    Some((bursts * period_ns).max(1))
}

/// How the roles that have a schedule kept to it.
fn paces(outcomes: &[Outcome]) -> impl Iterator<Item = &PaceSeen> {
    outcomes.iter().filter_map(|outcome| outcome.pacing.as_ref())
}

/// The time in which a paced stream delivered its messages, nanoseconds; `None` for other workloads. If all arrived within
/// the schedule, it is that of the schedule, which includes the last period: without it, the stream would seem to exceed
/// the offered rate. If the last ones arrived later, it is the time until then. But a mechanism that delivers late without
/// falling behind, such as TCP with its delayed acknowledgement, achieves the rate: if the sender itself ended on time, the
/// time is longer only by the growth of the latencies. Several clients begin at different times, so the time of the
/// slowest one counts; of several senders to one receiver, the time since the last of them began.
pub(super) fn paced_ns(workload: Workload, outcomes: &[Outcome], wall_ns: u64) -> Option<u64> {
    let scheduled_ns = scheduled_ns(workload, outcomes)?;
    let wall_ns = match workload.schedules() {
        1 => wall_ns,
        _ => {
            let own = || outcomes.iter().filter(|outcome| outcome.pacing.is_some());
            let begins = || own().map(|outcome| outcome.start_ns);
            if workload.facts().has_replies {
                own().map(|outcome| outcome.end_ns.saturating_sub(outcome.start_ns)).max()?
            } else {
                wall_ns.saturating_sub(begins().max()? - begins().min()?)
            }
        }
    };
    let late_ns = paces(outcomes).map(|seen| seen.drift_ns).max().unwrap_or(0);
    let on_time = (late_ns as f64) < scheduled_ns as f64 * (1.0 - RATE_REACHED);
    let growth = outcomes.iter().filter_map(|o| o.latency_growth).reduce(f64::max);
    let growth = growth.filter(|_| on_time);
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
    let mut lateness = histogram::empty();
    for own in paces(outcomes).filter_map(|seen| histogram::decode(&seen.lateness)) {
        // The histograms of all roles have the same range.
        let _ = lateness.add(&own);
    }
    let intended_ns = scheduled_ns(workload, outcomes)? as f64;
    let reached_ns = paced_ns(workload, outcomes, wall_ns)? as f64;
    Some(Pacing {
        bursts: paces(outcomes).map(|seen| seen.bursts).sum(),
        late_bursts: paces(outcomes).map(|seen| seen.late_bursts).sum(),
        drift_ns: paces(outcomes).map(|seen| seen.drift_ns).max()?,
        intended_bits_per_s: (counts.sent * size * 8) as f64 * 1e9 / intended_ns,
        reached_bits_per_s: (counts.bytes * 8) as f64 * 1e9 / reached_ns,
        lateness_ns: (!lateness.is_empty()).then(|| {
            let summary = histogram::summary(Span::OneWay, &lateness, 1, None);
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

    #[test]
    fn clients_that_begin_at_different_times_reach_their_rate_together() {
        // Two clients with a request a millisecond; the second begins 0.9 ms later. Its last reply is late.
        let client = |start_ns, drift_ns| {
            let lateness = String::new();
            let seen = PaceSeen { bursts: 40, late_bursts: 3, drift_ns, lateness };
            let end_ns = start_ns + 39_000_000 + drift_ns as u64;
            let latency_growth = Some(0.0);
            Outcome { start_ns, end_ns, pacing: Some(seen), latency_growth, ..Outcome::default() }
        };
        let counts = Counts { sent: 80, received: 80, bytes: 80 * 64, ..Counts::default() };
        let workload = Workload::Clients { clients: 2, in_flight: 1, period_ns: 1_000_000 };
        let of = |drift_ns| {
            let outcomes = [client(0, 10_000), client(900_000, drift_ns), Outcome::default()];
            pacing(workload, 64, &outcomes, &counts, 39_900_000 + drift_ns as u64).unwrap()
        };
        let kept = of(500_000);
        assert_eq!((kept.bursts, kept.late_bursts, kept.drift_ns), (80, 6, 500_000));
        assert_eq!(kept.intended_msgs_per_s(64), 2_000.0);
        assert_eq!(kept.reached_share(), 1.0, "{kept:?}");
        // One client that falls behind is enough to miss the rate.
        assert_eq!(of(11_000_000).reached_share(), 0.8);
    }

    #[test]
    fn senders_that_begin_at_different_times_reach_their_rate_together() {
        // Two senders with a message a millisecond each; the second begins 0.9 ms later. All of
        // both arrives late.
        let sender = |start_ns| {
            let lateness = String::new();
            let seen = PaceSeen { bursts: 40, late_bursts: 0, drift_ns: 5_000, lateness };
            let end_ns = start_ns + 39_005_000;
            Outcome { start_ns, end_ns, pacing: Some(seen), ..Outcome::default() }
        };
        let counts = Counts { sent: 80, received: 80, bytes: 80 * 64, ..Counts::default() };
        let workload = Workload::FanIn { senders: 2, receiver_us: 0, period_us: 1_000 };
        let of = |late_ns: u64, growth| {
            let end_ns = 39_900_000 + late_ns;
            let receiver = Outcome { end_ns, latency_growth: Some(growth), ..Outcome::default() };
            pacing(workload, 64, &[sender(0), sender(900_000), receiver], &counts, end_ns).unwrap()
        };
        let kept = of(10_000, 0.0);
        assert_eq!((kept.bursts, kept.intended_msgs_per_s(64)), (80, 2_000.0));
        assert_eq!(kept.reached_share(), 1.0, "{kept:?}");
        assert_eq!(of(1_000_000, 0.025).reached_share(), 1.0, "within the last period");
        assert_eq!(of(11_000_000, 0.0).reached_share(), 1.0, "late, but not falling behind");
        // Senders whose messages wait in buffers end on time, but their receiver falls behind.
        assert_eq!(of(11_000_000, 0.25).reached_share(), 0.8);
    }

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
