//! The summary of a run for a terminal, in short or in full, and as Markdown.

use std::fmt::Write as _;

mod brief;
mod left_out;
mod markdown;
mod table;
mod text;

use crate::blocks::paced::{LATE, LATE_EXPLAINED, SENDER_LATE_EXPLAINED};
use crate::blocks::{BEST, Block, blocks, have_best, have_column, have_noise};
use crate::run::Run;
use crate::sections::goals;
use crate::steps::{self, Shapes};
use crate::studies::{self, Study};
use crate::units::count;
pub use brief::{Told, brief};
use crossway_records::shell;
use crossway_records::stats::interval_name;
use left_out::left_out;
pub use markdown::markdown;
use table::table;
use text::wrap;
pub use text::wrap_indented;

/// Maximum number of blocks printed; the page shows more.
const BLOCKS_MAX: usize = 12;

/// Returns the summary in full, for a terminal that is `width` columns wide.
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
    for notice in run.all_notices() {
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
            shell::word(run.directory())
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
