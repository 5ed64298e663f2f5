//! The machine's physical limits: levels in charts, and the limit that bounds a contender's figure.

use crossway_records::limits::bound::{self, Loop, Readings, is_better};
use crossway_records::limits::{CopyLimit, Limits as Measured, Spread};
use crossway_records::sorting::SortSmall;
use crossway_records::stats;
use crossway_records::stats::Estimate;

use crate::contender::Contender;
use crate::ranking::Metric;
use crate::summary::{Case, Summary};

/// A list of CPUs, and a figure for each pair of them as (CPU, CPU, figure).
pub type CorePairs = (Vec<u32>, Vec<(u32, u32, Estimate)>);

/// A limit that depends on the message size: its name, and (size in bytes, value) pairs.
pub type Level = (String, Vec<(f64, f64)>);

/// The measured limits that the report uses; `None` if they were not measured.
#[derive(Clone, Debug, Default)]
pub struct Limits(pub Option<Measured>);

/// Makes an estimate whose interval is the middle 80 % of the samples: the spread of the limit's samples, not the error
/// of its median.
pub(crate) fn estimate(spread: &Spread) -> Estimate {
    Estimate { value: spread.median, low: spread.p10, high: spread.p90, n: spread.n }
}

impl Limits {
    /// Returns the levels for round-trip charts: name and nanoseconds.
    pub fn round_trip_levels(&self, summary: &Summary) -> Vec<(String, f64)> {
        let Some(limits) = &self.0 else { return Vec::new() };
        let mut levels = Vec::new();
        // If a virtual machine's cores move, a reading before the run may be off by several times; the readings between
        // the trials are used.
        let met: Vec<f64> = summary
            .cases
            .iter()
            .filter_map(|c| c.readings.cache_line_ns.map(|e| e.value))
            .collect();
        let least = || {
            let pairs = limits.cache_lines.iter().filter(|p| p.a != p.b);
            pairs.map(|p| p.two_lines_ns.median).min_by(f64::total_cmp)
        };
        let line = stats::median(&met).or_else(least);
        levels.extend(line.map(|ns| (CACHE_LINE.to_owned(), ns)));
        let exchanges = |c: &Case| c.readings.blocking_exchange_ns.map(|e| e.value);
        let bare: Vec<f64> = summary.cases.iter().filter_map(exchanges).collect();
        levels.extend(stats::median(&bare).map(|ns| (BLOCKING_EXCHANGE.to_owned(), ns)));
        levels
    }

    /// Returns the levels for throughput charts, in bytes per second.
    pub fn copy_levels(&self) -> Vec<Level> {
        [(1, "one copy between cores"), (2, "two copies")]
            .into_iter()
            .filter_map(|(copies, name)| {
                let mut points: Vec<(f64, f64)> = self
                    .copies(copies)
                    .map(|c| (c.size_bytes as f64, c.bytes_per_s.median))
                    .collect();
                points.sort_small_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
                // If several pairs of cores were measured, the best one is the limit.
                points.dedup_by_key(|p| p.0);
                (points.len() > 1).then(|| (name.to_owned(), points))
            })
            .collect()
    }

    fn copies(&self, copies: u32) -> impl Iterator<Item = &CopyLimit> {
        self.0.iter().flat_map(|l| &l.copies).filter(move |c| c.copies == copies)
    }

    /// Returns the cache-line round trip by pair of CPUs, nanoseconds.
    pub fn core_pairs(&self) -> Option<CorePairs> {
        let lines = &self.0.as_ref()?.cache_lines;
        let mut cpus: Vec<u32> = lines.iter().flat_map(|p| [p.a, p.b]).collect();
        cpus.sort_unstable();
        cpus.dedup();
        // With two cores there is a single figure, for which a table is better than a map.
        (cpus.len() > 2).then(|| {
            let both = lines.iter().flat_map(|p| {
                let figure = estimate(&p.two_lines_ns);
                [(p.a, p.b, figure), (p.b, p.a, figure)]
            });
            (cpus, both.collect())
        })
    }

    /// Returns the limit that bounds the round trip of a case: name and nanoseconds. Readings between the trials are
    /// preferred to those from before the run.
    pub(crate) fn round_trip_limit(&self, case: &Case) -> Option<(&'static str, Estimate)> {
        // A reading during the run describes the trials better than one from before it.
        let pair = || match (&self.0, case.cpus.as_slice()) {
            (Some(limits), [a, b, ..]) => limits.two_lines_ns(*a, *b).map(single),
            _ => None,
        };
        let cache_line_ns = case.readings.cache_line_ns.or_else(pair);
        let readings = Readings { cache_line_ns, ..case.readings };
        let (of, ns) = readings.round_trip(case.class)?;
        Some((if of == Loop::BlockingExchange { BLOCKING_EXCHANGE } else { CACHE_LINE }, ns))
    }

    /// Returns the limit that bounds a contender's throughput: name and bytes per second. If two copies are faster than
    /// one, they are the limit of one copy, too. Readings between the trials are preferred to those from before the
    /// run.
    pub(crate) fn throughput_limit(
        &self,
        contender: &Contender,
        case: &Case,
    ) -> Option<(&'static str, Estimate)> {
        let before = |copies: u32| {
            let limit = self.0.as_ref()?.copy_limit(copies, case.size_bytes)?;
            Some(single(limit.bytes_per_s.median))
        };
        let [one, two] = case.readings.copy_bytes_per_s;
        let copy_bytes_per_s = [one.or_else(|| before(1)), two.or_else(|| before(2))];
        let copies = bound::copies(&contender.mechanism, contender.family);
        let (of, limit) = Readings { copy_bytes_per_s, ..case.readings }.throughput(copies)?;
        let name = match (copies, of) {
            (1, Loop::TwoCopies) if self.two_copies_faster(case) => {
                "two copies (faster here than one)"
            }
            (1, Loop::TwoCopies) => "two copies (as fast here as one)",
            (1, _) => "one copy",
            _ => "two copies",
        };
        Some((name, limit))
    }

    /// Returns whether the loop with two copies is certainly faster than the loop with one. The readings between the
    /// trials decide; if there are none, those from before the run.
    fn two_copies_faster(&self, case: &Case) -> bool {
        match (&case.readings.copy_bytes_per_s, &self.0) {
            ([Some(one), Some(two)], _) => {
                one.has_interval() && two.has_interval() && one.is_below(two)
            }
            (_, Some(limits)) => {
                let one = limits.copy_limit(1, case.size_bytes);
                one.is_some_and(|one| limits.two_copies_faster(one))
            }
            _ => false,
        }
    }

    /// Returns the name and the value of the limit if the figure is beyond it ([`is_better`]), otherwise `None`. A figure beyond its limit means that the measurement is wrong, or that the mechanism avoids a cost that
    /// the limit includes.
    pub(crate) fn beyond(
        &self,
        contender: &Contender,
        case: &Case,
        metric: Metric,
    ) -> Option<(&'static str, Estimate)> {
        let figure = metric.of(case).filter(Estimate::has_interval)?;
        match metric {
            Metric::ROUND_TRIP_P50 => {
                let limit = self.round_trip_limit(case);
                limit.filter(|(_, limit)| is_better(&figure, limit, false))
            }
            Metric::BYTE_RATE | Metric::MESSAGE_RATE => {
                let bytes = Metric::BYTE_RATE.of(case)?;
                let limit = self.throughput_limit(contender, case);
                limit.filter(|(_, limit)| is_better(&bytes, limit, true))
            }
            _ => None,
        }
    }
}

const BLOCKING_EXCHANGE: &str = "bare blocking exchange";
const CACHE_LINE: &str = "cache-line round trip";

/// Makes an estimate from one reading taken before the run; how the limit changed during the run is unknown.
fn single(value: f64) -> Estimate {
    Estimate { value, low: value, high: value, n: 1 }
}
