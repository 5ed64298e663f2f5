//! Tables of background workloads: one per background workload and measured workload, with a row per contender.

use crossway_records::inputs::Workload;

use super::footnotes::marks_explained;
use super::{DEGRADED, duration, row, text_figure};
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{BesideSummary, Case, Summary, beside_name, workload_name};
use crate::units::{self, Quantity};

pub(super) fn sheets(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let cases: Vec<&Case> = summary.cases.iter().filter(|c| c.setting == setting).collect();
    let mut measured: Vec<(Workload, u64)> = Vec::new();
    for case in &cases {
        if !measured.contains(&(case.workload, case.size_bytes)) {
            measured.push((case.workload, case.size_bytes));
        }
    }
    let mut sheets = Vec::new();
    for (at, beside) in summary.settings[setting].beside.iter().enumerate() {
        let paced = beside.workload.facts().paced();
        for &(workload, size) in &measured {
            let mut rows: Vec<Row> = cases
                .iter()
                .filter(|c| (c.workload, c.size_bytes) == (workload, size))
                .filter_map(|case| {
                    let contender = &summary.contenders[case.contender];
                    let mut cells = vec![Cell::text(contender.label())];
                    cells.extend(figures(case.beside.get(at)?, paced));
                    let words = [(DEGRADED, case.degraded)];
                    Some(row(case.class, cells, case.degraded, &words))
                })
                .collect();
            if rows.is_empty() {
                continue;
            }
            // A stream has no latency, so that these columns would be empty.
            let timed = rows.iter().any(|row| row.cells[3..].iter().any(|c| c.sort.is_some()));
            let latency: &[&str] = if timed { &["p50", "p99", "max"] } else { &[] };
            if !timed {
                rows.iter_mut().for_each(|row| row.cells.truncate(3));
            }
            let speed: &[&str] =
                if paced { &["Offered", "Achieved"] } else { &["Throughput", "Messages"] };
            let heads = ["Mechanism"].iter().chain(speed).chain(latency);
            let heads: Vec<String> = heads.map(|head| (*head).to_owned()).collect();
            let mut notes = marks_explained(&heads, &mut rows);
            notes.push(
                "Each row shows how the background workload performed while the measured workload used the mechanism \
                 of that row."
                    .to_owned(),
            );
            sheets.push(Sheet {
                title: format!(
                    "Background: {}; measured: {}, {} messages",
                    beside_name(beside),
                    workload_name(workload, size),
                    units::size(size)
                ),
                heads,
                rows,
                sortable: true,
                notes,
            });
        }
    }
    sheets
}

fn figures(beside: &BesideSummary, paced: bool) -> Vec<Cell> {
    let mut cells = if paced {
        let offered = beside.intended_msgs_per_s;
        let share = beside.reached_share.map(|share| share.value);
        let mut achieved =
            text_figure(Quantity::MessageRate, offered.zip(share).map(|(o, share)| o * share));
        achieved.note = share.map(|share| format!("{} %", units::three_digits(share * 100.0)));
        vec![text_figure(Quantity::MessageRate, offered), achieved]
    } else {
        vec![
            Cell::figure(Quantity::ByteRate, beside.bytes_per_s),
            Cell::figure(Quantity::MessageRate, beside.msgs_per_s),
        ]
    };
    cells.push(Cell::figure(Quantity::Duration, beside.p50));
    cells.push(Cell::figure(Quantity::Duration, beside.p99));
    cells.push(beside.max.map_or(Cell::text("–"), duration));
    cells
}
