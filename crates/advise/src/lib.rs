//! Recommends a mechanism for a described use case, gives reasons, and says what would change the answer.
//!
//! A [`Question`] states requirements. [`candidate::field`] rules out mechanisms by capabilities, probes and fault
//! records. [`survey::survey`] measures the others under the question's conditions, unless earlier records already
//! cover them. [`judge`] turns trials into figures, judges goals and chooses. [`advise`] combines all of it into an
//! [`Advice`]. See docs/ADVISE.md.

pub mod answer;
mod belief;
pub mod candidate;
pub mod figure;
pub mod judge;
pub mod library;
pub mod looking;
pub mod objection;
pub mod observed;
pub mod property;
pub mod question;
pub mod ready;
pub mod starter;
pub mod survey;
pub mod trials;

#[cfg(test)]
mod disturbed_tests;
#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod field_tests;
#[cfg(test)]
mod goal_tests;
#[cfg(test)]
mod library_tests;
#[cfg(test)]
mod place_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub use answer::{Advice, Compared, Flip};
pub use candidate::{Known, RuledOut};
pub use library::Library;
pub use objection::{NoChoice, Objection};
pub use question::Question;
pub use survey::{Bench, Stage};
pub use trials::Trial;

use crossway_lab::catalogue;
use crossway_lab::launcher::Launcher;
use crossway_lab::plan::{HostsError, Plan, PlanError};
use crossway_lab::run::{self, Options, RunError, RunEvent};
use crossway_records::records_io::{ReadError, read_records};
use crossway_records::runs;

/// The reason why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The question is malformed.
    #[error("{0}")]
    Question(#[from] PlanError),
    /// The hosts cannot be used.
    #[error("{0}")]
    Hosts(HostsError),
    /// Measuring failed.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The new records cannot be read.
    #[error("{0}")]
    Records(#[from] ReadError),
    /// Measuring was interrupted.
    #[error("interrupted; the records so far are in {}; ask the same question again to use them", dir.display())]
    Interrupted {
        /// The run that was in progress.
        dir: PathBuf,
    },
}

/// The evidence that advice may use.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Probes and fault records.
    pub known: Known<'a>,
    /// Earlier trials.
    pub library: &'a Library,
    /// The folder in which new runs are stored; the commands of an answer refer to these runs there.
    pub folder: &'a std::path::Path,
    /// Time limit for measuring; `None` to use existing records only.
    pub budget: Option<Duration>,
}

impl Sources<'_> {
    /// The folder of a run. An earlier run is found by its name in the records, since its folder may have been renamed;
    /// a new one is in `folder`, or in the folder of its answer.
    pub(crate) fn run_dir(&self, run: &str) -> PathBuf {
        let known = self.library.run_dirs.get(run).cloned();
        let is_new = |dir: &PathBuf| dir.file_name().is_some_and(|name| name == run);
        known
            .or_else(|| runs::folders(self.folder).into_iter().find(is_new))
            .unwrap_or_else(|| self.folder.join(run))
    }
}

/// Answers a question.
///
/// # Errors
/// Returns the errors of [`admissible`], and an error if measuring failed or was interrupted. If no candidate suits,
/// that is an answer, not an error.
pub fn advise(
    question: &Question,
    sources: &Sources<'_>,
    bench: &mut dyn Bench,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Advice, AdviseError> {
    let field = admissible(question, &sources.known)?;
    let mut survey = survey::Survey::default();
    if let Some(budget) = sources.budget.filter(|_| !field.candidates.is_empty()) {
        survey =
            survey::survey(question, &field.candidates, &sources.library.own, budget, bench, tell)?;
    }
    Ok(answer::put_together(question, field, sources, &survey))
}

/// The shortest time in which the question can be answered. The first stage takes no time for candidates that earlier
/// records cover.
///
/// # Errors
/// Returns the errors of [`admissible`].
pub fn least_time(question: &Question, sources: &Sources<'_>) -> Result<Duration, AdviseError> {
    let field = admissible(question, &sources.known)?;
    Ok(survey::least_time(question, &field.candidates, &sources.library.own))
}

/// Determines the candidates before any measurement.
///
/// # Errors
/// The question cannot be converted to a plan, or the machine's CPU topology cannot be read.
pub fn admissible(question: &Question, known: &Known<'_>) -> Result<candidate::Field, AdviseError> {
    let mut field = candidate::field(question, known, catalogue::all());
    exclude_impossible(question, &mut field)?;
    Ok(field)
}

/// Maximum number of candidates that an error names for one reason.
const NAMED: usize = 3;

/// Rules out candidates that cannot carry the question's messages on this machine, by the checks that the cases of a
/// plan also undergo.
fn exclude_impossible(
    question: &Question,
    field: &mut candidate::Field,
) -> Result<(), AdviseError> {
    if field.candidates.is_empty() {
        return Ok(());
    }
    let plan = survey::plan(question, &field.candidates, 1, 1)?;
    let topology = crossway_sys::topology::Topology::read().map_err(RunError::Os)?;
    let cases = crossway_lab::case::expand(&plan, &topology, &[]);
    // Each reason with the candidates that it concerns.
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    let mut kept = Vec::new();
    for candidate in field.candidates.drain(..) {
        let excluded = cases
            .iter()
            .filter(|c| c.mechanism == candidate.mechanism && c.inputs.wait == candidate.wait)
            .find_map(|c| c.excluded.as_ref().map(|e| (c, e)));
        match excluded {
            None => kept.push(candidate),
            Some((case, why)) => {
                let why = crossway_lab::placement::for_question(why);
                match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                    Some((_, concerned)) => concerned.push(candidate.label()),
                    None => reasons.push((why.clone(), vec![candidate.label()])),
                }
                // The same text for all mechanisms with this reason.
                let basis = format!(
                    "case that would be measured: {}",
                    case.id.replacen(candidate.mechanism, "*", 1)
                );
                let objection = Objection::Impossible { why };
                field.ruled_out.push(RuledOut::new(candidate.label(), objection, basis));
            }
        }
    }
    if kept.is_empty() {
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(why, concerned)| match concerned.len() {
                0..=NAMED => format!("{}: {why}", concerned.join(", ")),
                all => format!("{} and {} more: {why}", concerned[..NAMED].join(", "), all - NAMED),
            })
            .collect();
        field.conflict = Some(format!(
            "the mechanisms with the required properties cannot be measured under the conditions of the question ({})",
            reasons.join("; ")
        ));
    }
    field.candidates = kept;
    Ok(())
}

/// A bench that measures on this machine, with roles of this program, and stores the runs in a folder.
pub struct Machine<'a> {
    /// How roles are started.
    pub launcher: &'a Launcher,
    /// The options of each run.
    pub options: Options,
    /// Folders of the runs that were created.
    pub runs: Vec<PathBuf>,
    /// Receives the events of each run.
    pub tell: Box<dyn FnMut(&RunEvent<'_>) + 'a>,
}

impl Bench for Machine<'_> {
    fn run(&mut self, plan: &Plan) -> Result<Vec<Trial>, AdviseError> {
        let summary =
            run::measure(plan, &self.options, self.launcher, |event| (self.tell)(&event))?;
        if summary.interrupted {
            return Err(AdviseError::Interrupted { dir: summary.dir });
        }
        let records = read_records(&summary.dir)?.records;
        self.runs.push(summary.dir);
        Ok(records.iter().map(Trial::of).collect())
    }
}

/// A bench that measures nothing, for when no measurement is allowed.
pub struct NoBench;

impl Bench for NoBench {
    fn run(&mut self, _: &Plan) -> Result<Vec<Trial>, AdviseError> {
        Ok(Vec::new())
    }
}
