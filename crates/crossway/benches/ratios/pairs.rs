//! Runs a plan so that each trial of Crossway is paired with a run of a counterpart.
//!
//! The order within a pair alternates. Otherwise the state that the first run leaves behind (a warm core, a raised
//! clock frequency, a scheduling decision of the hypervisor) would always help, or harm, the same side.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use crossway_lab::launcher::Launcher;
use crossway_lab::plan::Plan;
use crossway_lab::run::{self, Asker, Options, RunEvent};
use crossway_lab::shutdown;
use crossway_records::record::{Record, Status};

/// Runs a plan. `counterpart` measures the other side of a pair and returns its figure. Its argument is the record of
/// the pair's trial or, if the counterpart runs first, the record of the preceding trial of the same case. `each`
/// receives every record that has figures, together with the figure of the counterpart.
pub(crate) fn run(
    plan: &Plan,
    filters: &[String],
    out: PathBuf,
    mut counterpart: impl FnMut(&Record) -> anyhow::Result<Option<f64>>,
    mut each: impl FnMut(&Record, Option<f64>),
) -> anyhow::Result<()> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_crossway"));
    let launcher = Launcher::of(program, Some(shutdown::listen()?));
    let options = Options { filters: filters.to_owned(), ..Options::new(out, Asker::Measure) };
    let mut measured = |record: &Record| {
        counterpart(record).unwrap_or_else(|error| {
            eprintln!("\n{}: the counterpart: {error:#}", record.case);
            None
        })
    };
    let (mut done, mut all) = (0, 0);
    let mut former = BTreeMap::<String, Record>::new();
    let mut first = None;
    run::measure(plan, &options, &launcher, |event| match event {
        RunEvent::Begin { trials, findings, .. } => {
            all = trials;
            for finding in findings {
                eprintln!("{}; {}", finding.what, finding.next_step);
            }
        }
        RunEvent::Trial { case, trial } => {
            let of_case = former.get(&case.full_id()).filter(|_| trial % 2 == 1);
            first = of_case.map(&mut measured);
        }
        RunEvent::Written { record } => {
            done += 1;
            eprint!("\r{done} of {all} trials");
            if matches!(record.status, Status::Failed | Status::Skipped) {
                eprintln!("\n{}: {}", record.case, record.reason.as_deref().unwrap_or("failed"));
                return;
            }
            let figure = first.take().unwrap_or_else(|| measured(record));
            each(record, figure);
            former.insert(format!("{}/{}", record.group, record.case), record.clone());
        }
        _ => {}
    })
    .context("the run was not completed")?;
    eprintln!();
    Ok(())
}
