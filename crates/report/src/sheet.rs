//! Tables as data: what the page, the terminal and Markdown show alike.

use serde::Serialize;

use crate::estimate::Estimate;
use crate::units::{self, Quantity};

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

/// `12.9–13.5 µs, n = 5`; of fewer than five trials only their number.
pub fn interval_note(quantity: Quantity, f: &Estimate) -> String {
    if !f.has_interval() {
        return units::count(f.n, "trial", "trials");
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
    /// What its marks mean, below it.
    pub notes: Vec<String>,
}
