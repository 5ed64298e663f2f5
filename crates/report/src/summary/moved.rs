//! Finds cases whose cores changed during the run or differ from those of their competitors, as judged by the
//! cache-line round trip. `crossway rank` applies the same rule.

use std::collections::{BTreeMap, HashMap};

use crossway_records::cases::counts;
use crossway_records::inputs::Workload;
use crossway_records::limits::{cores_moved, cores_moved_between};
use crossway_records::rank::WaitClass;
use crossway_records::record::{Record, Status};
use crossway_records::regimes::Regimes;
use crossway_records::stats;

use super::{Key, Setting};
use crate::units::count;

/// What competing cases have in common: setting, workload, message size and wait class.
type Competition<'a> = (&'a Setting, Workload, u64, WaitClass);

fn competition<'a>(key: &'a Key, trials: &[&Record]) -> Competition<'a> {
    let trials: Vec<&Record> = good(trials).collect();
    let class = WaitClass::of_trials(&trials).unwrap_or_else(|| key.contender.discipline());
    (&key.setting, key.workload, key.size_bytes, class)
}

/// The median cache-line round trip in nanoseconds over all trials of each group of competing cases.
pub(super) struct UsualCores<'a>(HashMap<Competition<'a>, f64>);

impl<'a> UsualCores<'a> {
    pub(super) fn of(groups: &'a HashMap<Key, Vec<&Record>>) -> UsualCores<'a> {
        let mut lines: HashMap<Competition<'_>, Vec<f64>> = HashMap::new();
        for (key, trials) in groups {
            // A case with two regimes competes with nothing.
            if Regimes::of(&good(trials).collect::<Vec<_>>()).is_none() {
                lines.entry(competition(key, trials)).or_default().extend(cache_line_ns(trials));
            }
        }
        let median = |(key, lines): (_, Vec<f64>)| Some((key, stats::median(&lines)?));
        UsualCores(lines.into_iter().filter_map(median).collect())
    }

    /// Returns whether the cache-line round trip changed during one of the case's trials or between them, or differs from
    /// that of the competing cases; degraded trials are ignored.
    pub(super) fn moved(&self, key: &Key, trials: &[&Record]) -> bool {
        let usual = self.0.get(&competition(key, trials)).copied();
        let own = stats::median(&cache_line_ns(trials));
        let apart = usual.zip(own).is_some_and(|(usual, own)| cores_moved(usual, own));
        let readings: Vec<(f64, f64)> =
            good(trials).filter_map(|record| record.calibration.readings()).collect();
        apart
            || cores_moved_between(&readings)
            || good(trials).any(|record| record.calibration.cores_moved())
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

/// Returns the trials whose figures count. Others are not ranked, so their cores are irrelevant.
fn good<'a>(trials: &'a [&'a Record]) -> impl Iterator<Item = &'a Record> {
    trials.iter().copied().filter(|record| counts(record))
}

fn cache_line_ns(trials: &[&Record]) -> Vec<f64> {
    good(trials)
        .flat_map(|r| [r.calibration.cache_line_before_ns, r.calibration.cache_line_after_ns])
        .flatten()
        .collect()
}
