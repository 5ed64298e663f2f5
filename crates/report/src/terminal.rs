//! The summary on a terminal and as Markdown.

use std::fmt::Write as _;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};

use crate::run::Run;
use crate::sheet::{Sheet, comparison};
use crate::steps::{self, Shapes};
use crate::studies;
use crate::summary::Summary;
use crate::units::count;
use crate::verdict::list;
use crossway_lab::rank::WaitClass;

/// The width that is never exceeded.
pub const WIDTH: u16 = 100;

/// Columns of the comparison that fit the width, by head, with the shorter head they get here.
const HEADS: [(&str, &str); 6] = [
    ("Mechanism", "Mechanism"),
    ("Round trip p50", "RTT p50"),
    ("p99", "RTT p99"),
    ("Throughput", "Throughput"),
    ("CPU / message", "CPU/message"),
    ("Noise", "Noise"),
];

/// For a terminal, at most [`WIDTH`] columns wide; with colours if asked.
pub fn terminal(run: &Run, colours: bool) -> String {
    let mut out = String::new();
    let verdict = run.verdict();
    for line in [&run.machine.line, &run.asked()] {
        if !line.is_empty() {
            let _ = writeln!(out, "{}", wrap(line));
        }
    }
    let headline = wrap(&verdict.headline);
    let headline = if colours { format!("\x1b[1m{headline}\x1b[0m") } else { headline };
    let _ = writeln!(out, "\n{headline}");
    for notice in &run.notices {
        let _ = writeln!(out, "{}", wrap(&format!("note: {notice}")));
    }
    if let Some(setting) = run.summary.settings.first() {
        let _ = writeln!(
            out,
            "\nBelow: {}. * best of its class, or equal to it within the intervals.",
            setting.label()
        );
    }
    for sheet in comparison(&run.summary) {
        let _ = writeln!(out, "\n{}", sheet.title);
        let _ = writeln!(out, "{}", table(&sheet, colours));
    }
    let shapes = Shapes::of(run);
    let studies = studies::lines(&studies::all(run, &shapes));
    if !studies.is_empty() {
        let _ = writeln!(out, "\nStudy says, measured here");
        for line in studies {
            let _ = writeln!(out, "{}", wrap(&line));
        }
    }
    let found = steps::lines(&run.summary, &shapes);
    if !found.is_empty() {
        let _ = writeln!(out, "\nSteps and knees");
        for line in found {
            let _ = writeln!(out, "{}", wrap(&format!("- {line}")));
        }
    }
    out.push_str(&left_out(&run.summary));
    out
}

/// As Markdown, for a README.
pub fn markdown(run: &Run) -> String {
    let mut out = String::new();
    let verdict = run.verdict();
    let _ = writeln!(out, "**{}**\n", escape(&verdict.headline));
    for line in [&run.machine.line, &run.asked()] {
        if !line.is_empty() {
            let _ = writeln!(out, "{}  ", escape(line));
        }
    }
    for sheet in comparison(&run.summary) {
        let columns = columns(&sheet);
        let _ = writeln!(out, "\n### {}\n", escape(&sheet.title));
        let heads: Vec<&str> = columns.iter().map(|(_, head)| *head).collect();
        let _ = writeln!(out, "| {} | Waits by |", heads.join(" | "));
        let _ = writeln!(out, "|---|{}---|", "---:|".repeat(heads.len() - 1));
        for row in &sheet.rows {
            let cells: Vec<String> = columns
                .iter()
                .map(|(at, _)| {
                    let cell = &row.cells[*at];
                    let text = escape(&cell.text);
                    if cell.best { format!("**{text}**") } else { text }
                })
                .collect();
            let class = row.class.unwrap_or(WaitClass::Blocking.name());
            let _ = writeln!(out, "| {} | {class} |", cells.join(" | "));
        }
    }
    let _ = writeln!(
        out,
        "\nMedians over trials; bold is the best of its class (blocking, hybrid, spinning) or not to be told apart from it. \
         “Noise” is half the width of the 95 % interval. Reproduce with `{}`.",
        run.command(&[]).replace('`', "")
    );
    let shapes = Shapes::of(run);
    out.push_str(&studies::markdown(&studies::all(run, &shapes), escape));
    let found = steps::sheet(&run.summary, &shapes);
    if !found.rows.is_empty() {
        let _ = writeln!(out, "\n### Steps and knees\n\n{}", whole(&found));
    }
    let left = left_out(&run.summary);
    if !left.is_empty() {
        let _ = writeln!(out, "\n{}", escape(left.trim()));
    }
    out
}

/// A whole sheet as a Markdown table, notes in brackets.
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
                Some(note) => format!("{} ({})", escape(&cell.text), escape(note)),
                None => escape(&cell.text),
            })
            .collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Positions in the sheet and heads of the columns that are shown.
fn columns(sheet: &Sheet) -> Vec<(usize, &'static str)> {
    HEADS
        .iter()
        .filter_map(|(full, short)| Some((sheet.heads.iter().position(|h| h == full)?, *short)))
        .collect()
}

fn table(sheet: &Sheet, colours: bool) -> Table {
    let columns = columns(sheet);
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(columns.iter().map(|(_, head)| Cell::new(head)));
    for row in &sheet.rows {
        table.add_row(columns.iter().map(|(at, _)| {
            let cell = &row.cells[*at];
            let mut text = clean(&cell.text);
            if cell.best {
                text.push_str(" *");
            } else if *at > 0 {
                text.push_str("  ");
            }
            if *at == 0
                && let Some(class) = row.class
                && !text.contains(class)
                && !text.contains("spin")
            {
                let _ = write!(text, " ({class})");
            }
            let mut shown = Cell::new(text);
            if cell.best {
                shown = shown.add_attribute(Attribute::Bold).fg(Color::Green);
            } else if *at == 0 && row.class.is_some() {
                shown = shown.fg(Color::Yellow);
            }
            shown
        }));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn left_out(summary: &Summary) -> String {
    use crossway_lab::record::Status;
    let mut out = String::new();
    let skipped = summary.skipped_mechanisms();
    if !skipped.is_empty() {
        let text = format!(
            "Skipped: {} ({}). `crossway doctor` says what mends each.",
            count(skipped.len(), "mechanism", "mechanisms"),
            list(skipped.iter().map(|s| (*s).to_owned()))
        );
        let _ = writeln!(out, "\n{}", wrap(&text));
    }
    for (status, what) in
        [(Status::Failed, "failed"), (Status::Degraded, "kept but not averaged in (degraded)")]
    {
        let n = summary.trials(status);
        if n > 0 {
            let _ = writeln!(out, "{} {what}.", count(n, "trial", "trials"));
        }
    }
    out
}

/// Broken at spaces so that no line is wider than [`WIDTH`].
fn wrap(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in clean(text).split_whitespace() {
        let len = word.chars().count();
        if width > 0 && width + 1 + len > usize::from(WIDTH) {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += len;
    }
    out
}

/// Without control characters: a record must not be able to steer the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Text that Markdown takes as text.
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
