//! The outcome of a run: how many trials and goals have which result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crossway_lab::plan::Plan;
use crossway_lab::run::Summary;
use crossway_records::goals::{self, GoalVerdict};
use crossway_records::record::{Record, Status};
use crossway_records::records_io::read_records;
use crossway_records::sorting::SortSmall;
use serde::Serialize;

use crate::ui::Ui;

/// Outcome of a run, as printed with `--json`.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) dir: PathBuf,
    pub(super) interrupted: bool,
    pub(super) ok: usize,
    pub(super) degraded: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    pub(super) goals: GoalCounts,
}

/// Number of goals of the plan by verdict.
#[derive(Default, Serialize)]
pub(super) struct GoalCounts {
    pub(super) met: usize,
    pub(super) missed: usize,
    pub(super) undecided: usize,
}

impl GoalCounts {
    fn of(records: &[Record]) -> GoalCounts {
        let calls = goals::judge(records);
        let count = |verdict| calls.iter().filter(|call| call.verdict == verdict).count();
        GoalCounts {
            met: count(GoalVerdict::Met),
            missed: count(GoalVerdict::Missed),
            undecided: count(GoalVerdict::Undecided),
        }
    }

    pub(super) fn pass(&self, allow_unclear: bool) -> bool {
        self.missed == 0 && (self.undecided == 0 || allow_unclear)
    }
}

pub(super) fn outcome(plan: &Plan, summary: &Summary) -> anyhow::Result<Outcome> {
    let judged = !summary.interrupted && plan.groups.iter().any(|group| !group.require.is_empty());
    let goals = match judged {
        true => GoalCounts::of(&read_records(&summary.dir)?.records),
        false => GoalCounts::default(),
    };
    let count = |status| summary.by_status.get(&status).copied().unwrap_or(0);
    Ok(Outcome {
        dir: summary.dir.clone(),
        interrupted: summary.interrupted,
        ok: count(Status::Ok),
        degraded: count(Status::Degraded),
        failed: count(Status::Failed),
        skipped: count(Status::Skipped),
        goals,
    })
}

/// Prints why cases were skipped, and the remedies. Used if there is no report that shows them.
pub(super) fn print_why_skipped(dir: &Path, ui: &Ui) -> anyhow::Result<()> {
    let mut cases = BTreeMap::<(String, String), usize>::new();
    for record in read_records(dir)?.records {
        if record.status == Status::Skipped {
            let (why, remedy) = (record.reason, record.remedy);
            *cases.entry((why.unwrap_or_default(), remedy.unwrap_or_default())).or_default() += 1;
        }
    }
    let mut cases: Vec<_> = cases.into_iter().collect();
    cases.sort_small_by_key(|(_, count)| std::cmp::Reverse(*count));
    println!("Nothing was measured:");
    for ((why, remedy), count) in cases {
        ui.print_wrapped(2, &format!("{why} (skipped: {count})"));
        ui.print_wrapped(4, &format!("-> {remedy}"));
    }
    Ok(())
}
