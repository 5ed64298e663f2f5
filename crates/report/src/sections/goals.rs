//! The section on the plan's goals, case by case: met, missed or undecided. The terminal shows them, too.

use crossway_records::goals::{self, GoalCall, GoalFigure, GoalVerdict};
use crossway_records::sorting::SortSmall;

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::{Quantity, count};

/// Maximum number of met goals listed on a terminal. Goals that were not met come first and are all listed.
const MET_SHOWN: usize = 6;

/// Returns the verdict on every goal of the run, with missed goals first, then undecided ones.
pub fn calls(run: &Run) -> Vec<GoalCall> {
    let mut calls = goals::judge(&run.records);
    let place = |call: &GoalCall| match call.verdict {
        GoalVerdict::Missed => 0,
        GoalVerdict::Undecided => 1,
        GoalVerdict::Met => 2,
    };
    calls.sort_small_by_key(place);
    calls
}

/// Returns a sentence like `2 goals met, 1 missed, 1 undecided.`; `None` if the plan has no goals.
pub fn headline(calls: &[GoalCall]) -> Option<String> {
    let of = |verdict| calls.iter().filter(|call| call.verdict == verdict).count();
    (!calls.is_empty()).then(|| {
        format!(
            "{} met, {} missed, {} undecided.",
            count(of(GoalVerdict::Met), "goal", "goals"),
            of(GoalVerdict::Missed),
            of(GoalVerdict::Undecided)
        )
    })
}

/// Returns the goals for a terminal, one line each.
pub(crate) fn lines(calls: &[GoalCall]) -> Vec<String> {
    let open = calls.iter().filter(|c| c.verdict != GoalVerdict::Met).count();
    let mut lines: Vec<String> = calls
        .iter()
        .take(open + MET_SHOWN)
        .map(|call| {
            let reason = call.reason.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            // The case comes last, since its name may be longer than a line.
            format!(
                "- {}: {} {}, measured {}{reason}: {}/{}",
                name(call.verdict),
                call.figure.key(),
                bound(call),
                measured(call),
                call.group,
                call.case
            )
        })
        .collect();
    if calls.len() > lines.len() {
        let more = calls.len() - lines.len();
        lines.push(format!("- met: {}", count(more, "more goal", "more goals")));
    }
    lines
}

pub(super) fn section(run: &Run) -> Option<Section> {
    let calls = calls(run);
    let headline = headline(&calls)?;
    let rows = calls
        .iter()
        .map(|call| Row {
            class: None,
            cells: vec![
                Cell::text(format!("{}/{}", call.group, call.case)),
                Cell::text(format!("{} {}", call.figure.key(), bound(call))),
                Cell { text: measured(call), sort: call.value, ..Cell::default() },
                Cell {
                    text: call.trials.to_string(),
                    sort: Some(call.trials as f64),
                    ..Cell::default()
                },
                Cell { note: call.reason.clone(), ..Cell::text(name(call.verdict)) },
            ],
        })
        .collect();
    Some(Section {
        id: "goals",
        title: "What the plan requires",
        paragraphs: vec![
            headline,
            "A goal is met if the whole interval of the median over the good trials (those that nothing \
             disturbed, at their rate or below it) satisfies it, and missed if the whole interval violates it, or if \
             the median trial did not achieve its rate; a goal on the largest latency must hold in every good trial. \
             If the interval includes the bound, or if there are fewer than five good trials, the goal is undecided."
                .to_owned(),
        ],
        tables: vec![Sheet {
            heads: ["Case", "Goal", "Measured", "Trials", "Verdict"].map(str::to_owned).to_vec(),
            rows,
            sortable: true,
            ..Sheet::default()
        }],
        ..Section::default()
    })
}

fn name(verdict: GoalVerdict) -> &'static str {
    match verdict {
        GoalVerdict::Met => "met",
        GoalVerdict::Missed => "missed",
        GoalVerdict::Undecided => "undecided",
    }
}

/// Returns the quantity of a goal's figure.
fn quantity(figure: GoalFigure) -> Quantity {
    match figure {
        GoalFigure::MsgsPerS => Quantity::MessageRate,
        GoalFigure::BytesPerS => Quantity::ByteRate,
        GoalFigure::Latency(_) | GoalFigure::CpuUsPerMsg => Quantity::Duration,
    }
}

/// Formats the bound of a goal: `at most 100 µs`.
fn bound(call: &GoalCall) -> String {
    let (quantity, unit) = (quantity(call.figure), call.figure.unit());
    let side = if call.figure.at_most() { "at most" } else { "at least" };
    format!("{side} {}", quantity.show(call.bound * unit))
}

/// Formats the measured figure of a goal: `82.1 µs (80.3–84.9 µs)`.
fn measured(call: &GoalCall) -> String {
    let (quantity, unit) = (quantity(call.figure), call.figure.unit());
    match (call.value, call.interval) {
        (None, _) => "nothing".to_owned(),
        (Some(value), None) => quantity.show(value * unit),
        (Some(value), Some((low, high))) => format!(
            "{} ({})",
            quantity.show(value * unit),
            quantity.show_interval(value * unit, low * unit, high * unit)
        ),
    }
}
