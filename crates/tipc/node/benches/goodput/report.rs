//! The results of a case's pairs of trials.

use serde_json::{Value, json};

use crate::cases::{By, Case, RATE_BITS_PER_S};
use crate::role::Found;

/// A case and the results of its pairs of trials.
pub(crate) struct Row {
    pub(crate) case: Case,
    pairs: Vec<(Found, Found)>,
}

/// Returns the median: the middle figure, or the mean of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[n / 2],
        n => (figures[n / 2 - 1] + figures[n / 2]) / 2.0,
    }
}

fn rate(found: &Found) -> f64 {
    found.messages / found.seconds
}

fn cpu_us(found: &Found) -> f64 {
    found.cpu_ns as f64 / found.messages / 1e3
}

impl Row {
    pub(crate) const fn new(case: Case) -> Self {
        Self { case, pairs: Vec::new() }
    }

    pub(crate) fn add(&mut self, ours: Found, theirs: Found) {
        self.pairs.push((ours, theirs));
    }

    fn figure(&self, found: &Found) -> f64 {
        match self.case.by {
            By::ShareOfRate => rate(found) * self.case.size as f64 * 8.0 / RATE_BITS_PER_S,
            By::Rate => rate(found),
            By::RoundTrip => found.p50_ns,
            By::RoundTrip99 => found.p99_ns,
        }
    }

    fn ours(&self, of: impl Fn(&Found) -> f64) -> f64 {
        median(self.pairs.iter().map(|(ours, _)| of(ours)).collect())
    }

    fn theirs(&self, of: impl Fn(&Found) -> f64) -> f64 {
        median(self.pairs.iter().map(|(_, theirs)| of(theirs)).collect())
    }

    /// The values that are compared with the target, one per pair, in ascending order: the ratio, or our share of the
    /// link's rate.
    fn results(&self) -> Vec<f64> {
        let result = |(ours, theirs): &(Found, Found)| match self.case.by {
            By::ShareOfRate => self.figure(ours),
            _ => self.figure(ours) / self.figure(theirs),
        };
        let mut results: Vec<f64> = self.pairs.iter().map(result).collect();
        results.sort_by(f64::total_cmp);
        results
    }

    fn verdict(&self, result: f64) -> &'static str {
        match (self.case.target, self.case.by.grows()) {
            _ if result.is_nan() => "no figure",
            (None, _) => "",
            (Some(target), true) if result >= target => "reached",
            (Some(target), false) if result <= target => "reached",
            (Some(_), _) => "MISSED",
        }
    }

    fn target(&self) -> String {
        let sign = if self.case.by.grows() { ">=" } else { "<=" };
        self.case.target.map_or_else(String::new, |target| format!("{sign} {target}"))
    }

    /// Formats CPU time per message. Returns "-" for a case with a guest, because a guest's accounting does not include
    /// the work of its host.
    fn cpu(&self, us: f64) -> String {
        if self.case.place.has_guest() { "-".to_owned() } else { format!("{us:.2}") }
    }

    fn shown(&self, figure: f64) -> String {
        match self.case.by {
            By::ShareOfRate => format!("{:.2} %", figure * 100.0),
            By::Rate if figure < 1e5 => format!("{figure:.0}/s"),
            By::Rate => format!("{:.0}k/s", figure / 1e3),
            By::RoundTrip | By::RoundTrip99 => format!("{:.1} us", figure / 1e3),
        }
    }
}

/// Prints a table of the results. CPU time is that of the whole machine, so it is only meaningful on an otherwise idle
/// machine.
pub(crate) fn print(rows: &[Row]) {
    println!(
        "{:<32}{:>16}{:>16}{:>9}{:>16}{:>9}  {:<10}{:>22}",
        "case", "node", "beside it", "median", "spread", "target", "", "CPU us per message"
    );
    for row in rows {
        let results = row.results();
        let result = median(results.clone());
        let (low, high) = (results.first().copied(), results.last().copied());
        let spread = format!("{:.2} - {:.2}", low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN));
        println!(
            "{:<32}{:>16}{:>16}{:>9.3}{:>16}{:>9}  {:<10}{:>10} : {:<9}",
            row.case.name,
            row.shown(row.ours(|f| row.figure(f))),
            row.shown(row.theirs(|f| row.figure(f))),
            result,
            spread,
            row.target(),
            row.verdict(result),
            row.cpu(row.ours(cpu_us)),
            row.cpu(row.theirs(cpu_us)),
        );
    }
}

/// Returns all results, with every pair.
pub(crate) fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let result = median(row.results());
        json!({
            "case": row.case,
            "median": result,
            "results": row.results(),
            "verdict": row.verdict(result),
            "node": row.ours(|f| row.figure(f)),
            "beside": row.theirs(|f| row.figure(f)),
            "node_cpu_us_per_message": row.ours(cpu_us),
            "beside_cpu_us_per_message": row.theirs(cpu_us),
            "pairs": row.pairs,
        })
    };
    rows.iter().map(row).collect()
}
