//! The headline, and the sentence on how certain it is.

use crossway_records::rank::{MOVED, WaitClass};
use crossway_records::stats::{Estimate, interval_name};

use super::words::{Wording, wording};
use super::{alone, behind, capitalised, figure, list, name, plural, subject};
use crate::ranking::{Entry, Metric, Ranking};
use crate::summary::Summary;

/// Returns the answer in one sentence, and a second one on how certain it is.
pub(super) fn headline(summary: &Summary, metric: Metric, size: u64) -> Option<(String, String)> {
    // Mechanisms that block come first: they are what a program uses unless it can spare cores.
    let (class, ranking) = WaitClass::ALL
        .into_iter()
        .find_map(|class| Some((class, Ranking::of(summary, metric, 0, size, class)?)))?;
    let leaders = ranking.leaders();
    let first = &leaders[0];
    let label = |entry: &Entry| summary.contenders[entry.contender].label();
    let value = metric.quantity().show_two(first.figure.value);
    let Wording { name: figure_name, superlative, .. } = wording(metric);
    let subject = subject(metric, size);
    let headline = match leaders {
        [only] if ranking.entries.len() == 1 => {
            let kind = match class {
                WaitClass::Blocking => String::new(),
                class => format!(" ({})", class.name()),
            };
            format!("For {subject}, only {}{kind} {}: {value}.", label(only), alone(&ranking))
        }
        [best] => format!(
            "For {subject}, {} has the {superlative} of {} {} mechanisms: {value}.",
            label(best),
            ranking.entries.len(),
            class.name()
        ),
        [one, other] if [one, other].iter().all(|e| !label(e).contains(' ')) => format!(
            "For {subject}, {} and {} share the {superlative} of {} mechanisms: {value}.",
            label(one),
            label(other),
            class.name()
        ),
        several => format!(
            "For {subject}, {} {} mechanisms share the {superlative}: {value} ({}).",
            several.len(),
            class.name(),
            label(first)
        ),
    };
    let mut detail = if leaders.len() == 1 {
        let next = behind(summary, &ranking).unwrap_or_default();
        format!("{}: {}{next}.", capitalised(&figure_name), figure(metric, first))
    } else {
        let all = together(leaders);
        let others = leaders.len() - 1;
        format!(
            "The {}{} of {} {} that of {}, and together they span {}.",
            interval_name(leaders.iter().map(|e| e.figure.n)),
            plural(others, "", "s"),
            list(leaders[1..].iter().map(|e| name(summary, e))),
            plural(others, "overlaps", "overlap"),
            name(summary, first),
            metric.quantity().show_interval(all.value, all.low, all.high)
        )
    };
    if leaders.len() == 1 && first.cores_moved && !summary.mostly_moved {
        detail.push_str(&format!(" {} ({MOVED}).", label(first)));
    }
    if let Some(sentence) = better_but_unranked(summary, &ranking) {
        detail.push_str(&sentence);
    }
    Some((headline, detail))
}

/// Returns a sentence on contenders whose figure is better than that of the best ranked one, but which have too few
/// good trials to be ranked.
fn better_but_unranked(summary: &Summary, ranking: &Ranking) -> Option<String> {
    let first = ranking.entries[0].figure.value;
    let better = |e: &&Entry| {
        let order = e.figure.value.total_cmp(&first);
        if ranking.metric.figure.more_is_better() { order.is_gt() } else { order.is_lt() }
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

/// Returns an estimate whose interval covers those of all leaders.
fn together(leaders: &[Entry]) -> Estimate {
    let first = leaders[0].figure;
    leaders.iter().fold(first, |all, e| Estimate {
        low: all.low.min(e.figure.low),
        high: all.high.max(e.figure.high),
        ..all
    })
}
