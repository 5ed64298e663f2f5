//! The colours of the study's Table 3 (item E23): the study chose them subjectively, Crossway computes its own by
//! thresholds.

use std::collections::BTreeMap;

use crossway_lab::faults::{Fault, Outcome};
use crossway_records::inputs::{Placement, Wait, Workload};
use crossway_records::record::{Record, Status};
use crossway_records::stats::{TRIALS_AT_LEAST, median};
use serde::{Deserialize, Serialize};

use super::super::evidence::rate;
use super::{Of, idle, plain, plain_but_for_waiting, round_trip};
use crate::run::Run;
use crate::sections::fault_lines;
use crate::units::three_digits;

/// The file beside a run's records that overrides the thresholds.
pub(crate) const THRESHOLDS: &str = "thresholds.json";

/// Thresholds for green and red; what lies between them is yellow. All are factors, except the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Thresholds {
    /// A round trip is green if it is at most this many times the shortest.
    pub(crate) latency_green: f64,
    /// A round trip is red if it is more than this many times the shortest.
    pub(crate) latency_red: f64,
    /// A throughput is green if it is at least the best one divided by this.
    pub(crate) throughput_green: f64,
    /// A throughput is red if it is below the best one divided by this.
    pub(crate) throughput_red: f64,
    /// A figure is green if it is at most this many times worse under load.
    pub(crate) load_green: f64,
    /// A figure is red if it is more than this many times worse under load.
    pub(crate) load_red: f64,
    /// Monitoring is green if the median time from a peer's death to the survivor's error is at most this,
    /// milliseconds.
    pub(crate) told_green_ms: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            latency_green: 1.5,
            latency_red: 4.0,
            throughput_green: 1.5,
            throughput_red: 4.0,
            load_green: 1.5,
            load_red: 4.0,
            told_green_ms: 100.0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Green,
    Yellow,
    Red,
}

use Colour::{Green, Red, Yellow};

impl Colour {
    pub(super) fn name(self) -> &'static str {
        match self {
            Green => "green",
            Yellow => "yellow",
            Red => "red",
        }
    }

    fn of(factor: f64, green: f64, red: f64) -> Colour {
        match factor {
            f if f <= green => Green,
            f if f <= red => Yellow,
            _ => Red,
        }
    }
}

/// The table's columns: the study's name, the mechanism here, and the mechanism that is used instead in the latency
/// measurements, in which the study's shared memory spins.
pub(super) const COLUMNS: [(&str, &str, &str); 4] = [
    ("Shared memory", "shm-futex", "shm-spin"),
    ("Pipe", "pipe", "pipe"),
    ("UNIX domain socket", "uds-stream", "uds-stream"),
    ("TCP", "tcp", "tcp"),
];

/// The property that a row of the table rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Latency { one_core: bool },
    Throughput { large: bool },
    ThroughputUnderLoad,
    LatencyUnderLoad,
    Integrity,
    Monitoring,
}

pub(super) const ROWS: [(&str, Property, [Colour; 4]); 8] = [
    ("Latency (same core)", Property::Latency { one_core: true }, [Red, Yellow, Yellow, Yellow]),
    (
        "Latency (different cores)",
        Property::Latency { one_core: false },
        [Green, Yellow, Yellow, Red],
    ),
    (
        "Throughput (small packets)",
        Property::Throughput { large: false },
        [Green, Yellow, Yellow, Yellow],
    ),
    (
        "Throughput (larger packets)",
        Property::Throughput { large: true },
        [Green, Red, Yellow, Yellow],
    ),
    ("Throughput sensitivity to load", Property::ThroughputUnderLoad, [Red, Yellow, Red, Yellow]),
    ("Latency sensitivity to load", Property::LatencyUnderLoad, [Yellow, Red, Red, Yellow]),
    ("Data integrity", Property::Integrity, [Red, Yellow, Yellow, Green]),
    ("Monitoring", Property::Monitoring, [Red, Yellow, Yellow, Green]),
];

/// Sizes of small and of larger packets, bytes.
pub(super) const SMALL: u64 = 64;
pub(super) const LARGE: u64 = 65_536;

/// A computed cell: the colour, the figure on which it is based, and where the records of the figure are.
pub(super) struct Computed {
    pub(super) colour: Colour,
    pub(super) why: String,
    pub(super) records: String,
    /// Number of trials of the case that has the fewest, if it has too few for a verdict. `None` for the colours of
    /// faults, which `crossway faults` injects fewer times.
    pub(super) few_trials: Option<usize>,
}

impl Computed {
    /// Returns the reason for the colour, with the number of trials if they are too few, and the places of the records.
    pub(super) fn note(&self) -> String {
        let few = self.few_trials.map_or(String::new(), |n| {
            format!("; only {}", crate::units::count(n, "trial", "trials"))
        });
        format!("{}{few}; {}", self.why, self.records)
    }
}

/// The median of a mechanism's trials.
struct Median {
    value: f64,
    /// Number of trials of the case that has the fewest.
    trials: usize,
    /// The numbers of the trials' lines in `results.jsonl`.
    records: String,
}

fn trials<'a>(
    run: &'a Run,
    id: &'a str,
    wanted: impl Fn(&Record) -> bool + 'a,
) -> impl Iterator<Item = (usize, &'a Record)> {
    let spins = must_spin(run, id);
    let counted = move |(_, r): &(usize, &Record)| {
        let waits = plain(r) || spins && plain_but_for_waiting(r) && r.inputs.wait == Wait::Spin;
        r.status == Status::Ok && r.mechanism == id && waits && wanted(r)
    };
    run.records.iter().enumerate().filter(counted)
}

/// Returns whether the mechanism can only be judged by spinning trials, because the run has none in which it sleeps
/// while it waits.
fn must_spin(run: &Run, id: &str) -> bool {
    !run.records
        .iter()
        .any(|r| r.mechanism == id && r.status == Status::Ok && r.inputs.wait == Wait::Block)
}

/// Returns the median figure of the trials of mechanism `id` that satisfy `wanted`.
fn figure(run: &Run, id: &str, of: Of, wanted: impl Fn(&Record) -> bool) -> Option<Median> {
    let mut by_case: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut lines, mut values) = (Vec::new(), Vec::new());
    for (at, record) in trials(run, id, wanted) {
        if let Some(value) = of(record) {
            lines.push(at + 1);
            values.push(value);
            *by_case.entry(&record.case).or_default() += 1;
        }
    }
    let shown: Vec<String> = lines.iter().take(5).map(ToString::to_string).collect();
    let more = if lines.len() > shown.len() {
        format!(" and {} more", lines.len() - shown.len())
    } else {
        String::new()
    };
    Some(Median {
        value: median(&values)?,
        trials: by_case.into_values().min()?,
        records: format!("lines {}{more}", shown.join(", ")),
    })
}

fn trip(r: &Record, one_core: bool, loaded: bool) -> bool {
    let there = match r.inputs.placement {
        Placement::Cpus { a, b } => (a == b) == one_core,
        Placement::SameCore => one_core,
        Placement::OtherCore | Placement::SharedCache => !one_core,
        _ => false,
    };
    r.inputs.workload == Workload::PingPong && there && idle(r) != loaded
}

fn stream(r: &Record, bytes: u64, loaded: bool) -> bool {
    r.inputs.workload == Workload::Throughput
        && r.inputs.size_bytes == bytes
        && r.inputs.placement == Placement::OtherCore
        && idle(r) != loaded
}

/// Computes the colour of a mechanism for a property. `spinning` is the mechanism that is used instead where the
/// study's shared memory spins. The figures are compared with the best of the study's four mechanisms, so that the
/// colours of further mechanisms are comparable with theirs.
pub(super) fn computed(
    run: &Run,
    property: Property,
    (usual, spinning): (&str, &str),
    t: &Thresholds,
) -> Option<Computed> {
    let against_best = |of: Of, spins: bool, more: bool, wanted: &dyn Fn(&Record) -> bool| {
        let own = figure(run, if spins { spinning } else { usual }, of, wanted)?;
        let ids = COLUMNS.map(|(_, usual, spinning)| if spins { spinning } else { usual });
        let all: Vec<Median> = ids.iter().filter_map(|id| figure(run, id, of, wanted)).collect();
        let fewest = all.iter().map(|median| median.trials).min()?;
        let values = all.iter().map(|median| median.value);
        let best = values.reduce(if more { f64::max } else { f64::min })?;
        let factor = if more { best / own.value } else { own.value / best };
        Some(Median { value: factor, trials: own.trials.min(fewest), ..own })
    };
    // The factor by which a figure is worse, with the records of both.
    let under_load = |quiet: Median, busy: Median, factor: f64| Median {
        value: factor,
        trials: quiet.trials.min(busy.trials),
        records: format!("{}; under load {}", quiet.records, busy.records),
    };
    let graded = |factor: Median, green, red, what: &str| Computed {
        colour: Colour::of(factor.value, green, red),
        why: format!("{what}: {}", three_digits(factor.value)),
        records: factor.records,
        few_trials: (factor.trials < TRIALS_AT_LEAST).then_some(factor.trials),
    };
    match property {
        Property::Latency { one_core } => {
            // Spinning ends on one core are refused, so sleeping ends are used there.
            let found = against_best(round_trip, !one_core, false, &|r| trip(r, one_core, false))?;
            Some(graded(
                found,
                t.latency_green,
                t.latency_red,
                "ratio of the round trip to the shortest one",
            ))
        }
        Property::Throughput { large } => {
            let bytes = if large { LARGE } else { SMALL };
            let found = against_best(rate, false, true, &|r| stream(r, bytes, false))?;
            Some(graded(
                found,
                t.throughput_green,
                t.throughput_red,
                "ratio of the best throughput to this one",
            ))
        }
        Property::ThroughputUnderLoad => {
            let quiet = figure(run, usual, rate, |r| stream(r, LARGE, false))?;
            let busy = figure(run, usual, rate, |r| stream(r, LARGE, true))?;
            let factor = quiet.value / busy.value;
            Some(graded(
                under_load(quiet, busy, factor),
                t.load_green,
                t.load_red,
                "ratio of the throughput without load to that under load",
            ))
        }
        Property::LatencyUnderLoad => {
            let quiet = figure(run, spinning, round_trip, |r| trip(r, false, false))?;
            let busy = figure(run, spinning, round_trip, |r| trip(r, false, true))?;
            let factor = busy.value / quiet.value;
            Some(graded(
                under_load(quiet, busy, factor),
                t.load_green,
                t.load_red,
                "ratio of the round trip under load to that without load",
            ))
        }
        Property::Integrity => integrity(run, usual),
        Property::Monitoring => monitoring(run, usual, t),
    }
}

/// Computes the colour of data integrity from the faults "garbage" and "kill": red if an accepted message was altered
/// or lost, or the survivor died; yellow if the survivor received a message that was never sent; green otherwise.
fn integrity(run: &Run, id: &str) -> Option<Computed> {
    let faults = [Fault::Kill, Fault::Garbage];
    let ok: Vec<_> = run
        .faults
        .iter()
        .filter(|r| r.mechanism == id && r.status == Status::Ok && faults.contains(&r.fault))
        .collect();
    if !ok.iter().any(|r| r.fault == Fault::Garbage) {
        return None;
    }
    let garbage = ok.iter().filter(|r| r.fault == Fault::Garbage);
    let altered: u64 = garbage.filter_map(|r| r.sent_lost).sum();
    let died = ok.iter().any(|r| r.outcome == Some(Outcome::Died));
    let not_sent: u64 = ok.iter().filter_map(|r| r.received_not_sent).sum();
    let (colour, why) = if died && altered == 0 {
        (Red, "the other process died".to_owned())
    } else if altered > 0 {
        let destroyed = crate::units::count(
            usize::try_from(altered).unwrap_or(usize::MAX),
            "message",
            "messages",
        );
        (Red, format!("a peer's stray writes destroyed {destroyed} sent before them"))
    } else if not_sent > 0 {
        (
            Yellow,
            format!(
                "{} received that {} never sent; no message sent before the fault was altered",
                crate::units::count(
                    usize::try_from(not_sent).unwrap_or(usize::MAX),
                    "message",
                    "messages"
                ),
                if not_sent == 1 { "was" } else { "were" }
            ),
        )
    } else {
        (Green, "no message was altered or invented".to_owned())
    };
    Some(Computed {
        colour,
        why,
        records: format!("faults.jsonl {}", fault_lines(&run.faults, id, &faults)),
        few_trials: None,
    })
}

/// Computes the colour of monitoring from the fault "kill": red if a survivor hung or got no error; green if the median
/// time to its error is short; else yellow.
fn monitoring(run: &Run, id: &str, t: &Thresholds) -> Option<Computed> {
    let kills: Vec<_> = run
        .faults
        .iter()
        .filter(|r| r.mechanism == id && r.status == Status::Ok && r.fault == Fault::Kill)
        .collect();
    let undetected = kills.iter().filter(|r| r.outcome > Some(Outcome::Detected)).count();
    let detected = kills.iter().filter(|r| r.outcome == Some(Outcome::Detected)).count();
    let times: Vec<f64> =
        kills.iter().filter_map(|r| r.detected_after_ns).map(|ns| ns as f64 / 1e6).collect();
    let trials = crate::units::count(kills.len(), "trial", "trials");
    if kills.is_empty() {
        return None;
    }
    let (colour, why) = match median(&times) {
        _ if undetected > 0 => (
            Red,
            format!(
                "the survivor got no error in {undetected} of {trials} in which its peer was killed"
            ),
        ),
        Some(ms) => (
            if ms <= t.told_green_ms { Green } else { Yellow },
            format!(
                "the survivor got an error in {detected} of {trials}, {} ms (median) after its peer was killed",
                three_digits(ms)
            ),
        ),
        None => (
            Yellow,
            format!(
                "the survivor got an error in {detected} of {trials} in which its peer was killed; no time was recorded"
            ),
        ),
    };
    Some(Computed {
        colour,
        why,
        records: format!("faults.jsonl {}", fault_lines(&run.faults, id, &[Fault::Kill])),
        few_trials: None,
    })
}

pub(super) fn thresholds(run: &Run) -> Thresholds {
    crossway_records::records_io::read_beside(&run.dir, THRESHOLDS)
        .ok()
        .flatten()
        .unwrap_or_default()
}
