//! The one table that answers a run, for readers who have ten seconds.

use std::collections::BTreeSet;

use super::comparison::of_compared;
use super::{Block, blocks};
use crate::ranking::Metric;
use crate::sheet::{Row, Sheet};
use crate::summary::Summary;

/// Maximum number of rows.
const ROWS_MAX: usize = 12;
/// Number of the best of the first class that the table has in any case; of the others it is one.
const FIRST_BEST: usize = 3;
/// The mechanisms that most readers know, to compare the others with.
const KNOWN: [&str; 3] = ["pipe", "uds-stream", "tcp"];

/// Returns the table, whose figures have two digits, and the number of rows left out; `None` if the
/// run has no figures. It has the figures by which the first setting is judged (`compared`), or
/// else those of the first table. Of many contenders, it has the best of each class and the known
/// ones.
pub(crate) fn short(summary: &Summary, compared: &[(Metric, u64)]) -> Option<(Sheet, usize)> {
    let mut sheet = match of_compared(summary, compared) {
        Some(sheet) => sheet,
        None => first(blocks(summary, 1).0)?,
    };
    let all = sheet.rows.len();
    let picked = picked(&sheet.rows);
    let mut at = 0..;
    sheet.rows.retain(|_| at.next().is_some_and(|at: usize| picked.contains(&at)));
    for cell in sheet.rows.iter_mut().flat_map(|row| &mut row.cells) {
        if let Some(short) = cell.short.take() {
            cell.text = short;
        }
    }
    let left_out = all - sheet.rows.len();
    Some((sheet, left_out))
}

fn first(blocks: Vec<Block>) -> Option<Sheet> {
    let block = blocks.into_iter().next()?;
    let sheet = block.sheets.into_iter().next()?;
    Some(Sheet { title: format!("{}: {}", block.title, sheet.title), ..sheet })
}

/// Returns the positions of the rows that the table keeps. Rows are ordered by class, the best of
/// each class first.
fn picked(rows: &[Row]) -> BTreeSet<usize> {
    if rows.len() <= ROWS_MAX {
        return (0..rows.len()).collect();
    }
    let classes: Vec<_> = rows.chunk_by(|a, b| a.class == b.class).collect();
    let begins: Vec<usize> = classes
        .iter()
        .scan(0, |at, class| Some(std::mem::replace(at, *at + class.len())))
        .collect();
    let known = |row: &Row| row.cells.first().is_some_and(|name| KNOWN.contains(&&*name.text));
    let best = |column: usize| {
        let of_class = |(begin, class): (&usize, &&[Row])| {
            class.iter().position(|row| row.cells[column].best).map(|at| begin + at)
        };
        std::iter::zip(&begins, &classes).filter_map(of_class).collect::<Vec<_>>()
    };
    let columns = rows[0].cells.len();
    let wanted = begins
        .iter()
        .copied()
        .chain((0..rows.len()).filter(|at| known(&rows[*at])))
        .chain((1..columns).flat_map(best))
        .chain(0..classes[0].len().min(FIRST_BEST));
    let mut picked = BTreeSet::new();
    for at in wanted {
        if picked.len() < ROWS_MAX {
            picked.insert(at);
        }
    }
    picked
}
