//! Identity and size of a run, stored in `run.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::record::{Record, Status};

/// The name of the file in a run's folder.
pub const RUN: &str = "run.json";

/// Identity and size of a run, as stored in `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Start in UTC and a random suffix; the folder's name.
    pub run: String,
    /// The name given by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The plan's name.
    pub plan: String,
    /// Patterns that select cases by group and case.
    pub filters: Vec<String>,
    /// The hosts named on the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Start, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// Number of trials of all cases; null in runs from before 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<u64>,
}

impl RunInfo {
    /// Reads the file in a run's folder.
    ///
    /// # Errors
    /// The file cannot be read or is not of this form; the text says which.
    pub fn read(dir: &Path) -> Result<RunInfo, String> {
        let text = fs::read(dir.join(RUN)).map_err(|e| format!("{RUN}: {e}"))?;
        serde_json::from_slice(&text).map_err(|e| format!("{RUN}: {e}"))
    }

    /// Returns the number of trials that have no record yet, and the number of all trials of the cases that can run. The
    /// first is above 0 for a run that was interrupted or is still in progress. A skipped case has one record for all
    /// of its trials.
    pub fn missing_trials(&self, records: &[Record]) -> (u64, u64) {
        // For each case the number of records, and whether one of them is of a trial that ran.
        let mut cases: BTreeMap<(&str, &str), (u64, bool, u64)> = BTreeMap::new();
        for record in records.iter().filter(|r| r.run == self.run) {
            let of_case = cases.entry((&record.group, &record.case)).or_default();
            let ran = record.status != Status::Skipped;
            *of_case = (of_case.0 + 1, of_case.1 || ran, record.inputs.trials.into());
        }
        let (mut done, mut skipped) = (0, 0);
        for (n, ran, trials) in cases.into_values() {
            if ran { done += n.min(trials) } else { skipped += trials }
        }
        let all = self.trials.unwrap_or(0).saturating_sub(skipped);
        (all.saturating_sub(done), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn trials_without_a_record_are_missing() {
        let mut records = samples::trials("pipe", 64, &[1000; 5], 1.0);
        records.extend(samples::trials("fifo", 64, &[1000; 3], 1.0));
        records.extend(samples::trials("tcp", 64, &[1000], 1.0));
        let info = RunInfo {
            run: records[0].run.clone(),
            name: None,
            plan: "test".to_owned(),
            filters: Vec::new(),
            hosts: None,
            started_unix_ms: 0,
            trials: Some(15),
        };
        assert_eq!(info.missing_trials(&records), (6, 15));
        // One record states that none of the five trials can run here.
        records[8].status = Status::Skipped;
        assert_eq!(info.missing_trials(&records), (2, 10));
        // A trial that did not run although others of its case did needs no second record.
        records[7].status = Status::Skipped;
        assert_eq!(info.missing_trials(&records), (2, 10));
        assert_eq!(RunInfo { trials: None, ..info }.missing_trials(&records), (0, 0));
    }
}
