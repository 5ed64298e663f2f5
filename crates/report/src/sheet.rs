//! Tables as data: what the page, the terminal and Markdown show alike.

use crossway_lab::record::Span;
use serde::Serialize;

use crate::estimate::Estimate;
use crate::ranking::{Metric, Ranking};
use crate::summary::{Case, Summary};
use crate::units::{self, Quantity, three_digits};
use crossway_lab::rank::WaitClass;

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// Set smaller beside it.
    pub note: Option<String>,
    /// The number to sort by.
    pub sort: Option<f64>,
    /// Whether it is the best of its class, or equal to the best.
    pub best: bool,
    /// Whether it is something to type.
    pub code: bool,
}

impl Cell {
    /// Text only.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Something to type.
    pub fn code(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), code: true, ..Cell::default() }
    }

    /// A figure with its interval.
    pub fn figure(quantity: Quantity, figure: Option<Estimate>) -> Cell {
        let Some(f) = figure else { return Cell::text("–") };
        Cell {
            text: quantity.show(f.value),
            note: Some(interval_note(quantity, &f)),
            sort: Some(f.value),
            ..Cell::default()
        }
    }
}

/// `12.9–13.5 µs, n = 5`.
pub fn interval_note(quantity: Quantity, f: &Estimate) -> String {
    if f.n == 1 {
        return "one trial".to_owned();
    }
    format!("{}, n = {}", quantity.show_interval(f.value, f.low, f.high), f.n)
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// How it is marked: the class of waiting.
    pub class: Option<&'static str>,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sheet {
    /// Title.
    pub title: String,
    /// Column heads; none for a list of names and values.
    pub heads: Vec<String>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Whether sorting it makes sense.
    pub sortable: bool,
}

/// The columns of the comparison.
const COLUMNS: [(&str, Metric); 6] = [
    ("Round trip p50", Metric::RoundTripP50),
    ("p99", Metric::RoundTripP99),
    ("CPU / round trip", Metric::CpuPerRoundTrip),
    ("Throughput", Metric::ByteRate),
    ("Messages", Metric::MessageRate),
    ("CPU / message", Metric::CpuPerMessage),
];

/// At most so many sizes get a table; with more, a spread over them.
const SIZES_MAX: usize = 6;

/// Of many sizes the ones that tables show: all if few, else the least, the greatest and a spread between.
pub fn chosen_sizes(sizes: &[u64]) -> Vec<u64> {
    if sizes.len() <= SIZES_MAX {
        return sizes.to_vec();
    }
    let usual: Vec<u64> =
        [64, 4096, 65_536, 1 << 20].into_iter().filter(|s| sizes.contains(s)).collect();
    if usual.len() >= 3 {
        return usual;
    }
    let mut spread: Vec<u64> =
        (0..SIZES_MAX).map(|i| sizes[i * (sizes.len() - 1) / (SIZES_MAX - 1)]).collect();
    spread.dedup();
    spread
}

/// Side by side, in the first setting: one table per size, blocking first, then hybrid and spinning, each from fast to slow.
pub fn comparison(summary: &Summary) -> Vec<Sheet> {
    let figures = |case: &Case| COLUMNS.iter().any(|(_, metric)| metric.of(case).is_some());
    let sizes = chosen_sizes(&summary.sizes(|c| c.setting == 0 && figures(c)));
    sizes
        .into_iter()
        .map(|size| {
            let columns: Vec<&(&str, Metric)> = COLUMNS
                .iter()
                .filter(|(_, m)| {
                    summary
                        .cases
                        .iter()
                        .any(|c| c.setting == 0 && c.size_bytes == size && m.of(c).is_some())
                })
                .collect();
            let mut heads = vec!["Mechanism".to_owned()];
            heads.extend(columns.iter().map(|(name, _)| (*name).to_owned()));
            heads.push("Noise".to_owned());
            let rows =
                WaitClass::ALL.iter().flat_map(|d| rows(summary, size, *d, &columns)).collect();
            Sheet { title: format!("{} messages", units::size(size)), heads, rows, sortable: true }
        })
        .collect()
}

fn rows(
    summary: &Summary,
    size: u64,
    discipline: WaitClass,
    columns: &[&(&str, Metric)],
) -> Vec<Row> {
    let leaders: Vec<Vec<usize>> = columns
        .iter()
        .map(|(_, metric)| {
            let ranking = Ranking::of(summary, *metric, 0, size, discipline);
            ranking
                .filter(|r| r.entries.len() > 1)
                .map(|r| r.leaders().iter().map(|e| e.contender).collect())
                .unwrap_or_default()
        })
        .collect();
    let mut rows: Vec<(f64, Row)> = summary
        .contenders
        .iter()
        .enumerate()
        .filter(|(_, c)| c.discipline() == discipline)
        .filter_map(|(index, contender)| {
            let cases: Vec<&Case> = summary
                .cases
                .iter()
                .filter(|c| c.contender == index && c.setting == 0 && c.size_bytes == size)
                .collect();
            let get =
                |metric: Metric| cases.iter().find_map(|c| metric.of(c).map(|f| (f, c.degraded)));
            if columns.iter().all(|(_, m)| get(*m).is_none()) {
                return None;
            }
            let mut cells = vec![Cell::text(contender.label())];
            for ((_, metric), leaders) in columns.iter().zip(&leaders) {
                let found = get(*metric);
                let mut cell = Cell::figure(metric.quantity(), found.map(|(f, _)| f));
                cell.best = leaders.contains(&index);
                if found.is_some_and(|(_, degraded)| degraded) {
                    cell.note = Some("degraded".to_owned());
                    cell.best = false;
                }
                cells.push(cell);
            }
            let noise = cases
                .iter()
                .find_map(|c| c.latency(Span::RoundTrip).map(|l| l.p50))
                .or_else(|| cases.iter().find_map(|c| Metric::ByteRate.of(c)))
                .and_then(|f| f.noise());
            cells.push(Cell {
                text: noise
                    .map_or("–".to_owned(), |n| format!("± {} %", three_digits(n * 100.0))),
                sort: noise,
                ..Cell::default()
            });
            let order = get(Metric::RoundTripP50)
                .map(|(f, _)| f.value)
                .or_else(|| get(Metric::ByteRate).map(|(f, _)| -f.value))
                .unwrap_or(f64::INFINITY);
            let class = (discipline != WaitClass::Blocking).then_some(discipline.name());
            Some((order, Row { class, cells }))
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows.into_iter().map(|(_, row)| row).collect()
}
