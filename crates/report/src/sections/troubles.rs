//! Trials that were skipped, failed or degraded, and why.

use std::collections::BTreeSet;

use crossway_lab::record::Status;

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::Trouble;

pub(super) fn troubles(run: &Run) -> Option<Section> {
    let mut tables = Vec::new();
    for (status, title) in [
        (Status::Failed, "Failed"),
        (Status::Degraded, "Degraded: kept, but left out of the figures where clean trials exist"),
        (Status::Skipped, "Skipped"),
    ] {
        let rows = by_reason(&run.summary.troubles, status);
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
            "Why figures are missing, and the remedy. `crossway doctor` makes the same checks on this machine and prints what each mechanism \
             needs."
                .to_owned(),
        ],
        tables,
        ..Section::default()
    })
}

/// One row per reason, the most frequent first. Reasons that differ only in their numbers share a row, which shows the first.
fn by_reason(troubles: &[Trouble], status: Status) -> Vec<Row> {
    struct Group<'a> {
        first: &'a Trouble,
        several: bool,
        mechanisms: Vec<&'a str>,
        cases: BTreeSet<&'a str>,
        trials: usize,
    }
    let without_numbers = |text: &str| {
        let mut out = text.replace(|c: char| c.is_ascii_digit() || ".,".contains(c), "#");
        while out.contains("##") {
            out = out.replace("##", "#");
        }
        out
    };
    let mut groups: Vec<(String, Group<'_>)> = Vec::new();
    for trouble in troubles.iter().filter(|t| t.status == status) {
        let key = without_numbers(&trouble.reason);
        let at = groups.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
            let first = trouble;
            groups.push((
                key,
                Group {
                    first,
                    several: false,
                    mechanisms: Vec::new(),
                    cases: BTreeSet::new(),
                    trials: 0,
                },
            ));
            groups.len() - 1
        });
        let group = &mut groups[at].1;
        group.several |= trouble.reason != group.first.reason;
        if !group.mechanisms.contains(&trouble.mechanism.as_str()) {
            group.mechanisms.push(&trouble.mechanism);
        }
        group.cases.extend(trouble.cases.iter().map(String::as_str));
        group.trials += trouble.trials;
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.trials));
    let number = |n: usize| Cell { text: n.to_string(), sort: Some(n as f64), ..Cell::default() };
    let row = |(_, group): (String, Group<'_>)| Row {
        class: None,
        cells: vec![
            Cell {
                text: group.first.reason.clone(),
                note: group.several.then(|| "for example".to_owned()),
                ..Cell::default()
            },
            Cell::text(group.first.remedy.as_deref().unwrap_or("–")),
            Cell::text(group.mechanisms.join(", ")),
            number(group.cases.len()),
            number(group.trials),
        ],
    };
    groups.into_iter().map(row).collect()
}

/// The word for a status.
pub fn status_name(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Degraded => "degraded",
        Status::Failed => "failed",
        Status::Skipped => "skipped",
    }
}
