//! The conclusions of a run in sentences. Every sentence is made from the figures, claims no more than their intervals
//! allow, and never ranks a spinning contender against one that blocks.

use std::collections::BTreeMap;

use crossway_records::record::Status;

use crate::ranking::{Entry, Metric, Ranking, advantage};
use crate::summary::{Case, Summary, workload_name};
use crate::units::{self, Quantity};
use crossway_records::awake::SLEPT;
use crossway_records::rank::{MOVED, WaitClass};
use crossway_records::stats::interval_name;

mod headline;
mod paced;
mod words;

use headline::headline;
pub(crate) use words::{list, plural};
use words::{range, times, wording};

/// The conclusions of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The most useful sentence: at most 25 words, figures with two significant digits.
    pub headline: String,
    /// How certain the headline is, and for what it holds; may be empty.
    pub detail: String,
    /// Further sentences, the most useful first. None repeats the headline.
    pub sentences: Vec<String>,
    /// The setting to which the conclusions apply; `None` if the run has only one setting.
    pub setting: Option<String>,
}

impl Verdict {
    /// Draws conclusions from the first setting (idle, most cases) and, if there is load, from the others.
    pub fn of(summary: &Summary) -> Verdict {
        if summary.cases.is_empty() {
            let headline = nothing_measured(summary);
            return Verdict { headline, detail: BELOW.to_owned(), ..Verdict::default() };
        }
        let trips = sizes_with(summary, Metric::ROUND_TRIP_P50);
        let rates = sizes_with(summary, Metric::BYTE_RATE);
        let paced = paced::metric(summary);
        let compared = compared(summary);

        let leading = [compared.first().copied(), paced]
            .into_iter()
            .flatten()
            .find_map(|(metric, size)| Some((metric, size, headline(summary, metric, size)?)));
        let mut sentences = Vec::new();
        for (metric, size) in &compared {
            let told = leading.as_ref().is_some_and(|(m, s, _)| (m, s) == (metric, size));
            if !told {
                sentences.extend(best(summary, *metric, *size));
            }
            if *metric == Metric::ROUND_TRIP_P50 {
                sentences.extend(busy(summary, *size));
            }
            if !matches!(*metric, Metric::MESSAGE_RATE | Metric::CPU_PER_MESSAGE) {
                sentences.extend(spinning_against_blocking(summary, *metric, *size));
            }
        }
        sentences.extend(two_regimes(summary));
        if let Some((metric, size)) = paced {
            sentences.extend(too_few(summary, &[size], metric));
        }
        sentences.extend(too_few(summary, &trips, Metric::ROUND_TRIP_P50));
        sentences.extend(too_few(summary, &rates, Metric::BYTE_RATE));
        sentences.extend(not_measured(summary));

        let (headline, mut detail) = leading.map(|(_, _, said)| said).unwrap_or_else(|| {
            let few = [
                too_few(summary, &trips, Metric::ROUND_TRIP_P50),
                too_few(summary, &rates, Metric::BYTE_RATE),
                paced.and_then(|(metric, size)| too_few(summary, &[size], metric)),
            ];
            let (headline, detail) = if few.iter().any(Option::is_some) {
                (NO_WINNER, "")
            } else if summary.cases.iter().all(|case| case.degraded) {
                (ALL_DEGRADED, BELOW)
            } else if trips.is_empty() && rates.is_empty() {
                (NOT_COMPARED, if summary.ranked { RANKED } else { SHOWN })
            } else {
                (COMPARED_DEGRADED, BELOW)
            };
            (headline.to_owned(), detail.to_owned())
        });
        if let Some(behind) = paced.and_then(|(m, size)| paced::rate_not_kept(summary, m, size)) {
            detail.push_str(&behind);
        }
        if summary.mostly_moved
            || std::iter::once(&detail).chain(&sentences).any(|text| text.contains(MOVED))
        {
            sentences.push(moved(summary));
        }
        let setting = match &summary.settings[..] {
            [first, _, ..] => Some(first.label()),
            _ => None,
        };
        if let Some(setting) = &setting {
            detail.push_str(&format!(" All comparisons here are of the setting “{setting}”."));
        }
        Verdict { headline, detail: detail.trim_start().to_owned(), sentences, setting }
    }
}

/// The sizes of the first setting that have a figure.
fn sizes_with(summary: &Summary, metric: Metric) -> Vec<u64> {
    summary.sizes(|c| c.setting == 0 && metric.of(c).is_some())
}

/// What is compared in the first setting, the most useful first: each figure at one size.
pub(crate) fn compared(summary: &Summary) -> Vec<(Metric, u64)> {
    let rates = sizes_with(summary, Metric::BYTE_RATE);
    let small = usual(&rates);
    let trips = usual(&sizes_with(summary, Metric::ROUND_TRIP_P50));
    let mut compared: Vec<(Metric, u64)> = Vec::new();
    compared.extend(trips.map(|size| (Metric::ROUND_TRIP_P50, size)));
    compared.extend(rates.last().map(|size| (Metric::BYTE_RATE, *size)));
    compared
        .extend(small.filter(|size| rates.last() != Some(size)).map(|s| (Metric::MESSAGE_RATE, s)));
    compared.extend(small.map(|size| (Metric::CPU_PER_MESSAGE, size)));
    compared.extend(paced::metric(summary));
    compared
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

const BELOW: &str = "The reasons are listed below.";
const ALL_DEGRADED: &str = "Nothing is ranked, because every trial was degraded.";
const COMPARED_DEGRADED: &str = "No winner is named, because every trial of the workloads that this summary compares \
                                 (ping-pong, throughput, messages at a fixed rate) was degraded.";
const NOT_COMPARED: &str =
    "This summary compares only ping-pong, throughput and messages at a fixed rate.";
const SHOWN: &str = "The tables below show the figures of the other workloads.";
/// Replaces [`SHOWN`] if the command has a ranking.
const RANKED: &str =
    "The tables below show the figures of the other workloads, and `crossway rank` ranks them.";
const NO_WINNER: &str = "Too few trials to name a winner: at least five good trials of each case are needed to tell \
                         mechanisms apart.";

/// Names the mechanisms whose ends hardly slept in round trips; `None` if there are none.
fn busy(summary: &Summary, size: u64) -> Option<String> {
    let ranking = Ranking::of_any(summary, Metric::ROUND_TRIP_P50, 0, size, WaitClass::Busy);
    let entries: Vec<&Entry> = ranking.entries.iter().chain(&ranking.too_few).collect();
    let first = entries.first()?;
    let names = list(entries.iter().map(|e| e.name(summary)));
    let whose = plural(entries.len(), "its", "their");
    let figure = Quantity::Duration.show_two(first.figure.value);
    let at = if entries.len() > 1 { format!("from {figure}") } else { figure };
    Some(format!(
        "Busy, {names} {} less ({at}), but {whose} ends {SLEPT}.",
        plural(entries.len(), "takes", "take")
    ))
}

/// Names the contenders with cases whose trials fall into two groups; `None` if there are none.
fn two_regimes(summary: &Summary) -> Option<String> {
    let mut cases: BTreeMap<usize, Vec<&Case>> = BTreeMap::new();
    for case in summary.cases.iter().filter(|case| case.setting == 0 && case.regimes.is_some()) {
        cases.entry(case.contender).or_default().push(case);
    }
    let name = |(contender, cases): (&usize, &Vec<&Case>)| {
        let label = summary.contenders[*contender].label();
        match &cases[..] {
            [only] => format!("{label} ({})", workload_and_size(only)),
            several => format!("{label} ({} cases)", several.len()),
        }
    };
    let names = list(cases.iter().map(name));
    (!names.is_empty())
        .then(|| format!("Two regimes, so neither a single figure nor a rank: {names}."))
}

fn workload_and_size(case: &Case) -> String {
    format!("{}, {}", workload_name(case.workload, case.size_bytes), units::size(case.size_bytes))
}

/// Says how many cases have moved cores; the tables explain what that is.
fn moved(summary: &Summary) -> String {
    let moved = summary.cases.iter().filter(|case| case.cores_moved).count();
    let all = units::count(summary.cases.len(), "case", "cases");
    format!(
        "In {moved} of {all} the cores moved, or lay farther apart than those of the competitors (“{MOVED}”), so the \
         machine may be the reason for the figures and ranks."
    )
}

/// Returns a sentence on the contenders that are not ranked because they have fewer than five trials.
fn too_few(summary: &Summary, sizes: &[u64], metric: Metric) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for size in sizes {
        for class in WaitClass::ALL {
            for entry in Ranking::of_any(summary, metric, 0, *size, class).too_few {
                let name = summary.contenders[entry.contender].label();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let what = match metric {
        Metric::ROUND_TRIP_P50 => "round trips".to_owned(),
        paced if paced.is_paced() => workload_name(paced.workload, *sizes.first()?),
        _ => "throughput".to_owned(),
    };
    let have = plural(names.len(), "has", "have");
    Some(format!(
        "For {what}, {} {have} fewer than five good trials of a case, and therefore neither a rank nor an interval for \
         that case.",
        list(names.into_iter())
    ))
}

fn nothing_measured(summary: &Summary) -> String {
    let (failed, skipped) = (summary.trials(Status::Failed), summary.trials(Status::Skipped));
    match (failed, skipped) {
        (0, 0) => "Nothing was measured: the run contains no records.".to_owned(),
        (0, _) => "Nothing was measured: every case was skipped.".to_owned(),
        (_, 0) => "Nothing was measured: every trial failed.".to_owned(),
        _ => "Nothing was measured: every trial failed or was skipped.".to_owned(),
    }
}

/// Returns the size for which round trips and small messages are compared: 64 bytes, or else the smallest.
fn usual(sizes: &[u64]) -> Option<u64> {
    sizes.iter().find(|s| **s == 64).or(sizes.first()).copied()
}

/// Returns the subject of a sentence: `64-byte messages`, with the rate at which they are sent, if any.
fn subject(metric: Metric, size: u64) -> String {
    let rate = match metric.is_paced() {
        true => format!(" ({})", workload_name(metric.workload, size)),
        false => String::new(),
    };
    format!("{} messages{rate}", units::size_adjective(size))
}

/// Returns by how much the next is behind the best, as the end of a sentence; `None` if there is no next.
fn behind(summary: &Summary, ranking: &Ranking) -> Option<String> {
    let words = wording(ranking.metric);
    let (first, next) = (&ranking.entries[0], ranking.runner_up()?);
    let next_name = name(summary, next);
    Some(match advantage(ranking.metric, &first.figure, &next.figure) {
        Some((least, most)) => {
            let by = times(least, most, words.adverbs);
            match words.next {
                Some(does) => format!("; {next_name} {does} {by}"),
                None => format!(", {by} {next_name}"),
            }
        }
        None => format!("; next comes {next_name}"),
    })
}

/// Returns what a single ranked contender has in common with no other.
fn alone(ranking: &Ranking) -> &'static str {
    let others = ranking.degraded + ranking.too_few.len();
    if others == 0 { "was measured" } else { "has enough good trials" }
}

/// Returns which blocking contenders are best by a figure; `None` if none is ranked by it.
fn best(summary: &Summary, metric: Metric, size: u64) -> Option<String> {
    let ranking = Ranking::of(summary, metric, 0, size, WaitClass::Blocking)?;
    let words = wording(metric);
    let leaders = ranking.leaders();
    let first = &ranking.entries[0];
    let subject = subject(metric, size);
    if ranking.entries.len() == 1 {
        return Some(format!(
            "For {subject}, only {} {}, with a {} of {}.",
            name(summary, first),
            alone(&ranking),
            words.name,
            figure(metric, first)
        ));
    }
    if leaders.len() > 1 {
        return Some(format!(
            "{} of {subject}: {} are equal ({}).",
            capitalised(&words.name),
            list(leaders.iter().map(|e| name(summary, e))),
            metric.quantity().show_two(first.figure.value)
        ));
    }
    let next = behind(summary, &ranking).unwrap_or_default();
    Some(format!(
        "For {subject}, {} {}: {}{next}.",
        name(summary, first),
        words.has,
        figure(metric, first)
    ))
}

/// Returns a sentence on what spinning gains and what it costs. It compares two classes and does not rank one against
/// the other.
fn spinning_against_blocking(summary: &Summary, metric: Metric, size: u64) -> Option<String> {
    let spinning = Ranking::of(summary, metric, 0, size, WaitClass::Spinning)?;
    let price = "each end keeps a core busy while it waits";
    let (spin, spin_name) = (&spinning.entries[0], name(summary, &spinning.entries[0]));
    // Without a mechanism that blocks, the headline is about those that spin.
    let blocking = Ranking::of(summary, metric, 0, size, WaitClass::Blocking)?;
    let block = &blocking.entries[0];
    let carries = metric.figure.more_is_better();
    let what = match metric.is_paced() {
        true => "is",
        false if carries => "carries",
        false => "answers",
    };
    let figure = figure(metric, spin);
    let subject = subject(metric, size);
    // By another figure, or with messages of another size, it may gain something.
    let by = format!("the {} of {subject}", wording(metric).name);
    Some(match advantage(metric, &spin.figure, &block.figure) {
        Some((least, most)) => {
            let degree = if carries { "as much" } else { "as fast" };
            format!(
                "Spinning, {spin_name} {what} {} times {degree} as {} with {subject}: {figure}; but {price}.",
                range(least, most),
                name(summary, block)
            )
        }
        None if advantage(metric, &block.figure, &spin.figure).is_some() => format!(
            "Spinning gains nothing in {by}: {spin_name} is behind {} with {figure}, and {price}.",
            name(summary, block)
        ),
        None => format!(
            "Spinning gains nothing certain in {by}: at {figure}, the interval of {spin_name} overlaps that of {}, and \
             {price}.",
            name(summary, block)
        ),
    })
}

fn not_measured(summary: &Summary) -> Option<String> {
    let skipped = summary.skipped_mechanisms().len();
    let failed = summary.trials(Status::Failed);
    let degraded = summary.trials(Status::Degraded);
    let mut parts = Vec::new();
    if skipped > 0 {
        parts.push(format!(
            "{skipped} {} skipped",
            plural(skipped, "mechanism was", "mechanisms were")
        ));
    }
    if failed > 0 {
        parts.push(format!("{failed} {} failed", plural(failed, "trial", "trials")));
    }
    if degraded > 0 {
        parts.push(format!(
            "{degraded} {} degraded ({})",
            plural(degraded, "trial is", "trials are"),
            summary.degraded_means()
        ));
    }
    if parts.is_empty() {
        return None;
    }
    Some(format!("{}; see below for reasons and remedies.", list(parts.into_iter())))
}

fn name(summary: &Summary, entry: &Entry) -> String {
    entry.name(summary)
}

/// Formats a figure: `13.2 µs (median of 5 trials, 93 % interval 12.9–13.5 µs)`.
fn figure(metric: Metric, entry: &Entry) -> String {
    let f = &entry.figure;
    let value = metric.quantity().show(f.value);
    let interval = match metric.quantity().show_interval(f.value, f.low, f.high) {
        same if same == value => "with the same digits".to_owned(),
        interval => interval,
    };
    format!("{value} (median of {} trials, {} {interval})", f.n, interval_name([f.n]))
}
