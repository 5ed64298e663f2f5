//! Rankings of contenders by one figure, within one wait class, one setting and one message size.

use crossway_records::inputs::Workload;
use crossway_records::record::Span;

use crate::summary::{Case, Summary};
use crate::units::Quantity;
use crossway_records::rank::{MOVED, Speed, WaitClass};
use crossway_records::stats::Estimate;

/// A figure by which contenders are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Median round trip.
    RoundTripP50,
    /// 99th percentile of the round trip.
    RoundTripP99,
    /// Payload bytes per second.
    ByteRate,
    /// Messages per second.
    MessageRate,
    /// CPU-nanoseconds of both ends per round trip.
    CpuPerRoundTrip,
    /// CPU-nanoseconds of both ends per one-way message.
    CpuPerMessage,
    /// Median latency of messages or requests that are sent at fixed times, from the time at which each was due.
    DueP50(Workload),
    /// 99th percentile of that latency.
    DueP99(Workload),
}

impl Metric {
    /// Returns the workload that yields the figure.
    pub fn workload(self) -> Workload {
        match self {
            Metric::RoundTripP50 | Metric::RoundTripP99 | Metric::CpuPerRoundTrip => {
                Workload::PingPong
            }
            Metric::ByteRate | Metric::MessageRate | Metric::CpuPerMessage => Workload::Throughput,
            Metric::DueP50(workload) | Metric::DueP99(workload) => workload,
        }
    }

    /// Returns the figure of a case; `None` if the case has another workload or lacks the figure.
    pub fn of(self, case: &Case) -> Option<Estimate> {
        if case.workload != self.workload() {
            return None;
        }
        let due = |workload: Workload| case.latency(workload.facts().measure.span()?);
        match self {
            Metric::RoundTripP50 => case.latency(Span::RoundTrip).map(|l| l.p50),
            Metric::RoundTripP99 => case.latency(Span::RoundTrip).and_then(|l| l.p99),
            Metric::ByteRate => case.bytes_per_s,
            Metric::MessageRate => case.msgs_per_s,
            Metric::CpuPerRoundTrip | Metric::CpuPerMessage => case.cpu_ns_per_msg,
            Metric::DueP50(workload) => due(workload).map(|l| l.p50),
            Metric::DueP99(workload) => due(workload).and_then(|l| l.p99),
        }
    }

    /// Returns the quantity of a figure by which `crossway rank` ranks.
    pub fn quantity_of(speed: Speed) -> Quantity {
        match speed {
            Speed::MsgsPerS => Quantity::MessageRate,
            _ => Quantity::Duration,
        }
    }

    /// Returns the quantity of the figure.
    pub fn quantity(self) -> Quantity {
        match self {
            Metric::ByteRate => Quantity::ByteRate,
            Metric::MessageRate => Quantity::MessageRate,
            _ => Quantity::Duration,
        }
    }

    /// Returns whether a larger value is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Metric::ByteRate | Metric::MessageRate)
    }
}

/// A contender's place in a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Index into [`Summary::contenders`].
    pub contender: usize,
    /// The contender's figure.
    pub figure: Estimate,
    /// Whether the contender's cores changed during the run or differ from those of its competitors, judged by the
    /// cache-line round trip.
    pub cores_moved: bool,
}

impl Entry {
    /// Returns the contender's name, followed by [`MOVED`] if `cores_moved` is set.
    pub fn name(&self, summary: &Summary) -> String {
        let label = summary.contenders[self.contender].label();
        if self.cores_moved { format!("{label} ({MOVED})") } else { label }
    }
}

/// The contenders of one wait class, ordered by one metric, for one size and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The figure by which the contenders are ranked.
    pub metric: Metric,
    /// The contenders with five trials or more: first the best and those tied with it, then the others, each part
    /// ordered by the median.
    pub entries: Vec<Entry>,
    /// Contenders with fewer than five trials, best first; they are not ranked.
    pub too_few: Vec<Entry>,
    /// Number of contenders that were measured but are not ranked because their cases are degraded.
    pub degraded: usize,
}

impl Ranking {
    /// Ranks the contenders; degraded cases and those with two regimes do not take part. Returns `None` if no contender has the figure with enough
    /// trials.
    pub fn of(
        summary: &Summary,
        metric: Metric,
        setting: usize,
        size_bytes: u64,
        discipline: WaitClass,
    ) -> Option<Ranking> {
        let ranking = Ranking::of_any(summary, metric, setting, size_bytes, discipline);
        (!ranking.entries.is_empty()).then_some(ranking)
    }

    /// Like [`Ranking::of`], but also returns a ranking if no contender has enough trials; its `entries` are then
    /// empty.
    pub fn of_any(
        summary: &Summary,
        metric: Metric,
        setting: usize,
        size_bytes: u64,
        discipline: WaitClass,
    ) -> Ranking {
        let (degraded, good): (Vec<&Case>, _) = summary
            .cases
            .iter()
            .filter(|c| c.setting == setting && c.size_bytes == size_bytes)
            .filter(|c| c.workload == metric.workload())
            .filter(|c| c.class == discipline && c.regimes.is_none())
            .partition(|c| c.degraded);
        let mut all: Vec<Entry> = good
            .into_iter()
            .filter_map(|c| {
                let figure = metric.of(c)?;
                Some(Entry { contender: c.contender, figure, cores_moved: c.cores_moved })
            })
            .collect();
        all.sort_by(|a, b| {
            let order = a.figure.value.total_cmp(&b.figure.value);
            let order = if metric.more_is_better() { order.reverse() } else { order };
            order.then(a.contender.cmp(&b.contender))
        });
        let (mut entries, too_few): (Vec<Entry>, _) =
            all.into_iter().partition(|e| e.figure.has_interval());
        if let Some(first) = entries.first().map(|e| e.figure) {
            entries.sort_by_key(|e| !first.overlaps(&e.figure));
        }
        Ranking { metric, entries, too_few, degraded: degraded.len() }
    }

    /// Returns the best contender and all that are statistically tied with it. Panics if `entries` is empty.
    pub fn leaders(&self) -> &[Entry] {
        let first = self.entries[0].figure;
        let tied = self.entries.iter().take_while(|e| first.overlaps(&e.figure)).count();
        &self.entries[..tied.max(1)]
    }

    /// Returns the best of the contenders that are clearly worse than the best one. Panics if `entries` is empty.
    pub fn runner_up(&self) -> Option<&Entry> {
        self.entries.get(self.leaders().len())
    }
}

/// Returns the factor by which `better` is better than `worse`: the smallest and the largest that the two intervals
/// allow. `None` unless the intervals show that `better` is better.
pub fn advantage(metric: Metric, better: &Estimate, worse: &Estimate) -> Option<(f64, f64)> {
    let (least, most) = if metric.more_is_better() {
        (better.low / worse.high, better.high / worse.low)
    } else {
        (worse.low / better.high, worse.high / better.low)
    };
    (least > 1.0 && most.is_finite()).then_some((least, most))
}
