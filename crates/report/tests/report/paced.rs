//! The headline of runs whose messages or requests are sent at a fixed rate.

use super::*;

/// Returns trials of a mechanism that is sent a message every millisecond, with these 99th percentiles in nanoseconds.
fn paced(mechanism: &str, wait: Wait, p99s_ns: &[u64]) -> Vec<Record> {
    let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000 };
    let trial = |(at, p99): (usize, &u64)| {
        let ask = Ask::idle(workload, 64);
        let mut record =
            synthetic::trial(&MADE[0], &ask, at as u32, 5, at as u32, &mut Noise::new(3));
        record.mechanism = mechanism.to_owned();
        record.case = format!("synthetic/{mechanism}/paced");
        record.inputs.wait = wait;
        record.status = Status::Ok;
        record.reason = None;
        record.remedy = None;
        record.latency_ns[0].p99 = Some(*p99);
        record.latency_ns[0].p50 = *p99 / 2;
        record
    };
    p99s_ns.iter().enumerate().map(trial).collect()
}

const MESSAGES: &str = "For 64-byte messages (one message every 1 ms),";

/// The headline and what follows it.
fn headline(parts: Vec<Vec<Record>>) -> String {
    let run = run_of(parts);
    let verdict = run.verdict();
    let both = format!("{} {}", verdict.headline, verdict.detail);
    let marked = format!("**{}** {}", verdict.headline, verdict.detail);
    assert!(terminal::markdown(&run).starts_with(&marked), "{marked}");
    assert!(!both.contains("crossway rank"), "{both}");
    both
}

#[test]
fn a_paced_plan_has_a_headline_in_each_wait_class() {
    let alone = vec![
        paced("pipe", Wait::Block, &FAST),
        paced("shm-spin", Wait::Spin, &[500, 501, 499, 502, 500]),
    ];
    assert_eq!(
        headline(alone.clone()),
        format!(
            "{MESSAGES} only pipe was measured: 10 µs. 99th-percentile latency: 10.0 µs (median of 5 trials, 93 % \
             interval 10.0–10.1 µs)."
        )
    );
    let sentences = run_of(alone).verdict().sentences;
    assert!(
        sentences[0].starts_with(
            "Spinning, shm-spin is 19.9 to 20.3 times as fast as pipe with 64-byte messages (one "
        ),
        "{sentences:?}"
    );
    let spinning = headline(vec![paced("shm-spin", Wait::Spin, &FAST)]);
    assert!(spinning.contains("only shm-spin (spinning) was measured"), "{spinning}");
}

#[test]
fn the_best_of_a_paced_plan_and_its_ties_are_named() {
    let (fast, slow) = (paced("fifo", Wait::Block, &FAST), paced("pipe", Wait::Block, &SLOW));
    let best = headline(vec![slow.clone(), fast.clone()]);
    let told = "fifo has the lowest 99th-percentile latency of 2 blocking mechanisms: 10 µs. ";
    assert!(best.starts_with(&format!("{MESSAGES} {told}")), "{best}");
    let tie = headline(vec![slow.clone(), fast.clone(), paced("tcp", Wait::Block, &FAST)]);
    assert!(tie.contains("fifo and tcp share the lowest 99th-percentile latency of "), "{tie}");
    // As for `crossway rank`, the median decides if a trial lacks the percentile.
    let mut lacking = slow.clone();
    lacking[0].latency_ns[0].p99 = None;
    let by_median = headline(vec![lacking, fast.clone()]);
    assert!(
        by_median.contains("fifo has the lowest median latency of 2 blocking mechanisms: 5.0 µs"),
        "{by_median}"
    );
    let few = headline(vec![slow[..4].to_vec(), fast[..4].to_vec()]);
    assert!(few.starts_with("Too few trials to name a winner"), "{few}");
    // A mechanism that did not keep the rate does not win, and is named.
    let mut late = paced("udp", Wait::Block, &[10; 5]);
    for record in &mut late {
        record.status = Status::Degraded;
        let pacing = record.pacing.as_mut().expect("paced");
        pacing.reached_bits_per_s = pacing.intended_bits_per_s * 0.5;
    }
    for others in [&late[..], &fast[..4]] {
        let only = headline(vec![slow.clone(), others.to_vec()]);
        assert!(only.contains("only pipe has enough good trials: "), "{only}");
    }
    // A rate at which only one has good trials is not the one that the headline is about.
    let mut alone = paced("pipe", Wait::Block, &FAST);
    for record in &mut alone {
        record.inputs.workload = Workload::Paced { burst_bytes: 64, period_us: 100 };
        let pacing = record.pacing.as_mut().expect("paced");
        pacing.intended_bits_per_s *= 10.0;
        pacing.reached_bits_per_s *= 10.0;
    }
    let rivals = headline(vec![slow.clone(), fast.clone(), alone]);
    assert!(rivals.starts_with(&format!("{MESSAGES} fifo has the lowest")), "{rivals}");
    let kept = headline(vec![slow.clone(), fast.clone(), late]);
    assert!(kept.contains(" fifo has the lowest"), "{kept}");
    assert!(
        kept.ends_with(". Not ranked, because most of their trials did not achieve the rate: udp."),
        "{kept}"
    );
}

#[test]
fn requests_at_a_rate_have_a_headline_too() {
    let requests = |mechanism, figures| {
        let mut records = paced(mechanism, Wait::Block, figures);
        for record in &mut records {
            record.inputs.workload = Workload::Requests { period_ns: 1_000_000 };
            record.latency_ns[0].span = Span::RoundTrip;
        }
        records
    };
    assert_eq!(
        headline(vec![requests("pipe", &SLOW), requests("fifo", &FAST)]),
        "For 64-byte messages (one request every 1 ms), fifo has the lowest median latency of 2 blocking mechanisms: 5.0 \
         µs. Median latency: 5.02 µs (median of 5 trials, 93 % interval 5.00–5.05 µs); pipe takes 1.98 to 2.04 times as long."
    );
}

#[test]
fn the_highest_rate_decides() {
    let seldom = |mechanism, figures| {
        let mut records = paced(mechanism, Wait::Block, figures);
        for record in &mut records {
            record.case.push_str("/seldom");
            record.inputs.workload = Workload::Paced { burst_bytes: 64, period_us: 100_000 };
            let pacing = record.pacing.as_mut().expect("paced");
            pacing.intended_bits_per_s /= 100.0;
            pacing.reached_bits_per_s /= 100.0;
        }
        records
    };
    let parts = vec![
        seldom("pipe", &FAST),
        seldom("fifo", &SLOW),
        paced("pipe", Wait::Block, &SLOW),
        paced("fifo", Wait::Block, &FAST),
    ];
    let headline = headline(parts);
    assert!(headline.starts_with(&format!("{MESSAGES} fifo has the lowest")), "{headline}");
}

#[test]
fn a_missing_cpu_time_has_its_reason_below_the_table() {
    let mut records = paced("shm-spin", Wait::Spin, &FAST);
    for (at, record) in records.iter_mut().enumerate() {
        record.cost = None;
        record.nulls.insert("cost".to_owned(), format!("only {} send times", 20 + at));
    }
    let run = run_of(vec![records, paced("pipe", Wait::Block, &FAST)]);
    let told = "no CPU time is shown for shm-spin: only 24 send times";
    let text = terminal::terminal(&run, false, 200);
    assert_eq!(text.matches(told).count(), 1, "{text}");
    assert_eq!(text.matches("no CPU time").count(), 1, "{text}");
}
