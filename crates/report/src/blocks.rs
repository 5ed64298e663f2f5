//! Tables of figures: one block per setting and kind of workload, with one table per message size or pace.

mod beside;
mod by_workload;
mod footnotes;
pub(crate) mod paced;
mod trials;

use crossway_records::rank::{MOVED, WaitClass};
use crossway_records::record::Span;
use crossway_records::stats::Estimate;
pub use footnotes::regimes_in_words;
pub use footnotes::{BEYOND, BEYOND_MEANS, SIZES_ARE_REQUESTS};
pub(crate) use footnotes::{FEW, TWO_REGIMES};
use footnotes::{POOLED, add_word, marks_explained, two_regimes, without_cpu_time};
use serde::Serialize;

use crate::contender::Contender;
use crate::limits::Limits;
use crate::ranking::{Metric, Ranking};
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Case, LatencySummary, Pooled, Summary};
use crate::units::{self, Quantity, three_digits};

/// The tables of one setting and one kind of workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Block {
    /// The setting. The kind of workload is added unless the tables are of round trips and streams.
    pub title: String,
    /// Index of the setting in the summary.
    pub setting: usize,
    /// The tables, one per message size or pace.
    pub sheets: Vec<Sheet>,
    /// Number of trials of the figures with an interval whose cells name no other number.
    pub trials: Option<usize>,
}

impl Block {
    fn new(title: String, setting: usize, mut sheets: Vec<Sheet>) -> Block {
        let trials = trials::state_once(&mut sheets);
        Block { title, setting, sheets, trials }
    }
}

/// The rule by which a figure is marked as the best.
pub const BEST: &str = "best in its class (blocking, hybrid, busy, spinning) and column, or its interval overlaps that \
                        of the best; a figure without an interval or with two regimes is not compared";

/// Returns whether a figure in these blocks is marked as the best in its class.
pub(crate) fn have_best(blocks: &[Block]) -> bool {
    let rows = blocks.iter().flat_map(|block| &block.sheets).flat_map(|sheet| &sheet.rows);
    rows.flat_map(|row| &row.cells).any(|cell| cell.best)
}

/// Returns whether a table in these blocks has the column "Noise".
pub(crate) fn have_noise(blocks: &[Block]) -> bool {
    have_column(blocks, NOISE)
}

/// Returns whether a table in these blocks has the column with this head.
pub(crate) fn have_column(blocks: &[Block], head: &str) -> bool {
    let sheets = blocks.iter().flat_map(|block| &block.sheets);
    sheets.flat_map(|sheet| &sheet.heads).any(|own| own == head)
}

/// The columns of the tables of round trips and streams, with the metric of each.
const COLUMNS: [(&str, Metric); 5] = [
    ("Round trip p50", Metric::ROUND_TRIP_P50),
    ("p99", Metric::ROUND_TRIP_P99),
    ("Throughput", Metric::BYTE_RATE),
    ("Messages", Metric::MESSAGE_RATE),
    ("CPU / message", Metric::CPU_PER_MESSAGE),
];
/// Heads of three more columns: the longest round trip, the CPU time per round trip, and the noise.
const MAX: &str = "max";
const CPU_ROUND_TRIP: &str = "CPU / round trip";
const NOISE: &str = "Noise";

/// Maximum number of sizes that get a table.
const SIZES_MAX: usize = 6;

/// Returns the sizes that get a table: all if there are at most six; else the usual ones if the run has at least three
/// of them; else six spread evenly, including the smallest and the largest.
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

/// Returns the blocks of the first settings, until there are at least `at_most` blocks, and the number of settings left
/// out. A sweep over all pairs of cores has thousands of settings.
pub fn blocks(summary: &Summary, at_most: usize) -> (Vec<Block>, usize) {
    let mut blocks = Vec::new();
    for setting in 0..summary.settings.len() {
        if blocks.len() >= at_most {
            return (blocks, summary.settings.len() - setting);
        }
        blocks.extend(of_setting(summary, setting));
    }
    (blocks, 0)
}

fn of_setting(summary: &Summary, setting: usize) -> Vec<Block> {
    let label = summary.settings[setting].label();
    let mut blocks = Vec::new();
    let compared = comparison(summary, setting);
    if !compared.is_empty() {
        blocks.push(Block::new(label.clone(), setting, compared));
    }
    for (kind, tables) in [
        ("messages at a fixed rate", paced::sheets as Tables),
        ("exchanges", by_workload::exchanges),
        ("replays of recordings", by_workload::replays),
        ("several senders or receivers", by_workload::shared),
        ("background workloads", beside::sheets),
    ] {
        let sheets = tables(summary, setting);
        if !sheets.is_empty() {
            blocks.push(Block::new(format!("{label}: {kind}"), setting, sheets));
        }
    }
    let of = &summary.settings[setting];
    if of.socket_buffer_bytes.or(of.capacity_bytes).is_some() {
        for block in &mut blocks {
            let last = block.sheets.last_mut();
            last.into_iter().for_each(|sheet| sheet.notes.push(SIZES_ARE_REQUESTS.to_owned()));
        }
    }
    blocks
}

type Tables = fn(&Summary, usize) -> Vec<Sheet>;

/// Returns the tables of round trips and streams: one per size, with blocking mechanisms first, then hybrid, busy and
/// spinning ones, each class from fast to slow.
fn comparison(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let figures = |case: &Case| COLUMNS.iter().any(|(_, metric)| metric.of(case).is_some());
    let sizes = chosen_sizes(&summary.sizes(|c| c.setting == setting && figures(c)));
    sizes
        .into_iter()
        .map(|size| {
            let columns: Vec<&(&str, Metric)> = COLUMNS
                .iter()
                .filter(|(_, m)| {
                    summary
                        .cases
                        .iter()
                        .any(|c| c.setting == setting && c.size_bytes == size && m.of(c).is_some())
                })
                .collect();
            let mut heads = vec!["Mechanism".to_owned()];
            for (name, metric) in &columns {
                heads.push((*name).to_owned());
                if *metric == Metric::ROUND_TRIP_P50
                    && !columns.iter().any(|(_, m)| *m == Metric::ROUND_TRIP_P99)
                {
                    heads.extend(["p99", MAX, CPU_ROUND_TRIP].map(str::to_owned));
                } else if *metric == Metric::ROUND_TRIP_P99 {
                    heads.extend([MAX, CPU_ROUND_TRIP].map(str::to_owned));
                }
            }
            heads.push(NOISE.to_owned());
            let mut rows: Vec<Row> = WaitClass::ALL
                .iter()
                .flat_map(|class| rows(summary, setting, size, *class, &heads))
                .collect();
            leave_out_empty_noise(&mut heads, &mut rows);
            let shown = |c: &&Case| c.setting == setting && c.size_bytes == size && figures(c);
            let mut notes = marks_explained(&heads, &rows);
            notes.extend(two_regimes(summary, summary.cases.iter().filter(shown)));
            notes.extend(without_cpu_time(summary, summary.cases.iter().filter(shown)));
            let title = format!("{} messages", units::size(size));
            Sheet { title, heads, rows, sortable: true, notes }
        })
        .collect()
}

/// Removes the last column, the noise, if no row has any because all have too few trials.
fn leave_out_empty_noise(heads: &mut Vec<String>, rows: &mut [Row]) {
    if rows.iter().all(|row| row.cells.last().is_some_and(|cell| cell.sort.is_none())) {
        heads.pop();
        rows.iter_mut().for_each(|row| drop(row.cells.pop()));
    }
}

/// Returns the metric of a column, or `None` if mechanisms are not ranked by the column.
fn metric(head: &str) -> Option<Metric> {
    match head {
        CPU_ROUND_TRIP => Some(Metric::CPU_PER_ROUND_TRIP),
        head => COLUMNS.iter().find(|(name, _)| *name == head).map(|(_, metric)| *metric),
    }
}

/// Returns the case that a figure comes from; `None` if there is none.
fn case_of<'a>(metric: Metric, cases: &[&'a Case]) -> Option<&'a Case> {
    cases.iter().copied().find(|c| metric.of(c).is_some())
}

/// Returns the wait class under which a mechanism is listed: that of its round trips, if it has any, because only in
/// them can it be busy.
fn class_of(contender: &Contender, cases: &[&Case]) -> WaitClass {
    case_of(Metric::ROUND_TRIP_P50, cases).map_or(contender.discipline(), |case| case.class)
}

/// Returns the cell of a mechanism in a column, and whether its case is degraded; `None` if there is no figure.
fn shown(head: &str, cases: &[&Case]) -> Option<(Cell, bool)> {
    // Requests at a rate have round trips, too, but a table of their own.
    let timed = || {
        let case = cases.iter().find(|c| Metric::ROUND_TRIP_P50.of(c).is_some())?;
        Some((case.latency(Span::RoundTrip)?, case.degraded))
    };
    if head == MAX {
        return timed().map(|(latency, degraded)| (duration(latency.max), degraded));
    }
    let metric = metric(head)?;
    if metric == Metric::ROUND_TRIP_P99
        && let Some((latency, degraded)) = timed().filter(|(latency, _)| latency.p99.is_none())
        && let Some(cell) = pooled(latency, |all| all.p99)
    {
        return Some((cell, degraded));
    }
    let (figure, degraded) = cases.iter().find_map(|c| Some((metric.of(c)?, c.degraded)))?;
    Some((Cell::figure(metric.quantity(), Some(figure)), degraded))
}

/// The note of a cell whose trials are all degraded.
pub(crate) const DEGRADED: &str = "degraded";
/// Makes a row with the words that qualify it: [`FEW`] if a figure has too few trials to be ranked, unless the row is
/// labelled as degraded, and those that hold.
fn row(class: WaitClass, mut cells: Vec<Cell>, degraded: bool, words: &[(&str, bool)]) -> Row {
    if degraded {
        cells.iter_mut().for_each(|cell| cell.few_trials = None);
    }
    let few = cells.iter().any(|cell| cell.few_trials.is_some());
    let mut row = Row { class: marked(class), cells };
    for (word, _) in [(FEW, few)].iter().chain(words).filter(|(_, holds)| *holds) {
        add_word(&mut row, word);
    }
    row
}

/// Shows a figure of a case with two regimes as a range, since its median says little.
fn show_range(cell: &mut Cell, quantity: Quantity, figure: &Estimate) {
    cell.text = quantity.show_interval(figure.value, figure.low, figure.high);
    cell.note = Some(TWO_REGIMES.to_owned());
    (cell.trials, cell.few_trials) = (None, None);
}

/// Makes a cell with a percentile over the samples of all trials; `None` if the samples were not pooled.
fn pooled(latency: &LatencySummary, get: fn(&Pooled) -> Option<u64>) -> Option<Cell> {
    let pooled = latency.pooled?;
    let mut cell = duration(get(&pooled)?);
    cell.marks.push(POOLED);
    cell.note = Some(format!("n = {}", pooled.n));
    Some(cell)
}

/// Returns the mark that qualifies a mechanism's figure wherever it is shown: [`BEYOND`] if its whole interval lies
/// beyond the figure's physical limit.
pub(crate) fn marks(metric: Metric, contender: &Contender, cases: &[&Case]) -> String {
    beyond(metric, contender, cases).map_or(String::new(), |_| BEYOND.to_string())
}

/// Returns the limit that the whole interval of a figure lies beyond.
fn beyond(
    metric: Metric,
    contender: &Contender,
    cases: &[&Case],
) -> Option<(&'static str, Estimate)> {
    cases.iter().find_map(|c| Limits::default().beyond(contender, c, metric))
}

/// Notes the limit that a figure lies beyond.
fn note_limit(cell: &mut Cell, metric: Metric, contender: &Contender, cases: &[&Case]) {
    if let Some((name, limit)) = beyond(metric, contender, cases) {
        let limit = match metric {
            Metric::ROUND_TRIP_P50 => Quantity::Duration.show(limit.value),
            _ => Quantity::ByteRate.show(limit.value),
        };
        let note = cell.note.take().unwrap_or_default();
        cell.note = Some(format!("{note}, beyond its limit: {name}, {limit}"));
    }
}

fn rows(
    summary: &Summary,
    setting: usize,
    size: u64,
    class: WaitClass,
    heads: &[String],
) -> Vec<Row> {
    // The best of each class: a mechanism may be busy in round trips and block in streams.
    let best_of = |class: &WaitClass, metric: Metric| -> Vec<usize> {
        Ranking::of(summary, metric, setting, size, *class)
            .filter(|r| r.entries.len() > 1)
            .map(|r| r.leaders().iter().map(|e| e.contender).collect())
            .unwrap_or_default()
    };
    let leaders: Vec<Vec<usize>> = heads
        .iter()
        .map(|head| {
            metric(head).map_or(Vec::new(), |metric| {
                WaitClass::ALL.iter().flat_map(|class| best_of(class, metric)).collect()
            })
        })
        .collect();
    let mut rows: Vec<(f64, Row)> = Vec::new();
    for (index, contender) in summary.contenders.iter().enumerate() {
        let cases: Vec<&Case> = summary
            .cases
            .iter()
            .filter(|c| c.contender == index && c.setting == setting && c.size_bytes == size)
            .collect();
        let value = |metric: Metric| cases.iter().find_map(|c| metric.of(c)).map(|f| f.value);
        if class_of(contender, &cases) != class || COLUMNS.iter().all(|(_, m)| value(*m).is_none())
        {
            continue;
        }
        let mut cells = vec![Cell::text(contender.label())];
        for (head, leaders) in heads.iter().zip(&leaders).skip(1).take(heads.len() - 2) {
            let Some((mut cell, degraded)) = shown(head, &cases) else {
                cells.push(Cell::text("–"));
                continue;
            };
            cell.best = leaders.contains(&index) && !degraded;
            if let Some(metric) = metric(head) {
                cell.marks.push_str(&marks(metric, contender, &cases));
                note_limit(&mut cell, metric, contender, &cases);
                if let Some(case) = case_of(metric, &cases).filter(|c| c.regimes.is_some())
                    && let Some(figure) = metric.of(case)
                {
                    show_range(&mut cell, metric.quantity(), &figure);
                }
            }
            if degraded {
                cell.note = Some(DEGRADED.to_owned());
            }
            cells.push(cell);
        }
        let measured =
            |metric: Metric| cases.iter().filter(|c| !c.degraded).find_map(|c| metric.of(c));
        cells.push(noise_cell([Metric::ROUND_TRIP_P50, Metric::BYTE_RATE].map(measured)));
        let order = value(Metric::ROUND_TRIP_P50)
            .or(value(Metric::BYTE_RATE).map(|rate| -rate))
            .unwrap_or(f64::INFINITY);
        let (good, degraded): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|c| !c.degraded);
        let words = [
            (MOVED, good.iter().any(|c| c.cores_moved)),
            (TWO_REGIMES, good.iter().any(|c| c.regimes.is_some())),
        ];
        rows.push((
            order,
            self::row(class, cells, good.is_empty() && !degraded.is_empty(), &words),
        ));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows.into_iter().map(|(_, row)| row).collect()
}

fn marked(class: WaitClass) -> Option<&'static str> {
    (class != WaitClass::Blocking).then_some(class.name())
}

/// Makes the cell with the noise of each figure that was measured. The largest noise determines the order of the rows.
fn noise_cell(figures: [Option<Estimate>; 2]) -> Cell {
    let noises: Vec<Option<f64>> = figures.into_iter().flatten().map(|f| f.noise()).collect();
    // Beyond this, the number of per cent says nothing.
    const MOST_PERCENT: f64 = 1000.0;
    let text = |percent: f64| match percent > MOST_PERCENT {
        true => format!("> {MOST_PERCENT:.0}"),
        false => three_digits(percent),
    };
    let known: Vec<f64> = noises.iter().copied().flatten().collect();
    let one = |noise: &Option<f64>| noise.map_or("–".to_owned(), |noise| text(noise * 100.0));
    let texts: Vec<String> = noises.iter().map(one).collect();
    Cell {
        text: if known.is_empty() { "–".to_owned() } else { format!("{} %", texts.join(" / ")) },
        sort: known.into_iter().max_by(f64::total_cmp),
        ..Cell::default()
    }
}

fn duration(ns: u64) -> Cell {
    Cell { text: Quantity::Duration.show(ns as f64), sort: Some(ns as f64), ..Cell::default() }
}

fn text_figure(quantity: Quantity, value: Option<f64>) -> Cell {
    Cell {
        text: value.map_or("–".to_owned(), |value| quantity.show(value)),
        sort: value,
        ..Cell::default()
    }
}
