//! Detects CPUs that were moved to other cores. On shared virtual machines, the hypervisor moves virtual CPUs between
//! cores, and the cost of communication between two of them can change severalfold within an hour. One reading between
//! two trials serves as "after" for the first and as "before" for the second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::assemble::disturbed;
use crate::limits::cache_line_round_trip_ns;
use crossway_records::limits::cores_moved;
use crossway_records::record::Record;

/// Maximum age at which a reading is used for another trial.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum number of readings before a changed value is accepted: a brief disturbance is not a move.
const REPEAT: usize = 3;

type Reading = Result<f64, String>;

/// The latest reading for each pair of CPUs.
#[derive(Debug, Default)]
pub(super) struct Cores {
    latest: BTreeMap<(u32, u32), (Instant, f64)>,
}

impl Cores {
    /// Adds the cache-line round trip between the trial's two CPUs to the record; called before a trial. Adds the
    /// reason instead if the trial does not use two fixed CPUs of this machine, or has background load, which would
    /// disturb the reading.
    pub(super) fn before(&mut self, record: &mut Record) {
        let Some(pair) = pair(record) else {
            let why = "measured only between two fixed CPUs, without background load";
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

    /// Adds the cache-line round trip to the record, and marks the record if the CPUs were moved; called after a trial.
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
        // The CPUs of a testbed may belong to another machine.
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
        "the virtual CPUs were moved to other cores, or other programs used them: a cache-line round trip took \
         {before:.0} ns before the trial and {after:.0} ns after it"
    );
    disturbed(record, what, "measure again, on a machine whose cores are not shared");
}
