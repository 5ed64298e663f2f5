//! What did not run, or not well, and why.

use crossway_lab::record::Status;

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};

pub(super) fn troubles(run: &Run) -> Option<Section> {
    let mut tables = Vec::new();
    for (status, title) in [
        (Status::Failed, "Failed"),
        (Status::Degraded, "Degraded: kept, not averaged in where others are clean"),
        (Status::Skipped, "Skipped"),
    ] {
        let rows: Vec<Row> = run
            .summary
            .troubles
            .iter()
            .filter(|t| t.status == status)
            .map(|t| Row {
                class: None,
                cells: vec![
                    Cell::text(&t.mechanism),
                    Cell::text(&t.reason),
                    Cell::text(t.remedy.as_deref().unwrap_or("–")),
                    Cell {
                        text: t.cases.to_string(),
                        sort: Some(t.cases as f64),
                        ..Cell::default()
                    },
                    Cell {
                        text: t.trials.to_string(),
                        sort: Some(t.trials as f64),
                        ..Cell::default()
                    },
                ],
            })
            .collect();
        if !rows.is_empty() {
            tables.push(Sheet {
                title: title.to_owned(),
                heads: ["Mechanism", "Why", "Remedy", "Cases", "Trials"]
                    .map(str::to_owned)
                    .to_vec(),
                rows,
                sortable: false,
            });
        }
    }
    (!tables.is_empty()).then(|| Section {
        id: "troubles",
        title: "Skipped, failed, degraded",
        paragraphs: vec![
            "A figure that is missing has a reason. `crossway doctor` checks the same things on this machine and prints the line \
             that mends each."
                .replace('`', ""),
        ],
        tables,
        ..Section::default()
    })
}

/// A status in a word.
pub fn status_name(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Degraded => "degraded",
        Status::Failed => "failed",
        Status::Skipped => "skipped",
    }
}
