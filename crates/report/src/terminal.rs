//! The summary of a run for a terminal and as Markdown.

use std::fmt::Write as _;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};

mod left_out;

use crate::blocks::paced::{LATE, LATE_EXPLAINED, SENDER_LATE, SENDER_LATE_EXPLAINED};
use crate::blocks::{BEST, Block, DEGRADED, blocks, have_best, have_column, have_noise};
use crate::run::Run;
use crate::sections::goals;
use crate::sheet::{self, Row, Sheet};
use crate::steps::{self, Shapes};
use crate::studies::{self, Study};
use crate::units::count;
use crossway_records::rank::WaitClass;
use crossway_records::stats::interval_name;
use left_out::left_out;

/// Maximum number of blocks printed; the page shows more.
const BLOCKS_MAX: usize = 12;

/// The heads of the columns in a sheet, each with the shorter one used here, in order of usefulness. Columns that do
/// not fit the width of the terminal are printed in further tables below. A head that is not listed is printed as it
/// is, and counts as the least useful.
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

/// Returns the summary for a terminal that is `width` columns wide.
pub fn terminal(run: &Run, colours: bool, width: u16) -> String {
    let mut out = String::new();
    let verdict = run.verdict();
    let wrap = |text: &str| wrap(text, width);
    let bold = |text: String| if colours { format!("\x1b[1m{text}\x1b[0m") } else { text };
    for line in [&run.machine.line, &run.asked()] {
        if !line.is_empty() {
            let _ = writeln!(out, "{}", wrap(line));
        }
    }
    let shapes = Shapes::of(run);
    let studies = studies::all(run, &shapes);
    let leading = studies::headline(run, &studies);
    let verdicts = |studies: &[Study]| {
        let mut lines = studies::lines(studies);
        let heading = if lines.is_empty() {
            ""
        } else {
            "\nFindings of studies, and what was measured here\n"
        };
        if leading.is_some() && studies.len() == 1 {
            // The headline already says this line.
            lines.remove(0);
        }
        lines.iter().fold(heading.to_owned(), |text, line| text + &wrap(line) + "\n")
    };
    // The plan of a study is run for its findings, so they come first.
    let headline = leading.as_ref().unwrap_or(&verdict.headline);
    let _ = writeln!(out, "\n{}", bold(wrap(headline)));
    if leading.is_none() && !verdict.detail.is_empty() {
        let _ = writeln!(out, "{}", wrap(&verdict.detail));
    }
    if leading.is_some() {
        out.push_str(&verdicts(&studies));
        let _ = writeln!(out, "\n{} {}", wrap(&verdict.headline), wrap(&verdict.detail));
    }
    let goals = goals::calls(run);
    if let Some(text) = goals::headline(&goals) {
        let _ = writeln!(out, "\n{}", bold(wrap(&format!("Goals: {text}"))));
        for line in goals::lines(&goals) {
            let _ = writeln!(out, "{}", wrap(&line));
        }
    }
    for notice in &run.notices {
        let _ = writeln!(out, "{}", wrap(&format!("note: {notice}")));
    }
    let (blocks, more) = blocks(&run.summary, BLOCKS_MAX);
    if have_best(&blocks) {
        let _ = writeln!(out, "\n{}", wrap(&format!("* {BEST}")));
    }
    if have_noise(&blocks) {
        let gap = if have_best(&blocks) { "" } else { "\n" };
        let _ = writeln!(out, "{gap}{}", wrap(&format!("noise: {}", noise(run))));
    }
    if have_column(&blocks, LATE) {
        let _ = writeln!(out, "\n{}", wrap(&format!("late: {LATE_EXPLAINED}")));
        let _ = writeln!(out, "{}", wrap(&format!("sender late: {SENDER_LATE_EXPLAINED}")));
    }
    let repeated = repeated(&blocks);
    for block in &blocks {
        let _ = writeln!(out, "\n{}", bold(wrap(&block.title)));
        for (at, sheet) in block.sheets.iter().enumerate() {
            let gap = if at > 0 { "\n" } else { "" };
            let _ = writeln!(out, "{gap}{}\n{}", wrap(&sheet.title), table(sheet, colours, width));
            for note in sheet.notes.iter().filter(|note| !repeated.contains(note)) {
                let _ = writeln!(out, "{}", wrap(note));
            }
        }
    }
    for (at, note) in repeated.iter().enumerate() {
        let gap = if at > 0 { "" } else { "\n" };
        let _ = writeln!(out, "{gap}{}", wrap(note));
    }
    if more > 0 {
        let text = format!(
            "{} left out here; `crossway report {} --json` has all figures.",
            count(more, "further setting is", "further settings are"),
            run.directory().display()
        );
        let _ = writeln!(out, "\n{}", wrap(&text));
    }
    if leading.is_none() {
        out.push_str(&verdicts(&studies));
    }
    let found = steps::lines(&run.summary, &shapes);
    if !found.is_empty() {
        let _ = writeln!(out, "\nSteps and knees");
        for line in found {
            let _ = writeln!(out, "{}", wrap(&format!("- {line}")));
        }
    }
    out.push_str(&left_out(&run.summary, width));
    out
}

/// Returns the summary as Markdown, for a README.
pub fn markdown(run: &Run) -> String {
    let mut out = String::new();
    let verdict = run.verdict();
    let _ = writeln!(out, "**{}** {}\n", escape(&verdict.headline), escape(&verdict.detail));
    for line in [&run.machine.line, &run.asked()] {
        if !line.is_empty() {
            let _ = writeln!(out, "{}  ", escape(line));
        }
    }
    for notice in &run.notices {
        let _ = writeln!(out, "\nNote: {}", escape(notice));
    }
    let (blocks, _) = blocks(&run.summary, BLOCKS_MAX);
    let repeated = repeated(&blocks);
    for (block, sheet) in
        blocks.iter().flat_map(|block| block.sheets.iter().map(move |sheet| (block, sheet)))
    {
        let columns = columns(sheet);
        let _ = writeln!(out, "\n### {}: {}\n", escape(&block.title), escape(&sheet.title));
        let heads: Vec<&str> = columns.iter().map(|(_, head)| *head).collect();
        let _ = writeln!(out, "| {} | Waits by |", heads.join(" | "));
        let _ = writeln!(out, "|---|{}---|", "---:|".repeat(heads.len() - 1));
        for row in &sheet.rows {
            let cells: Vec<String> = columns
                .iter()
                .map(|(at, _)| {
                    let cell = &row.cells[*at];
                    let text = escape(&cell.marked_text());
                    if cell.best { format!("**{text}**") } else { text }
                })
                .collect();
            let class = row.class.unwrap_or(WaitClass::Blocking.name());
            let words = words(row).iter().fold(class.to_owned(), |all, word| all + ", " + word);
            let _ = writeln!(out, "| {} | {words} |", cells.join(" | "));
        }
        for note in sheet.notes.iter().filter(|note| !repeated.contains(note)) {
            let _ = writeln!(out, "\n{}", escape(note));
        }
    }
    for note in repeated {
        let _ = writeln!(out, "\n{}", escape(note));
    }
    let mut legend = "Medians over trials.".to_owned();
    if have_best(&blocks) {
        let _ = write!(legend, " Bold: {BEST}.");
    }
    if have_noise(&blocks) {
        let _ = write!(legend, " “Noise” is {}.", noise(run));
    }
    if have_column(&blocks, LATE) {
        let _ = write!(
            legend,
            " “late” is {LATE_EXPLAINED}; “sender late” is {SENDER_LATE_EXPLAINED}."
        );
    }
    let command = run.command(&[]).replace('`', "");
    let _ = writeln!(
        out,
        "\n{legend} With fewer than five trials there is no interval. Reproduce with `{command}`."
    );
    let goals = goals::calls(run);
    if let Some(text) = goals::headline(&goals) {
        let _ = writeln!(out, "\n### What the plan requires\n\n{text}\n");
        for line in goals::lines(&goals) {
            let _ = writeln!(out, "{}", escape(&line));
        }
    }
    let shapes = Shapes::of(run);
    out.push_str(&studies::markdown(&studies::all(run, &shapes), escape));
    let found = steps::sheet(&run.summary, &shapes);
    if !found.rows.is_empty() {
        let _ = writeln!(out, "\n### Steps and knees\n\n{}", whole(&found));
    }
    let left = left_out(&run.summary, u16::MAX);
    if !left.is_empty() {
        let lines: Vec<String> = left.trim().lines().map(escape).collect();
        let _ = writeln!(out, "\n{}", lines.join("\n"));
    }
    out
}

/// Formats a whole sheet as a Markdown table, with notes in brackets.
fn whole(sheet: &Sheet) -> String {
    let mut out = format!(
        "| {} |\n|{}\n",
        sheet.heads.iter().map(|h| escape(h)).collect::<Vec<_>>().join(" | "),
        "---|".repeat(sheet.heads.len())
    );
    for row in &sheet.rows {
        let cells: Vec<String> = row
            .cells
            .iter()
            .map(|cell| match &cell.note {
                Some(note) => format!("{} ({})", escape(&cell.marked_text()), escape(note)),
                None => escape(&cell.marked_text()),
            })
            .collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Returns all columns of a sheet, as their positions and their short heads.
fn columns(sheet: &Sheet) -> Vec<(usize, &str)> {
    sheet.heads.iter().map(|head| short(head)).enumerate().collect()
}

/// Returns the short form of a head.
fn short(head: &str) -> &str {
    HEADS.iter().find(|(full, _)| *full == head).map_or(head, |(_, short)| short)
}

/// Explains the column "Noise".
pub(crate) fn noise(run: &Run) -> String {
    format!(
        "half the width of the {}, in percent of the median, of the median latency and of the throughput, in \
         this order if both were measured; the interval may reach further to one side, and other figures may have wider \
         intervals",
        interval_name(run.summary.trials_of_figures())
    )
}

/// The notes that stand below several tables; they are printed once, below all of them.
fn repeated(blocks: &[Block]) -> Vec<&String> {
    let mut seen = Vec::new();
    let mut repeated: Vec<&String> = Vec::new();
    for note in blocks.iter().flat_map(|block| &block.sheets).flat_map(|sheet| &sheet.notes) {
        if !seen.contains(&note) {
            seen.push(note);
        } else if !repeated.contains(&note) {
            repeated.push(note);
        }
    }
    repeated
}

/// The column that is only mentioned, not printed, if it does not fit: it qualifies the others.
const DISPENSABLE: &str = "Messages";

/// Formats a table with as many columns as fit `width`, the most useful ones; the others follow in further tables
/// below.
fn table(sheet: &Sheet, colours: bool, width: u16) -> String {
    let texts: Vec<Vec<String>> = sheet.rows.iter().map(texts).collect();
    let priority = |at: usize| {
        HEADS.iter().position(|(full, _)| sheet.heads[at] == *full).unwrap_or(HEADS.len())
    };
    let dispensable = |at: usize| sheet.heads[at] == DISPENSABLE;
    let mut left = columns(sheet);
    let mut parts = Vec::new();
    while left.len() > 1 || parts.is_empty() {
        let mut kept = left.clone();
        loop {
            let plain = drawn(sheet, &texts, &kept, false);
            let widest = plain.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            if widest <= usize::from(width) || kept.len() <= 2 {
                parts.push(if colours { drawn(sheet, &texts, &kept, true) } else { plain });
                break;
            }
            let last = kept.iter().map(|(at, _)| *at).max_by_key(|at| priority(*at));
            kept.retain(|(at, _)| Some(*at) != last);
        }
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

fn drawn(sheet: &Sheet, texts: &[Vec<String>], columns: &[(usize, &str)], colours: bool) -> String {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_content_arrangement(ContentArrangement::Disabled);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(columns.iter().map(|(_, head)| Cell::new(head)));
    for (row, texts) in sheet.rows.iter().zip(texts) {
        table.add_row(columns.iter().map(|(at, _)| {
            let shown = Cell::new(&texts[*at]);
            if row.cells[*at].best {
                shown.add_attribute(Attribute::Bold).fg(Color::Green)
            } else if *at == 0 && row.class.is_some() {
                shown.fg(Color::Yellow)
            } else {
                shown
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

/// Returns the printed cells of a row. The best figure is marked, and the wait class is added to the name unless the
/// name contains it.
fn texts(row: &Row) -> Vec<String> {
    let one = |(at, cell): (usize, &sheet::Cell)| {
        let mut text = clean(&cell.text);
        if at > 0 || cell.best {
            // All marks share two columns, so that the digits of a column stay aligned.
            let best = if cell.best { "*" } else { "" };
            let _ = write!(text, "{:>2}", format!("{}{best}", cell.marks));
        }
        if at == 0
            && let Some(class) = row.class
            && !text.contains(class)
            && !text.contains("spin")
        {
            let _ = write!(text, " ({class})");
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
fn words(row: &Row) -> Vec<&str> {
    let name = row.cells.first().and_then(|name| name.note.as_deref()).unwrap_or_default();
    let mut words: Vec<&str> = name.split(", ").filter(|word| !word.is_empty()).collect();
    if !words.contains(&DEGRADED) && row.cells.iter().any(|c| c.note.as_deref() == Some(DEGRADED)) {
        words.push(DEGRADED);
    }
    words
}

/// Breaks text at spaces so that no line is wider than `columns`, unless a single word is.
fn wrap(text: &str, columns: u16) -> String {
    wrap_indented(text, columns, 0, 0)
}

/// Breaks text at spaces so that no line ends beyond `columns`, unless a single word is too long. The first line begins
/// in column `first`; the caller has printed what precedes it. Each further line begins with `further` spaces. Control
/// characters are removed.
pub fn wrap_indented(text: &str, columns: u16, first: usize, further: usize) -> String {
    let (mut out, mut column) = (String::new(), first);
    for word in clean(text).split_whitespace() {
        let len = word.chars().count();
        if !out.is_empty() && column + 1 + len > usize::from(columns) {
            out.push('\n');
            out.push_str(&" ".repeat(further));
            column = further;
        } else if !out.is_empty() {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}

/// Removes control characters, so that a record cannot send escape sequences to the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Escapes text so that Markdown shows it literally.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in clean(text).chars() {
        match letter {
            '|' | '*' | '_' | '[' | ']' | '#' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            '<' => out.push_str("&lt;"),
            _ => out.push(letter),
        }
    }
    out
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
