//! The aggregated run as JSON, for programs: the verdict, every case with its figures, and what did not run.

use serde_json::{Value, json};

use crate::estimate::Estimate;
use crate::run::Run;
use crate::sections::status_name;
use crate::summary::{Case, LatencySummary};

/// The version of the document's form.
pub const SCHEMA: u32 = 1;

/// One document for the whole run. Units are in the names; intervals hold 95 %; null was not measured.
pub fn document(run: &Run) -> Value {
    let summary = &run.summary;
    let verdict = run.verdict();
    json!({
        "schema": SCHEMA,
        "run": run.records.first().map(|r| r.run.as_str()),
        "plan": run.plan_name(),
        "machine": run.machine.line,
        "verdict": { "headline": verdict.headline, "sentences": verdict.sentences },
        "notices": run.notices,
        "trials": summary
            .trials_by_status
            .iter()
            .map(|(status, n)| (status_name(*status).to_owned(), json!(n)))
            .collect::<serde_json::Map<_, _>>(),
        "cases": summary.cases.iter().map(|c| case(run, c)).collect::<Vec<_>>(),
        "troubles": summary
            .troubles
            .iter()
            .map(|t| json!({
                "status": status_name(t.status),
                "mechanism": t.mechanism,
                "reason": t.reason,
                "remedy": t.remedy,
                "cases": t.cases,
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
        "class": contender.discipline(),
        "workload": case.workload,
        "size_bytes": case.size_bytes,
        "placement": setting.placement,
        "load": setting.load,
        "socket_buffer_bytes": setting.socket_buffer_bytes,
        "capacity_bytes": setting.capacity_bytes,
        "degraded": case.degraded,
        "msgs_per_s": figure(case.msgs_per_s),
        "bytes_per_s": figure(case.bytes_per_s),
        "latency_ns": case.latencies.iter().map(latency).collect::<Vec<_>>(),
        "cpu_ns_per_msg": figure(case.cpu_ns_per_msg),
        "bits_per_cpu_s": figure(case.bits_per_cpu_s),
        "switches_per_msg": figure(case.switches_per_msg),
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
