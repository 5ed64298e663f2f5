//! Tables as data, which the page, the terminal and the Markdown output all render.

use serde::Serialize;

use crate::units::{self, Quantity};
use crossway_records::stats::Estimate;

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// The text of the cell.
    pub text: String,
    /// The text in a short table: a figure has two digits there; `None` if it is the same.
    #[serde(skip)]
    pub short: Option<String>,
    /// Footnote marks after the text, e.g. `°`; notes below the table explain them.
    pub marks: String,
    /// A remark in smaller type next to the text.
    pub note: Option<String>,
    /// The number by which the column is sorted; `None` for text.
    pub sort: Option<f64>,
    /// Whether the figure is the best of its class, or statistically tied with the best.
    pub best: bool,
    /// Whether the text is code, set in a fixed-width font.
    pub code: bool,
    /// Number of trials of a figure that has too few for an interval; `None` for all other cells.
    #[serde(skip)]
    pub few_trials: Option<usize>,
    /// Number of trials of a figure with an interval; `None` for all other cells.
    #[serde(skip)]
    pub trials: Option<usize>,
    /// The colour that marks the cell: `green`, `yellow` or `red`, which the cell's text names, too; `None` for no
    /// mark.
    pub colour: Option<&'static str>,
}

impl Cell {
    /// Makes a cell with text only.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Makes a cell with code.
    pub fn code(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), code: true, ..Cell::default() }
    }

    /// Returns the text followed by its marks.
    pub(crate) fn marked_text(&self) -> String {
        if self.marks.is_empty() {
            self.text.clone()
        } else {
            format!("{} {}", self.text, self.marks)
        }
    }

    /// Makes a cell with a figure and its interval.
    pub fn figure(quantity: Quantity, figure: Option<Estimate>) -> Cell {
        let Some(f) = figure else { return Cell::text("–") };
        Cell {
            text: quantity.show(f.value),
            short: Some(quantity.show_two(f.value)),
            note: Some(interval_note(quantity, &f)),
            sort: Some(f.value),
            few_trials: (!f.has_interval()).then_some(f.n),
            trials: f.has_interval().then_some(f.n),
            ..Cell::default()
        }
    }
}

/// Formats an interval and the number of trials: `12.9–13.5 µs, n = 5`. With fewer than five trials, shows only their
/// number.
pub fn interval_note(quantity: Quantity, f: &Estimate) -> String {
    if !f.has_interval() {
        return units::count(f.n, "trial", "trials");
    }
    format!("{}{}", quantity.show_interval(f.value, f.low, f.high), from_trials(f.n))
}

/// Returns the part of [`interval_note`] that names the number of trials.
pub(crate) fn from_trials(n: usize) -> String {
    format!(", n = {n}")
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The wait class, which the style sheet shows as a mark; `None` if rows have no class.
    pub class: Option<&'static str>,
    /// The cells, one per column.
    pub cells: Vec<Cell>,
}

/// A table with its title and notes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sheet {
    /// The title of the table.
    pub title: String,
    /// Column heads; empty for a list of names and values.
    pub heads: Vec<String>,
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Whether the reader can sort the rows.
    pub sortable: bool,
    /// Footnotes below the table, which explain the marks in it.
    pub notes: Vec<String>,
}
