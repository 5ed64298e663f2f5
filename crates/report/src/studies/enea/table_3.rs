//! Table 3 with the study's colours and those computed here, and the finding that compares them (item E23).

use super::super::{Claim, Finding, Verdict};
use super::colours::{
    COLUMNS, Colour, LARGE, Property, ROWS, SMALL, THRESHOLDS, computed, thresholds,
};
use crate::run::Run;
use crate::sheet::{Cell, Row, Sheet};

/// Returns the mechanisms that correspond to a column of the study: the usual and the spinning one.
fn ids(column: usize) -> (&'static str, &'static str) {
    let (_, usual, spinning) = COLUMNS[column];
    (usual, spinning)
}

/// Returns the number of cells that have a colour here, and how many of them have the study's colour.
fn agreement(run: &Run) -> (usize, usize) {
    let t = thresholds(run);
    let cells = ROWS.iter().flat_map(|(_, property, theirs)| {
        (0..COLUMNS.len())
            .filter_map(move |c| Some((computed(run, *property, ids(c), &t)?.colour, theirs[c])))
    });
    let cells: Vec<_> = cells.collect();
    (cells.len(), cells.iter().filter(|(ours, theirs)| ours == theirs).count())
}

/// Judges the study's claim E23, the colours of its Table 3.
pub(super) fn finding(run: &Run) -> Finding {
    let claim = Claim {
        id: "E23",
        title: "Table 3",
        says: "Eight properties of shared memory, pipe, UNIX domain socket and TCP as green, yellow and red, chosen subjectively.",
        rule: "Colours computed from this run and its fault matrix by the thresholds printed with Table 3 below. Confirmed: at least three quarters of the cells that \
               were measured have the study's colour.",
    };
    let (measured, same) = agreement(run);
    if measured == 0 {
        return claim.without_records(
            "nothing of Table 3 was measured; `crossway measure enea` measures it".to_owned(),
        );
    }
    let verdict = match () {
        () if measured < 16 => Verdict::NotMeasurable,
        () if same * 4 >= measured * 3 => Verdict::Confirmed,
        () => Verdict::NotConfirmed,
    };
    let why =
        format!("{same} of the {measured} cells measured here (of 32) have the study's colour");
    claim.judged("this machine", Vec::new(), verdict, why)
}

/// Returns the table, and the paragraph that explains it.
pub(super) fn sheet(run: &Run) -> Option<(Sheet, String)> {
    let (measured, same) = agreement(run);
    if measured == 0 {
        return None;
    }
    let t = thresholds(run);
    let cell = |property: Property, column: usize, theirs: Colour| match computed(
        run,
        property,
        ids(column),
        &t,
    ) {
        Some(ours) => Cell {
            text: format!(
                "{} (study: {}){}",
                ours.colour.name(),
                theirs.name(),
                if ours.colour == theirs { " ✓" } else { "" }
            ),
            note: Some(format!("{}; {}", ours.why, ours.records)),
            colour: Some(ours.colour.name()),
            ..Cell::default()
        },
        None => Cell::text(format!("not measured (study: {})", theirs.name())),
    };
    let rows = ROWS
        .iter()
        .map(|(name, property, theirs)| {
            let mut cells = vec![Cell::text(*name)];
            cells.extend((0..COLUMNS.len()).map(|c| cell(*property, c, theirs[c])));
            Row { class: None, cells }
        })
        .collect();
    let words = format!(
        "Table 3: {same} of {measured} measured cells agree with the study's subjective colours; those that agree are marked ✓. Limits of green and red: round trips up to {} and \
         above {} times the best, throughput down to the best divided by {} and below the best divided by {} ({SMALL} and {LARGE} bytes), under load up to {} and above {} \
         times slower. Data integrity: red if a peer's stray writes destroyed messages sent before them, yellow if a message was received that was never sent. \
         Monitoring: red if a survivor got no error, green if it got one within {} ms (median). To change the thresholds, put a file {THRESHOLDS} beside the records, e.g. \
         {{\"latency_green\": 2.0}}; its keys: latency_green, latency_red, throughput_green, throughput_red, load_green, load_red, told_green_ms. Line numbers refer to \
         results.jsonl and faults.jsonl.",
        t.latency_green,
        t.latency_red,
        t.throughput_green,
        t.throughput_red,
        t.load_green,
        t.load_red,
        t.told_green_ms
    );
    let sheet = Sheet {
        title: "Table 3, computed".to_owned(),
        heads: ["Property"]
            .into_iter()
            .chain(COLUMNS.map(|(name, _, _)| name))
            .map(str::to_owned)
            .collect(),
        rows,
        sortable: false,
        notes: Vec::new(),
    };
    Some((sheet, words))
}
