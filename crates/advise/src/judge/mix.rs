//! The trials that answer a question, by message size, and how the trials of all sizes together form trials of the mix.

use crate::candidate::Candidate;
use crate::figure::Percentiles;
use crate::judge::{LATEST_TRIALS, answers};
use crate::question::{Percentile, Question};
use crate::trials::Trial;
use crossway_records::figure::Figure;
use crossway_records::record::Status;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::{self, TRIALS_AT_LEAST};

/// Factor by which a trial is longer than the time in which it had just enough samples, since rates vary.
const SPARE_TIME: f64 = 1.5;

/// A candidate's usable trials for each message size of a question, at least one for each.
pub(super) struct Mix<'t> {
    /// For each size, its share of the messages and the trials.
    sizes: Vec<(f64, Vec<&'t Trial>)>,
}

/// One trial of the mix: a trial of each size, with the share of the messages that have this size.
pub(super) struct Row<'t>(Vec<(f64, &'t Trial)>);

impl<'t> Row<'t> {
    pub(super) fn trials(&self) -> impl Iterator<Item = &'t Trial> {
        self.0.iter().map(|(_, trial)| *trial)
    }

    /// The mean cost over all messages, nanoseconds; `None` if a trial lacks the figure.
    pub(super) fn mean(&self, figure: Figure) -> Option<f64> {
        self.0.iter().map(|(share, trial)| Some(share * trial.cost_ns(figure)?)).sum()
    }

    /// The largest figure of any size; `None` if a trial lacks the figure. The slowest size decides on latencies, since
    /// a percentile of the mix cannot be computed from the percentiles of its parts.
    pub(super) fn largest(&self, of: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        self.trials().map(of).try_fold(0.0, |most: f64, figure| Some(most.max(figure?)))
    }
}

impl<'t> Mix<'t> {
    /// Collects the trials; `None` if there are none for one of the sizes.
    pub(super) fn of(
        question: &Question,
        candidate: &Candidate,
        trials: impl Iterator<Item = &'t Trial> + Clone,
    ) -> Option<Mix<'t>> {
        let of_size = |bytes| {
            let mine = trials.clone().filter(|t| answers(t, question, bytes, candidate));
            // Trials disturbed by the machine are used only if there are no better ones: the disturbance is not the
            // candidate's fault.
            let (mut mine, degraded): (Vec<&Trial>, Vec<&Trial>) =
                mine.filter(|t| t.status != Status::Failed).partition(|t| t.counts());
            if mine.is_empty() {
                mine = degraded;
            }
            mine.drain(..mine.len().saturating_sub(LATEST_TRIALS));
            (!mine.is_empty()).then_some(mine)
        };
        let sizes = question.sizes.iter().map(|s| Some((s.share, of_size(s.bytes)?)));
        Some(Mix { sizes: sizes.collect::<Option<_>>()? })
    }

    /// All trials, of whatever size.
    pub(super) fn trials(&self) -> impl Iterator<Item = &'t Trial> {
        self.sizes.iter().flat_map(|(_, trials)| trials.iter().copied())
    }

    /// The trials, grouped by size.
    pub(super) fn by_size(&self) -> impl Iterator<Item = &[&'t Trial]> {
        self.sizes.iter().map(|(_, trials)| trials.as_slice())
    }

    /// The trials of the mix: the k-th trials of all sizes together are its k-th.
    pub(super) fn rows(&self) -> Vec<Row<'t>> {
        rows(&self.sizes)
    }

    /// The trials of the mix whose percentile is exact, and those in which the trial of a size has too few samples for
    /// the percentile, so that the trial's maximum is used instead. The exact trials of the sizes are combined with
    /// each other, so that as many trials of the mix as possible are exact.
    fn exact_and_lacking(&self, percentile: Percentile) -> (Vec<Row<'t>>, Vec<Row<'t>>) {
        let mut sizes = self.sizes.clone();
        let n = sizes.iter().map(|(_, trials)| trials.len()).min().unwrap_or(0);
        for (_, trials) in &mut sizes {
            trials.sort_small_by_key(|t| !t.lacks(percentile));
            trials.drain(..trials.len() - n);
        }
        rows(&sizes).into_iter().partition(|row| !row.trials().any(|t| t.lacks(percentile)))
    }

    /// The trials of the mix by which latencies are compared: those whose percentile is exact if there are at least
    /// [`TRIALS_AT_LEAST`] of them, otherwise all.
    pub(super) fn rows_for(&self, percentile: Percentile) -> Vec<Row<'t>> {
        let (exact, _) = self.exact_and_lacking(percentile);
        if exact.len() >= TRIALS_AT_LEAST { exact } else { self.rows() }
    }

    /// The latencies of the trials of the mix for a goal on a percentile, microseconds.
    pub(super) fn percentiles(&self, percentile: Percentile) -> Percentiles {
        let us = |rows: &[Row<'_>], of: Percentile| -> Vec<f64> {
            rows.iter().filter_map(|row| Some(row.largest(|t| t.latency_ns(of))? / 1e3)).collect()
        };
        let (exact, lacking) = self.exact_and_lacking(percentile);
        Percentiles {
            exact: us(&exact, percentile),
            maxima: us(&lacking, percentile),
            medians: us(&self.rows(), Percentile::P50),
            samples: lacking
                .iter()
                .flat_map(Row::trials)
                .filter_map(Trial::samples)
                .max()
                .unwrap_or(0),
            needed: percentile.samples_needed(),
            measure_ms: self.measure_ms(percentile),
        }
    }

    /// A length of trials, milliseconds, with which those of every size very probably have enough samples for the
    /// percentile; `None` if the trials of a size have a fixed number of messages or no samples.
    fn measure_ms(&self, percentile: Percentile) -> Option<u64> {
        let of_size = |trials: &[&Trial]| {
            let needed: Vec<f64> = trials.iter().filter_map(|t| t.ms_needed(percentile)).collect();
            stats::median(&needed)
        };
        let longest =
            self.by_size().map(of_size).try_fold(0.0, |most: f64, ms| Some(most.max(ms?)))?;
        Some((longest * SPARE_TIME).ceil() as u64)
    }
}

fn rows<'t>(sizes: &[(f64, Vec<&'t Trial>)]) -> Vec<Row<'t>> {
    let n = sizes.iter().map(|(_, trials)| trials.len()).min().unwrap_or(0);
    let row = |k: usize| Row(sizes.iter().map(|(share, trials)| (*share, trials[k])).collect());
    (0..n).map(row).collect()
}
