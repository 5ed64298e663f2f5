//! A run's aggregated figures as JSON for programs: the verdict, every case with its figures, and what did not run.

use serde_json::{Value, json};

use crate::run::Run;
use crate::sections;
use crate::steps::{Found, Shape, Shapes};
use crate::studies;
use crate::summary::{Case, LatencySummary};
use crossway_records::stats::Estimate;

/// The version of the JSON schema.
pub const SCHEMA: u32 = 1;

/// Returns one document for the whole run. Names of fields end in the unit, `low` and `high` are the interval of the median, and null
/// means not measured.
pub fn document(run: &Run) -> Value {
    let summary = &run.summary;
    let verdict = run.verdict();
    let shapes = Shapes::of(run);
    json!({
        "schema": SCHEMA,
        "run": run.records.first().map(|r| r.run.as_str()),
        "plan": run.plan_name(),
        "machine": run.machine.line,
        "verdict": { "headline": verdict.headline, "detail": verdict.detail, "sentences": verdict.sentences, "setting": verdict.setting },
        "notices": run.all_notices().collect::<Vec<_>>(),
        "trials": summary
            .trials_by_status
            .iter()
            .map(|(status, n)| (status.name().to_owned(), json!(n)))
            .collect::<serde_json::Map<_, _>>(),
        "cases": summary.cases.iter().map(|c| case(run, c)).collect::<Vec<_>>(),
        "goals": sections::goals::calls(run),
        "steps": shapes.found.iter().map(|f| step(run, f)).collect::<Vec<_>>(),
        "studies": studies::json(&studies::all(run, &shapes)),
        "troubles": summary
            .troubles
            .iter()
            .map(|t| json!({
                "status": t.status.name(),
                "mechanism": t.mechanism,
                "reason": t.reason,
                "remedy": t.remedy,
                "cases": t.cases.len(),
                "trials": t.trials,
            }))
            .collect::<Vec<_>>(),
    })
}

fn case(run: &Run, case: &Case) -> Value {
    let contender = &run.summary.contenders[case.contender];
    let setting = &run.summary.settings[case.setting];
    json!({
        "case": case.name,
        "mechanism": contender.mechanism,
        "wait": contender.wait,
        "access": contender.access,
        "host": contender.host.as_deref().unwrap_or("local"),
        "class": case.class,
        "two_regimes": case.regimes,
        "workload": case.workload,
        "size_bytes": case.size_bytes,
        "placement": setting.placement,
        "load": setting.load,
        "beside": setting.beside.iter().zip(&case.beside).map(|(asked, b)| json!({
            "mechanism": asked.mechanism,
            "workload": asked.workload,
            "size_bytes": asked.size_bytes,
            "wait": asked.wait,
            "msgs_per_s": figure(b.msgs_per_s),
            "bytes_per_s": figure(b.bytes_per_s),
            "reached_share": figure(b.reached_share),
            "latency_ns": { "p50": figure(b.p50), "p99": figure(b.p99), "max": b.max },
        })).collect::<Vec<_>>(),
        "socket_buffer_bytes": setting.socket_buffer_bytes,
        "capacity_bytes": setting.capacity_bytes,
        "degraded": case.degraded,
        "trials_below_rate": case.pacing.as_ref().map(|p| p.missed_trials),
        "msgs_per_s": figure(case.msgs_per_s),
        "bytes_per_s": figure(case.bytes_per_s),
        "latency_ns": case.latencies.iter().map(latency).collect::<Vec<_>>(),
        "cpu_ns_per_msg": figure(case.cpu_ns_per_msg),
        "bits_per_cpu_s": figure(case.bits_per_cpu_s),
        "switches_per_msg": figure(case.switches_per_msg),
    })
}

fn step(run: &Run, found: &Found) -> Value {
    let shape = match &found.shape {
        Shape::Step { after_x, at_x, change, error, packets } => json!({
            "kind": "step",
            "after_bytes": after_x,
            "at_bytes": at_x,
            "change": change,
            "change_error": error,
            "packets_per_msg_before": packets.map(|p| p.0),
            "packets_per_msg_behind": packets.map(|p| p.1),
        }),
        Shape::Staircase { period, height_ns, error_ns } => json!({
            "kind": "staircase",
            "period_bytes": period,
            "height_ns": height_ns,
            "height_error_ns": error_ns,
        }),
        Shape::Knee { x, before_x, plateau, start, read_back } => json!({
            "kind": "knee",
            "at_bytes": x,
            "before_bytes": before_x,
            "plateau_bytes_per_s": plateau,
            "start_share": start,
            "read_back_bytes": read_back,
        }),
    };
    json!({
        "contender": run.summary.contenders[found.contender].label(),
        "setting": run.summary.settings[found.setting].label(),
        "workload": found.workload,
        "over": found.over.name(),
        "size_bytes": found.size_bytes,
        "shape": shape,
        "p": found.p,
        "cause": found.cause,
    })
}

fn latency(latency: &LatencySummary) -> Value {
    json!({
        "span": latency.span,
        "samples": latency.samples,
        "min": latency.min,
        "p50": figure(Some(latency.p50)),
        "p90": figure(Some(latency.p90)),
        "p99": figure(latency.p99),
        "p999": figure(latency.p999),
        "p9999": figure(latency.p9999),
        "max": latency.max,
    })
}

fn figure(figure: Option<Estimate>) -> Value {
    json!(figure)
}
