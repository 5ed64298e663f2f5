//! The limit that bounds the figure of a case, from readings that were taken between its trials.

use crate::family::{self, Family};
use crate::figure::Figure;
use crate::inputs::Workload;
use crate::rank::WaitClass;
use crate::record::Record;
use crate::stats::Estimate;

/// Readings of the loops that bound the figures of a case. A reading from before the run may take the place of a missing
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    /// Cache-line round trip between the roles' CPUs, nanoseconds.
    pub cache_line_ns: Option<Estimate>,
    /// Time of a bare blocking exchange between the roles' CPUs, nanoseconds.
    pub blocking_exchange_ns: Option<Estimate>,
    /// Throughput of a loop with one copy and of one with two, bytes per second.
    pub copy_bytes_per_s: [Option<Estimate>; 2],
}

/// The loop that bounds a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Two threads that wake each other.
    BlockingExchange,
    /// Two cores that write to a cache line in turn.
    CacheLine,
    /// One copy of the data.
    OneCopy,
    /// Two copies of the data.
    TwoCopies,
}

impl Readings {
    /// The readings in these records.
    pub fn of(records: &[&Record]) -> Readings {
        let over = |get: fn(&Record) -> Option<f64>| {
            Estimate::of(&records.iter().filter_map(|r| get(r)).collect::<Vec<_>>())
        };
        Readings {
            cache_line_ns: over(|r| r.calibration.cache_line_before_ns),
            blocking_exchange_ns: over(|r| r.calibration.blocking_exchange_ns),
            copy_bytes_per_s: [
                over(|r| r.calibration.one_copy_bytes_per_s),
                over(|r| r.calibration.two_copies_bytes_per_s),
            ],
        }
    }

    /// The limit of round trips of this wait class, nanoseconds.
    pub fn round_trip(&self, class: WaitClass) -> Option<(Loop, Estimate)> {
        match class {
            WaitClass::Blocking => self.blocking_exchange_ns.map(|ns| (Loop::BlockingExchange, ns)),
            _ => self.cache_line_ns.map(|ns| (Loop::CacheLine, ns)),
        }
    }

    /// The limit of the throughput with this number of copies (1 or 2), bytes per second. What is reached with two
    /// copies can be reached with one, so two copies are the limit of one if they are faster.
    pub fn throughput(&self, copies: u32) -> Option<(Loop, Estimate)> {
        let [one, two] = self.copy_bytes_per_s;
        match (copies, one, two) {
            (1, Some(one), Some(two)) if two.value > one.value => Some((Loop::TwoCopies, two)),
            (1, one, _) => one.map(|one| (Loop::OneCopy, one)),
            (_, _, two) => two.map(|two| (Loop::TwoCopies, two)),
        }
    }
}

/// How often the payload is copied by this mechanism or, if Crossway does not have it, by mechanisms of its family.
pub fn copies(mechanism: &str, family: Family) -> u32 {
    family::carrier(mechanism).map_or(family.copies(), |carrier| carrier.copies)
}

/// Fraction of a limit by which a figure must be better to be beyond it. A reading lasts a few milliseconds and serves
/// several trials, so the interval of the readings does not contain all of their error.
const TOLERANCE: f64 = 0.03;

/// Whether the whole interval of a figure is better than that of its limit, by more than 3 %.
pub fn is_better(figure: &Estimate, limit: &Estimate, more_is_better: bool) -> bool {
    if more_is_better {
        figure.low > limit.high * (1.0 + TOLERANCE)
    } else {
        figure.high < limit.low * (1.0 - TOLERANCE)
    }
}

/// Whether the figure of a case of ping-pong or throughput lies beyond its limit ([`is_better`]); figure and limit are
/// both from these trials of the case.
pub fn beyond(trials: &[&Record]) -> bool {
    let Some(first) = trials.first() else { return false };
    let readings = Readings::of(trials);
    let over = |figure: Figure| {
        Estimate::of(&trials.iter().filter_map(|r| figure.of(r)).collect::<Vec<_>>())
            .filter(Estimate::has_interval)
    };
    match first.inputs.workload {
        Workload::PingPong => {
            let trip = over(Figure::ROUND_TRIP);
            let limit = WaitClass::of_trials(trials).and_then(|class| readings.round_trip(class));
            trip.zip(limit).is_some_and(|(trip, (_, limit))| is_better(&trip, &limit, false))
        }
        Workload::Throughput => {
            let rate = over(Figure::ByteRate);
            let copies = copies(&first.mechanism, family::family_of(first));
            let limit = readings.throughput(copies);
            rate.zip(limit).is_some_and(|(rate, (_, limit))| is_better(&rate, &limit, true))
        }
        _ => false,
    }
}
