//! The footnotes of tables: marks and words with their explanations, and why cases have no CPU time.

use std::collections::BTreeMap;

use crossway_records::awake::busy_explained;
use crossway_records::rank::{MOVED, WaitClass, moved_explained};
use crossway_records::regimes::{Regime, Regimes};

use crate::sheet::Row;
use crate::summary::{Case, Summary, without_numbers};
use crate::units::{self, Quantity};
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

/// The word for rows of which some trials missed the rate.
pub(super) const MISSED: &str = "missed rate";

/// Explains [`MISSED`] with the number of trials of each row that has the word; the note of the cell with the achieved
/// rate has it.
fn missed_explained(rows: &[Row]) -> String {
    let numbers = rows.iter().filter(|row| has_word(row, MISSED)).filter_map(|row| {
        let achieved = row.cells.iter().filter_map(|cell| cell.note.as_deref());
        let note = achieved.into_iter().find(|note| note.contains("missed in"))?;
        Some(format!("{}: {note}", row.cells.first()?.text))
    });
    format!(
        "{MISSED}: some trials missed the rate, and the figures include them: {}",
        numbers.collect::<Vec<_>>().join("; ")
    )
}

/// The word for rows with a figure of too few trials to be ranked.
pub(crate) const FEW: &str = "few trials";

/// The word for rows with a case whose trials fall into two groups.
pub(crate) const TWO_REGIMES: &str = "two regimes";

/// Explains [`TWO_REGIMES`]: the two groups of each of these cases that has them, and what differs between them.
pub(super) fn two_regimes<'a>(
    summary: &Summary,
    cases: impl IntoIterator<Item = &'a Case>,
) -> Vec<String> {
    let note = |case: &Case| {
        let regimes = case.regimes?;
        let label = summary.contenders[case.contender].label();
        Some(format!("{TWO_REGIMES}: {label}, {}, so it is not ranked", regimes_in_words(&regimes)))
    };
    cases.into_iter().filter_map(note).collect()
}

/// Adds a word to the name of a row, unless it is there.
pub(super) fn add_word(row: &mut Row, word: &str) {
    if has_word(row, word) {
        return;
    }
    if let Some(name) = row.cells.first_mut() {
        name.note =
            Some(name.note.take().map_or(word.to_owned(), |note| format!("{note}, {word}")));
    }
}

fn remove_word(row: &mut Row, word: &str) {
    if let Some(name) = row.cells.first_mut() {
        let words = name.note.take().unwrap_or_default();
        let left: Vec<&str> = words.split(", ").filter(|one| *one != word).collect();
        name.note = Some(left.join(", ")).filter(|note| !note.is_empty());
    }
}

fn has_word(row: &Row, word: &str) -> bool {
    let note = row.cells.first().and_then(|name| name.note.as_deref());
    note.is_some_and(|note| note.split(", ").any(|one| one == word))
}

/// Explains [`FEW`] with the number of trials of each row that has the mark. If the marked figures of a row are from
/// different numbers of trials, their columns are named.
fn few_explained(heads: &[String], rows: &[Row]) -> String {
    let mut by_trials: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for row in rows {
        let Some(name) = row.cells.first() else { continue };
        let mut columns: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (head, cell) in heads.iter().zip(&row.cells).filter(|(_, c)| c.few_trials.is_some()) {
            columns.entry(cell.few_trials.unwrap_or(0)).or_default().push(head);
        }
        // The row's word does not say which of its figures it is about.
        let several = columns.len() > 1 || row.cells.iter().any(|cell| cell.trials.is_some());
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
    format!("{FEW}: fewer than five good trials, and therefore not ranked: {}", numbers.join("; "))
}

/// Explains settings with a size of buffers.
pub const SIZES_ARE_REQUESTS: &str = "“socket buffer” and “capacity” are requests: a mechanism without such a buffer \
                                      ignores them, and others may round them; results.jsonl has the sizes that were \
                                      in use, under facts";

/// Maximum number of rows that are named because they lack a word that all others have.
const WITHOUT_MAX: usize = 5;

/// How the bracket begins that says which rows have a word, if that is said only once.
pub(crate) const ALL_ROWS: &str = "all rows";

/// Takes a word out of the rows if nearly all have it, and says which have it; `None` if the word
/// stays.
fn said_once(rows: &mut [Row], word: &str) -> Option<String> {
    let name = |row: &Row| row.cells.first().map_or(String::new(), |cell| cell.text.clone());
    let lack: Vec<String> = rows.iter().filter(|row| !has_word(row, word)).map(name).collect();
    let have = rows.len() - lack.len();
    if have < 3 || lack.len() > WITHOUT_MAX || lack.len() >= have {
        return None;
    }
    rows.iter_mut().for_each(|row| remove_word(row, word));
    Some(match lack.is_empty() {
        true => ALL_ROWS.to_owned(),
        false => format!("{ALL_ROWS} except {}", list(lack.into_iter())),
    })
}

/// Explains a word, and says which rows have it if that is said only once.
fn explained_once(rows: &mut [Row], word: &str, explanation: String) -> String {
    let which = said_once(rows, word);
    which.map_or(explanation.clone(), |which| {
        explanation.replacen(word, &format!("{word} ({which})"), 1)
    })
}

/// Returns the footnotes that explain the marks and the words in these rows. A word that nearly all
/// rows have is taken out of them: its footnote says which have it.
pub(super) fn marks_explained(heads: &[String], rows: &mut [Row]) -> Vec<String> {
    let marked = |mark| rows.iter().flat_map(|r| &r.cells).any(|c| c.marks.contains(mark));
    let worded = |word: &str| rows.iter().any(|row| has_word(row, word));
    let busy = rows.iter().any(|row| row.class == Some(WaitClass::Busy.name()));
    let [missed, few, moved] = [MISSED, FEW, MOVED].map(worded);
    let mut notes = Vec::new();
    notes.extend(missed.then(|| missed_explained(rows)));
    notes.extend(marked(POOLED).then(|| format!("{POOLED} {POOLED_MEANS}")));
    notes.extend(marked(BEYOND).then(|| format!("{BEYOND} {BEYOND_MEANS}")));
    if few {
        let explanation = few_explained(heads, rows);
        notes.push(explained_once(rows, FEW, explanation));
    }
    notes.extend(busy.then(busy_explained));
    if moved {
        notes.push(explained_once(rows, MOVED, moved_explained()));
    }
    notes
}

/// The two groups in words: `two groups of trials: 17.4–17.9 µs (3 trials) and 38.9–52.9 µs (2 trials); ...`.
pub fn regimes_in_words(regimes: &Regimes) -> String {
    let quantity = Quantity::of(regimes.speed);
    let group = |r: &Regime| {
        let range = quantity.show_interval(r.max, r.min, r.max);
        format!("{range} ({})", units::count(r.trials, "trial", "trials"))
    };
    format!("{} or {}: {}", group(&regimes.low), group(&regimes.high), regimes.difference())
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
