//! The conclusions of a run in sentences. Every sentence is made from the figures, claims no more than their intervals
//! allow, and never ranks a spinning contender against one that blocks.

use crossway_records::record::Status;

use crate::awake;
use crate::estimate::Estimate;
use crate::ranking::{Entry, Metric, Ranking, advantage};
use crate::summary::{Summary, workload_name};
use crate::units;
use crossway_records::rank::{MOVED, WaitClass, moved_explained};

mod paced;
mod words;

pub(crate) use words::{list, plural};
use words::{range, times, wording};

/// The conclusions of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The most useful sentence.
    pub headline: String,
    /// Further sentences, the most useful first.
    pub sentences: Vec<String>,
    /// The setting to which the conclusions apply; `None` if the run has only one setting.
    pub setting: Option<String>,
}

impl Verdict {
    /// Draws conclusions from the first setting (idle, most cases) and, if there is load, from the others.
    pub fn of(summary: &Summary) -> Verdict {
        let mut sentences = Vec::new();
        if summary.cases.is_empty() {
            return Verdict { headline: nothing_measured(summary), ..Verdict::default() };
        }
        let round_trip_sizes =
            summary.sizes(|c| c.setting == 0 && Metric::RoundTripP50.of(c).is_some());
        let rate_sizes = summary.sizes(|c| c.setting == 0 && Metric::ByteRate.of(c).is_some());

        let paced = paced::metric(summary);
        if let Some(size) = &usual(&round_trip_sizes) {
            sentences.extend(best(summary, Metric::RoundTripP50, *size, WaitClass::Blocking));
            sentences.extend(awake::sentence(summary, *size));
            sentences.extend(spinning_against_blocking(summary, Metric::RoundTripP50, *size));
        }
        if let Some(size) = rate_sizes.last() {
            sentences.extend(best(summary, Metric::ByteRate, *size, WaitClass::Blocking));
            sentences.extend(spinning_against_blocking(summary, Metric::ByteRate, *size));
        }
        if let Some(size) = usual(&rate_sizes).as_ref().filter(|s| rate_sizes.last() != Some(s)) {
            sentences.extend(best(summary, Metric::MessageRate, *size, WaitClass::Blocking));
        }
        if let Some(size) = &usual(&rate_sizes) {
            sentences.extend(best(summary, Metric::CpuPerMessage, *size, WaitClass::Blocking));
        }
        if let Some((metric, size)) = paced {
            sentences.extend(best(summary, metric, size, WaitClass::Blocking));
            sentences.extend(spinning_against_blocking(summary, metric, size));
            sentences.extend(too_few(summary, &[size], metric));
        }
        sentences.extend(too_few(summary, &round_trip_sizes, Metric::RoundTripP50));
        sentences.extend(too_few(summary, &rate_sizes, Metric::ByteRate));
        if let Some(sentence) = not_measured(summary) {
            sentences.push(sentence);
        }
        let headline = usual(&round_trip_sizes)
            .and_then(|size| headline(summary, Metric::RoundTripP50, size))
            .or_else(|| headline(summary, Metric::ByteRate, *rate_sizes.last()?))
            .or_else(|| {
                let (metric, size) = paced?;
                let behind = paced::rate_not_kept(summary, metric, size).unwrap_or_default();
                Some(headline(summary, metric, size)? + &behind)
            })
            .or_else(|| {
                let any = too_few(summary, &round_trip_sizes, Metric::RoundTripP50)
                    .or_else(|| too_few(summary, &rate_sizes, Metric::ByteRate))
                    .or_else(|| too_few(summary, &[paced?.1], paced?.0));
                any.map(|_| NO_WINNER.to_owned())
            })
            .unwrap_or_else(|| {
                if summary.cases.iter().all(|case| case.degraded) {
                    return ALL_DEGRADED.to_owned();
                }
                if round_trip_sizes.is_empty() && rate_sizes.is_empty() {
                    let rank = if summary.ranked { RANKED } else { "" };
                    return format!("{NOT_COMPARED}{rank}.");
                }
                COMPARED_DEGRADED.to_owned()
            });
        if std::iter::once(&headline).chain(&sentences).any(|text| text.contains(MOVED)) {
            sentences.push(format!("{MOVED} {}.", moved_explained()));
        }
        match &summary.settings[..] {
            [first, _, ..] => {
                let setting = first.label();
                let mut rest = headline.chars();
                let first = rest.next().map_or(' ', |letter| letter.to_ascii_lowercase());
                let headline = format!("In the setting “{setting}”, {first}{}", rest.as_str());
                Verdict { headline, sentences, setting: Some(setting) }
            }
            _ => Verdict { headline, sentences, setting: None },
        }
    }
}

const ALL_DEGRADED: &str =
    "Nothing is ranked, because every trial was degraded. The reasons are listed below.";
const COMPARED_DEGRADED: &str = "No winner is named, because every trial of the workloads that this summary compares \
                                 (ping-pong, throughput, messages at a fixed rate) was degraded. The reasons are \
                                 listed below.";
const NOT_COMPARED: &str = "This summary compares only ping-pong, throughput and messages at a fixed rate. The tables \
                            below show the figures of the other workloads";
/// Follows [`NOT_COMPARED`] if the command has a ranking.
const RANKED: &str = ", and `crossway rank` ranks them";
const NO_WINNER: &str = "Too few trials to name a winner: at least five good trials of each case are needed to tell \
                         mechanisms apart.";

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
        Metric::RoundTripP50 => "round trips".to_owned(),
        Metric::DueP50(workload) | Metric::DueP99(workload) => {
            workload_name(workload, *sizes.first()?)
        }
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
        (0, _) => "Nothing was measured: every case was skipped. The reasons and remedies are listed below."
            .to_owned(),
        (_, 0) => {
            "Nothing was measured: every trial failed. The reasons are listed below.".to_owned()
        }
        _ => {
            "Nothing was measured: every trial failed or was skipped. The reasons are listed below."
                .to_owned()
        }
    }
}

/// Returns the size for which round trips and small messages are compared: 64 bytes, or else the smallest.
fn usual(sizes: &[u64]) -> Option<u64> {
    sizes.iter().find(|s| **s == 64).or(sizes.first()).copied()
}

/// Returns the subject of a sentence: `64-byte messages with both ends blocking`.
fn subject(metric: Metric, size: u64, discipline: WaitClass) -> String {
    let rate = match metric {
        Metric::DueP50(workload) | Metric::DueP99(workload) => {
            format!(" ({})", workload_name(workload, size))
        }
        _ => String::new(),
    };
    let messages = format!("{} messages{rate}", units::size_adjective(size));
    match discipline {
        WaitClass::Blocking => format!("{messages} with both ends blocking"),
        WaitClass::Hybrid => format!("{messages} with a bounded spin before blocking"),
        WaitClass::Spinning => format!("{messages} with both ends spinning"),
    }
}

/// Returns the headline: the answer in one sentence. The sentences below it state the intervals.
fn headline(summary: &Summary, metric: Metric, size: u64) -> Option<String> {
    let Some(blocking) = Ranking::of(summary, metric, 0, size, WaitClass::Blocking) else {
        let class = [WaitClass::Spinning, WaitClass::Hybrid]
            .into_iter()
            .find(|d| Ranking::of(summary, metric, 0, size, *d).is_some())?;
        return best(summary, metric, size, class);
    };
    let leaders = blocking.leaders();
    let first = &blocking.entries[0];
    // Everything said about the leaders, and about others relative to them, comes from this one interval.
    let together = together(leaders);
    let value = metric.quantity().show(first.figure.value);
    let interval = metric.quantity().show_interval(together.value, together.low, together.high);
    let of_what = match metric {
        Metric::RoundTripP50 => "shortest round trip",
        Metric::DueP50(_) => "lowest median latency",
        Metric::DueP99(_) => "lowest 99th-percentile latency",
        _ => "highest throughput",
    };
    let subject = subject(metric, size, WaitClass::Blocking);
    let mut text = match leaders.len() {
        1 if blocking.entries.len() == 1 => {
            format!(
                "For {subject}, only {} {}, with a {} of {value} ({interval})",
                name(summary, first),
                alone(&blocking),
                figure_name(metric)
            )
        }
        1 => format!(
            "For {subject}, {} has the {of_what}: {value} ({interval})",
            name(summary, first)
        ),
        2 => format!(
            "For {subject}, {} share the {of_what}: their intervals overlap and together span {interval}",
            list(leaders.iter().map(|e| name(summary, e)))
        ),
        n => format!(
            "For {subject}, {n} mechanisms share the {of_what}: their intervals overlap that of {} and together span \
             {interval}",
            name(summary, first)
        ),
    };
    let spinning = Ranking::of(summary, metric, 0, size, WaitClass::Spinning);
    if let Some(spin) = spinning.as_ref().map(|r| &r.entries[0])
        && let Some((least, most)) = advantage(metric, &spin.figure, &together)
    {
        let own = &spin.figure;
        text.push_str(&format!(
            "; {}, at {}, is {} times as fast, but spins: each end keeps a core busy",
            name(summary, spin),
            metric.quantity().show_interval(own.value, own.low, own.high),
            range(least, most)
        ));
    }
    text.push('.');
    if let Some(sentence) = better_but_unranked(summary, &blocking) {
        text.push_str(&sentence);
    }
    Some(text)
}

/// Returns a sentence on contenders whose figure is better than that of the best ranked one, but which have too few
/// good trials to be ranked.
fn better_but_unranked(summary: &Summary, ranking: &Ranking) -> Option<String> {
    let first = ranking.entries[0].figure.value;
    let better = |e: &&Entry| {
        let order = e.figure.value.total_cmp(&first);
        if ranking.metric.more_is_better() { order.is_gt() } else { order.is_lt() }
    };
    let names: Vec<String> =
        ranking.too_few.iter().filter(better).map(|e| name(summary, e)).collect();
    (!names.is_empty()).then(|| {
        let n = names.len();
        format!(
            " {} {} a better median, but {} not ranked: fewer than five trials are good.",
            list(names.into_iter()),
            plural(n, "has", "have"),
            plural(n, "is", "are")
        )
    })
}

/// Returns what a single ranked contender has in common with no other.
fn alone(ranking: &Ranking) -> &'static str {
    let others = ranking.degraded + ranking.too_few.len();
    if others == 0 { "was measured" } else { "has enough good trials" }
}

/// Returns an estimate whose interval covers those of all leaders.
fn together(leaders: &[Entry]) -> Estimate {
    let first = leaders[0].figure;
    leaders.iter().fold(first, |all, e| Estimate {
        low: all.low.min(e.figure.low),
        high: all.high.max(e.figure.high),
        ..all
    })
}

/// The name of a metric in a sentence about a single mechanism.
fn figure_name(metric: Metric) -> &'static str {
    match metric {
        Metric::RoundTripP50 => "median round trip",
        Metric::RoundTripP99 => "99th-percentile round trip",
        Metric::DueP50(_) => "median latency",
        Metric::DueP99(_) => "99th-percentile latency",
        Metric::CpuPerMessage => "CPU time per message",
        Metric::CpuPerRoundTrip => "CPU time per round trip",
        Metric::MessageRate | Metric::ByteRate => "throughput",
    }
}

/// Returns a sentence that says which contenders of a class are best and by how much, or that the run cannot tell.
fn best(summary: &Summary, metric: Metric, size: u64, class: WaitClass) -> Option<String> {
    let ranking = Ranking::of(summary, metric, 0, size, class)?;
    let words = wording(metric);
    let leaders = ranking.leaders();
    let first = &ranking.entries[0];
    let subject = subject(metric, size, class);
    if ranking.entries.len() == 1 {
        return Some(format!(
            "For {subject}, only {} {}, with a {} of {}.",
            name(summary, first),
            alone(&ranking),
            figure_name(metric),
            figure(metric, first)
        ));
    }
    // Each leader's interval overlaps the first one's, but not necessarily that of another leader.
    if leaders.len() == ranking.entries.len() {
        return Some(format!(
            "For {subject}, this run cannot tell which of the {} contenders {}: their intervals overlap that of the best \
             one, {}: {}.",
            leaders.len(),
            words.has,
            name(summary, first),
            figure(metric, first)
        ));
    }
    if leaders.len() > 1 {
        return Some(format!(
            "For {subject}, this run cannot tell which of {} {}: their intervals overlap that of the best one, {}: {}.",
            list(leaders.iter().map(|e| name(summary, e))),
            words.has,
            name(summary, first),
            figure(metric, first)
        ));
    }
    let mut sentence =
        format!("For {subject}, {} {}: {}", name(summary, first), words.has, figure(metric, first));
    if let Some(next) = ranking.runner_up() {
        let next_name = name(summary, next);
        match advantage(metric, &first.figure, &next.figure) {
            Some((least, most)) => {
                let by = times(least, most, words.adverbs);
                sentence.push_str(&match words.next {
                    Some(does) => format!("; {next_name} {does} {by}."),
                    None => format!(", {by} {next_name}."),
                });
            }
            None => sentence.push_str(&format!("; next comes {next_name}.")),
        }
    } else {
        sentence.push('.');
    }
    Some(sentence)
}

/// Returns a sentence on what spinning gains and what it costs. It compares two classes and does not rank one against
/// the other.
fn spinning_against_blocking(summary: &Summary, metric: Metric, size: u64) -> Option<String> {
    let spinning = Ranking::of(summary, metric, 0, size, WaitClass::Spinning)?;
    let price = "each end keeps a core busy while it waits";
    let (spin, spin_name) = (&spinning.entries[0], name(summary, &spinning.entries[0]));
    let Some(blocking) = Ranking::of(summary, metric, 0, size, WaitClass::Blocking) else {
        return best(summary, metric, size, WaitClass::Spinning);
    };
    let block = &blocking.entries[0];
    let what = match metric {
        Metric::RoundTripP50 | Metric::RoundTripP99 => "answers",
        Metric::DueP50(_) | Metric::DueP99(_) => "is",
        _ => "carries",
    };
    let figure = figure(metric, spin);
    Some(match advantage(metric, &spin.figure, &block.figure) {
        Some((least, most)) => {
            let degree = match metric {
                Metric::ByteRate | Metric::MessageRate => "as much",
                _ => "as fast",
            };
            format!(
                "Spinning, {spin_name} {what} {} times {degree} as {}: {figure}; but {price}.",
                range(least, most),
                name(summary, block)
            )
        }
        None if advantage(metric, &block.figure, &spin.figure).is_some() => format!(
            "Spinning gains nothing here: {spin_name} is behind {} with {figure}, and {price}.",
            name(summary, block)
        ),
        None => format!(
            "Spinning gains nothing certain here: at {figure}, the interval of {spin_name} overlaps that of {}, and \
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

/// Formats a figure: `13.2 µs (median of 5 trials, 95 % interval 12.9–13.5 µs)`.
fn figure(metric: Metric, entry: &Entry) -> String {
    let f = &entry.figure;
    let value = metric.quantity().show(f.value);
    let interval = match metric.quantity().show_interval(f.value, f.low, f.high) {
        same if same == value => "with the same digits".to_owned(),
        interval => interval,
    };
    format!("{value} (median of {} trials, 95 % interval {interval})", f.n)
}
