//! Adds the results of the concurrent workloads (`beside`) to a record, and checks that they ran as requested.

use crossway_mech::Caps;

use super::paced::{SLOWER, paced_ns, pacing, rate_missed, throughput};
use super::{counts, histograms, judge, roles, summaries};
use crate::trial::{BroughtBeside, wall_ns};
use crossway_records::record::{BesideFigures, LOCAL, Record, Status};

/// Adds the figures of the concurrent workloads. If such a workload receives a wrong message, the trial fails. If it
/// does not achieve its rate, the trial is degraded, because the case was not measured under the requested conditions.
pub(super) fn enter(record: &mut Record, brought: &[BroughtBeside], caps: &Caps) {
    if brought.is_empty() {
        return;
    }
    if caps.crosses_hosts {
        let why = "not measured: it would include the traffic of the concurrent workloads";
        record.nulls.insert("net".to_owned(), why.to_owned());
    }
    for (beside, brought) in record.inputs.beside.clone().into_iter().zip(brought) {
        let BroughtBeside { layout, outcomes, caps } = brought;
        let counts = counts(beside.workload, layout, outcomes, 0);
        let wall = wall_ns(layout, outcomes, beside.workload.facts().has_replies, true);
        let figures = BesideFigures {
            counts,
            throughput: throughput(&counts, wall, paced_ns(beside.workload, outcomes, wall), false),
            latency_ns: summaries(&histograms(outcomes), 1, None),
            pacing: pacing(beside.workload, beside.size_bytes, outcomes, &counts, wall),
            roles: roles(layout, outcomes, |_| LOCAL.to_owned()),
            mechanism: beside.mechanism,
            workload: beside.workload,
            size_bytes: beside.size_bytes,
        };
        let what =
            format!("concurrent workload {} over {}", figures.workload.word(), figures.mechanism);
        let missed = figures.pacing.and_then(|p| rate_missed(&p, figures.size_bytes));
        let (status, reason, remedy) = match (judge(caps, &counts, outcomes), missed) {
            ((Status::Ok, _), None) => (Status::Ok, None, None),
            ((Status::Ok, _), missed) => (Status::Degraded, missed, Some(SLOWER.to_owned())),
            ((status, reason), _) => (status, reason, None),
        };
        if status > record.status {
            record.status = status;
            record.reason = reason.map(|why| format!("{what}: {why}"));
            record.remedy = remedy;
        }
        record.beside.push(figures);
    }
}
