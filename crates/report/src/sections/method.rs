//! The section on the method: how the figures were measured, the warnings, and what could not be measured.

use std::collections::BTreeMap;

use crossway_records::record::{Record, Status};

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::Quantity;
use crate::units::count;

pub(super) fn method(run: &Run) -> Section {
    let intervals = if run.summary.has_intervals() {
        "Its interval is the bootstrap interval of that median at a level of 95 %, which with five trials is their whole \
         range and contains the true median in 93 % of cases. Contenders whose intervals overlap that of the best one \
         share its rank."
    } else {
        "With fewer than five trials it has no interval, and nothing is ranked."
    };
    let mut paragraphs: Vec<String> = vec![
        "The two ends are separate processes, pinned where the setting says, and share nothing but what the mechanism needs. \
         The sender writes every byte of every message and the receiver reads every byte; number, order and content are checked, \
         and a trial that fails the check gives no figure.".to_owned(),
        format!(
            "The unit of statistics is the trial, not the message. Trials of competing cases are interleaved in a seeded \
             random order, so that a drift of the machine affects all of them equally. A figure is the median over \
             trials. {intervals}"
        ),
        "Round trips are reported as measured, never halved. Paced workloads count latency from the time at which a \
         message was due, so a stall is not hidden. A percentile is given only if at least ten samples lie beyond it. \
         CPU time is the user plus system time of the processes that send and receive.".to_owned(),
    ];
    let calibrations: Vec<_> = run.records.iter().filter(|r| r.status == Status::Ok).collect();
    let over = |get: &dyn Fn(&Record) -> f64| {
        let values: Vec<f64> =
            calibrations.iter().map(|r| get(r)).filter(|v| *v > 0.0).take(10_000).collect();
        crossway_records::stats::median(&values)
    };
    if let (Some(read), Some(step), Some(empty)) = (
        over(&|r| r.calibration.clock_read_ns),
        over(&|r| r.calibration.clock_step_ns),
        over(&|r| r.calibration.empty_loop_ns),
    ) {
        paragraphs.push(format!(
            "Measuring itself takes time. On this machine, reading the clock takes {}, the resolution of the clock is \
             {}, and the empty measuring loop takes {} per message. The clock is the processor's time stamp counter if \
             that is reliable, otherwise CLOCK_MONOTONIC; “Physical limits” lists the cost of each.",
            Quantity::Duration.show(read),
            Quantity::Duration.show(step),
            Quantity::Duration.show(empty)
        ));
    }
    let mut tables = Vec::new();
    let warnings = run.summary.warnings.iter().map(|(warning, trials)| (warning.as_str(), *trials));
    let warning_rows: Vec<Row> = grouped(warnings)
        .into_iter()
        .take(40)
        .map(|(warning, trials)| Row {
            class: None,
            cells: vec![Cell::text(warning), Cell::text(count(trials, "trial", "trials"))],
        })
        .collect();
    if !warning_rows.is_empty() {
        tables.push(Sheet {
            title: "Warnings".to_owned(),
            heads: ["Warning", "Trials"].map(str::to_owned).to_vec(),
            rows: warning_rows,
            sortable: false,
            notes: Vec::new(),
        });
    }
    let mut nulls: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for record in &run.records {
        for (field, reason) in &record.nulls {
            *nulls.entry((field, reason)).or_insert(0) += 1;
        }
    }
    if !nulls.is_empty() {
        tables.push(Sheet {
            title: "Not measurable here".to_owned(),
            heads: ["Field", "Why", "Trials"].map(str::to_owned).to_vec(),
            rows: nulls
                .into_iter()
                .take(40)
                .map(|((field, reason), n)| Row {
                    class: None,
                    cells: vec![Cell::text(field), Cell::text(reason), Cell::text(n.to_string())],
                })
                .collect(),
            sortable: false,
            notes: Vec::new(),
        });
    }
    Section { id: "method", title: "Method", paragraphs, tables, ..Section::default() }
}

/// Merges warnings that differ only in their numbers into one with the range of each number, and adds up their trials.
fn grouped<'a>(warnings: impl Iterator<Item = (&'a str, usize)>) -> Vec<(String, usize)> {
    let mut groups: Vec<(Vec<Piece<'_>>, usize)> = Vec::new();
    for (warning, trials) in warnings {
        let pieces = pieces(warning);
        let alike = |other: &[Piece<'_>]| {
            other.len() == pieces.len() && other.iter().zip(&pieces).all(|(a, b)| a.is_like(b))
        };
        match groups.iter_mut().find(|(other, _)| alike(other)) {
            Some((group, all)) => {
                *all += trials;
                group.iter_mut().zip(&pieces).for_each(|(into, piece)| into.widen(piece));
            }
            None => groups.push((pieces, trials)),
        }
    }
    groups
        .into_iter()
        .map(|(pieces, trials)| (pieces.iter().map(Piece::to_string).collect(), trials))
        .collect()
}

/// A piece of a warning.
enum Piece<'a> {
    Words(&'a str),
    /// A number as written in the text; after merging, the smallest and the largest.
    Number(&'a str, &'a str),
}

/// Splits a text into numbers and the text between them, in order.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = if number {
            let fraction = |at: usize| rest[at + 1..].starts_with(|c: char| c.is_ascii_digit());
            rest.char_indices()
                .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' && fraction(*at)))
                .map_or(rest.len(), |(at, _)| at)
        } else {
            rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len())
        };
        let (piece, after) = rest.split_at(end);
        pieces.push(if number { Piece::Number(piece, piece) } else { Piece::Words(piece) });
        rest = after;
    }
    pieces
}

impl<'a> Piece<'a> {
    fn is_like(&self, other: &Piece<'_>) -> bool {
        match (self, other) {
            (Piece::Words(a), Piece::Words(b)) => a == b,
            (Piece::Number(..), Piece::Number(..)) => true,
            _ => false,
        }
    }

    /// Widens the range of a number to include the range of `other`.
    fn widen(&mut self, other: &Piece<'a>) {
        let value = |text: &str| text.parse::<f64>().unwrap_or(f64::INFINITY);
        if let (Piece::Number(least, most), Piece::Number(low, high)) = (self, other) {
            if value(low) < value(least) {
                *least = *low;
            }
            if value(high) > value(most) {
                *most = *high;
            }
        }
    }
}

impl std::fmt::Display for Piece<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Piece::Words(words) => f.write_str(words),
            Piece::Number(least, most) if least == most => f.write_str(least),
            Piece::Number(least, most) => write!(f, "{least}–{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_differ_only_in_numbers_are_one() {
        let warnings = [
            ("10018 of 31495 messages were lost", 1),
            ("memory not locked; raise 'ulimit -l'", 4),
            ("9 of 24452 messages were lost", 2),
            ("1.5 % of cpu 1", 1),
            ("12 % of cpu 1", 1),
            ("10.25 % of cpu 1", 1),
        ];
        assert_eq!(
            grouped(warnings.into_iter()),
            [
                ("9–10018 of 24452–31495 messages were lost".to_owned(), 3),
                ("memory not locked; raise 'ulimit -l'".to_owned(), 4),
                ("1.5–12 % of cpu 1".to_owned(), 3),
            ]
        );
    }
}
