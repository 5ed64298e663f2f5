//! Finds cases whose cores changed during the run or differ from those of their competitors, as judged by the
//! cache-line round trip.

use std::collections::{BTreeMap, HashMap};

use crossway_records::inputs::Workload;
use crossway_records::rank::WaitClass;
use crossway_records::record::{Record, Status};
use crossway_records::stats;

use super::Group;
use crate::units::count;

/// What competing cases have in common: setting, workload, message size and wait class.
type Competition = (usize, Workload, u64, WaitClass);

fn competition(group: &Group<'_>) -> Competition {
    let inputs = &group.case.records[0].inputs;
    (group.setting, inputs.workload, inputs.size_bytes, group.case.class())
}

/// The median cache-line round trip in nanoseconds over all trials of each set of competing cases.
pub(super) struct UsualCores(HashMap<Competition, f64>);

impl UsualCores {
    pub(super) fn of(groups: &[Group<'_>]) -> UsualCores {
        let mut lines: HashMap<Competition, Vec<f64>> = HashMap::new();
        // A case with two regimes competes with nothing.
        for group in groups.iter().filter(|group| group.case.regimes().is_none()) {
            lines.entry(competition(group)).or_default().extend(group.case.cache_line_ns());
        }
        let median = |(key, lines): (_, Vec<f64>)| Some((key, stats::median(&lines)?));
        UsualCores(lines.into_iter().filter_map(median).collect())
    }

    /// Returns whether the case's cores changed or differ from those of the competing cases.
    pub(super) fn moved(&self, group: &Group<'_>) -> bool {
        group.case.moved_from(self.0.get(&competition(group)).copied())
    }
}

/// Returns a note on the cases in whose trials a move of the virtual CPUs would go unnoticed; `None` if there are none.
/// If both ends share a CPU, a move does not change the distance between them.
pub(crate) fn unchecked(records: &[Record]) -> Option<String> {
    let mut cases: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for record in records.iter().filter(|r| matches!(r.status, Status::Ok | Status::Degraded)) {
        let c = &record.calibration;
        let read = c.cache_line_before_ns.is_some() && c.cache_line_after_ns.is_some();
        let one_cpu = matches!(&record.inputs.cpus[..], [first, others @ ..] if others.iter().all(|cpu| cpu == first));
        *cases.entry((&record.group, &record.case)).or_default() |= !read && !one_cpu;
    }
    let (all, open) = (cases.len(), cases.values().filter(|open| **open).count());
    (open > 0).then(|| {
        format!(
            "It is unknown for {open} of {} whether the virtual CPUs moved to other cores during a trial: this is only \
             checked if two ends are pinned to different CPUs of this machine, without stress-ng (`load`).",
            count(all, "case", "cases")
        )
    })
}
