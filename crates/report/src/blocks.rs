//! Tables of figures: one block per setting and kind of workload, with one table per message size or pace.

mod beside;
mod by_workload;
mod comparison;
mod footnotes;
pub(crate) mod paced;
mod short;
mod trials;

use comparison::{CPU_ROUND_TRIP, comparison};
use crossway_records::rank::WaitClass;
use crossway_records::stats::Estimate;
pub use footnotes::regimes_in_words;
pub(crate) use footnotes::{ALL_ROWS, FEW, TWO_REGIMES};
pub use footnotes::{BEYOND, BEYOND_MEANS, SIZES_ARE_REQUESTS};
use footnotes::{POOLED, add_word};
use serde::Serialize;
pub(crate) use short::short;

use crate::contender::Contender;
use crate::limits::Limits;
use crate::ranking::Metric;
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Case, LatencySummary, Pooled, Summary};
use crate::units::{Quantity, three_digits};

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

/// Head of the column with the noise.
const NOISE: &str = "Noise";

/// Removes the last column, the noise, if no row has any because all have too few trials.
fn leave_out_empty_noise(heads: &mut Vec<String>, rows: &mut [Row]) {
    if rows.iter().all(|row| row.cells.last().is_some_and(|cell| cell.sort.is_none())) {
        heads.pop();
        rows.iter_mut().for_each(|row| drop(row.cells.pop()));
    }
}

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
        ("clients of one server", by_workload::clients),
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
    text_figure(Quantity::Duration, Some(ns as f64))
}

fn text_figure(quantity: Quantity, value: Option<f64>) -> Cell {
    Cell {
        text: value.map_or("–".to_owned(), |value| quantity.show(value)),
        short: value.map(|value| quantity.show_two(value)),
        sort: value,
        ..Cell::default()
    }
}
