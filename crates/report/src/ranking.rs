//! Rankings of contenders by one figure, within one wait class, one setting and one message size.

use crossway_records::figure::Figure;
use crossway_records::inputs::{Per, Workload};
use crossway_records::percentile::Percentile;
use crossway_records::record::Span;
use crossway_records::sorting::SortSmall;

use crate::summary::{Case, Summary};
use crate::units::Quantity;
use crossway_records::rank::{MOVED, WaitClass};
use crossway_records::stats::Estimate;
use crossway_records::ties;

/// A figure of one workload, by which contenders are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// The workload that yields the figure.
    pub workload: Workload,
    /// The figure.
    pub figure: Figure,
}

impl Metric {
    /// Median round trip.
    pub const ROUND_TRIP_P50: Metric = Metric::round_trip(Percentile::P50);
    /// 99th percentile of the round trip.
    pub const ROUND_TRIP_P99: Metric = Metric::round_trip(Percentile::P99);
    /// Payload bytes per second, one way.
    pub const BYTE_RATE: Metric = Metric::one_way(Figure::ByteRate);
    /// Messages per second, one way.
    pub const MESSAGE_RATE: Metric = Metric::one_way(Figure::MessageRate);
    /// CPU time per round trip.
    pub const CPU_PER_ROUND_TRIP: Metric =
        Metric { workload: Workload::PingPong, figure: Figure::Cpu(Per::RoundTrip) };
    /// CPU time per one-way message.
    pub const CPU_PER_MESSAGE: Metric = Metric::one_way(Figure::Cpu(Per::Message));

    const fn round_trip(percentile: Percentile) -> Metric {
        let figure = Figure::Latency(Span::RoundTrip, percentile);
        Metric { workload: Workload::PingPong, figure }
    }

    const fn one_way(figure: Figure) -> Metric {
        Metric { workload: Workload::Throughput, figure }
    }

    /// Returns whether the messages are sent at fixed times. Their latency counts from the time at
    /// which each was due.
    pub fn is_paced(self) -> bool {
        self.workload.facts().paced()
    }

    /// Returns the figure of a case; `None` if the case has another workload or lacks the figure.
    pub fn of(self, case: &Case) -> Option<Estimate> {
        if case.workload != self.workload {
            return None;
        }
        match self.figure {
            Figure::MessageRate => case.msgs_per_s,
            Figure::ByteRate => case.bytes_per_s,
            Figure::Cpu(_) => case.cpu_ns_per_msg,
            Figure::Latency(span, Percentile::P50) => case.latency(span).map(|l| l.p50),
            Figure::Latency(span, Percentile::P99) => case.latency(span).and_then(|l| l.p99),
            // No ranking of the report is by another percentile or by whole exchanges.
            Figure::Latency(..) | Figure::WholeExchange(_) => None,
        }
    }

    /// Returns the quantity of the figure.
    pub fn quantity(self) -> Quantity {
        Quantity::of(self.figure)
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
    /// Returns the contender's name, followed by [`MOVED`] if `cores_moved` is set, unless it is
    /// set for most cases: it is said once then.
    pub fn name(&self, summary: &Summary) -> String {
        let label = summary.contenders[self.contender].label();
        let told = self.cores_moved && !summary.mostly_moved;
        if told { format!("{label} ({MOVED})") } else { label }
    }
}

/// The contenders of one wait class, ordered by one metric, for one size and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The figure by which the contenders are ranked.
    pub metric: Metric,
    /// The contenders with five trials or more, the best first; those that tie are listed together ([`ties::order`]).
    pub entries: Vec<Entry>,
    /// How many of them share the first rank.
    tied: usize,
    /// Contenders with fewer than five trials, best first; they are not ranked.
    pub too_few: Vec<Entry>,
    /// Number of contenders that were measured but are not ranked because their cases are degraded.
    pub degraded: usize,
}

impl Ranking {
    /// Ranks the contenders; degraded cases and those with two regimes do not take part. Returns `None` if no contender
    /// has the figure with enough trials.
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
            .filter(|c| c.workload == metric.workload)
            .filter(|c| c.class == discipline && c.regimes.is_none())
            .partition(|c| c.degraded);
        let mut all: Vec<Entry> = good
            .into_iter()
            .filter_map(|c| {
                let figure = metric.of(c)?;
                Some(Entry { contender: c.contender, figure, cores_moved: c.cores_moved })
            })
            .collect();
        // Equal figures stay in the order of the contenders.
        all.sort_small_by_key(|e| e.contender);
        let ranks = ties::order(&mut all, |e| e.figure, metric.figure.more_is_better());
        let ranked = ranks.iter().flatten().count();
        let too_few = all.split_off(ranked);
        let tied = ranks.iter().take_while(|rank| **rank == Some(1)).count();
        Ranking { metric, entries: all, tied, too_few, degraded: degraded.len() }
    }

    /// Returns the best contender and all that are statistically tied with it. Panics if `entries` is empty.
    pub fn leaders(&self) -> &[Entry] {
        &self.entries[..self.tied.max(1)]
    }

    /// Returns the best of the contenders that are clearly worse than the best one. Panics if `entries` is empty.
    pub fn runner_up(&self) -> Option<&Entry> {
        self.entries.get(self.leaders().len())
    }
}

/// Returns the factor by which `better` is better than `worse`: the smallest and the largest that the two intervals
/// allow. `None` unless the intervals show that `better` is better.
pub fn advantage(metric: Metric, better: &Estimate, worse: &Estimate) -> Option<(f64, f64)> {
    let (least, most) = if metric.figure.more_is_better() {
        (better.low / worse.high, better.high / worse.low)
    } else {
        (worse.low / better.high, worse.high / better.low)
    };
    (least > 1.0 && most.is_finite()).then_some((least, most))
}
