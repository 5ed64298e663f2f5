//! Computes the figures of a record from what the roles report: sums, verification of the content, cost, fairness.

mod beside;
mod cost;
mod fairness;
mod hosts;
mod paced;

use std::path::Path;

use crossway_mech::{COUNTERS, Caps, Facts, LARGEST, Order, Reliability, combine};
use hdrhistogram::Histogram;

use crate::control::{Outcome, Part};
use crate::role_layout::RoleLayout;
use crate::trial::{Brought, sender_wall_ns, wall_ns};
use cost::cost;
use crossway_records::cases::stolen;
use crossway_records::histogram;
use crossway_records::inputs::{Measure, Workload};
use crossway_records::record::{
    Counts, Latency, Record, RoleMeters, ServerMeters, Span, Status, Throughput,
};
use paced::{MORE_MESSAGES, SLOWER, paced_ns, pacing, rate_missed, throughput};

/// Remedy if a replay does not do what was recorded.
const AS_RECORDED: &str =
    "replay with the placement and the load of the recording, or record again on this machine";

/// The facts of a trial: those that the traffic changes as they were after the window, over all roles, and the others as
/// they were when the channel was opened.
fn facts<'a>(opened: &Facts, ended: impl Iterator<Item = &'a Facts>) -> Facts {
    let of_traffic = |name: &str| COUNTERS.contains(&name) || name.starts_with(LARGEST);
    let mut facts = opened.clone();
    facts.retain(|name, _| !of_traffic(name.strip_prefix("peer_").unwrap_or(name)));
    for ended in ended {
        let mut ended = ended.clone();
        ended.retain(|name, _| of_traffic(name));
        combine(&mut facts, ended);
    }
    facts
}

/// Adds the results of a trial to a record whose identity is already filled in. Histograms are written to
/// a new file `dir/h/NAME.hlog`.
pub(crate) fn enter(
    record: &mut Record,
    brought: Brought,
    caps: &Caps,
    dir: &Path,
    name: &str,
) -> std::io::Result<()> {
    let has_replies = record.inputs.workload.facts().has_replies;
    let wall = wall_ns(&brought.layout, &brought.outcomes, has_replies, brought.one_clock);
    record.facts = facts(&brought.facts, brought.outcomes.iter().map(|o| &o.facts));
    record.warnings.extend(brought.warnings.iter().cloned());
    let counts = counts(record.inputs.workload, &brought.layout, &brought.outcomes, brought.warmup);
    let role_host = |role: usize| brought.role_hosts[role].clone();
    record.roles = roles(&brought.layout, &brought.outcomes, role_host);
    record.servers = servers(&brought);
    for outcome in &brought.outcomes {
        if let Some(why) = &outcome.counters.missing {
            for field in ["cycles", "instructions", "cache_misses"] {
                record.nulls.insert(format!("roles.{field}"), why.clone());
            }
        }
    }
    hosts::enter(record, brought.hosts, counts.sent, caps);
    let mut histograms = histograms(&brought.outcomes);
    if !brought.one_clock {
        // These intervals span two clocks.
        histograms.retain(|(span, _)| !matches!(span, Span::OneWay | Span::TearDown));
        let measure = record.inputs.workload.facts().measure;
        if matches!(measure, Measure::OneWay | Measure::Exchange) {
            let why = "the hosts have different clocks, so their time stamps cannot be compared";
            record.nulls.insert("latency_ns".to_owned(), why.to_owned());
        }
    }
    if !histograms.is_empty() {
        let mut text = Vec::new();
        histogram::write_log(&mut text, record.started_unix_ms, wall, &histograms)?;
        let file = histogram::store_log(dir, name, &text)?;
        record.latency_ns = summaries(&histograms, brought.window.batch, Some(&file));
    }
    let sender_wall_ns =
        (!brought.one_clock).then(|| sender_wall_ns(&brought.layout, &brought.outcomes));
    // An interval that begins with the first receipt covers the messages after it.
    let from_first_receipt = !brought.one_clock && sender_wall_ns != Some(wall);
    let paced_ns = paced_ns(record.inputs.workload, &brought.outcomes, wall);
    record.throughput = Some(Throughput {
        sender_wall_ns,
        ..throughput(&counts, wall, paced_ns, from_first_receipt)
    });
    let inputs = &record.inputs;
    record.pacing =
        pacing(inputs.workload, inputs.arriving_bytes(), &brought.outcomes, &counts, wall);
    record.replay = brought.replay.clone();
    match cost(record, &counts) {
        Ok(cost) => record.cost = Some(cost),
        Err(why) => drop(record.nulls.insert("cost".to_owned(), why)),
    }
    record.fairness = fairness::of(&brought.outcomes, record.inputs.workload);
    (record.status, record.reason) = judge(caps, &counts, &brought.outcomes);
    record.counts = Some(counts);
    explain_nulls(record);
    beside::enter(record, &brought.beside, caps);
    spoilers(record);
    Ok(())
}

/// The message counts of a trial. A round trip counts as one message, by the clients' counters; errors that the servers
/// observed are added.
fn counts(workload: Workload, layout: &RoleLayout, outcomes: &[Outcome], warmup: u64) -> Counts {
    let both_ways = workload.facts().has_replies;
    let total = |field: fn(&Outcome) -> u64| {
        let all = layout.roles.iter().zip(outcomes);
        let counted = all.filter(|(role, _)| !both_ways || role.part == Part::Client);
        counted.map(|(_, outcome)| field(outcome)).sum()
    };
    Counts {
        sent: total(|o| o.sent),
        received: total(|o| o.received),
        bytes: total(|o| o.bytes),
        out_of_order: outcomes.iter().map(|o| o.out_of_order).sum(),
        corrupt: outcomes.iter().map(|o| o.corrupt).sum(),
        warmup,
    }
}

/// Judges whether everything arrived, in order and intact, as far as the mechanism guarantees that.
fn judge(caps: &Caps, counts: &Counts, outcomes: &[Outcome]) -> (Status, Option<String>) {
    let missing: u64 = outcomes.iter().map(|o| o.missing).sum();
    let reliable = caps.reliability == Reliability::Reliable;
    // Every role checks what it receives: in round trips, both the requests and the replies.
    let checked: u64 = outcomes.iter().map(|o| o.received).sum();
    let reason = if counts.corrupt > 0 {
        format!("{} of {checked} messages had wrong content", counts.corrupt)
    } else if counts.out_of_order > 0 && caps.order == Order::Fifo {
        format!("{} of {checked} messages arrived out of order", counts.out_of_order)
    } else if reliable && (missing > 0 || counts.received != counts.sent) {
        format!("{} messages were sent and {} received", counts.sent, counts.received)
    } else if counts.received == 0 && checked > 0 {
        "no exchange was completed in the measured time; measure for longer (--measure-ms)"
            .to_owned()
    } else if counts.received == 0 {
        "no message arrived".to_owned()
    } else {
        return (Status::Ok, None);
    };
    (Status::Failed, Some(reason))
}

fn roles(
    layout: &RoleLayout,
    outcomes: &[Outcome],
    host: impl Fn(usize) -> String,
) -> Vec<RoleMeters> {
    outcomes
        .iter()
        .enumerate()
        .map(|(role, outcome)| RoleMeters {
            role: layout.name(role),
            host: host(role),
            cpu: layout.roles[role].cpu,
            user_ns: outcome.user_ns,
            system_ns: outcome.system_ns,
            switches_voluntary: outcome.switches_voluntary,
            switches_involuntary: outcome.switches_involuntary,
            faults_minor: outcome.faults_minor,
            faults_major: outcome.faults_major,
            cycles: outcome.counters.cycles,
            instructions: outcome.counters.instructions,
            cache_misses: outcome.counters.cache_misses,
            messages: outcome.sent.max(outcome.received),
            longest_wait_ns: outcome.longest_wait_ns,
        })
        .collect()
}

/// The servers' meters, each server once. Several roles may report the same server, each over the role's own window;
/// the longest reading is used, since it covers the largest part of the trial.
fn servers(brought: &Brought) -> Vec<ServerMeters> {
    let mut servers: Vec<ServerMeters> = Vec::new();
    for (outcome, host) in brought.outcomes.iter().zip(&brought.role_hosts) {
        let Some(used) = outcome.server else { continue };
        match servers.iter_mut().find(|s| s.host == *host && s.pid == used.pid) {
            Some(known) => known.cpu_ns = known.cpu_ns.max(used.cpu_ns),
            None => {
                servers.push(ServerMeters {
                    host: host.clone(),
                    pid: used.pid,
                    cpu_ns: used.cpu_ns,
                });
            }
        }
    }
    servers
}

/// All distributions of a trial: of several clients or receivers together, and that of tear-down from time stamps of both
/// ends.
fn histograms(outcomes: &[Outcome]) -> Vec<(Span, Histogram<u64>)> {
    let mut all: Vec<(Span, Histogram<u64>)> = Vec::new();
    for (span, text) in outcomes.iter().flat_map(|o| &o.histograms) {
        let Some(one) = histogram::decode(text).filter(|h| !h.is_empty()) else { continue };
        match all.iter_mut().find(|(known, _)| known == span) {
            // The histograms of all roles have the same range.
            Some((_, together)) => drop(together.add(&one)),
            None => all.push((*span, one)),
        }
    }
    if let [client, server, ..] = outcomes
        && !client.stamps.is_empty()
    {
        let mut closing = histogram::empty();
        for (begun, ended) in client.stamps.iter().zip(&server.stamps) {
            closing.saturating_record(ended.saturating_sub(*begun).max(1));
        }
        all.push((Span::TearDown, closing));
    }
    all
}

fn summaries(
    histograms: &[(Span, Histogram<u64>)],
    batch: u32,
    file: Option<&str>,
) -> Vec<Latency> {
    histograms
        .iter()
        .map(|(span, h)| histogram::summary(*span, h, batch, file.map(str::to_owned)))
        .collect()
}

/// Explains fields of this record that are null and have no other explanation yet.
fn explain_nulls(record: &mut Record) {
    let few = "fewer than ten samples lie beyond it";
    for (name, missing) in [
        ("p99", record.latency_ns.iter().any(|l| l.p99.is_none())),
        ("p999", record.latency_ns.iter().any(|l| l.p999.is_none())),
        ("p9999", record.latency_ns.iter().any(|l| l.p9999.is_none())),
    ] {
        if missing {
            record.nulls.insert(format!("latency_ns.{name}"), few.to_owned());
        }
    }
    if record.roles.iter().any(|r| r.longest_wait_ns.is_none()) {
        let why = "measured only for the senders of pairs, fan-in and fan-out without a period, because it costs a clock \
                   reading per message";
        record.nulls.insert("roles.longest_wait_ns".to_owned(), why.to_owned());
    }
    if record.roles.iter().any(|r| r.cpu.is_none()) {
        record.nulls.insert("roles.cpu".to_owned(), "not pinned".to_owned());
    }
}

/// Marks a verified record as degraded if its figures are unreliable, and adds warnings.
fn spoilers(record: &mut Record) {
    if let Some(counts) = &record.counts
        && record.status == Status::Ok
        && counts.received < counts.sent
    {
        let lost = counts.sent - counts.received;
        record.warnings.push(format!("{lost} of {} messages were lost", counts.sent));
    }
    if let Some(pacing) = record.pacing.filter(|_| record.status == Status::Ok) {
        let why = if pacing.bursts < 2 * record.inputs.workload.schedules() {
            Some(("with a single send time there is no rate to achieve".to_owned(), MORE_MESSAGES))
        } else {
            rate_missed(&pacing, record.inputs.arriving_bytes()).map(|why| (why, SLOWER))
        };
        if let Some((why, remedy)) = why {
            record.status = Status::Degraded;
            record.reason = Some(why);
            record.remedy = Some(remedy.to_owned());
        }
    }
    let exchange = record.latency_ns.iter().find(|l| l.span == Span::RoundTrip).map(|l| l.p50);
    let paced = matches!(record.inputs.workload.facts().measure, Measure::OneWay);
    if record.status == Status::Ok
        && let Some(why) =
            record.replay.as_ref().and_then(|replay| replay.deviates(exchange, paced))
    {
        record.status = Status::Degraded;
        record.reason = Some(why);
        record.remedy = Some(AS_RECORDED.to_owned());
    }
    if let Some(steal_share) = stolen(record) {
        let why = format!(
            "the hypervisor took CPU time away (steal): {:.0} % of the trial's duration",
            steal_share * 100.0
        );
        disturbed(record, why, "measure while the physical machine is idle");
    }
}

/// Marks a record as degraded because the machine disturbed the trial. If the trial has missed its rate, the disturbance
/// becomes the reason, since it is why the trial does not count, and the missed rate a warning. If it has another reason,
/// the disturbance becomes the warning.
pub(crate) fn disturbed(record: &mut Record, why: String, remedy: &str) {
    let missed_rate = record.status == Status::Degraded
        && record.remedy.as_deref() == Some(SLOWER)
        && record.pacing.is_some_and(|p| p.missed());
    if record.status == Status::Ok || missed_rate {
        record.status = Status::Degraded;
        record.warnings.extend(record.reason.replace(why));
        record.remedy = Some(remedy.to_owned());
    } else {
        record.warnings.push(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::record::Pacing;

    #[test]
    fn facts_that_the_traffic_changes_are_those_from_its_end() {
        let of = |facts: &[(&str, i64)]| -> Facts {
            facts.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let opened = of(&[
            ("ring_bytes", 4096),
            ("ring_sleeps", 0),
            ("peer_ring_sleeps", 1),
            ("mss_bytes", 9),
        ]);
        let sender = of(&[("ring_bytes", 4096), ("ring_sleeps", 7), ("largest_recv_bytes", 10)]);
        let receiver = of(&[("ring_sleeps", 5), ("largest_recv_bytes", 30), ("mss_bytes", 8)]);
        let expected = [
            ("ring_bytes", 4096),
            ("ring_sleeps", 12),
            ("mss_bytes", 9),
            ("largest_recv_bytes", 30),
        ];
        assert_eq!(facts(&opened, [&sender, &receiver].into_iter()), of(&expected));
    }

    #[test]
    fn a_rate_that_was_not_reached_degrades_the_trial() {
        let mut record = crossway_records::samples::ping_pong("pipe", 64, 0, 5000, 1000.0);
        let paced =
            |reached_share| crossway_records::samples::pacing(20_000.0 * 512.0, reached_share);
        record.pacing = Some(paced(0.991));
        spoilers(&mut record);
        assert_eq!(record.status, Status::Ok);
        let mut once = record.clone();
        once.pacing = Some(Pacing { bursts: 1, ..paced(1.0) });
        spoilers(&mut once);
        assert_eq!(once.status, Status::Degraded);
        record.pacing = Some(paced(0.79));
        spoilers(&mut record);
        assert_eq!(record.status, Status::Degraded);
        let missed = "the rate was not achieved: 15800 of 20000 messages/s (79.0 %)".to_owned();
        assert_eq!(record.reason.as_ref(), Some(&missed));
        // What disturbed it as well is why it does not count.
        disturbed(&mut record, "the cores moved".to_owned(), "measure again");
        assert_eq!(record.reason.as_deref(), Some("the cores moved"));
        assert_eq!(record.warnings, [missed]);
        disturbed(&mut record, "time was stolen".to_owned(), "measure again");
        assert_eq!(record.reason.as_deref(), Some("the cores moved"));
    }

    #[test]
    fn a_missed_rate_of_requests_counts_round_trips_whatever_the_size_of_the_replies() {
        let mut record = crossway_records::samples::ping_pong("pipe", 256, 0, 5000, 1000.0);
        record.inputs.workload = Workload::Requests { period_ns: 1_000_000 };
        record.inputs.reply_bytes = Some(2048);
        record.pacing = Some(crossway_records::samples::pacing(1000.0 * 2048.0 * 8.0, 0.9));
        spoilers(&mut record);
        let reason = record.reason.unwrap();
        assert_eq!(reason, "the rate was not achieved: 900 of 1000 messages/s (90.0 %)");
    }
}
