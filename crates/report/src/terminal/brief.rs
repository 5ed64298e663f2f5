//! The short summary: the answer, one table, what was left out, on one screen.

use std::fmt::Write as _;

use super::table::fitting;
use super::text::one_line;
use super::wrap;
use crate::blocks::{ALL_ROWS, BEYOND, short};
use crate::run::Run;
use crate::sections::{goals, mpi};
use crate::sheet::Sheet;
use crate::steps::Shapes;
use crate::studies;
use crate::summary::{Summary, without_numbers};
use crate::units::{Quantity, count};
use crate::verdict::compared;
use crossway_records::record::Status;
use crossway_records::shell;
use crossway_records::sorting::SortSmall;

/// Maximum number of lines of each list.
const LINES_MAX: usize = 6;
/// Number of letters up to which all mechanisms with a reason are named.
const NAMES_MAX: usize = 30;
/// Maximum number of findings of a study, which its readers know by number.
const FINDINGS_MAX: usize = 12;

/// Whether the warnings of the check before the run have been printed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// They stand above, because the run has just ended.
    Before,
    /// The reader has not seen them.
    NotYet,
}

/// Returns the summary that fits one screen of a terminal that is `width` columns wide.
/// [`super::terminal`] has all figures.
pub fn brief(run: &Run, colours: bool, width: u16, told: Told) -> String {
    let mut out = String::new();
    let bold = |text: String| if colours { format!("\x1b[1m{text}\x1b[0m") } else { text };
    let studies = studies::all(run, &Shapes::of(run));
    let leading = studies::headline(run, &studies);
    let headline = leading.clone().unwrap_or_else(|| run.verdict().headline);
    let _ = writeln!(out, "{}", bold(wrap(&headline, width)));
    if leading.is_some() {
        list(&mut out, studies::brief(&studies), FINDINGS_MAX, |line| one_line(line, width));
    }
    let goals = goals::calls(run);
    if let Some(text) = goals::headline(&goals) {
        let _ = writeln!(out, "\n{}", bold(wrap(&format!("Goals: {text}"), width)));
        // Whoever requires something of a run wants to know of which case.
        list(&mut out, goals::lines(&goals), LINES_MAX, |line| wrap(line, width));
    }
    let before = run.before.iter().filter(|_| told == Told::NotYet);
    for notice in before.chain(&run.notices) {
        let _ = writeln!(out, "{}", wrap(&format!("note: {notice}"), width));
    }
    let mut rows_left_out = 0;
    if let Some((sheet, left_out)) = short(&run.summary, &compared(&run.summary)) {
        rows_left_out = left_out;
        let _ = writeln!(out, "\n{}", bold(wrap(&sheet.title, width)));
        let _ = writeln!(out, "{}", fitting(&sheet, colours, width));
        for line in legend(&sheet) {
            let _ = writeln!(out, "{}", wrap(&line, width));
        }
    }
    for (nth, line) in mpi::lines(&run.mpi).iter().enumerate() {
        let apart = if nth == 0 { "\n" } else { "" };
        let _ = writeln!(out, "{apart}{}", wrap(line, width));
    }
    out.push_str(&left_out(&run.summary, width));
    let mut more = Vec::new();
    if rows_left_out > 0 {
        more.push(count(rows_left_out, "more row", "more rows"));
    }
    let settings = run.summary.settings.len().saturating_sub(1);
    if settings > 0 {
        more.push(count(settings, "more setting", "more settings"));
    }
    more.push("all sizes and percentiles".to_owned());
    let more = more.join(", ");
    let text = format!("For {more}: `crossway report {} --terminal`", shell::word(run.directory()));
    let _ = writeln!(out, "\n{}", wrap(&text, width));
    out
}

/// Explains the marks of the table, each in one line.
fn legend(sheet: &Sheet) -> Vec<String> {
    let cells = || sheet.rows.iter().flat_map(|row| &row.cells);
    let mut lines = Vec::new();
    if cells().any(|cell| cell.best) {
        lines.push("* best of those that wait alike, or not certainly worse".to_owned());
    }
    if cells().any(|cell| cell.marks.contains(BEYOND)) {
        lines.push(format!("{BEYOND} beyond a physical limit; the report says which"));
    }
    // A word that nearly all rows have is said once, at the begin of its note.
    let said_once = |note: &&String| note.contains(&format!(" ({ALL_ROWS}"));
    let words = sheet.notes.iter().filter(said_once).filter_map(|note| note.split_once("): "));
    lines.extend(words.map(|(which, _)| format!("{which})")));
    lines
}

/// What the table does not include, and why: one line for each reason.
fn left_out(summary: &Summary, width: u16) -> String {
    let mut out = String::new();
    for (status, what) in
        [(Status::Failed, "failed"), (Status::Degraded, "degraded"), (Status::Skipped, "skipped")]
    {
        let mut reasons = reasons(summary, status);
        if reasons.is_empty() {
            continue;
        }
        reasons.sort_small_by_key(|reason| std::cmp::Reverse(reason.mechanisms.len()));
        let head = match status {
            Status::Skipped => {
                let whole = summary.skipped_mechanisms();
                let cases = reasons.iter().map(|reason| reason.cases).sum();
                let of = match whole[..] {
                    [] => String::new(),
                    _ => format!(", including all of {}", names(&whole)),
                };
                format!(
                    "{} {what}{of}; `crossway doctor` has the remedies",
                    count(cases, "case", "cases")
                )
            }
            _ => format!("{} {what}", count(summary.trials(status), "trial", "trials")),
        };
        let _ = writeln!(out, "\n{}", wrap(&format!("{head}:"), width));
        let line =
            |reason: &Reason<'_>| format!("- {}: {}", names(&reason.mechanisms), reason.text);
        list(&mut out, reasons.iter().map(line).collect(), LINES_MAX, |line| one_line(line, width));
    }
    if !summary.losses.is_empty() {
        // Not the share of all cases together, which would be that of none.
        let loss = |(mechanism, loss): (&String, &crate::summary::Loss)| {
            let [least, most] =
                [loss.shares.0, loss.shares.1].map(|share| Quantity::Share.show_two(share));
            let share = if least == most { most } else { format!("{least} to {most}, by case") };
            format!("- {mechanism}: {share}")
        };
        let text = "Lost messages, in the cases with losses; throughput does not count them:";
        let _ = writeln!(out, "\n{}", wrap(text, width));
        let lines = summary.losses.iter().map(loss).collect();
        list(&mut out, lines, LINES_MAX, |line| one_line(line, width));
    }
    out
}

/// Lists mechanisms in little room: the first one, and the number of the others if they do not fit.
fn names(mechanisms: &[&str]) -> String {
    let all = mechanisms.join(", ");
    match mechanisms {
        [first, others @ ..] if all.len() > NAMES_MAX && !others.is_empty() => {
            format!("{first} and {} more", others.len())
        }
        _ => all,
    }
}

/// A reason why trials are missing, whatever its remedies are.
struct Reason<'a> {
    text: &'a str,
    mechanisms: Vec<&'a str>,
    cases: usize,
}

/// The reasons of the trials with this status. Those that differ only in numbers are merged.
fn reasons(summary: &Summary, status: Status) -> Vec<Reason<'_>> {
    let mut reasons: Vec<Reason<'_>> = Vec::new();
    for trouble in summary.troubles.iter().filter(|t| t.status == status) {
        let text = without_numbers(&trouble.reason);
        let at = reasons.iter().position(|reason| without_numbers(reason.text) == text);
        let at = at.unwrap_or_else(|| {
            reasons.push(Reason { text: &trouble.reason, mechanisms: Vec::new(), cases: 0 });
            reasons.len() - 1
        });
        let reason = &mut reasons[at];
        if !reason.mechanisms.contains(&trouble.mechanism.as_str()) {
            reason.mechanisms.push(&trouble.mechanism);
        }
        reason.cases += trouble.cases.len();
    }
    reasons
}

/// Adds lines to the text as `fit` makes them fit; of many, the first ones and the number of the
/// others.
fn list(out: &mut String, lines: Vec<String>, at_most: usize, fit: impl Fn(&str) -> String) {
    let more = lines.len().saturating_sub(at_most);
    // A line that says that one is missing would be no shorter than the missing one.
    let shown = if more == 1 { lines.len() } else { at_most };
    for line in lines.iter().take(shown) {
        let _ = writeln!(out, "{}", fit(line));
    }
    if more > 1 {
        let _ = writeln!(out, "- {more} more");
    }
}
