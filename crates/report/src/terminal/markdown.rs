//! The summary as Markdown.

use std::fmt::Write as _;

use super::left_out::left_out;
use super::table::{columns, words};
use super::text::escape;
use super::{BLOCKS_MAX, noise, repeated};
use crate::blocks::paced::{LATE, LATE_EXPLAINED, SENDER_LATE_EXPLAINED};
use crate::blocks::{BEST, blocks, have_best, have_column, have_noise};
use crate::run::Run;
use crate::sections::{goals, mpi};
use crate::sheet::Sheet;
use crate::steps::{self, Shapes};
use crate::studies;
use crossway_records::rank::WaitClass;

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
    for notice in run.all_notices() {
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
    if let Some(section) = mpi::section(run) {
        let _ = writeln!(out, "\n### {}\n\n{}", section.title, section.paragraphs.join("\n\n"));
        for sheet in &section.tables {
            let _ = writeln!(out, "\n{}", whole(sheet));
        }
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
