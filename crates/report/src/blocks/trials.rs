//! The number of trials of the figures, which is stated once for a block instead of in every cell.

use std::collections::BTreeMap;

use crate::sheet::{Cell, Sheet, from_trials};

/// Removes the number of trials from the notes of all figures that have the most frequent one, and returns it; `None`
/// if no figure has an interval.
pub(super) fn state_once(sheets: &mut [Sheet]) -> Option<usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for trials in cells(sheets).filter_map(|cell| cell.trials) {
        *counts.entry(trials).or_default() += 1;
    }
    let (usual, _) = counts.into_iter().max_by_key(|(_, cells)| *cells)?;
    let stated = from_trials(usual);
    for note in cells(sheets).filter(|c| c.trials == Some(usual)).filter_map(|c| c.note.as_mut()) {
        *note = note.replacen(&stated, "", 1);
    }
    Some(usual)
}

fn cells(sheets: &mut [Sheet]) -> impl Iterator<Item = &mut Cell> {
    sheets.iter_mut().flat_map(|sheet| &mut sheet.rows).flat_map(|row| &mut row.cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::Row;
    use crate::units::Quantity;
    use crossway_records::stats::Estimate;

    #[test]
    fn only_an_unusual_number_of_trials_stays_in_its_cell() {
        let cell = |n: usize| {
            let figure = Estimate { value: 2.0, low: 1.0, high: 3.0, n };
            Cell::figure(Quantity::Number, Some(figure))
        };
        let row = |cells: Vec<Cell>| Row { class: None, cells };
        let mut sheets = [
            Sheet { rows: vec![row(vec![cell(5), cell(7)])], ..Sheet::default() },
            Sheet { rows: vec![row(vec![cell(5), cell(3)])], ..Sheet::default() },
        ];
        assert_eq!(state_once(&mut sheets), Some(5));
        let notes: Vec<String> = cells(&mut sheets).filter_map(|cell| cell.note.clone()).collect();
        assert_eq!(notes, ["1.00–3.00", "1.00–3.00, n = 7", "1.00–3.00", "3 trials"]);
        let mut few = [Sheet { rows: vec![row(vec![cell(3)])], ..Sheet::default() }];
        assert_eq!(state_once(&mut few), None);
    }
}
