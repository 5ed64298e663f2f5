//! Enea's tables beside the figures measured here: the round trips of Tables 1 and 2 for each pair of CPUs, those of
//! every mechanism for the same pairs, Table 3, and the ranks that load reverses.

use crossway_records::inputs::{Placement, Workload};
use crossway_records::record::{Record, Status};
use crossway_records::sorting::SortSmall;
use crossway_records::stats::median;

use super::super::evidence::Evidence;
use super::published::{COLUMNS, Line, TABLE_1, TABLE_2, relation};
use super::{PLAN, latency, others, reversals, table_3};
use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::steps::Shapes;
use crate::units::{Quantity, three_digits};

/// Maximum number of CPU pairs in a table; with more, the heat map replaces it.
const PAIRS_MAX: usize = 64;

/// Returns the section; `None` if the run's plan is not that of the study.
pub(crate) fn section(run: &Run, shapes: &Shapes) -> Option<Section> {
    if run.study_plan() != PLAN {
        return None;
    }
    let evidence = Evidence { run, shapes };
    let mut tables = Vec::new();
    let mut paragraphs = Vec::new();
    for (title, table, loaded) in [
        ("Table 1: round trips in microseconds, without load", &TABLE_1, false),
        ("Table 2: round trips in microseconds, under load", &TABLE_2, true),
    ] {
        tables.extend(beside(&evidence, title, table, loaded));
        tables.extend(every_mechanism(&evidence, loaded));
    }
    if !tables.is_empty() {
        paragraphs.push(
            "The study's CPUs 0 and 1 are threads of one core, 2 and 3 of another. In these tables its mempipe spins, \
             and is compared with shm-spin. The study's figures are single values; those of this run are medians over \
             trials."
                .to_owned(),
        );
    }
    if let Some((sheet, words)) = table_3::sheet(run) {
        tables.push(sheet);
        tables.extend(others::sheet(run));
        paragraphs.push(words);
    }
    tables.extend(reversals::sheet(&run.records));
    (!tables.is_empty()).then(|| Section {
        id: "enea-tables",
        title: "Enea's tables compared with this run",
        paragraphs,
        tables,
        ..Section::default()
    })
}

/// Returns a table of round trips by pair of CPUs, with the rows measured here first, then the study's.
fn beside(evidence: &Evidence<'_>, title: &str, table: &[Line], loaded: bool) -> Option<Sheet> {
    let pairs = latency::pairs(&evidence.run.records);
    let mut rows = Vec::new();
    for pair in pairs.iter().take(PAIRS_MAX) {
        let mut cells = vec![Cell::text(format!("here {}-{}", pair.0, pair.1))];
        cells.extend(COLUMNS.iter().map(|(_, id)| cell(evidence, id, *pair, loaded)));
        rows.push(Row { class: None, cells });
    }
    if rows.is_empty() {
        return None;
    }
    for (pair, values) in table {
        let name = format!("study {}-{}, {}", pair.0, pair.1, relation(*pair));
        let value = |v: &Option<f64>| match v {
            Some(us) => Cell { text: three_digits(*us), sort: Some(*us), ..Cell::default() },
            None => Cell::text("N/A"),
        };
        let cells = [Cell::text(name)].into_iter().chain(values.iter().map(value)).collect();
        rows.push(Row { class: None, cells });
    }
    let heads = COLUMNS.iter().map(|(theirs, ours)| match theirs == ours {
        true => (*ours).to_owned(),
        false => format!("{theirs} ({ours})"),
    });
    Some(Sheet {
        title: title.to_owned(),
        heads: ["CPUs".to_owned()].into_iter().chain(heads).collect(),
        rows,
        sortable: false,
        notes: Vec::new(),
    })
}

/// Makes a cell with the median measured here in microseconds, or the reason why there is none.
fn cell(evidence: &Evidence<'_>, id: &str, pair: (u32, u32), loaded: bool) -> Cell {
    if let Some(ns) = median(&latency::trips(evidence, id, pair, loaded)) {
        return Cell { text: three_digits(ns / 1e3), sort: Some(ns), ..Cell::default() };
    }
    let here = |r: &&Record| {
        r.mechanism == id
            && r.inputs.workload == Workload::PingPong
            && r.inputs.placement == Placement::Cpus { a: pair.0, b: pair.1 }
            && r.inputs.load.is_idle() != loaded
    };
    let refused = evidence.run.records.iter().filter(here).find(|r| r.status != Status::Ok);
    let why = refused.and_then(|r| r.reason.clone());
    Cell {
        text: "–".to_owned(),
        note: Some(why.unwrap_or_else(|| "not measured in this run".to_owned())),
        ..Cell::default()
    }
}

/// Returns the table of all mechanisms by pair of CPUs, shortest round trip first.
fn every_mechanism(evidence: &Evidence<'_>, loaded: bool) -> Option<Sheet> {
    let pairs = latency::pairs(&evidence.run.records);
    if pairs.len() > 16 {
        return None;
    }
    let mut ids: Vec<&str> = evidence.run.records.iter().map(|r| r.mechanism.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut rows: Vec<(f64, Row)> = ids
        .into_iter()
        .filter_map(|id| {
            let medians: Vec<_> =
                pairs.iter().map(|p| median(&latency::trips(evidence, id, *p, loaded))).collect();
            let best = medians.iter().flatten().copied().reduce(f64::min)?;
            let mut cells = vec![Cell::text(id)];
            cells.extend(pairs.iter().map(|p| cell(evidence, id, *p, loaded)));
            Some((best, Row { class: None, cells }))
        })
        .collect();
    rows.sort_small_by(|a, b| a.0.total_cmp(&b.0));
    let shortest = rows.first().map(|(ns, _)| Quantity::Duration.show(*ns))?;
    let state = if loaded { "under load" } else { "without load" };
    Some(Sheet {
        title: format!(
            "Round trips of every mechanism by pair of CPUs in microseconds, {state} (shortest: {shortest})"
        ),
        heads: ["Mechanism".to_owned()]
            .into_iter()
            .chain(pairs.iter().map(|(a, b)| format!("{a}-{b}")))
            .collect(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        sortable: true,
        notes: Vec::new(),
    })
}
