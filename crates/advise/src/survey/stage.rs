//! One stage of a survey, and the time that stages take.

use std::time::Duration;

use super::plan::{WARMUP_MS, measure_ms, plan_of};
use super::{LAST_CANDIDATES, LAST_TRIALS, OVERHEAD, Stage, Surveyor, is_covered};
use crate::AdviseError;
use crate::candidate::Candidate;
use crate::judge::Setting;
use crate::question::Question;
use crate::trials::{SurveyPart, Trial};
use crossway_records::record::Status;

impl Surveyor<'_> {
    /// Measures a stage with trials of `ms` milliseconds; `None` for the usual length.
    pub(super) fn stage(
        &mut self,
        purpose: &str,
        part: Option<SurveyPart>,
        candidates: &[Candidate],
        setting: &Setting,
        trials: u32,
        ms: Option<u64>,
    ) -> Result<(), AdviseError> {
        // No candidate may be left because none works here.
        if candidates.is_empty() {
            return Ok(());
        }
        let question = setting.apply(self.question);
        let ms = ms.unwrap_or_else(|| measure_ms(&question));
        self.seed += 1;
        let plan = plan_of(part, &question, candidates, trials, ms, self.seed)?;
        let count = candidates.len() * question.sizes.len() * trials as usize;
        let about = self.trial_time(ms) * count as u32;
        let purpose = purpose.to_owned();
        (self.tell)(&Stage {
            purpose,
            candidates: candidates.len(),
            trials: trials as usize,
            about,
        });
        let begun = self.bench.now();
        let brought = self.bench.run(&plan)?;
        // A failure may have waited for a deadline, which says nothing about the next trials.
        if !brought.is_empty() && brought.iter().all(|t| t.status != Status::Failed) {
            let each = (self.bench.now() - begun) / brought.len() as u32;
            self.overhead = each.saturating_sub(Duration::from_millis(WARMUP_MS + ms));
        }
        self.survey.trials.extend(brought);
        Ok(())
    }

    /// The expected duration of a trial whose measured part takes `ms` milliseconds.
    fn trial_time(&self, ms: u64) -> Duration {
        self.overhead + Duration::from_millis(WARMUP_MS + ms)
    }

    /// The number of trials of each candidate that fit in the given time.
    pub(super) fn affordable(&self, candidates: usize, time: Duration) -> u32 {
        self.affordable_of(candidates, time, measure_ms(self.question))
    }

    /// The number of trials of `ms` milliseconds of each candidate that fit in the given time.
    pub(super) fn affordable_of(&self, candidates: usize, time: Duration, ms: u64) -> u32 {
        let round = self.trial_time(ms) * (candidates * self.question.sizes.len()).max(1) as u32;
        (time.as_secs_f64() / round.as_secs_f64()) as u32
    }
}

/// The shortest time for measuring: one trial of each candidate that earlier records do not cover, and enough trials of
/// the last candidates for an interval.
pub(crate) fn least_time(
    question: &Question,
    candidates: &[Candidate],
    known: &[Trial],
) -> Duration {
    let trial = OVERHEAD + Duration::from_millis(WARMUP_MS + measure_ms(question));
    let unknown = candidates.iter().filter(|c| !is_covered(question, c, known)).count();
    let last = LAST_CANDIDATES.min(candidates.len()) * LAST_TRIALS as usize;
    trial * ((unknown + last) * question.sizes.len()) as u32
}
