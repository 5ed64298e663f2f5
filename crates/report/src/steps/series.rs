//! The series of a run: cases that differ only in the message size or in a buffer size.

use std::collections::BTreeMap;

use crossway_records::figure::Figure;
use crossway_records::inputs::{Extent, Workload};
use crossway_records::percentile::Percentile;
use crossway_records::record::{Record, Status};
use crossway_records::steps::Place;

use crate::summary::{Summary, workload_rank};

/// The variable of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Over {
    /// Message size.
    Size,
    /// Requested socket buffer (W in the cluster study).
    SocketBuffer,
    /// Requested capacity of a pipe, ring or queue.
    Capacity,
}

impl Over {
    /// Returns the variable's human-readable name.
    pub fn name(self) -> &'static str {
        match self {
            Over::Size => "message size",
            Over::SocketBuffer => "socket buffer",
            Over::Capacity => "capacity",
        }
    }
}

/// A series; contender and setting are indices into the summary.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The variable of the series.
    pub over: Over,
    /// Index of the contender.
    pub contender: usize,
    /// Index of the setting of the first point. With [`Over::Size`], all points have this setting.
    pub setting: usize,
    /// The workload.
    pub workload: Workload,
    /// The message size in bytes; `None` if it is the variable.
    pub size_bytes: Option<u64>,
    /// The values of the variable in ascending order, with the trials at each.
    pub places: Vec<(u64, Vec<&'a Record>)>,
}

impl Series<'_> {
    /// Returns the time of each trial in nanoseconds, by point: per message if messages go one way, else per round trip
    /// or exchange.
    pub fn times_ns(&self) -> Vec<Place> {
        self.figures(time_ns)
    }

    /// Returns the payload bytes per second of each trial, by point.
    pub fn rates(&self) -> Vec<Place> {
        self.figures(|r| r.throughput.map(|t| t.bytes_per_s))
    }

    fn figures(&self, of: impl Fn(&Record) -> Option<f64>) -> Vec<Place> {
        self.places
            .iter()
            .map(|(x, trials)| Place {
                x: *x as f64,
                figures: trials.iter().filter_map(|r| of(r)).filter(|v| *v > 0.0).collect(),
            })
            .filter(|place| !place.figures.is_empty())
            .collect()
    }

    /// Returns the trials at a value of the variable.
    pub fn at(&self, x: f64) -> &[&Record] {
        let found = self.places.iter().find(|(at, _)| *at as f64 == x);
        found.map_or(&[], |(_, trials)| trials)
    }

    /// Returns the smallest and the largest value of the variable.
    pub fn range(&self) -> (f64, f64) {
        let end = |place: Option<&(u64, Vec<&Record>)>| place.map_or(0.0, |(x, _)| *x as f64);
        (end(self.places.first()), end(self.places.last()))
    }
}

/// Returns the time per message, round trip or exchange of a trial in nanoseconds; `None` for workloads whose time
/// depends on more than the mechanism.
fn time_ns(record: &Record) -> Option<f64> {
    let facts = record.inputs.workload.facts();
    match facts.extent {
        // At given instants, or shared by several roles, the time is not the mechanism's alone.
        Extent::Instants { .. } | Extent::Time | Extent::Recorded => None,
        // Of an exchange, only the part that has messages: connecting does not depend on their
        // size.
        Extent::Messages => match facts.measure.span() {
            None => Figure::MessageRate.ns(record),
            Some(span) => Figure::Latency(span, Percentile::P50).of(record),
        },
    }
}

/// Returns all series of at least `places_at_least` points. Groups of a plan are kept apart, because each was designed
/// as a separate series and the number of messages per trial may differ between them.
pub fn gather<'a>(
    records: &'a [Record],
    summary: &Summary,
    places_at_least: usize,
) -> Vec<Series<'a>> {
    type Same<'a> = (Over, &'a str, usize, (u8, u64, u64), String, Option<u64>);
    let mut all: BTreeMap<Same<'a>, (usize, BTreeMap<u64, Vec<&'a Record>>)> = BTreeMap::new();
    for record in records.iter().filter(|r| r.status == Status::Ok) {
        if time_ns(record).is_none() {
            continue;
        }
        let Some((contender, setting)) = summary.place_of(record) else { continue };
        let inputs = &record.inputs;
        let rank = workload_rank(inputs.workload);
        let mut here = |over: Over, x: u64| {
            let mut rest = summary.settings[setting].clone();
            match over {
                Over::Size => {}
                Over::SocketBuffer => rest.socket_buffer_bytes = None,
                Over::Capacity => rest.capacity_bytes = None,
            }
            let size = (over != Over::Size).then_some(inputs.size_bytes);
            let key = (over, record.group.as_str(), contender, rank, rest.label(), size);
            let (_, places) = all.entry(key).or_insert_with(|| (setting, BTreeMap::new()));
            places.entry(x).or_default().push(record);
        };
        here(Over::Size, inputs.size_bytes);
        if let Some(bytes) = inputs.socket_buffer_bytes {
            here(Over::SocketBuffer, bytes);
        }
        if let Some(bytes) = inputs.capacity_bytes {
            here(Over::Capacity, bytes);
        }
    }
    all.into_iter()
        .filter(|(_, (_, places))| places.len() >= places_at_least)
        .filter_map(|((over, _, contender, _, _, size_bytes), (setting, places))| {
            let workload = places.values().flatten().next()?.inputs.workload;
            let places = places.into_iter().collect();
            Some(Series { over, contender, setting, workload, size_bytes, places })
        })
        .collect()
}
