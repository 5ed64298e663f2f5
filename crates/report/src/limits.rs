//! The machine's physical limits, as levels in charts and as yardsticks beside figures.

use crossway_lab::limits::{CopyLimit, Limits as Measured, Spread, WakeKind};
use crossway_lab::record::Span;
use crossway_lab::stats;

use crate::contender::{Contender, Family};
use crate::estimate::Estimate;
use crate::ranking::Metric;
use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Case, Summary};
use crate::units::{self, Quantity, three_digits};
use crossway_lab::rank::WaitClass;

/// CPUs, and a figure by pair of them.
pub type CorePairs = (Vec<u32>, Vec<(u32, u32, Estimate)>);

/// A level over message sizes: its name, and value by size in bytes.
pub type Level = (String, Vec<(f64, f64)>);

/// What of the limits the report uses; empty where they were not measured.
#[derive(Clone, Debug, Default)]
pub struct Limits(pub Option<Measured>);

/// The middle 80 % of the samples stand in for an interval: a yardstick's spread, not the error of its median.
fn estimate(spread: &Spread) -> Estimate {
    Estimate { value: spread.median, low: spread.p10, high: spread.p90, n: spread.n }
}

impl Limits {
    /// Levels for round-trip charts: name and nanoseconds.
    pub fn round_trip_levels(&self, summary: &Summary) -> Vec<(String, f64)> {
        let Some(limits) = &self.0 else { return Vec::new() };
        let mut levels = Vec::new();
        // Where the cores move, one reading before the run may be several times what the trials met: theirs count.
        let met: Vec<f64> =
            summary.cases.iter().filter_map(|c| c.cache_line_ns.map(|e| e.value)).collect();
        let least = || {
            let pairs = limits.cache_lines.iter().filter(|p| p.a != p.b);
            pairs.map(|p| p.two_lines_ns.median).min_by(f64::total_cmp)
        };
        let line = stats::median(&met).or_else(least);
        levels.extend(line.map(|ns| ("cache-line round trip".to_owned(), ns)));
        levels.extend(self.two_wakes_ns().map(|ns| ("two futex wake-ups".to_owned(), ns)));
        levels
    }

    /// What waking the other end costs there and back, after short idleness, nanoseconds.
    fn two_wakes_ns(&self) -> Option<f64> {
        let wakes = self.0.as_ref()?.wakes.iter();
        wakes
            .filter(|w| w.kind == WakeKind::Futex)
            .min_by_key(|w| w.idle_us)
            .map(|w| 2.0 * w.wake_to_run_ns.median)
    }

    /// Levels for throughput charts, bytes per second.
    pub fn copy_levels(&self) -> Vec<Level> {
        [(1, "one copy between cores"), (2, "two copies")]
            .into_iter()
            .filter_map(|(copies, name)| {
                let mut points: Vec<(f64, f64)> = self
                    .copies(copies)
                    .map(|c| (c.size_bytes as f64, c.bytes_per_s.median))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
                // Of several pairs of cores the best is the limit.
                points.dedup_by_key(|p| p.0);
                (points.len() > 1).then(|| (name.to_owned(), points))
            })
            .collect()
    }

    fn copies(&self, copies: u32) -> impl Iterator<Item = &CopyLimit> {
        self.0.iter().flat_map(|l| &l.copies).filter(move |c| c.copies == copies)
    }

    /// The cache-line round trip by pair of CPUs, nanoseconds.
    pub fn core_pairs(&self) -> Option<CorePairs> {
        let lines = &self.0.as_ref()?.cache_lines;
        let mut cpus: Vec<u32> = lines.iter().flat_map(|p| [p.a, p.b]).collect();
        cpus.sort_unstable();
        cpus.dedup();
        // Two cores are one figure: a table says that better than a map.
        (cpus.len() > 2).then(|| {
            let both = lines.iter().flat_map(|p| {
                let figure = estimate(&p.two_lines_ns);
                [(p.a, p.b, figure), (p.b, p.a, figure)]
            });
            (cpus, both.collect())
        })
    }

    /// The limit that binds a round trip of a contender: name and nanoseconds.
    fn round_trip_limit(&self, contender: &Contender, case: &Case) -> Option<(&'static str, f64)> {
        if contender.discipline() == WaitClass::Blocking {
            return self.two_wakes_ns().map(|ns| ("two futex wake-ups", ns));
        }
        // The reading of the same run is nearer to the truth than one of an hour ago.
        let own = case.cache_line_ns.map(|e| e.value);
        let pair = match (&self.0, case.cpus.as_slice()) {
            (Some(limits), [a, b, ..]) => limits.two_lines_ns(*a, *b),
            _ => None,
        };
        own.or(pair).map(|ns| ("cache-line round trip", ns))
    }

    /// The limit that binds a contender's throughput at a size: name and bytes per second.
    fn throughput_limit(&self, contender: &Contender, size: u64) -> Option<(&'static str, f64)> {
        let (copies, name) = copies_of(contender);
        let limit = self.0.as_ref()?.copy_limit(copies, size)?;
        Some((name, limit.bytes_per_s.median))
    }
}

/// How often a contender's payload is copied on its way: into shared memory and read there, or into the kernel and out again.
fn copies_of(contender: &Contender) -> (u32, &'static str) {
    let once = contender.family() == Family::SharedMemory
        || ["cma", "vmsplice"].contains(&contender.mechanism.as_str());
    if once { (1, "one copy") } else { (2, "two copies") }
}

/// The section of limits and of figures beside them.
pub fn section(run: &Run) -> Option<Section> {
    let mut tables: Vec<Sheet> = beside(run).into_iter().collect();
    tables.extend(run.limits.0.iter().flat_map(measured));
    (!tables.is_empty()).then(|| Section {
        id: "limits",
        title: "Physical limits",
        paragraphs: vec![
            "What no mechanism on this machine can beat, measured with nothing in the way, and every figure beside the limit that \
             binds it. A ratio near 1 leaves nothing to gain; a large one is the price of what the mechanism does besides moving \
             the message. Small ranges hold the middle 80 % of the samples."
                .to_owned(),
        ],
        tables,
        ..Section::default()
    })
}

fn beside(run: &Run) -> Option<Sheet> {
    let summary = &run.summary;
    let small = {
        let sizes = summary.sizes(|c| c.setting == 0 && Metric::RoundTripP50.of(c).is_some());
        sizes.iter().find(|s| **s == 64).or(sizes.first()).copied()
    };
    let large =
        summary.sizes(|c| c.setting == 0 && Metric::ByteRate.of(c).is_some()).last().copied();
    let rows: Vec<Row> = summary
        .contenders
        .iter()
        .enumerate()
        .filter_map(|(index, contender)| {
            let case = |size: Option<u64>, metric: Metric| {
                let of = |c: &&Case| c.contender == index && c.setting == 0 && !c.degraded;
                summary
                    .cases
                    .iter()
                    .filter(of)
                    .find(|c| Some(c.size_bytes) == size && metric.of(c).is_some())
            };
            let mut cells = vec![Cell::text(contender.label())];
            let mut known = false;
            let trip = case(small, Metric::RoundTripP50).and_then(|c| {
                let figure = c.latency(Span::RoundTrip)?.p50;
                Some((figure, run.limits.round_trip_limit(contender, c)?))
            });
            match trip {
                Some((figure, (name, limit))) => {
                    known = true;
                    cells.push(Cell::figure(Quantity::Duration, Some(figure)));
                    cells.push(Cell::text(format!("{name}, {}", Quantity::Duration.show(limit))));
                    cells.push(Cell {
                        text: format!("{} ×", three_digits(figure.value / limit)),
                        sort: Some(figure.value / limit),
                        ..Cell::default()
                    });
                }
                None => cells.extend(["–", "–", "–"].map(Cell::text)),
            }
            let carried = case(large, Metric::ByteRate).and_then(|c| {
                let figure = Metric::ByteRate.of(c)?;
                Some((figure, run.limits.throughput_limit(contender, c.size_bytes)?))
            });
            match carried {
                Some((figure, (name, limit))) => {
                    known = true;
                    cells.push(Cell::figure(Quantity::ByteRate, Some(figure)));
                    cells.push(Cell::text(format!("{name}, {}", Quantity::ByteRate.show(limit))));
                    cells.push(Cell {
                        text: Quantity::Share.show(figure.value / limit),
                        sort: Some(figure.value / limit),
                        ..Cell::default()
                    });
                }
                None => cells.extend(["–", "–", "–"].map(Cell::text)),
            }
            known.then_some(Row { class: None, cells })
        })
        .collect();
    let named = |size: Option<u64>| size.map(units::size).unwrap_or_default();
    (!rows.is_empty()).then(|| Sheet {
        title: "Figures beside the limit that binds them".to_owned(),
        heads: vec![
            "Mechanism".to_owned(),
            format!("Round trip, {}", named(small)),
            "Bound by".to_owned(),
            "Ratio".to_owned(),
            format!("Throughput, {}", named(large)),
            "Bound by".to_owned(),
            "Reached".to_owned(),
        ],
        rows,
        sortable: true,
    })
}

fn measured(limits: &Measured) -> Vec<Sheet> {
    let duration = |name: String, spread: &Spread| Row {
        class: None,
        cells: vec![Cell::text(name), Cell::figure(Quantity::Duration, Some(estimate(spread)))],
    };
    let mut rows = vec![
        duration("System call (getppid)".to_owned(), &limits.system_call_ns),
        duration("Reading the clock (CLOCK_MONOTONIC)".to_owned(), &limits.clock_read_ns),
        duration("Reading the time stamp counter".to_owned(), &limits.counter_read_ns),
    ];
    for pair in limits.cache_lines.iter().take(PAIRS_SHOWN) {
        let near =
            if pair.relation.is_empty() { String::new() } else { format!(" ({})", pair.relation) };
        let between = format!("between CPU {} and {}{near}", pair.a, pair.b);
        rows.push(duration(format!("Round trip on one cache line {between}"), &pair.one_line_ns));
        rows.push(duration(format!("On two cache lines {between}"), &pair.two_lines_ns));
    }
    for wake in &limits.wakes {
        let kind = match wake.kind {
            WakeKind::Futex => "futex",
            WakeKind::Eventfd => "eventfd",
        };
        rows.push(duration(
            format!(
                "Waking a {kind} sleeper, CPU {} to {}, after {}",
                wake.a,
                wake.b,
                Quantity::Duration.show(wake.idle_us as f64 * 1e3)
            ),
            &wake.wake_to_run_ns,
        ));
    }
    let mut sheets = vec![Sheet {
        title: "Time".to_owned(),
        heads: ["Limit", "Median"].map(str::to_owned).to_vec(),
        rows,
        sortable: false,
    }];
    let mut copies: Vec<Row> = limits
        .memcpy
        .iter()
        .map(|m| Row {
            class: None,
            cells: vec![
                Cell::text("memcpy on one CPU"),
                Cell {
                    text: units::size(m.size_bytes),
                    sort: Some(m.size_bytes as f64),
                    ..Cell::default()
                },
                Cell::figure(Quantity::ByteRate, Some(estimate(&m.bytes_per_s))),
            ],
        })
        .collect();
    copies.extend(limits.copies.iter().map(|c| Row {
        class: None,
        cells: vec![
            Cell::text(format!(
                "{} between CPU {} and {}",
                if c.copies == 1 { "One copy" } else { "Two copies" },
                c.a,
                c.b
            )),
            Cell {
                text: units::size(c.size_bytes),
                sort: Some(c.size_bytes as f64),
                ..Cell::default()
            },
            Cell::figure(Quantity::ByteRate, Some(estimate(&c.bytes_per_s))),
        ],
    }));
    if !copies.is_empty() {
        sheets.push(Sheet {
            title: "Copying".to_owned(),
            heads: ["Limit", "Size", "Median"].map(str::to_owned).to_vec(),
            rows: copies,
            sortable: true,
        });
    }
    if !limits.gaps.is_empty() {
        sheets.push(Sheet {
            title: "Limits not measured".to_owned(),
            rows: limits
                .gaps
                .iter()
                .map(|gap| Row { class: None, cells: vec![Cell::text(gap)] })
                .collect(),
            ..Sheet::default()
        });
    }
    sheets
}

/// With more pairs than this the heat map says it better than a list.
const PAIRS_SHOWN: usize = 6;
