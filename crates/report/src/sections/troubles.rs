//! The section on trials that were skipped, failed or degraded, and why.

use crossway_records::record::Status;

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Reason, Trouble, by_reason};

pub(super) fn troubles(run: &Run) -> Option<Section> {
    let mut tables = Vec::new();
    let degraded = format!("Degraded ({})", run.summary.degraded_means());
    for (status, title) in [
        (Status::Failed, "Failed"),
        (Status::Degraded, degraded.as_str()),
        (Status::Skipped, "Skipped"),
    ] {
        let rows = rows(&run.summary.troubles, status);
        if !rows.is_empty() {
            tables.push(Sheet {
                title: title.to_owned(),
                heads: ["Why", "Remedy", "Mechanisms", "Cases", "Trials"]
                    .map(str::to_owned)
                    .to_vec(),
                rows,
                sortable: false,
                notes: Vec::new(),
            });
        }
    }
    (!tables.is_empty()).then(|| Section {
        id: "troubles",
        title: "Skipped, failed, degraded",
        paragraphs: vec![
            "These tables say why figures are missing and what helps. `crossway doctor` checks this machine and prints \
             what each mechanism needs."
                .to_owned(),
        ],
        tables,
        ..Section::default()
    })
}

/// Returns the rows of the table of trials with this status, one per reason.
fn rows(troubles: &[Trouble], status: Status) -> Vec<Row> {
    let number = |n: usize| Cell { text: n.to_string(), sort: Some(n as f64), ..Cell::default() };
    let row = |reason: Reason<'_>| Row {
        class: None,
        cells: vec![
            Cell {
                text: reason.first.reason.clone(),
                note: reason.several.then(|| "for example".to_owned()),
                ..Cell::default()
            },
            Cell::text(reason.first.remedy.as_deref().unwrap_or("–")),
            Cell::text(reason.mechanisms.join(", ")),
            number(reason.cases.len()),
            number(reason.trials),
        ],
    };
    by_reason(troubles, status).into_iter().map(row).collect()
}
