//! Whether the cores stayed where they were: on shared virtual machines the hypervisor moves them, and what two of them
//! cost each other changes severalfold within an hour. One reading between two trials serves as "after" for the one
//! and as "before" for the next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::limits::{cache_line_round_trip_ns, cores_moved};
use crate::record::{Record, Status};

/// An older reading is taken again.
const FRESH: Duration = Duration::from_secs(2);
/// A reading that differs is repeated so often before it is believed: a passing disturbance is no move.
const REPEAT: usize = 3;

type Reading = Result<f64, String>;

/// The latest reading of each pair.
#[derive(Debug, Default)]
pub(super) struct Cores {
    latest: BTreeMap<(u32, u32), (Instant, f64)>,
}

impl Cores {
    /// Before a trial: the round trip between its two CPUs; `None` where two CPUs are not what it uses, or work in the
    /// background would be measured instead.
    pub(super) fn before(&mut self, record: &mut Record) {
        let Some(pair) = pair(record) else {
            let why = "taken between two fixed CPUs without background load only";
            note(record, "before", why.to_owned());
            return note(record, "after", why.to_owned());
        };
        let fresh = self.latest.get(&pair).filter(|(at, _)| at.elapsed() < FRESH);
        let reading = match fresh {
            Some((_, ns)) => Ok(*ns),
            None => self.read(pair),
        };
        match reading {
            Ok(ns) => record.calibration.cache_line_before_ns = Some(ns),
            Err(why) => note(record, "before", why),
        }
    }

    /// After a trial: enters the round trip and marks the record if the cores moved.
    pub(super) fn after(&mut self, record: &mut Record) {
        let Some(pair) = pair(record) else { return };
        let before = record.calibration.cache_line_before_ns;
        let mut reading = self.read(pair);
        for _ in 1..REPEAT {
            let (Some(before), Ok(after)) = (before, &reading) else { break };
            if !cores_moved(before, *after) {
                break;
            }
            reading = self.read(pair);
        }
        match reading {
            Ok(after) => {
                record.calibration.cache_line_after_ns = Some(after);
                if let Some(before) = before.filter(|&b| cores_moved(b, after)) {
                    mark(record, before, after);
                }
            }
            Err(why) => note(record, "after", why),
        }
    }

    fn read(&mut self, pair: (u32, u32)) -> Reading {
        let ns = cache_line_round_trip_ns(pair.0, pair.1).map_err(|e| e.to_string())?;
        self.latest.insert(pair, (Instant::now(), ns));
        Ok(ns)
    }
}

fn pair(record: &Record) -> Option<(u32, u32)> {
    match record.inputs.cpus[..] {
        // The CPUs of a testbed may be another machine's.
        _ if record.inputs.testbed.is_some() => None,
        [a, b] if a != b && record.inputs.load.is_idle() => Some((a, b)),
        _ => None,
    }
}

fn note(record: &mut Record, when: &str, why: String) {
    record.nulls.insert(format!("calibration.cache_line_{when}_ns"), why);
}

fn mark(record: &mut Record, before: f64, after: f64) {
    let what = format!(
        "the cores moved: a cache-line round trip took {before:.0} ns before and {after:.0} ns after"
    );
    record.warnings.push(what.clone());
    if record.status == Status::Ok {
        record.status = Status::Degraded;
        record.reason = Some(what);
        record.remedy = Some("measure again, on a machine whose cores are not shared".to_owned());
    }
}
