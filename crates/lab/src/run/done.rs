//! What the records of a run say about the trials that are still to be run when it is continued.

use std::collections::{BTreeSet, HashMap};

use super::running::is_disturbed;
use crate::case::Case;
use crate::record::{Record, Status};

/// The trials of a run that have a record.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Group, case and trial number of each.
    trials: BTreeSet<(String, String, u32)>,
    /// Group and case of those that cannot run: one record says so for all of their trials.
    skipped: BTreeSet<(String, String)>,
    /// The cases, as indices, of trials of the plan that the machine disturbed, once per trial.
    pub(super) disturbed: Vec<usize>,
}

impl Done {
    pub(super) fn of(records: &[Record], cases: &[Case]) -> Done {
        let at: HashMap<(&str, &str), usize> = cases
            .iter()
            .enumerate()
            .map(|(at, case)| ((case.group.as_str(), case.id.as_str()), at))
            .collect();
        let mut done = Done::default();
        for record in records {
            let case = (record.group.clone(), record.case.clone());
            if record.status == Status::Skipped {
                done.skipped.insert(case.clone());
            }
            done.trials.insert((case.0, case.1, record.inputs.trial));
            if record.inputs.trial < record.inputs.trials
                && is_disturbed(record)
                && let Some(&at) = at.get(&(record.group.as_str(), record.case.as_str()))
            {
                done.disturbed.push(at);
            }
        }
        done
    }

    /// Whether a trial needs no further record.
    pub(super) fn contains(&self, case: &Case, trial: u32) -> bool {
        let (group, id) = (case.group.clone(), case.id.clone());
        self.trials.contains(&(group.clone(), id.clone(), trial))
            || self.skipped.contains(&(group, id))
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
            let mut record = crate::samples::ping_pong(case.mechanism, 64, trial, 5000, 1000.0);
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
        assert!(done.contains(pipe, 0) && !done.contains(pipe, 1) && done.contains(fifo, 5));
        records[0].status = Status::Skipped;
        assert!(Done::of(&records, &cases).contains(pipe, 4), "one record for all trials");
    }
}
