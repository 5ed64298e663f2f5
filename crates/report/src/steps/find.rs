//! Finds the steps, staircases and knees in a run's series. The probability of a false alarm is kept low for the run as
//! a whole.

use std::collections::BTreeMap;

use crossway_records::inputs::Workload;
use crossway_records::record::Record;
use crossway_records::stats::{mann_whitney, median};
use crossway_records::steps::{self, FALSE_ALARM, Facts, LEAST_JUMP, Place, explain, predict};

use super::facts;
use super::series::{Over, Series, gather};
use crate::run::Run;

/// Minimum number of points at which a step can be distinguished from a slope; see [`steps::find_steps`].
const PLACES_AT_LEAST: usize = 5;

/// A feature of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A jump between two points.
    Step {
        /// Last point before the jump: the value of the series' variable, bytes.
        after_x: f64,
        /// First point after the jump: the value of the series' variable, bytes.
        at_x: f64,
        /// Relative change of the figure; 0.1 is an increase of 10 %. The figure is the throughput if messages go one
        /// way or the variable of the series is a buffer size; otherwise it is the time.
        change: f64,
        /// Standard error of `change`.
        error: f64,
        /// Packets per message before and after the jump, if the interface counts them.
        packets: Option<(f64, f64)>,
    },
    /// Equal steps at regular distances, too close together to be distinguished.
    Staircase {
        /// Distance between the steps, bytes.
        period: f64,
        /// Increase of the time with each step, nanoseconds.
        height_ns: f64,
        /// Standard error of the height, nanoseconds.
        error_ns: f64,
    },
    /// The point at which a rising throughput reaches nine tenths of its plateau.
    Knee {
        /// First point at or above nine tenths of the plateau: the buffer size, bytes.
        x: f64,
        /// Last point below nine tenths of the plateau, which is the one before `x`: the buffer size, bytes.
        before_x: f64,
        /// The plateau, payload bytes per second.
        plateau: f64,
        /// Throughput at the series' first point, as a share of the plateau.
        start: f64,
        /// The buffer size read back from the kernel at `x`, bytes.
        read_back: Option<i64>,
    },
}

/// A shape and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Index into [`crate::summary::Summary::contenders`].
    pub contender: usize,
    /// Index into [`crate::summary::Summary::settings`].
    pub setting: usize,
    /// The workload.
    pub workload: Workload,
    /// The variable of the series.
    pub over: Over,
    /// The message size in bytes; `None` if it is the variable.
    pub size_bytes: Option<u64>,
    /// The feature found.
    pub shape: Shape,
    /// Probability that noise alone produces such a feature anywhere in the run.
    pub p: f64,
    /// The explanation; `None` if the facts about channel and machine do not predict the feature.
    pub cause: Option<String>,
}

/// All features found in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shapes {
    /// The features, ordered by variable, plan group, contender and workload.
    pub found: Vec<Found>,
    /// Number of series that were examined.
    pub series: usize,
}

impl Shapes {
    /// Examines every series of the run.
    pub fn of(run: &Run) -> Shapes {
        let series = gather(&run.records, &run.summary, PLACES_AT_LEAST);
        let looked_at = series.len();
        let found = series.iter().flat_map(|s| in_series(run, s, looked_at)).collect();
        Shapes { found, series: looked_at }
    }
}

fn in_series(run: &Run, series: &Series<'_>, looked_at: usize) -> Vec<Found> {
    let facts = facts::of(run, series);
    let mut found = Vec::new();
    let mut add = |shape: Shape, p: f64, cause: Option<String>| {
        // Each series was tested separately, but the reader sees all of them: correct for the number of tests.
        let p = (p * looked_at as f64).min(1.0);
        if p < FALSE_ALARM {
            found.push(Found {
                contender: series.contender,
                setting: series.setting,
                workload: series.workload,
                over: series.over,
                size_bytes: series.size_bytes,
                shape,
                p,
                cause,
            });
        }
    };
    let rises = series.over == Over::Size && series.workload == Workload::Throughput;
    let places = if series.over == Over::Size { series.times_ns() } else { series.rates() };
    let (from, to) = series.range();
    let predictions = predict(&facts, from, to);
    for step in steps::find_steps(&places) {
        let (change, error) = if rises {
            // An increase in time is a decrease in throughput.
            let change = 1.0 / (1.0 + step.jump) - 1.0;
            (change, step.error * (1.0 + change))
        } else {
            (step.jump, step.error * (1.0 + step.jump))
        };
        let packets = packets(series.at(step.after_x)).zip(packets(series.at(step.at_x)));
        let shape = Shape::Step { after_x: step.after_x, at_x: step.at_x, change, error, packets };
        let cause = explain(&step, &predictions).map(|p| p.cause.to_string());
        add(shape, step.p, cause);
    }
    if series.over == Over::Size
        && let Some((staircase, cause)) = staircase(&places, &facts)
    {
        let shape = Shape::Staircase {
            period: staircase.period,
            height_ns: staircase.height,
            error_ns: staircase.error,
        };
        add(shape, staircase.p, Some(cause));
    }
    // Over the message size any fixed cost per message makes throughput rise and level off smoothly; the fits describe
    // that.
    if series.over != Over::Size {
        let rates = series.rates();
        if let Some(knee) = steps::find_knee(&rates) {
            let at = series.at(knee.x);
            let read_back = at.iter().find_map(|r| read_back(series.over, r));
            let cause = (facts.message_bytes == Some(knee.x as u64))
                .then(|| steps::Cause::BufferHoldsMessage.to_string());
            let p = below_plateau(&rates, &knee);
            let shape = Shape::Knee {
                x: knee.x,
                before_x: knee.before_x,
                plateau: knee.plateau,
                start: knee.start,
                read_back,
            };
            add(shape, p, cause);
        }
    }
    found
}

/// Tests for a staircase of upward steps with each of the periods that the facts predict. Returns the most significant
/// staircase with its explanation.
fn staircase(places: &[Place], facts: &Facts) -> Option<(steps::Staircase, String)> {
    let mut periods: Vec<(u64, String)> = Vec::new();
    for cutting in &facts.cuttings {
        let why = format!("one more packet for every {} bytes", cutting.piece);
        periods.push((cutting.piece.into(), why));
    }
    if let (Some((mtu, header)), false) = (facts.packet, facts.recut) {
        let payload = mtu.saturating_sub(header);
        periods.push((
            payload.into(),
            format!("one more packet for every {payload} bytes (MTU {mtu} - header {header})"),
        ));
    }
    if let Some(page) = facts.page_bytes {
        periods.push((page, format!("one more page for every {page} bytes")));
    }
    let tried = periods.len() as f64;
    let level = median(&places.iter().filter_map(|p| median(&p.figures)).collect::<Vec<_>>())?;
    periods
        .into_iter()
        .filter(|(period, _)| *period > 0)
        .filter_map(|(period, why)| {
            let staircase = steps::test_staircase(places, period as f64)?;
            (staircase.height > LEAST_JUMP * level).then_some((staircase, why))
        })
        .min_by(|a, b| a.0.p.total_cmp(&b.0.p))
        .map(|(staircase, why)| {
            let p = (staircase.p * tried).min(1.0);
            (steps::Staircase { p, ..staircase }, why)
        })
}

/// Returns the probability that the points before the knee belong to the plateau, multiplied by the number of points
/// that could be the knee. Without this test, noise on a flat curve would produce knees.
fn below_plateau(rates: &[Place], knee: &steps::Knee) -> f64 {
    let of = |wanted: &dyn Fn(f64) -> bool| -> Vec<f64> {
        rates.iter().filter(|p| wanted(p.x)).flat_map(|p| p.figures.iter().copied()).collect()
    };
    let (before, behind) = (of(&|x| x <= knee.before_x), of(&|x| x >= knee.x));
    // The difference must not only be significant but also large enough to be a climb: compare the median of the points
    // before.
    let climbs = median(&before).is_some_and(|m| m < knee.share * knee.plateau);
    if !climbs {
        return 1.0;
    }
    mann_whitney(&before, &behind).map_or(1.0, |test| test.p * rates.len() as f64)
}

/// Returns the packets per message in both directions together, as the median over trials; `None` if no interface
/// counted packets.
fn packets(trials: &[&Record]) -> Option<f64> {
    let per_message: Vec<f64> = trials
        .iter()
        .filter_map(|r| {
            let received = r.counts.filter(|c| c.received > 0)?.received as f64;
            let sent: u64 = r.net.iter().map(|i| i.tx_packets).sum();
            (sent > 0).then_some(sent as f64 / received)
        })
        .collect();
    median(&per_message)
}

fn read_back(over: Over, record: &Record) -> Option<i64> {
    let name = match over {
        Over::Size => return None,
        Over::SocketBuffer => "so_sndbuf_bytes",
        Over::Capacity => "pipe_bytes",
    };
    let facts: &BTreeMap<String, i64> = &record.facts;
    facts.get(name).or_else(|| facts.get("capacity_bytes")).copied()
}
