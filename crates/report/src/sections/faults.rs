//! The section with the fault matrix: what one end of a channel observes when the other fails.

use crossway_lab::faults::{Fault, FaultRecord, FaultSummary, Outcome, Remover, summaries};

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::Quantity;

/// The columns after the one with the mechanism, each with the faults that it covers.
const COLUMNS: [(&str, &[Fault]); 8] = [
    ("Killed", &[Fault::Kill]),
    ("Stopped", &[Fault::Stop]),
    ("Garbage", &[Fault::Garbage]),
    ("Wrong length", &[Fault::WrongLength]),
    ("Full queue", &[Fault::FullQueue]),
    ("Full disk, /dev/shm", &[Fault::FullDisk, Fault::FullShm]),
    ("No descriptor", &[Fault::FullDescriptorTable]),
    ("No locked memory", &[Fault::LockedMemory]),
];

/// Returns the name of an outcome for a cell.
pub(crate) fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unaffected => "unaffected",
        Outcome::Resumed => "resumed",
        Outcome::Detected => "detected",
        Outcome::Unnoticed => "unnoticed",
        Outcome::Hung => "hung",
        Outcome::Deceived => "deceived",
        Outcome::Died => "died",
    }
}

pub(super) fn faults(run: &Run) -> Option<Section> {
    let summaries = summaries(&run.faults);
    let rows: Vec<Row> = summaries
        .iter()
        .filter(|row| row.faults.values().any(|f| f.attempts > 0))
        .map(|row| {
            let mut cells = vec![Cell::text(&row.mechanism)];
            for (_, faults) in COLUMNS {
                let of_it: Vec<_> = faults.iter().filter_map(|f| row.faults.get(f)).collect();
                cells.push(cell(&of_it, &lines(&run.faults, &row.mechanism, faults)));
            }
            let left: Vec<String> = row
                .left_behind
                .iter()
                .map(|l| format!("{:?} ({})", l.kind, remover(l.remover)))
                .collect();
            cells.push(Cell::text(match (row.looked_for_leftovers, left.is_empty()) {
                (false, _) => "not checked".to_owned(),
                (true, true) => "nothing".to_owned(),
                (true, false) => left.join(", "),
            }));
            Row { class: None, cells }
        })
        .collect();
    (!rows.is_empty()).then(|| Section {
        id: "faults",
        title: "When one end fails",
        paragraphs: vec![
            "Real processes were killed, stopped, made to write random bytes over every part of the channel that they \
             can reach, and deprived of queue space, descriptors, disk space or locked memory, while the other end was \
             observed. Each cell gives the worst outcome of all attempts, the median time from the fault to the \
             survivor's error, the number of messages that a send accepted but that never arrived (lost), the number \
             of messages received that were never sent (not sent), and the lines of faults.jsonl that contain the \
             records. Outcomes from best to worst: unaffected; resumed (it waited, then continued without loss); \
             detected (a call returned an error that names the fault); unnoticed (no error, but messages were lost); \
             hung (a call did not return); deceived (it received a message that was never sent); died."
                .to_owned(),
        ],
        tables: vec![Sheet {
            title: "What the survivor saw".to_owned(),
            heads: ["Mechanism"]
                .into_iter()
                .chain(COLUMNS.iter().map(|(name, _)| *name))
                .chain(["Left behind"])
                .map(str::to_owned)
                .collect(),
            rows,
            sortable: true,
            notes: Vec::new(),
        }],
        ..Section::default()
    })
}

fn remover(remover: Remover) -> &'static str {
    match remover {
        Remover::Survivor => "removed by the survivor",
        Remover::LeaseSweep => "removed by Crossway",
        Remover::ByHand => "to be removed by hand",
    }
}

/// Returns the first and the last line of `faults.jsonl` with a record of `mechanism` and one of `faults`, such as
/// `lines 3 to 9`; empty if there are none.
pub(crate) fn lines(records: &[FaultRecord], mechanism: &str, faults: &[Fault]) -> String {
    let at: Vec<usize> = records
        .iter()
        .enumerate()
        .filter(|(_, r)| r.mechanism == mechanism && faults.contains(&r.fault))
        .map(|(at, _)| at + 1)
        .collect();
    match (at.first(), at.last()) {
        (Some(first), Some(last)) if first < last => format!("lines {first} to {last}"),
        (Some(first), _) => format!("line {first}"),
        _ => String::new(),
    }
}

fn cell(faults: &[&FaultSummary], lines: &str) -> Cell {
    let Some(worst) = faults.iter().filter_map(|f| f.worst).max() else { return Cell::text("–") };
    let hung: usize = faults.iter().map(|f| f.hung).sum();
    let attempts: usize = faults.iter().map(|f| f.attempts).sum();
    let mut text = outcome_name(worst).to_owned();
    if hung > 0 && hung < attempts {
        text.push_str(&format!(" {hung} of {attempts}"));
    }
    let mut notes = Vec::new();
    let median = faults.iter().filter_map(|f| f.detected_after_ns_median).reduce(f64::max);
    notes.extend(median.map(|ns| Quantity::Duration.show(ns)));
    let sum = |of: fn(&FaultSummary) -> u64| faults.iter().map(|f| of(f)).sum::<u64>();
    for (n, what) in [(sum(|f| f.sent_lost), "lost"), (sum(|f| f.received_not_sent), "not sent")] {
        if n > 0 {
            notes.push(format!("{n} {what}"));
        }
    }
    notes.push(lines.to_owned());
    Cell {
        text,
        note: Some(notes.join(", ")),
        sort: Some(f64::from(worst as u8)),
        ..Cell::default()
    }
}
