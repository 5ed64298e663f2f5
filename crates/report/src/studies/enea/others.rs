//! Table 3 for mechanisms and contenders that the study did not rate.

use std::collections::BTreeSet;

use super::colours::{COLUMNS, Computed, Property, ROWS, computed, thresholds};
use crate::run::Run;
use crate::sheet::{Cell, Row, Sheet};
use crossway_records::sorting::CollectTree;

/// Returns the table of the colours of every mechanism and contender of the run that the study did not rate, one per
/// row.
pub(super) fn sheet(run: &Run) -> Option<Sheet> {
    let t = thresholds(run);
    let studied =
        |id: &str| COLUMNS.iter().any(|(_, usual, spinning)| [usual, spinning].contains(&&id));
    let measured = run.records.iter().map(|r| r.mechanism.as_str());
    let broken = run.faults.iter().map(|r| r.mechanism.as_str());
    let ids: BTreeSet<&str> = measured.chain(broken).filter(|id| !studied(id)).collect_tree();
    let rows: Vec<Row> = ids
        .into_iter()
        .filter_map(|id| {
            let of =
                |(_, property, _): &(&str, Property, _)| computed(run, *property, (id, id), &t);
            let cells: Vec<_> = ROWS.iter().map(of).collect();
            cells.iter().any(Option::is_some).then(|| Row {
                class: None,
                cells: [Cell::text(id)].into_iter().chain(cells.into_iter().map(shown)).collect(),
            })
        })
        .collect();
    (!rows.is_empty()).then(|| Sheet {
        title: "Table 3 for the other mechanisms and contenders".to_owned(),
        heads: ["Mechanism"]
            .into_iter()
            .chain(ROWS.map(|(name, ..)| name))
            .map(str::to_owned)
            .collect(),
        rows,
        sortable: true,
        notes: vec![
            "Colours by the same thresholds, relative to the best of the study's four mechanisms. A dash means that \
             the property was not measured in this run. Spinning trials count only for mechanisms without blocking \
             trials."
                .to_owned(),
        ],
    })
}

/// Makes a cell with a computed colour; the study has none to compare with.
fn shown(ours: Option<Computed>) -> Cell {
    let Some(ours) = ours else { return Cell::text("–") };
    Cell {
        text: ours.colour.name().to_owned(),
        note: Some(ours.note()),
        sort: Some(f64::from(ours.colour as u8)),
        colour: Some(ours.colour.name()),
        ..Cell::default()
    }
}
