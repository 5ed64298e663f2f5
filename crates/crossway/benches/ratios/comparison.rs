//! Ratios of two figures, with their spread, and whether they reach their targets.

use comfy_table::{Cell, CellAlignment, Table, presets};
use crossway_records::stats::{self, bootstrap};
use serde::Serialize;

/// The target of a ratio.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn says(self) -> String {
        match self {
            Target::AtLeast(x) => format!(">= {x}"),
            Target::AtMost(x) => format!("<= {x}"),
        }
    }

    /// Describes in words whether the median reaches the target. Adds "not certain" if a part of the interval lies on
    /// the other side of the target.
    fn verdict(self, median: f64, low: f64, high: f64) -> &'static str {
        let (met, all_met, none_met) = match self {
            Target::AtLeast(x) => (median >= x, low >= x, high < x),
            Target::AtMost(x) => (median <= x, high <= x, low > x),
        };
        match (met, all_met, none_met) {
            (true, true, _) => "reached",
            (true, false, _) => "reached, not certain",
            (false, _, true) => "MISSED",
            (false, _, false) => "missed, not certain",
        }
    }
}

/// A ratio over several trials.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    name: String,
    trials: usize,
    min: f64,
    median: f64,
    max: f64,
    /// Lower end of the 95 % bootstrap interval of the median ratio; the median itself if there is no interval.
    low: f64,
    high: f64,
    over_median: f64,
    under_median: f64,
    target: Option<Target>,
    verdict: &'static str,
}

impl Comparison {
    /// Compares paired trials by the ratio of each pair, `over[i] / under[i]`.
    pub(crate) fn paired(name: String, over: &[f64], under: &[f64], target: Target) -> Self {
        let ratios: Vec<f64> = over.iter().zip(under).map(|(o, u)| o / u).collect();
        let interval = bootstrap::median_interval(&ratios, 0.95).map(|i| (i.low, i.high));
        Self::of(name, &ratios, interval, over, under, Some(target))
    }

    /// Like [`Comparison::paired`], but without a target, for information only.
    pub(crate) fn paired_shown(name: String, over: &[f64], under: &[f64]) -> Self {
        Comparison {
            target: None,
            verdict: "",
            ..Self::paired(name, over, under, Target::AtMost(f64::MAX))
        }
    }

    /// Compares unpaired trials: divides each figure of `over` by the median of `under`. The interval is that of the
    /// ratio of the two medians.
    pub(crate) fn unpaired(name: String, over: &[f64], under: &[f64], target: Target) -> Self {
        let base = stats::median(under).unwrap_or(f64::NAN);
        let ratios: Vec<f64> = over.iter().map(|o| o / base).collect();
        let interval = bootstrap::ratio_interval(over, under, 0.95).map(|i| (i.low, i.high));
        Self::of(name, &ratios, interval, over, under, Some(target))
    }

    fn of(
        name: String,
        ratios: &[f64],
        interval: Option<(f64, f64)>,
        over: &[f64],
        under: &[f64],
        target: Option<Target>,
    ) -> Self {
        let median_of = |figures: &[f64]| stats::median(figures).unwrap_or(f64::NAN);
        let median = median_of(ratios);
        let (low, high) = interval.unwrap_or((median, median));
        Comparison {
            name,
            trials: ratios.len(),
            min: ratios.iter().copied().fold(f64::NAN, f64::min),
            median,
            max: ratios.iter().copied().fold(f64::NAN, f64::max),
            low,
            high,
            over_median: median_of(over),
            under_median: median_of(under),
            target,
            verdict: target.map_or("", |t| t.verdict(median, low, high)),
        }
    }
}

/// Formats a number, with a prefix such as `k` if it is large, but without a unit, because a column contains both rates
/// and nanoseconds.
fn short(x: f64) -> String {
    match x {
        x if x >= 1e9 => format!("{:.2}G", x / 1e9),
        x if x >= 1e6 => format!("{:.2}M", x / 1e6),
        x if x >= 1e4 => format!("{:.1}k", x / 1e3),
        x => format!("{x:.0}"),
    }
}

/// Prints the comparisons as a table to standard output.
pub(crate) fn print(found: &[Comparison]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "ratio",
        "n",
        "min",
        "median",
        "max",
        "95 % interval",
        "figures",
        "target",
        "verdict",
    ]);
    for c in found {
        let number = |x: f64| Cell::new(format!("{x:.3}")).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(&c.name),
            Cell::new(c.trials),
            number(c.min),
            number(c.median),
            number(c.max),
            Cell::new(format!("{:.3} .. {:.3}", c.low, c.high)),
            Cell::new(format!("{} / {}", short(c.over_median), short(c.under_median))),
            Cell::new(c.target.map_or(String::new(), Target::says)),
            Cell::new(c.verdict),
        ]);
    }
    println!("{table}");
    let missed = found.iter().filter(|c| c.verdict.to_lowercase().starts_with("missed")).count();
    let targets = found.iter().filter(|c| c.target.is_some()).count();
    println!("{missed} of {targets} targets missed");
    println!("figures: messages per second (throughput), nanoseconds (round trip); medians");
}
