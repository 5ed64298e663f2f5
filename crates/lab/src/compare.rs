//! Two sets of records compared case by case and figure by figure.
//!
//! "Faster" and "slower" need two witnesses: the bootstrap interval of the ratio of medians and the Mann-Whitney test on the
//! trials. "Same" is a statement of its own, not a lack of one: the whole interval lies within a bound, and the bound that
//! holds is told ("within 8 %"). Where the witnesses disagree, where the trials would let a large difference pass unseen, or
//! the cores moved between the two sets, it is "unclear".

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cases::{self, Case, CaseKey, latency};
use crate::inputs::Workload;
use crate::limits::cores_moved;
use crate::record::{Record, Span, Status};
use crate::stats::{self, Interval, Summary, TRIALS_AT_LEAST};

/// Chance of a test to see a difference where there is none.
const SIGNIFICANT: f64 = 0.05;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "figure")]
pub enum Figure {
    /// Messages per second.
    Rate,
    /// Median latency of a span, nanoseconds.
    LatencyP50 {
        /// The span.
        span: Span,
    },
    /// 99th percentile of a span, nanoseconds.
    LatencyP99 {
        /// The span.
        span: Span,
    },
    /// CPU time of all roles per message, nanoseconds.
    CpuPerMessage,
}

/// Every figure there is, in the order in which they are shown.
pub const FIGURES: [Figure; 12] = [
    Figure::Rate,
    Figure::LatencyP50 { span: Span::RoundTrip },
    Figure::LatencyP99 { span: Span::RoundTrip },
    Figure::LatencyP50 { span: Span::OneWay },
    Figure::LatencyP99 { span: Span::OneWay },
    Figure::LatencyP50 { span: Span::SetUp },
    Figure::LatencyP99 { span: Span::SetUp },
    Figure::LatencyP50 { span: Span::Exchange },
    Figure::LatencyP99 { span: Span::Exchange },
    Figure::LatencyP50 { span: Span::TearDown },
    Figure::LatencyP99 { span: Span::TearDown },
    Figure::CpuPerMessage,
];

impl Figure {
    /// A trial's figure; `None` where it has none, or where another figure says the same (the rate of a closed loop is
    /// the inverse of its round trip, that of a paced stream is given).
    pub fn of(&self, record: &Record) -> Option<f64> {
        match self {
            Figure::Rate => match record.inputs.workload {
                Workload::PingPong
                | Workload::Requests { .. }
                | Workload::Paced { .. }
                | Workload::Exchange => None,
                Workload::Throughput
                | Workload::Pairs { .. }
                | Workload::FanIn { .. }
                | Workload::FanOut { .. } => record.throughput.map(|t| t.msgs_per_s),
            },
            Figure::LatencyP50 { span } => latency(record, *span).map(|l| l.p50 as f64),
            Figure::LatencyP99 { span } => {
                latency(record, *span).and_then(|l| l.p99).map(|p| p as f64)
            }
            Figure::CpuPerMessage => record.cost.map(|c| c.cpu_ns_per_msg),
        }
    }

    /// Whether more is better.
    pub fn more_is_better(&self) -> bool {
        matches!(self, Figure::Rate)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span_name = |span: &Span| match span {
            Span::RoundTrip => "round trip",
            Span::OneWay => "one way",
            Span::SetUp => "set-up",
            Span::Exchange => "exchange",
            Span::TearDown => "tear-down",
        };
        match self {
            Figure::Rate => write!(f, "messages/s"),
            Figure::LatencyP50 { span } => write!(f, "{} p50", span_name(span)),
            Figure::LatencyP99 { span } => write!(f, "{} p99", span_name(span)),
            Figure::CpuPerMessage => write!(f, "CPU/message"),
        }
    }
}

/// How B does against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is better.
    Faster,
    /// B is worse.
    Slower,
    /// No difference is seen, and the interval leaves no room for a large one; [`Comparison::same_within`] says for how
    /// large a one.
    Same,
    /// The trials do not tell.
    Unclear,
}

/// One figure of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The case, for people.
    pub case: String,
    /// The figure.
    #[serde(flatten)]
    pub figure: Figure,
    /// The first set's trials.
    pub a: Summary,
    /// The second set's trials.
    pub b: Summary,
    /// Median of B over median of A.
    pub ratio: f64,
    /// 95 % bootstrap interval of the ratio; null where a side has fewer than five trials.
    pub ratio_interval: Option<Interval>,
    /// B's time over A's time, whichever way the figure counts: above 1 is slower.
    pub slowdown: f64,
    /// 95 % bootstrap interval of the slowdown; null where the ratio's is.
    pub slowdown_interval: Option<Interval>,
    /// Hodges and Lehmann's shift from A to B in the figure's unit.
    pub shift: f64,
    /// Cliff's delta of B against A: -1 when every trial of B has the smaller figure, 1 when every one has the larger.
    pub cliffs_delta: f64,
    /// Mann-Whitney's two-sided p.
    pub p: f64,
    /// The largest difference that the interval of the slowdown has room for, either way: 0.08 is 8 %; null without an interval.
    #[serde(default)]
    pub same_within: Option<f64>,
    /// How B does.
    pub verdict: Verdict,
    /// Why it is unclear, or what else to know.
    pub note: Option<String>,
}

/// What to hold against each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Differences up to here are "same" even where they are certain, because nobody cares: 0.03 is 3 %.
    pub same_within: f64,
    /// Where no difference is seen, but the interval has room for one larger than this, it is "unclear": 0.25 is 25 %.
    pub unclear_beyond: f64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { same_within: 0.03, unclear_beyond: 0.25 }
    }
}

/// A whole comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// All figures of all matched cases.
    pub comparisons: Vec<Comparison>,
    /// Cases measured in A only.
    pub only_in_a: Vec<String>,
    /// Cases measured in B only.
    pub only_in_b: Vec<String>,
    /// Cases that gave figures in A and fail in B, with the reason.
    pub failed_in_b: Vec<String>,
    /// What to know about the comparison as a whole.
    pub warnings: Vec<String>,
}

impl ComparisonReport {
    /// How many figures got this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.comparisons.iter().filter(|c| c.verdict == verdict).count()
    }
}

/// Compares the trials that count of two sets of records. Inputs in `ignoring` may differ between the two sides (e.g. the
/// mechanism, when two filters of one run are compared).
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
    for case in &cases_a {
        let key = key(case);
        let Some(others) = in_b.get(&key) else {
            report.only_in_a.push(case.key.label());
            continue;
        };
        for other in others {
            compare_case(case, other, ignoring, terms, &mut report);
        }
        matched.insert(key);
    }
    report.only_in_b =
        cases_b.iter().filter(|c| !matched.contains(&key(c))).map(|c| c.key.label()).collect();
    let n = report.comparisons.len();
    if n >= 20 {
        report.warnings.push(format!(
            "{n} figures are compared at once: some will differ by chance alone; look for patterns, or repeat what matters"
        ));
    }
    report
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
    if a.trials() > 0 && b.trials() == 0 {
        let failed = b.records.iter().find(|r| r.status == Status::Failed);
        if let Some(record) = failed {
            let reason = record.reason.as_deref().unwrap_or("no reason given");
            report.failed_in_b.push(format!("{label}: {reason}"));
        } else {
            report.only_in_a.push(label);
        }
        return;
    }
    let between = Between {
        cache_lines_ns: (stats::median(&a.cache_line_ns()), stats::median(&b.cache_line_ns())),
        very_same: a.trials() == b.trials() && a.good().zip(b.good()).all(|(x, y)| x == y),
    };
    for figure in FIGURES {
        let (x, y) = (a.figures(|r| figure.of(r)), b.figures(|r| figure.of(r)));
        report.comparisons.extend(compare_figure(&label, figure, &x, &y, between, terms));
    }
}

/// What lies between two cases beside their figures.
#[derive(Clone, Copy, Debug)]
struct Between {
    /// Cache-line round trips around the trials of each side, nanoseconds.
    cache_lines_ns: (Option<f64>, Option<f64>),
    /// Both sides hold the very same trials: a run against a copy of itself.
    very_same: bool,
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
    let ratio = b_summary.median / a_summary.median;
    let slowdown = if figure.more_is_better() { 1.0 / ratio } else { ratio };
    let decided = stats::ratio_interval(b, a, 0.95)?;
    let ratio_interval = (stats::enough(a) && stats::enough(b)).then_some(decided);
    let slowdown_interval = ratio_interval.map(|i| match figure.more_is_better() {
        true => Interval { low: 1.0 / i.high, high: 1.0 / i.low },
        false => i,
    });
    let room = |i: Interval| (i.high - 1.0).max(1.0 / i.low - 1.0);
    let same_within = if between.very_same { Some(0.0) } else { slowdown_interval.map(room) };
    let (verdict, mut note) =
        judge(slowdown_interval, test.p, between, terms, a.len().min(b.len()));
    let outliers = a_summary.outliers + b_summary.outliers;
    if note.is_none() && outliers > 0 {
        let trials = if outliers == 1 { "trial" } else { "trials" };
        note = Some(format!("{outliers} outlying {trials}, kept"));
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
        same_within,
        verdict,
        note,
    })
}

/// The verdict on a slowdown, and why it is no other.
fn judge(
    slowdown: Option<Interval>,
    p: f64,
    between: Between,
    terms: &Terms,
    trials: usize,
) -> (Verdict, Option<String>) {
    if between.very_same {
        return (Verdict::Same, Some("the very same trials on both sides".to_owned()));
    }
    let Some(slowdown) = slowdown else {
        let why = format!("{trials} trials are too few; take {TRIALS_AT_LEAST} or more");
        return (Verdict::Unclear, Some(why));
    };
    if let (Some(before), Some(after)) = between.cache_lines_ns
        && cores_moved(before, after)
    {
        let why = format!(
            "the cores moved in between: their cache-line round trip went from {before:.0} to {after:.0} ns; measure both again"
        );
        return (Verdict::Unclear, Some(why));
    }
    let margin = Interval { low: 1.0 / (1.0 + terms.same_within), high: 1.0 + terms.same_within };
    let room = (slowdown.high - 1.0).max(1.0 / slowdown.low - 1.0);
    let seen = p < SIGNIFICANT;
    if margin.contains(slowdown.low) && margin.contains(slowdown.high) {
        (Verdict::Same, None)
    } else if seen && slowdown.low > 1.0 {
        (Verdict::Slower, None)
    } else if seen && slowdown.high < 1.0 {
        (Verdict::Faster, None)
    } else if !seen && slowdown.contains(1.0) && room <= terms.unclear_beyond {
        (Verdict::Same, None)
    } else {
        let why = format!("the trials leave room for a difference of {:.0} %", room * 100.0);
        (Verdict::Unclear, (!seen).then_some(why))
    }
}

/// When a comparison is to fail a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailOn {
    /// Slower by so much: 0.05 is 5 %.
    pub slower_by: f64,
    /// Whether what the trials leave undecided passes.
    pub allow_unclear: bool,
}

/// How a gate judges one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateCall {
    /// Not slower by as much as the bound.
    Passes,
    /// Slower by more than the bound, with its whole interval.
    Slower,
    /// The trials do not tell on which side of the bound it lies.
    Undecided,
}

impl std::str::FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<FailOn, String> {
        let error = || format!("'{text}' is not understood; write e.g. slower:5%");
        let by = match text.split_once(':') {
            None if text == "slower" => 0.0,
            Some(("slower", by)) => parse_percent(by).ok_or_else(error)?,
            _ => return Err(error()),
        };
        Ok(FailOn { slower_by: by, allow_unclear: false })
    }
}

/// Reads `5%`, or `5` for the same; not negative.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().trim_end_matches('%').trim_end().parse().ok()?;
    (number.is_finite() && (0.0..1e6).contains(&number)).then_some(number / 100.0)
}

/// A ratio as the change of the figure itself: 0.376 is `-62.4 %`, 1.2 is `+20.0 %`, 12 is `12.0 times`.
pub fn change(ratio: f64) -> String {
    match (ratio - 1.0) * 100.0 {
        _ if !ratio.is_finite() => "–".to_owned(),
        _ if ratio >= 10.0 => format!("{ratio:.1} times"),
        // No "-0.0 %".
        percent if percent.abs() < 0.05 => "0.0 %".to_owned(),
        percent => format!("{percent:+.1} %"),
    }
}

impl FailOn {
    /// How the gate judges a figure. "Same" passes: how large a difference may hide there is the caller's own bound
    /// ([`Terms::unclear_beyond`]).
    pub fn call(&self, comparison: &Comparison) -> GateCall {
        let bound = 1.0 + self.slower_by;
        match (comparison.verdict, comparison.slowdown_interval) {
            (Verdict::Same | Verdict::Faster, _) => GateCall::Passes,
            (Verdict::Slower, Some(slowdown)) if slowdown.low > bound => GateCall::Slower,
            (Verdict::Slower, Some(slowdown)) if slowdown.high <= bound => GateCall::Passes,
            (Verdict::Slower | Verdict::Unclear, _) => GateCall::Undecided,
        }
    }

    /// What fails the gate, in words: what is slower, what no longer gives figures, and, unless that is allowed, what the trials leave
    /// undecided.
    pub fn failures(&self, report: &ComparisonReport) -> Vec<String> {
        let mut failures = Vec::new();
        for c in &report.comparisons {
            let change = change(c.ratio);
            match self.call(c) {
                GateCall::Passes => {}
                GateCall::Slower => failures
                    .push(format!("{}: {} changed by {change}, which is slower", c.case, c.figure)),
                GateCall::Undecided if self.allow_unclear => {}
                GateCall::Undecided => {
                    let why =
                        c.note.as_deref().unwrap_or("the interval lies on both sides of the bound");
                    failures.push(format!(
                        "{}: {} changed by {change}, not decided: {why}",
                        c.case, c.figure
                    ));
                }
            }
        }
        failures.extend(report.failed_in_b.iter().map(|f| format!("{f} (failed)")));
        if !self.allow_unclear {
            let missing = report.only_in_a.iter();
            failures.extend(missing.map(|case| format!("{case}: measured in A only, not decided")));
        }
        failures
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
