//! How the figures were measured, with their warnings and what could not be measured.

use std::collections::BTreeMap;

use crossway_lab::record::{Record, Status};

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::Quantity;
use crate::units::count;

pub(super) fn method(run: &Run) -> Section {
    let mut paragraphs: Vec<String> = [
        "The two ends are separate processes, pinned where the setting says, and share nothing but what the mechanism needs. \
         The sender writes every byte of every message and the receiver reads every byte; number, order and content are checked, \
         and a trial that fails the check gives no figure.",
        "The unit of statistics is the trial, not the message. Trials of competing cases are interleaved in a seeded random \
         order, so that a drift of the machine affects all of them equally. A figure is the median over trials; its interval is the 95 % \
         bootstrap interval of that median, which with five trials is their whole range. Two figures whose intervals touch are \
         not ranked against each other.",
        "Round trips are reported as round trips. Paced workloads count latency from the intended instant, so that a stall is not \
         hidden. A percentile is given only where ten samples lie beyond it. CPU time is user plus system time of the roles.",
    ]
    .map(str::to_owned)
    .to_vec();
    let calibrations: Vec<_> = run.records.iter().filter(|r| r.status == Status::Ok).collect();
    let over = |get: &dyn Fn(&Record) -> f64| {
        let values: Vec<f64> =
            calibrations.iter().map(|r| get(r)).filter(|v| *v > 0.0).take(10_000).collect();
        crossway_lab::stats::median(&values)
    };
    if let (Some(read), Some(step), Some(empty)) = (
        over(&|r| r.calibration.clock_read_ns),
        over(&|r| r.calibration.clock_step_ns),
        over(&|r| r.calibration.empty_loop_ns),
    ) {
        paragraphs.push(format!(
            "Measurement overhead on this machine: reading the clock costs {}, its resolution is {}, the empty measuring loop costs {} per message.",
            Quantity::Duration.show(read),
            Quantity::Duration.show(step),
            Quantity::Duration.show(empty)
        ));
    }
    let mut tables = Vec::new();
    let warning_rows: Vec<Row> = run
        .summary
        .warnings
        .iter()
        .take(40)
        .map(|(warning, trials)| Row {
            class: None,
            cells: vec![Cell::text(warning), Cell::text(count(*trials, "trial", "trials"))],
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
