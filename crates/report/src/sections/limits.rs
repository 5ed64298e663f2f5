//! The section on the machine's physical limits, with each figure compared with the limit that bounds it.

use crossway_records::limits::{
    ControlRate, ExchangeKind, Limits as Measured, RATES_TOO_LARGE, Spread, TWO_COPIES_FASTER,
    WakeKind,
};
use crossway_records::record::Span;
use crossway_records::stats::Estimate;

use crate::limits::estimate;
use crate::ranking::Metric;
use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet, interval_note};
use crate::summary::Case;
use crate::units::{self, Quantity, three_digits};

/// Maximum number of CPU pairs that are listed; with more, only the heat map shows them.
const PAIRS_SHOWN: usize = 6;

/// Returns the section with the limits and the figures compared with them.
pub(super) fn limits(run: &Run) -> Option<Section> {
    let mut tables: Vec<Sheet> = beside(run).into_iter().collect();
    tables.extend(run.limits.0.iter().flat_map(measured));
    (!tables.is_empty()).then(|| Section {
        id: "limits",
        title: "Physical limits",
        paragraphs: vec![
            "A limit is what a bare loop achieves on this machine: two threads on the same CPUs that wake each other, \
             two cores that write to a cache line in turn, or one or two copies of the data. Limits with which figures \
             are compared were measured between the trials if possible; all other limits were measured before the run. \
             At a ratio near 1 there is nothing left to gain; a large ratio is the price of what the mechanism does \
             besides moving the message. If the whole interval of a figure lies more than 3 % beyond that of its limit, the figure \
             is marked: either it is wrong, or the mechanism avoids a cost that the limit includes. Ranges in small print in the other tables cover the \
             middle 80 % of the samples."
                .to_owned(),
        ],
        tables,
        ..Section::default()
    })
}

fn beside(run: &Run) -> Option<Sheet> {
    let summary = &run.summary;
    let small = {
        let sizes = summary.sizes(|c| c.setting == 0 && Metric::ROUND_TRIP_P50.of(c).is_some());
        sizes.iter().find(|s| **s == 64).or(sizes.first()).copied()
    };
    let large =
        summary.sizes(|c| c.setting == 0 && Metric::BYTE_RATE.of(c).is_some()).last().copied();
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
            let trip = case(small, Metric::ROUND_TRIP_P50).and_then(|c| {
                let figure = c.latency(Span::RoundTrip)?.p50;
                Some((figure, run.limits.round_trip_limit(c)?))
            });
            match trip {
                Some((figure, (name, limit))) => {
                    known = true;
                    cells.push(Cell::figure(Quantity::Duration, Some(figure)));
                    cells.push(bound(name, Quantity::Duration, &limit));
                    cells.push(Cell {
                        text: format!("{} ×", three_digits(figure.value / limit.value)),
                        sort: Some(figure.value / limit.value),
                        note: mark(figure.has_interval() && figure.high < limit.low),
                        ..Cell::default()
                    });
                }
                None => cells.extend(["–", "–", "–"].map(Cell::text)),
            }
            let carried = case(large, Metric::BYTE_RATE).and_then(|c| {
                let figure = Metric::BYTE_RATE.of(c)?;
                Some((figure, run.limits.throughput_limit(contender, c)?))
            });
            match carried {
                Some((figure, (name, limit))) => {
                    known = true;
                    cells.push(Cell::figure(Quantity::ByteRate, Some(figure)));
                    cells.push(bound(name, Quantity::ByteRate, &limit));
                    cells.push(Cell {
                        text: Quantity::Share.show(figure.value / limit.value),
                        sort: Some(figure.value / limit.value),
                        note: mark(figure.has_interval() && figure.low > limit.high),
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
        title: "Figures compared with their limits".to_owned(),
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
        notes: Vec::new(),
    })
}

/// Makes a cell with a limit and the range of its readings between the trials.
fn bound(name: &str, quantity: Quantity, limit: &Estimate) -> Cell {
    let text = format!("{name}, {}", quantity.show(limit.value));
    let note = limit.has_interval().then(|| interval_note(quantity, limit));
    Cell { note, ..Cell::text(text) }
}

fn mark(beyond: bool) -> Option<String> {
    beyond.then(|| "beyond its limit".to_owned())
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
        let between = format!("between CPUs {} and {}{near}", pair.a, pair.b);
        rows.push(duration(format!("Round trip on one cache line {between}"), &pair.one_line_ns));
        rows.push(duration(format!("Round trip on two cache lines {between}"), &pair.two_lines_ns));
    }
    for wake in &limits.wakes {
        let kind = match wake.kind {
            WakeKind::Futex => "a futex",
            WakeKind::Eventfd => "an eventfd",
        };
        rows.push(duration(
            format!(
                "Waking a thread from {kind} wait, CPU {} to {}, after a sleep of {}",
                wake.a,
                wake.b,
                Quantity::Duration.show(wake.idle_us as f64 * 1e3)
            ),
            &wake.wake_to_run_ns,
        ));
    }
    for exchange in &limits.exchanges {
        let kind = match exchange.kind {
            ExchangeKind::Futex => "futexes",
            ExchangeKind::Pipe => "a byte through a pipe",
        };
        let places = match exchange.a == exchange.b {
            true => format!("on CPU {}", exchange.a),
            false => format!("between CPUs {} and {}", exchange.a, exchange.b),
        };
        rows.push(duration(
            format!("Blocking exchange of two threads {places}, by {kind}"),
            &exchange.round_trip_ns,
        ));
    }
    let mut sheets = vec![Sheet {
        title: "Time".to_owned(),
        heads: ["Limit", "Median"].map(str::to_owned).to_vec(),
        rows,
        sortable: false,
        notes: Vec::new(),
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
                "{} between CPUs {} and {}",
                if c.copies == 1 { "One copy" } else { "Two copies" },
                c.a,
                c.b
            )),
            Cell {
                text: units::size(c.size_bytes),
                sort: Some(c.size_bytes as f64),
                ..Cell::default()
            },
            Cell {
                marks: if limits.two_copies_faster(c) { "↓".to_owned() } else { String::new() },
                ..Cell::figure(Quantity::ByteRate, Some(estimate(&c.bytes_per_s)))
            },
        ],
    }));
    let slower = limits.copies.iter().any(|c| limits.two_copies_faster(c));
    if !copies.is_empty() {
        sheets.push(Sheet {
            title: "Copying".to_owned(),
            heads: ["Limit", "Size", "Median"].map(str::to_owned).to_vec(),
            rows: copies,
            sortable: true,
            notes: slower.then(|| format!("↓ {TWO_COPIES_FASTER}")).into_iter().collect(),
        });
    }
    let too_large = limits.control.iter().any(ControlRate::is_too_large);
    if !limits.control.is_empty() {
        sheets.push(Sheet {
            title: "Creating, querying and removing objects".to_owned(),
            heads: ["Object", "Operation", "Threads", "Rate, all threads"]
                .map(str::to_owned)
                .to_vec(),
            rows: limits
                .control
                .iter()
                .map(|c| Row {
                    class: None,
                    cells: vec![
                        Cell::text(&c.object),
                        Cell::text(&c.operation),
                        Cell::text(c.threads.to_string()),
                        Cell {
                            marks: if c.is_too_large() { "↑".to_owned() } else { String::new() },
                            ..Cell::figure(Quantity::CallRate, Some(estimate(&c.per_s)))
                        },
                    ],
                })
                .collect(),
            sortable: true,
            notes: too_large.then(|| format!("↑ {RATES_TOO_LARGE}")).into_iter().collect(),
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
