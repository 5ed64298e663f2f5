//! The section that states what the run was asked to measure.

use crossway_records::record::Record;

use crate::run::Run;
use crate::section::{Block, Section};
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::workload_name;
use crate::units::{self};

pub(super) fn asked(run: &Run) -> Option<Section> {
    let pair = |name: &str, value: String| Row {
        class: None,
        cells: vec![Cell::text(name), Cell::text(value)],
    };
    let first = run.records.first()?;
    let distinct = |get: &dyn Fn(&Record) -> String| {
        let mut seen: Vec<String> = Vec::new();
        for record in &run.records {
            let value = get(record);
            if !seen.contains(&value) {
                seen.push(value);
                if seen.len() > 12 {
                    seen.truncate(12);
                    seen.push("…".to_owned());
                    break;
                }
            }
        }
        seen.join(", ")
    };
    let summary = &run.summary;
    let sizes = summary.sizes(|_| true);
    let sizes = match sizes.len() {
        0 => "none".to_owned(),
        n if n > 12 => {
            format!("{n} from {} to {}", units::size(sizes[0]), units::size(sizes[n - 1]))
        }
        _ => sizes.iter().map(|s| units::size(*s)).collect::<Vec<_>>().join(", "),
    };
    let mut rows = vec![
        pair("Command", run.command(&[])),
        pair("Plan", run.plan_name().to_owned()),
        pair("Run", first.run.clone()),
        pair("Workloads", distinct(&|r| workload_name(r.inputs.workload, r.inputs.size_bytes))),
        pair("Message sizes", sizes),
        pair("Settings", {
            let mut labels: Vec<String> =
                summary.settings.iter().take(8).map(|s| s.label()).collect();
            if summary.settings.len() > 8 {
                labels.push(format!("{} more", summary.settings.len() - 8));
            }
            labels.join("; ")
        }),
        pair("Trials per case", distinct(&|r| r.inputs.trials.to_string())),
        pair("Measured time", {
            distinct(&|r| match r.inputs.messages {
                Some(n) => format!("{n} messages"),
                None => format!("{} ms", r.inputs.measure_ms),
            })
        }),
        pair("Warm-up at most", distinct(&|r| format!("{} ms", r.inputs.warmup_ms))),
        pair("Seed", distinct(&|r| r.inputs.seed.to_string())),
    ];
    rows.push(pair("Trials", {
        let parts: Vec<String> = summary
            .trials_by_status
            .iter()
            .map(|(status, n)| format!("{n} {}", status.name()))
            .collect();
        parts.join(", ")
    }));
    Some(Section {
        id: "asked",
        title: "What was requested",
        tables: vec![Sheet { rows, ..Sheet::default() }],
        blocks: run
            .plan
            .iter()
            .map(|plan| Block { title: "The plan".to_owned(), text: plan.clone() })
            .collect(),
        ..Section::default()
    })
}
