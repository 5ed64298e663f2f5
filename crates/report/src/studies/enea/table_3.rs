//! Table 3 with the study's colours and those computed here, and the finding that compares them (item E23).

use crossway_records::stats::TRIALS_AT_LEAST;

use super::super::call::Call;
use super::super::{Claim, Finding, Outcome, Verdict};
use super::colours::{
    COLUMNS, Colour, LARGE, Property, ROWS, SMALL, THRESHOLDS, computed, thresholds,
};
use crate::run::Run;
use crate::sheet::{Cell, Row, Sheet};

/// Returns the mechanisms that correspond to a column of the study: the usual and the spinning one.
fn ids(column: usize) -> (&'static str, &'static str) {
    let (_, usual, spinning) = COLUMNS[column];
    (usual, spinning)
}

/// How the colours computed here agree with the study's.
struct Agreement {
    /// Number of cells that have a colour here.
    measured: usize,
    /// Number of these that have enough trials for a verdict.
    enough: usize,
    /// Number of the cells with enough trials that have the study's colour.
    same: usize,
}

impl Agreement {
    fn of(run: &Run) -> Agreement {
        let t = thresholds(run);
        let mut counted = Agreement { measured: 0, enough: 0, same: 0 };
        for (_, property, theirs) in &ROWS {
            for (column, theirs) in theirs.iter().enumerate() {
                let Some(ours) = computed(run, *property, ids(column), &t) else { continue };
                let enough = ours.few_trials.is_none();
                counted.measured += 1;
                counted.enough += usize::from(enough);
                counted.same += usize::from(enough && ours.colour == *theirs);
            }
        }
        counted
    }

    /// Says how many cells agree.
    fn in_words(&self) -> String {
        let few = match self.measured - self.enough {
            0 => String::new(),
            n => format!(" ({n} more have fewer than five trials and do not count)"),
        };
        format!(
            "of {} cells measured here (the table has 32){few}, {} have the study's colour",
            self.enough, self.same
        )
    }
}

/// Judges the study's claim E23, the colours of its Table 3.
pub(super) fn finding(run: &Run) -> Finding {
    let claim = Claim {
        id: "E23",
        title: "Table 3",
        says: "The study rates eight properties of shared memory, pipes, UNIX domain sockets and TCP green, yellow or \
               red. Its authors chose the colours subjectively.",
        rule: "The colours here are computed from this run's trials and fault records, by the thresholds printed with \
               Table 3 below; cells from fewer than five trials do not count. Confirmed: at least three quarters of \
               the measured cells have the study's colour. Not confirmed: fewer have it. A verdict takes at least 16 \
               measured cells of the 32.",
    };
    let counted = Agreement::of(run);
    if counted.measured == 0 {
        return claim.without_records(
            "no cell of Table 3 was measured; `crossway measure enea` measures them".to_owned(),
        );
    }
    let outcome: Outcome = match counted.enough {
        _ if counted.measured < 16 => Verdict::NotMeasurable.into(),
        n if n < 16 => Call::Open(Some(TRIALS_AT_LEAST as u32)).into(),
        n if counted.same * 4 >= n * 3 => Verdict::Confirmed.into(),
        _ => Verdict::NotConfirmed.into(),
    };
    let few = if counted.enough < 16 { "; a verdict takes at least 16 measured cells" } else { "" };
    let why = format!("{}{few}", counted.in_words());
    claim.judged("this machine", Vec::new(), outcome, why)
}

/// Returns the table, and the paragraph that explains it.
pub(super) fn sheet(run: &Run) -> Option<(Sheet, String)> {
    let counted = Agreement::of(run);
    if counted.measured == 0 {
        return None;
    }
    let t = thresholds(run);
    let cell = |property: Property, column: usize, theirs: Colour| match computed(
        run,
        property,
        ids(column),
        &t,
    ) {
        Some(ours) => Cell {
            text: format!(
                "{} (study: {}){}",
                ours.colour.name(),
                theirs.name(),
                if ours.colour == theirs { " ✓" } else { "" }
            ),
            note: Some(ours.note()),
            colour: Some(ours.colour.name()),
            ..Cell::default()
        },
        None => Cell::text(format!("not measured (study: {})", theirs.name())),
    };
    let rows = ROWS
        .iter()
        .map(|(name, property, theirs)| {
            let mut cells = vec![Cell::text(*name)];
            cells.extend((0..COLUMNS.len()).map(|c| cell(*property, c, theirs[c])));
            Row { class: None, cells }
        })
        .collect();
    let words = format!(
        "Table 3: {}, which its authors chose subjectively; ✓ marks each cell with that colour. Round trips are green up to {} times the shortest and red above {} times. Throughput ({SMALL} and \
         {LARGE} bytes) is green down to the best divided by {}, and red below the best divided by {}. Sensitivity to \
         load is green if a figure is up to {} times worse under load, and red above {} times. Values between green \
         and red are yellow. Data integrity: red if a peer's stray writes destroyed messages sent before them or the \
         survivor died, yellow if a message was received that was never sent. Monitoring: red if the survivor got no \
         error after its peer was killed, green if it got one within {} ms (median). To change the thresholds, put a \
         file {THRESHOLDS} beside the records, e.g. {{\"latency_green\": 2.0}}; its keys: latency_green, latency_red, \
         throughput_green, throughput_red, load_green, load_red, told_green_ms (Monitoring). Line numbers in the notes \
         of the cells refer to results.jsonl and faults.jsonl.",
        counted.in_words(),
        t.latency_green,
        t.latency_red,
        t.throughput_green,
        t.throughput_red,
        t.load_green,
        t.load_red,
        t.told_green_ms
    );
    let sheet = Sheet {
        title: "Table 3, computed".to_owned(),
        heads: ["Property"]
            .into_iter()
            .chain(COLUMNS.map(|(name, _, _)| name))
            .map(str::to_owned)
            .collect(),
        rows,
        sortable: false,
        notes: Vec::new(),
    };
    Some((sheet, words))
}
