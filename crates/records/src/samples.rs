//! Artificial records for tests: complete, plausible in form, and with figures chosen by the test.

use crossway_mech::Wait;

use crate::inputs::{Inputs, Load, Placement, Workload};
use crate::record::{
    Calibration, Cost, Counts, Latency, Pacing, Quantiles, Record, ReplayFigures, RoleMeters, Span,
    Status, Throughput,
};

/// A successful trial of `mechanism`: 1000 messages with a round trip of `p50_ns` and a CPU time of `cpu_ns` per
/// message.
pub fn ping_pong(mechanism: &str, size: u64, trial: u32, p50_ns: u64, cpu_ns: f64) -> Record {
    let inputs = Inputs {
        placement: Placement::SharedCache,
        cpus: vec![0, 1],
        warmup_ms: 10,
        measure_ms: 100,
        trial,
        trials: 5,
        order: trial,
        ..Inputs::of(Workload::PingPong, size, Wait::Block)
    };
    let rate = 1e9 / p50_ns as f64;
    Record {
        run: "2026-01-01T00:00:00Z-test".to_owned(),
        plan: "test".to_owned(),
        group: "group".to_owned(),
        case: format!("{mechanism}/ping-pong/{size}/block"),
        mechanism_version: Some("linux 6.1".to_owned()),
        started_unix_ms: 1_700_000_000_000,
        counts: Some(Counts {
            sent: 1000,
            received: 1000,
            bytes: 1000 * size,
            out_of_order: 0,
            corrupt: 0,
            warmup: 10,
        }),
        throughput: Some(Throughput {
            wall_ns: 1000 * p50_ns,
            msgs_per_s: rate,
            bytes_per_s: rate * size as f64,
            sender_wall_ns: None,
        }),
        latency_ns: vec![Latency {
            span: Span::RoundTrip,
            n: 1000,
            min: p50_ns / 2,
            mean: p50_ns as f64 * 1.1,
            p50: p50_ns,
            p90: p50_ns * 2,
            p99: Some(p50_ns * 3),
            p999: None,
            p9999: None,
            max: p50_ns * 10,
            batch: 1,
            histogram: None,
        }],
        roles: ["client", "server"]
            .iter()
            .enumerate()
            .map(|(cpu, role)| RoleMeters {
                role: (*role).to_owned(),
                host: "local".to_owned(),
                cpu: Some(cpu as u32),
                user_ns: 1000,
                system_ns: 2000,
                switches_voluntary: 1000,
                switches_involuntary: 4,
                faults_minor: 5,
                faults_major: 0,
                cycles: None,
                instructions: None,
                cache_misses: None,
                messages: 1000,
                longest_wait_ns: None,
            })
            .collect(),
        cost: Some(Cost {
            cpu_ns_per_msg: cpu_ns,
            bits_per_cpu_s: size as f64 * 8.0 * 1e9 / cpu_ns,
            host_ns_per_msg: None,
        }),
        calibration: Calibration {
            clock_read_ns: 20.0,
            clock_step_ns: 1.0,
            empty_loop_ns: 1.0,
            cpu_clock_step_ns: Some(100.0),
            cache_line_before_ns: Some(100.0),
            cache_line_after_ns: Some(102.0),
            ..Calibration::default()
        },
        ..Record::of(mechanism, inputs)
    }
}

/// The pacing of a trial that achieved this share of its rate.
pub fn pacing(intended_bits_per_s: f64, share: f64) -> Pacing {
    Pacing {
        bursts: 1000,
        late_bursts: 0,
        drift_ns: 0,
        intended_bits_per_s,
        reached_bits_per_s: intended_bits_per_s * share,
        lateness_ns: None,
    }
}

/// Requests at 10,000 per second, one trial for each achieved share of that rate.
pub fn paced(shares: &[f64]) -> Vec<Record> {
    let mut records = trials("pipe", 64, &vec![1000; shares.len()], 1000.0);
    for (record, share) in records.iter_mut().zip(shares) {
        record.inputs.workload = Workload::Requests { period_ns: 100_000 };
        let pacing = pacing(512e4, *share);
        record.pacing = Some(pacing);
        if pacing.missed() {
            record.status = Status::Degraded;
            record.reason = Some("the rate was not achieved".to_owned());
        }
    }
    records
}

/// Trials of exchanges, one for each of these times to answer. To connect takes three times as
/// long, to close twice.
pub fn exchanges(mechanism: &str, answers_ns: &[u64]) -> Vec<Record> {
    let mut records = trials(mechanism, 64, answers_ns, 1000.0);
    for record in &mut records {
        record.inputs.workload = Workload::Exchange;
        let made = record.latency_ns[0].clone();
        let parts = [(Span::SetUp, 3), (Span::Exchange, 1), (Span::TearDown, 2)];
        let part = |(span, times)| {
            let [p50, max] = [made.p50, made.max].map(|ns| ns * times);
            Latency { span, p50, p99: made.p99.map(|ns| ns * times), max, ..made.clone() }
        };
        record.latency_ns = parts.map(part).to_vec();
    }
    records
}

/// One trial with each of these round trips.
pub fn trials(mechanism: &str, size: u64, p50s_ns: &[u64], cpu_ns: f64) -> Vec<Record> {
    p50s_ns
        .iter()
        .enumerate()
        .map(|(trial, p50)| ping_pong(mechanism, size, trial as u32, *p50, cpu_ns))
        .collect()
}

/// Returns the records as if they had been measured under another load.
#[allow(dead_code)]
pub fn loaded(mut records: Vec<Record>, load: Load) -> Vec<Record> {
    for record in &mut records {
        record.inputs.load = load;
        record.case = format!("{}/loaded", record.case);
    }
    records
}

/// The records in the format of `results.jsonl`, one line each.
pub fn lines(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        serde_json::to_writer(&mut out, record).expect("a record is JSON");
        out.push(b'\n');
    }
    out
}

/// How far a trial with the mechanism that was recorded was from its recording, in which an
/// exchange took 20 us.
pub fn replayed() -> ReplayFigures {
    let quantiles = Quantiles { p50: 64, p99: 64, max: 64 };
    ReplayFigures {
        carrier: "unix-stream".to_owned(),
        same_mechanism: true,
        messages: 1000,
        size_bytes_recorded: quantiles,
        size_bytes_replayed: quantiles,
        size_distance: 0.0,
        gap_ns_recorded: None,
        gap_ns_replayed: None,
        gap_distance: None,
        msgs_per_s_recorded: Some(1000.0),
        msgs_per_s_replayed: 960.0,
        exchange_ns_recorded: Some(20_000),
        method_share: Some(0.05),
        computed_ns: 0,
        channels: Vec::new(),
    }
}
