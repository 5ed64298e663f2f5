//! Who is best at what: contenders ranked within one class of waiting, one setting and one size.

use crossway_lab::inputs::Workload;
use crossway_lab::record::Span;

use crate::estimate::Estimate;
use crate::summary::{Case, Summary};
use crate::units::Quantity;
use crossway_lab::rank::WaitClass;

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
    /// CPU-nanoseconds of both ends per message one way.
    CpuPerMessage,
}

impl Metric {
    /// The workload that yields it.
    pub fn workload(self) -> Workload {
        match self {
            Metric::RoundTripP50 | Metric::RoundTripP99 | Metric::CpuPerRoundTrip => {
                Workload::PingPong
            }
            Metric::ByteRate | Metric::MessageRate | Metric::CpuPerMessage => Workload::Throughput,
        }
    }

    /// The figure of a case, if the case yields it.
    pub fn of(self, case: &Case) -> Option<Estimate> {
        if case.workload != self.workload() {
            return None;
        }
        match self {
            Metric::RoundTripP50 => case.latency(Span::RoundTrip).map(|l| l.p50),
            Metric::RoundTripP99 => case.latency(Span::RoundTrip).and_then(|l| l.p99),
            Metric::ByteRate => case.bytes_per_s,
            Metric::MessageRate => case.msgs_per_s,
            Metric::CpuPerRoundTrip | Metric::CpuPerMessage => case.cpu_ns_per_msg,
        }
    }

    /// What it counts.
    pub fn quantity(self) -> Quantity {
        match self {
            Metric::ByteRate => Quantity::ByteRate,
            Metric::MessageRate => Quantity::MessageRate,
            _ => Quantity::Duration,
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Metric::ByteRate | Metric::MessageRate)
    }
}

/// One contender's place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Index into [`Summary::contenders`].
    pub contender: usize,
    /// Its figure.
    pub figure: Estimate,
}

/// Contenders of one class, best first, of one metric, size and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The figure.
    pub metric: Metric,
    /// Best first; each of five trials or more.
    pub entries: Vec<Entry>,
    /// Those of fewer than five trials, best first: they have no place.
    pub too_few: Vec<Entry>,
}

impl Ranking {
    /// Ranks; `None` if no contender has the figure with trials enough. Degraded cases do not take part.
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

    /// The same where there may be nothing but contenders of too few trials.
    pub fn of_any(
        summary: &Summary,
        metric: Metric,
        setting: usize,
        size_bytes: u64,
        discipline: WaitClass,
    ) -> Ranking {
        let mut all: Vec<Entry> = summary
            .cases
            .iter()
            .filter(|c| c.setting == setting && c.size_bytes == size_bytes && !c.degraded)
            .filter(|c| summary.contenders[c.contender].discipline() == discipline)
            .filter_map(|c| Some(Entry { contender: c.contender, figure: metric.of(c)? }))
            .collect();
        all.sort_by(|a, b| {
            let order = a.figure.value.total_cmp(&b.figure.value);
            let order = if metric.more_is_better() { order.reverse() } else { order };
            order.then(a.contender.cmp(&b.contender))
        });
        let (entries, too_few) = all.into_iter().partition(|e| e.figure.has_interval());
        Ranking { metric, entries, too_few }
    }

    /// The best and everyone who cannot be told apart from the best.
    pub fn leaders(&self) -> &[Entry] {
        let first = self.entries[0].figure;
        let tied = self.entries.iter().take_while(|e| first.overlaps(&e.figure)).count();
        &self.entries[..tied.max(1)]
    }

    /// The best of those who are clearly behind the leaders.
    pub fn runner_up(&self) -> Option<&Entry> {
        self.entries.get(self.leaders().len())
    }
}

/// How many times better `better` is than `worse`, as what the two intervals allow: at least and at most. `None` where the
/// intervals leave open who is better.
pub fn advantage(metric: Metric, better: &Estimate, worse: &Estimate) -> Option<(f64, f64)> {
    let (least, most) = if metric.more_is_better() {
        (better.low / worse.high, better.high / worse.low)
    } else {
        (worse.low / better.high, worse.high / better.low)
    };
    (least > 1.0 && most.is_finite()).then_some((least, most))
}
