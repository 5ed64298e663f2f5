//! What the records of a run say about the trials that are still to be run when it is continued.

use std::collections::{BTreeSet, HashMap};

use super::running::is_to_be_repeated;
use crate::case::Case;
use crossway_records::record::{Record, Status};

/// The trials of a run that have a record. Cases are indices into the run's cases.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The case and the trial's number within the case, for each trial that has a record.
    trials: BTreeSet<(usize, u32)>,
    /// The cases that cannot run: one record says so for all of their trials.
    skipped: BTreeSet<usize>,
    /// The case of each trial that is to be repeated, because the machine disturbed it.
    pub(super) disturbed: Vec<usize>,
}

impl Done {
    pub(super) fn of(records: &[Record], cases: &[Case]) -> Done {
        let at: HashMap<(&str, &str), usize> = cases
            .iter()
            .enumerate()
            .map(|(at, case)| ((case.group.as_str(), case.id.as_str()), at))
            .collect();
        let (mut done, mut ran) = (Done::default(), BTreeSet::new());
        for record in records {
            let Some(&case) = at.get(&(record.group.as_str(), record.case.as_str())) else {
                continue;
            };
            done.trials.insert((case, record.inputs.trial));
            match record.status {
                Status::Skipped => done.skipped.insert(case),
                _ => ran.insert(case),
            };
            if is_to_be_repeated(record) {
                done.disturbed.push(case);
            }
        }
        // If other trials of the case ran, the record is only about its own trial, for example because a host was lost.
        done.skipped.retain(|case| !ran.contains(case));
        done
    }

    /// Whether a trial needs no further record.
    pub(super) fn contains(&self, case: usize, trial: u32) -> bool {
        self.trials.contains(&(case, trial)) || self.skipped.contains(&case)
    }
}

#[cfg(test)]
mod tests {
    use crossway_sys::topology::Topology;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn trials_disturbed_before_an_interruption_are_known_after_it() {
        let text = "[group.g]\nmechanisms = [\"pipe\", \"fifo\"]\nworkload = \"ping-pong\"\nsize_bytes = 64\ntrials = 5\n";
        let plan = Plan::parse("test", "test.toml", text).unwrap();
        let topology = Topology::read().unwrap();
        let cases = crate::case::expand(&plan, &topology, &[]);
        let record = |case: &Case, trial: u32| {
            let mut record =
                crossway_records::samples::ping_pong(case.mechanism, 64, trial, 5000, 1000.0);
            (record.group, record.case) = (case.group.clone(), case.id.clone());
            record.inputs.trials = 5;
            record
        };
        let moved = |case: &Case, trial: u32| {
            let mut record = record(case, trial);
            record.status = Status::Degraded;
            record.calibration.cache_line_before_ns = Some(100.0);
            record.calibration.cache_line_after_ns = Some(400.0);
            record
        };
        let (pipe, fifo) = (&cases[0], &cases[1]);
        // The trial 5 is the repetition of another one, which is not repeated again.
        let mut records = vec![record(pipe, 0), moved(fifo, 0), moved(fifo, 5)];
        let done = Done::of(&records, &cases);
        assert_eq!(done.disturbed, [1]);
        assert!(done.contains(0, 0) && !done.contains(0, 1) && done.contains(1, 5));
        records[0].status = Status::Skipped;
        assert!(Done::of(&records, &cases).contains(0, 4), "one record for all trials");
        records.push(record(pipe, 1));
        let done = Done::of(&records, &cases);
        assert!(
            done.contains(0, 0) && !done.contains(0, 4),
            "a record of one trial that did not run"
        );
    }
}
