//! Pairs of mechanisms whose order is reversed under load (item E9 of the Enea study). A pair counts only if the two
//! mechanisms have different ranks, both without load and under load. Their intervals may overlap all the same, because
//! mechanisms share a rank if their intervals overlap that of the first mechanism of the rank.

use crossway_records::rank::{By, Reversal, rank};
use crossway_records::record::Record;

use crate::sheet::{Cell, Row, Sheet};

/// Maximum number of reversals in the sentence; the table lists all.
const TOLD_MAX: usize = 3;

fn found(records: &[Record]) -> Vec<Reversal> {
    rank(records.iter().filter(|r| r.inputs.testbed.is_none())).reversals
}

/// Describes the reversals in one sentence.
pub(super) fn in_words(records: &[Record]) -> String {
    let found = found(records);
    if found.is_empty() {
        return "in the ranking, in which mechanisms with overlapping intervals share a rank, load makes no two \
                mechanisms change places"
            .to_owned();
    }
    let told: Vec<String> = found
        .iter()
        .take(TOLD_MAX)
        .map(|r| format!("{} falls behind {} ({})", r.better_idle, r.better_loaded, r.setting))
        .collect();
    let more = found.len() - told.len();
    let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("under load, {}{rest}", told.join("; "))
}

/// Returns the table of all reversals.
pub(super) fn sheet(records: &[Record]) -> Option<Sheet> {
    let rows: Vec<Row> = found(records)
        .into_iter()
        .map(|r| Row {
            class: None,
            cells: vec![
                Cell::text(r.setting),
                Cell::text(match r.by {
                    By::Speed => "speed",
                    By::BitsPerCpuS => "bits per CPU-second",
                }),
                Cell::text(r.better_idle),
                Cell::text(r.better_loaded),
                Cell::text("the 95 % intervals put the two in different ranks, without load and under load"),
            ],
        })
        .collect();
    (!rows.is_empty()).then(|| Sheet {
        title: "Ranks reversed by load".to_owned(),
        heads: ["Setting", "Ranked by", "Better without load", "Better under load", "Certainty"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        sortable: true,
        notes: Vec::new(),
    })
}
