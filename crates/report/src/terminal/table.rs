//! Tables for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};

use super::text::{clean, wrap};
use crate::blocks::DEGRADED;
use crate::blocks::paced::{LATE, SENDER_LATE};
use crate::sheet::{self, Row, Sheet};
use crossway_records::rank::WaitClass;

/// The heads of the columns in a sheet, each with the shorter one used here, in order of
/// usefulness. Columns that do not fit the width of the terminal are printed in further tables
/// below. A head that is not listed is printed as it is, and counts as the least useful.
const HEADS: [(&str, &str); 27] = [
    ("Mechanism", "Mechanism"),
    ("Round trip p50", "RTT p50"),
    ("Exchange or latency p50", "p50"),
    ("Offered", "offered"),
    ("Achieved", "achieved"),
    (SENDER_LATE, "sender late"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("Throughput", "Throughput"),
    ("Exchanges or messages", "rate"),
    ("Set-up p50", "set-up"),
    ("Exchange p50", "exchange"),
    ("Tear-down p50", "tear-down"),
    ("Total", "total"),
    ("CPU / exchange", "CPU"),
    ("CPU / message", "CPU/msg"),
    ("CPU / each", "CPU/each"),
    ("max", "max"),
    (LATE, "late"),
    ("p99.9", "p99.9"),
    ("Fairness", "fairness"),
    ("Least fair", "least fair"),
    ("Longest wait", "longest wait"),
    ("Noise", "noise"),
    ("CPU / round trip", "CPU/RTT"),
    ("Messages", "messages"),
];

/// Returns all columns of a sheet, as their positions and their short heads.
pub(super) fn columns(sheet: &Sheet) -> Vec<(usize, &str)> {
    sheet.heads.iter().map(|head| short(head)).enumerate().collect()
}

/// Returns the short form of a head.
fn short(head: &str) -> &str {
    HEADS.iter().find(|(full, _)| *full == head).map_or(head, |(_, short)| short)
}

/// The column that is only mentioned, not printed, if it does not fit: it qualifies the others.
const DISPENSABLE: &str = "Messages";

/// Formats a table with as many columns as fit `width`, the most useful ones; the others follow in
/// further tables below.
pub(super) fn table(sheet: &Sheet, colours: bool, width: u16) -> String {
    let table = Drawing::of(sheet, colours);
    let dispensable = |at: usize| sheet.heads[at] == DISPENSABLE;
    let mut left = columns(sheet);
    let mut parts = Vec::new();
    while left.len() > 1 || parts.is_empty() {
        let (kept, text) = table.fitting(left.clone(), width);
        parts.push(text);
        left.retain(|column| column.0 == 0 || !kept.contains(column));
        if left.iter().all(|(at, _)| *at == 0 || dispensable(*at)) {
            break;
        }
    }
    let hidden: Vec<&str> = left.iter().skip(1).map(|(_, head)| *head).collect();
    if !hidden.is_empty() {
        let text = format!("Not shown in {width} columns: {}.", hidden.join(", "));
        parts.push(wrap(&text, width));
    }
    parts.join("\n\n")
}

/// Formats a table with as many columns as fit `width`, without the others.
pub(super) fn fitting(sheet: &Sheet, colours: bool, width: u16) -> String {
    Drawing::of(sheet, colours).fitting(columns(sheet), width).1
}

/// A sheet, about to be drawn.
struct Drawing<'a> {
    sheet: &'a Sheet,
    texts: Vec<Vec<String>>,
    /// The rows above which the wait class of those below is stated.
    headed: BTreeSet<usize>,
    colours: bool,
}

impl Drawing<'_> {
    fn of(sheet: &Sheet, colours: bool) -> Drawing<'_> {
        let texts = sheet.rows.iter().map(texts).collect();
        let several = sheet.rows.windows(2).any(|rows| rows[0].class != rows[1].class);
        let begins = |at: &usize| match at.checked_sub(1) {
            None => several || sheet.rows[0].class.is_some(),
            Some(above) => sheet.rows[above].class != sheet.rows[*at].class,
        };
        let headed = (0..sheet.rows.len()).filter(begins).collect();
        Drawing { sheet, texts, headed, colours }
    }

    /// Returns the columns that fit, the most useful ones, and the table of them.
    fn fitting<'c>(
        &self,
        mut kept: Vec<(usize, &'c str)>,
        width: u16,
    ) -> (Vec<(usize, &'c str)>, String) {
        let priority = |at: usize| {
            let head = &self.sheet.heads[at];
            HEADS.iter().position(|(full, _)| head == *full).unwrap_or(HEADS.len())
        };
        loop {
            let plain = self.drawn(&kept, false);
            let widest = plain.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            if widest <= usize::from(width) || kept.len() <= 2 {
                let text = if self.colours { self.drawn(&kept, true) } else { plain };
                return (kept, text);
            }
            let last = kept.iter().map(|(at, _)| *at).max_by_key(|at| priority(*at));
            kept.retain(|(at, _)| Some(*at) != last);
        }
    }

    fn drawn(&self, columns: &[(usize, &str)], colours: bool) -> String {
        let mut table = Table::new();
        table
            .load_style(
                TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')),
            )
            .set_content_arrangement(ContentArrangement::Disabled);
        if colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(columns.iter().map(|(_, head)| Cell::new(head)));
        for (number, (row, texts)) in self.sheet.rows.iter().zip(&self.texts).enumerate() {
            if self.headed.contains(&number) {
                let class = row.class.unwrap_or(WaitClass::Blocking.name());
                table.add_row([Cell::new(format!("{class}:")).fg(Color::Yellow)]);
            }
            table.add_row(columns.iter().map(|(at, _)| {
                let shown = Cell::new(&texts[*at]);
                match row.cells[*at].best {
                    true => shown.add_attribute(Attribute::Bold).fg(Color::Green),
                    false => shown,
                }
            }));
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            // The mark of the best, or the blank in its place, separates the columns.
            column.set_padding((u16::from(at > 0), 0));
            if at > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let text = table.to_string();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the printed cells of a row. The best figure is marked, and the name is followed by the
/// words that qualify the row.
fn texts(row: &Row) -> Vec<String> {
    let one = |(at, cell): (usize, &sheet::Cell)| {
        let mut text = clean(&cell.text);
        if at > 0 || cell.best {
            // All marks share two columns, so that the digits of a column stay aligned.
            let best = if cell.best { "*" } else { "" };
            let _ = write!(text, "{:>2}", format!("{}{best}", cell.marks));
        }
        if at == 0 {
            words(row).iter().for_each(|word| {
                let _ = write!(text, " ({word})");
            });
        }
        text
    };
    row.cells.iter().enumerate().map(one).collect()
}

/// Returns the words that qualify a row.
pub(super) fn words(row: &Row) -> Vec<&str> {
    let name = row.cells.first().and_then(|name| name.note.as_deref()).unwrap_or_default();
    let mut words: Vec<&str> = name.split(", ").filter(|word| !word.is_empty()).collect();
    if !words.contains(&DEGRADED) && row.cells.iter().any(|c| c.note.as_deref() == Some(DEGRADED)) {
        words.push(DEGRADED);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_in_no_list_is_printed_and_gives_way_first() {
        let heads = ["Mechanism", "Never heard of", "p50"];
        let sheet = Sheet {
            heads: heads.map(str::to_owned).to_vec(),
            rows: vec![Row { class: None, cells: heads.map(sheet::Cell::text).to_vec() }],
            ..Sheet::default()
        };
        assert_eq!(columns(&sheet).iter().map(|(_, head)| *head).collect::<Vec<_>>(), heads);
        let narrow = table(&sheet, false, 20);
        let (first, further) = narrow.split_once("\n\n").unwrap();
        assert!(first.contains("p50") && further.contains("Never heard of"), "{narrow}");
    }

    #[test]
    fn what_does_not_fit_side_by_side_stands_below_or_is_named() {
        let heads =
            ["Mechanism", "Offered", "Achieved", "p50", "p99.9", "max", "Noise", "Messages"];
        let cells = heads.map(|head| sheet::Cell::text(format!("{head} 12.3")));
        let sheet = Sheet {
            heads: heads.map(str::to_owned).to_vec(),
            rows: vec![Row { class: None, cells: cells.to_vec() }],
            ..Sheet::default()
        };
        let wide = table(&sheet, false, 200);
        assert_eq!(wide.matches("Mechanism 12.3").count(), 1, "{wide}");
        assert!(!wide.contains("Not shown"), "{wide}");
        let narrow = table(&sheet, false, 50);
        assert!(narrow.lines().all(|line| line.chars().count() <= 50), "{narrow}");
        // Every figure appears exactly once, with its mechanism.
        for head in ["Offered", "Achieved", "p50", "p99.9", "max"] {
            assert_eq!(narrow.matches(&format!("{head} 12.3")).count(), 1, "{head}: {narrow}");
        }
        assert!(narrow.matches("Mechanism 12.3").count() > 1, "{narrow}");
        assert!(narrow.contains("\nNot shown in 50 columns: "), "{narrow}");
    }
}
