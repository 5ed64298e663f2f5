//! The footnotes of tables: marks and their explanations, and why cases have no CPU time.

use std::collections::BTreeMap;

use crossway_records::rank::{MOVED, moved_explained};

use crate::awake::{AWAKE, awake_explained};
use crate::sheet::Row;
use crate::summary::{Case, Summary, without_numbers};
use crate::units;
use crate::verdict::list;

/// Footnote mark of a percentile that was computed from the samples of all trials.
pub(super) const POOLED: char = '°';
const POOLED_MEANS: &str = "computed from the samples of all trials, each trial with the same weight, because at least \
                            one trial has too few samples for this percentile";
/// Footnote mark of a figure that is better than its physical limit.
pub const BEYOND: char = '†';
/// Explains [`BEYOND`].
pub const BEYOND_MEANS: &str = "beyond the limit that was measured between the trials, with its whole interval: the figure is wrong, or the \
                            mechanism avoids a cost that the limit includes, or the loop that measured the limit was \
                            slower than is possible here (see “Physical limits” in the report)";

/// Footnote mark of an achieved rate that some of the trials missed; the cell's note has their number.
pub(super) const MISSED: char = '◊';

/// Explains [`MISSED`] with the number of trials of each row that has the mark.
fn missed_explained(rows: &[Row]) -> String {
    let numbers = rows.iter().filter_map(|row| {
        let cell = row.cells.iter().find(|cell| cell.marks.contains(MISSED))?;
        Some(format!("{}: {}", row.cells.first()?.text, cell.note.as_deref()?))
    });
    format!(
        "some trials missed the rate, and the figures include them: {}",
        numbers.collect::<Vec<_>>().join("; ")
    )
}

/// Footnote mark of a figure with too few trials to be ranked.
pub(super) const FEW: char = '‡';

/// Explains [`FEW`] with the number of trials of each row that has the mark. If the marked figures of a row are from
/// different numbers of trials, their columns are named.
fn few_explained(heads: &[String], rows: &[Row]) -> String {
    let mut by_trials: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for row in rows {
        let Some(name) = row.cells.first() else { continue };
        let mut columns: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (head, cell) in heads.iter().zip(&row.cells).filter(|(_, c)| c.marks.contains(FEW)) {
            columns.entry(cell.few_trials.unwrap_or(0)).or_default().push(head);
        }
        let several = columns.len() > 1;
        for (trials, columns) in columns {
            let figures =
                if several { format!(" ({})", columns.join(", ")) } else { String::new() };
            by_trials.entry(trials).or_default().push(format!("{}{figures}", name.text));
        }
    }
    let of = |(trials, names): (usize, Vec<String>)| {
        let trials = units::count(trials, "good trial", "good trials");
        let each = if names.len() > 1 { " each" } else { "" };
        format!("{trials}{each} of {}", list(names.into_iter()))
    };
    let numbers: Vec<String> = by_trials.into_iter().map(of).collect();
    format!("fewer than five good trials, and therefore not ranked: {}", numbers.join("; "))
}

/// Explains settings with a size of buffers.
pub const SIZES_ARE_REQUESTS: &str = "“socket buffer” and “capacity” are requests: a mechanism without such a buffer \
                                      ignores them, and others may round them; results.jsonl has the sizes that were \
                                      in use, under facts";

/// Returns the footnotes that explain the marks in these rows.
pub(super) fn marks_explained(heads: &[String], rows: &[Row]) -> Vec<String> {
    let has = |mark| rows.iter().flat_map(|r| &r.cells).any(|c| c.marks.contains(mark));
    let (awake, moved, few) = (awake_explained(), moved_explained(), few_explained(heads, rows));
    let missed = missed_explained(rows);
    let marks: [(char, &str); 6] = [
        (MISSED, &missed),
        (POOLED, POOLED_MEANS),
        (BEYOND, BEYOND_MEANS),
        (FEW, &few),
        (AWAKE, &awake),
        (MOVED, &moved),
    ];
    marks
        .into_iter()
        .filter(|(mark, _)| has(*mark))
        .map(|(mark, means)| format!("{mark} {means}"))
        .collect()
}

/// Returns a footnote for each reason why some of these cases have no CPU time. Reasons that differ only in numbers are
/// merged.
pub(super) fn without_cpu_time<'a>(
    summary: &Summary,
    cases: impl IntoIterator<Item = &'a Case>,
) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for case in cases {
        let Some(why) = &case.no_cpu_time else { continue };
        let same = |(of, _): &(&str, _)| without_numbers(of) == without_numbers(why);
        let at = reasons.iter().position(same).unwrap_or_else(|| {
            reasons.push((why, Vec::new()));
            reasons.len() - 1
        });
        let label = summary.contenders[case.contender].label();
        if !reasons[at].1.contains(&label) {
            reasons[at].1.push(label);
        }
    }
    let note = |(why, labels): (&str, Vec<String>)| {
        format!("no CPU time is shown for {}: {why}", list(labels.into_iter()))
    };
    reasons.into_iter().map(note).collect()
}
