//! Compares two sets of records, case by case and figure by figure.
//!
//! "Faster" and "slower" require that two tests agree: the bootstrap interval of the ratio of medians, and the
//! Mann-Whitney test on the trials. "Same" is a positive statement: the whole interval lies within a bound, and the
//! bound is reported ("within 8 %"). The verdict is "unclear" if the tests disagree, if there are so few trials that a
//! large difference could be hidden, if the hypervisor moved the CPUs to other cores between the two sets, or if the
//! trials of a side fall into two groups ([`crate::regimes`]).

pub mod durations;
mod figure;
mod gate;
mod notes;
mod without_figures;

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::cases::{self, Case, CaseKey};
use crate::figure::Figure;
use crate::limits::cores_moved;
use crate::percentile::Percentile;
use crate::record::{Rates, Record, Span};
use crate::records_io::{Identity, identity};
use crate::regimes::Regimes;
use crate::stats::{self, Interval, Summary};
use durations::Durations;
pub use gate::{FailOn, GateCall, change, change_range, parse_percent};

/// Significance level: the probability that a test reports a difference where there is none.
const SIGNIFICANT: f64 = 0.05;

/// How B compares with A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is better.
    Faster,
    /// B is worse.
    Slower,
    /// The difference is negligible, or none is visible and the interval excludes a large one;
    /// [`Comparison::same_within`] says how large it can be.
    Same,
    /// The trials do not show how B compares with A.
    Unclear,
}

/// The comparison of one figure of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Readable label of the case.
    pub case: String,
    /// The figure.
    #[serde(flatten, serialize_with = "figure::kind_and_span")]
    pub figure: Figure,
    /// Summary of the trials of the first set.
    pub a: Summary,
    /// Summary of the trials of the second set.
    pub b: Summary,
    /// Median of B divided by median of A.
    pub ratio: f64,
    /// 95 % bootstrap interval of the ratio; null if either side has fewer than five trials, or if [`lacks_samples`] is
    /// set.
    ///
    /// [`lacks_samples`]: Comparison::lacks_samples
    pub ratio_interval: Option<Interval>,
    /// Factor by which B is slower than A: above 1 is slower, whether a larger or a smaller figure is better.
    pub slowdown: f64,
    /// 95 % bootstrap interval of the slowdown; null if the ratio's is null.
    pub slowdown_interval: Option<Interval>,
    /// Hodges-Lehmann estimate of the shift from A to B, in the figure's unit.
    pub shift: f64,
    /// Cliff's delta of B against A: -1 if every trial of B has a smaller figure than every trial of A, 1 if every one
    /// has a larger.
    pub cliffs_delta: f64,
    /// p-value of the two-sided Mann-Whitney test.
    pub p: f64,
    /// The largest change of the figure, in either direction, that the interval of the ratio permits: 0.08 is 8 %; null
    /// if there is no interval.
    pub same_within: Option<f64>,
    /// How B compares with A.
    pub verdict: Verdict,
    /// Whether both sides contain the same trials, so that the figures are equal by construction.
    pub same_trials: bool,
    /// Whether the figure is a percentile and more than one in ten good trials of a side have too few samples for it.
    /// There is no interval then, because those that have enough are the fast ones.
    pub lacks_samples: bool,
    /// Whether the virtual CPUs were moved to other cores between the two sets, or used by other programs, so that the figures say nothing about the
    /// mechanism.
    pub cores_moved: bool,
    /// Why the verdict is unclear, or another remark.
    pub note: Option<String>,
}

/// Bounds for the verdicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Differences up to this are "same" even if they are significant, because they do not matter in practice: 0.03 is
    /// 3 %.
    pub same_within: f64,
    /// If no difference is visible, but the interval permits a difference larger than this, the verdict is "unclear":
    /// 0.25 is 25 %.
    pub unclear_beyond: f64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { same_within: 0.03, unclear_beyond: 0.25 }
    }
}

/// A whole comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComparisonReport {
    /// All figures of all matched cases.
    pub comparisons: Vec<Comparison>,
    /// Cases of which trials ran only in A, or that have figures in A while no trial ran in B.
    pub only_in_a: Vec<String>,
    /// Cases of which trials ran only in B, or that have figures in B while no trial ran in A.
    pub only_in_b: Vec<String>,
    /// Cases of A with failed trials, each with the number of these trials and the reason of the first failure.
    pub failed_in_a: Vec<String>,
    /// Cases of B with failed trials, each with the number of these trials and the reason of the first failure.
    pub failed_in_b: Vec<String>,
    /// Matched cases that have figures on both sides but no figure in common, each with the reason.
    pub not_compared: Vec<String>,
    /// Cases that have figures in B, but none in A because its trials are degraded, each with the reason.
    pub degraded_in_a: Vec<String>,
    /// Cases that have figures in A, but none in B because its trials are degraded, each with the reason.
    pub degraded_in_b: Vec<String>,
    /// Matched cases without figures on either side, each with the reason. Cases of which no trial ran on either side
    /// are not included.
    pub without_figures: Vec<String>,
    /// Compared cases whose p99 of a latency is not among the figures, because no trial of a side has enough samples for
    /// it.
    pub without_p99: Vec<String>,
    /// Rates of the compared cases whose messages are sent at a fixed rate.
    pub rates: Vec<RatesOfCase>,
    /// Number of cases of A that B has, too.
    pub matched: usize,
    /// Number of B's records that are not also in A. It is 0 if a run is compared with itself or with a copy.
    pub new_in_b: usize,
    /// Remarks on the comparison as a whole.
    pub warnings: Vec<String>,
}

/// Offered and achieved rate on both sides of a compared case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatesOfCase {
    /// Readable label of the case.
    pub case: String,
    /// The rates in A; null unless its messages are sent at a fixed rate.
    pub a: Option<Rates>,
    /// The rates in B.
    pub b: Option<Rates>,
}

impl ComparisonReport {
    /// The number of figures with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.comparisons.iter().filter(|c| c.verdict == verdict).count()
    }
}

/// Compares the trials that count in two sets of records. Inputs in `ignoring` may differ between the two sides (e.g.
/// the mechanism, when two filters of one run are compared).
pub fn compare(a: &[&Record], b: &[&Record], ignoring: &[&str], terms: &Terms) -> ComparisonReport {
    let mut report = ComparisonReport::default();
    let cases_a = cases::group(a.iter().copied());
    let cases_b = cases::group(b.iter().copied());
    let key = |case: &Case| case.key.clone().without(ignoring);
    let mut in_b: HashMap<CaseKey, Vec<&Case>> = HashMap::new();
    for case in &cases_b {
        in_b.entry(key(case)).or_default().push(case);
    }
    let mut matched: HashSet<CaseKey> = HashSet::new();
    let mut durations = Durations::default();
    for case in &cases_a {
        let key = key(case);
        let Some(others) = in_b.get(&key) else {
            // A case of which no trial ran is no baseline.
            report.only_in_a.extend(case.ran().then(|| case.key.label()));
            continue;
        };
        for other in others {
            durations.add(case, other);
            compare_case(case, other, ignoring, terms, &mut report);
        }
        matched.insert(key);
    }
    report.matched = matched.len();
    report.new_in_b = new_records(a, b);
    let unmatched = cases_b.iter().filter(|c| c.ran() && !matched.contains(&key(c)));
    report.only_in_b.extend(unmatched.map(|c| c.key.label()));
    report.failed_in_a = cases_a.iter().filter_map(without_figures::failed).collect();
    report.failed_in_b = cases_b.iter().filter_map(without_figures::failed).collect();
    report.warnings.extend(durations.warning());
    let n = report.comparisons.len();
    let copies = report.comparisons.iter().filter(|c| c.same_trials).count();
    if copies > 0 {
        report.warnings.push(format!(
            "{copies} of {n} figures are from the same trials on both sides (as in a copy of a run) and cannot differ"
        ));
    }
    let without = report.without_p99.len();
    if without > 0 {
        let cases = if without == 1 { "case" } else { "cases" };
        report.warnings.push(format!(
            "p99 is not compared for {without} {cases}: no trial of one or both sides has the 1,000 samples that it needs; \
             raise --measure-ms"
        ));
    }
    let open = n - copies;
    if open >= 20 {
        report.warnings.push(format!(
            "{open} figures are compared, and some will differ by chance alone; look for patterns, or \
             measure the important cases again"
        ));
    }
    report
}

/// The number of records of B that are not also in A.
fn new_records(a: &[&Record], b: &[&Record]) -> usize {
    let in_a: HashMap<Identity, &Record> = a.iter().map(|r| (identity(r), *r)).collect();
    b.iter().filter(|r| in_a.get(&identity(r)) != Some(*r)).count()
}

fn compare_case(
    a: &Case,
    b: &Case,
    ignoring: &[&str],
    terms: &Terms,
    report: &mut ComparisonReport,
) {
    let label = if a.key == b.key {
        a.key.label()
    } else {
        let side = |case: &Case| {
            let values = ignoring.iter().filter_map(|name| case.key.get(name));
            values.collect::<Vec<_>>().join(" ")
        };
        format!("{}: {} -> {}", a.key.clone().without(ignoring).label(), side(a), side(b))
    };
    if a.trials() == 0 || b.trials() == 0 {
        without_figures::list(a, b, label, report);
        return;
    }
    let between = Between {
        cache_lines_ns: (stats::median(&a.cache_line_ns()), stats::median(&b.cache_line_ns())),
        very_same: a.trials() == b.trials() && a.good().zip(b.good()).all(|(x, y)| x == y),
        trials: [a.trials(), b.trials()],
        regimes: [a.regimes(), b.regimes()],
    };
    let before = report.comparisons.len();
    for figure in figure::figures() {
        let of = |record: &Record| figure::of(figure, record);
        let (x, y) = (a.figures(of), b.figures(of));
        report.comparisons.extend(compare_figure(&label, figure, &x, &y, between, terms));
    }
    let compared = |percentile: Percentile| -> Vec<Span> {
        let figures = report.comparisons[before..].iter();
        figures.filter_map(|c| figure::span_at(c.figure, percentile)).collect()
    };
    let p99s = compared(Percentile::P99);
    if compared(Percentile::P50).iter().any(|span| !p99s.contains(span)) {
        report.without_p99.push(label.clone());
    }
    let (of_a, of_b) = (Rates::of_case(a), Rates::of_case(b));
    if report.comparisons.len() > before && (of_a.is_some() || of_b.is_some()) {
        report.rates.push(RatesOfCase { case: label.clone(), a: of_a, b: of_b });
    }
    if report.comparisons.len() == before {
        report.not_compared.push(format!("{label}: {}", without_figures::why_not_compared(a, b)));
    }
}

/// Differences between the two sides other than their figures.
#[derive(Clone, Copy, Debug)]
struct Between {
    /// Cache-line round trips measured around the trials of each side, nanoseconds.
    cache_lines_ns: (Option<f64>, Option<f64>),
    /// Whether both sides contain the same trials, because a run was compared with a copy of itself.
    very_same: bool,
    /// Numbers of good trials of A and of B, with or without the figure.
    trials: [usize; 2],
    /// The two groups into which the trials of A and of B fall, if they do.
    regimes: [Option<Regimes>; 2],
}

fn compare_figure(
    label: &str,
    figure: Figure,
    a: &[f64],
    b: &[f64],
    between: Between,
    terms: &Terms,
) -> Option<Comparison> {
    let (a_summary, b_summary) = (Summary::of(a)?, Summary::of(b)?);
    let test = stats::mann_whitney(b, a)?;
    let ratio = b_summary.estimate.value / a_summary.estimate.value;
    let slowdown = if figure.more_is_better() { 1.0 / ratio } else { ratio };
    let decided = stats::ratio_interval(b, a, 0.95)?;
    let lacks_samples = figure.percentile().is_some_and(|p| p.samples_needed() > 1)
        && std::iter::zip([a, b], between.trials)
            .any(|(with, trials)| stats::too_many_lack(with.len(), trials));
    let is_enough = stats::enough(a) && stats::enough(b) && !lacks_samples;
    let ratio_interval = is_enough.then_some(decided);
    let slowdown_interval = ratio_interval.map(|i| match figure.more_is_better() {
        true => Interval { low: 1.0 / i.high, high: 1.0 / i.low },
        false => i,
    });
    let room = ratio_interval.map(|i| (i.high - 1.0).max(1.0 - i.low));
    let (before, after) = between.cache_lines_ns;
    let moved = before.zip(after).filter(|(b, a)| cores_moved(*b, *a) && !between.very_same);
    let (verdict, mut note) = match slowdown_interval.zip(room) {
        _ if between.very_same => {
            (Verdict::Same, Some("both sides contain the same trials".to_owned()))
        }
        None => {
            (Verdict::Unclear, Some(notes::too_few(figure, between.trials, [a.len(), b.len()])))
        }
        Some((slowdown, room)) => match moved {
            Some((before, after)) => (Verdict::Unclear, Some(notes::cpus_moved(before, after))),
            None if between.regimes != [None; 2] => {
                (Verdict::Unclear, Some(notes::two_regimes(between.regimes)))
            }
            None => judge(slowdown, room, test.p, terms),
        },
    };
    let outliers = a_summary.outliers + b_summary.outliers;
    if note.is_none() && outliers > 0 {
        let trials = if outliers == 1 { "trial" } else { "trials" };
        note = Some(format!("includes {outliers} outlying {trials}"));
    }
    Some(Comparison {
        case: label.to_owned(),
        figure,
        a: a_summary,
        b: b_summary,
        ratio,
        ratio_interval,
        slowdown,
        slowdown_interval,
        shift: stats::hodges_lehmann(b, a)?,
        cliffs_delta: stats::cliffs_delta(b, a)?,
        p: test.p,
        same_within: if between.very_same { Some(0.0) } else { room },
        verdict,
        same_trials: between.very_same,
        lacks_samples,
        cores_moved: moved.is_some(),
        note,
    })
}

/// The verdict on a slowdown, and the reason if it is unclear. `room` is the largest change of the figure that the
/// trials permit.
fn judge(slowdown: Interval, room: f64, p: f64, terms: &Terms) -> (Verdict, Option<String>) {
    let seen = p < SIGNIFICANT;
    if room <= terms.same_within {
        (Verdict::Same, None)
    } else if seen && slowdown.low > 1.0 {
        (Verdict::Slower, None)
    } else if seen && slowdown.high < 1.0 {
        (Verdict::Faster, None)
    } else if !seen && slowdown.contains(1.0) && room <= terms.unclear_beyond {
        (Verdict::Same, None)
    } else {
        let why = match (seen, slowdown.contains(1.0)) {
            (false, true) => {
                let most = match room {
                    _ if room >= 9.0 => format!("a factor of {:.1}", 1.0 + room),
                    _ => format!("{:.1} %", room * 100.0),
                };
                format!("the trials permit a difference of up to {most}")
            }
            (false, false) => format!(
                "the two tests disagree: the interval excludes equality, the Mann-Whitney test does not (p = {p:.2})"
            ),
            (true, _) => format!(
                "the two tests disagree: the Mann-Whitney test excludes equality (p = {p:.3}), the interval does not"
            ),
        };
        (Verdict::Unclear, Some(why))
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "compare_gate_tests.rs"]
mod gate_tests;
