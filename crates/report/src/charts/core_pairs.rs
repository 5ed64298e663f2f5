//! The heat map of round trips by pair of cores.

use std::collections::BTreeSet;

use crossway_records::inputs::Placement;
use crossway_records::sorting::CollectTree;

use super::{Axis, Chart, ChartKind, Matrix, Scale, View};
use crate::limits::Limits;
use crate::ranking::Metric;
use crate::summary::{Case, Summary, load_name};
use crate::units;

pub(super) fn heat_map(summary: &Summary, limits: &Limits) -> Option<Chart> {
    let pair = |case: &Case| match summary.settings[case.setting].placement {
        Placement::Cpus { a, b } => Some((a, b)),
        _ => None,
    };
    let mut views = Vec::new();
    if let Some((cpus, figures)) = limits.core_pairs() {
        let labels: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let mut matrix = Matrix::new(labels.clone(), labels);
        for (a, b, figure) in figures {
            let (Some(row), Some(column)) =
                (cpus.iter().position(|c| *c == a), cpus.iter().position(|c| *c == b))
            else {
                continue;
            };
            matrix.set(row, column, &figure, 1e-9);
        }
        views.push(View {
            label: "cache line, no mechanism (in brackets: middle 80 %)".to_owned(),
            matrix: Some(matrix),
            ..View::default()
        });
    }
    let mut wanted: Vec<(usize, u64, String)> = Vec::new();
    for case in &summary.cases {
        if pair(case).is_some() && Metric::ROUND_TRIP_P50.of(case).is_some() {
            let load = load_name(summary.settings[case.setting].load);
            let key = (case.contender, case.size_bytes, load);
            if !wanted.contains(&key) {
                wanted.push(key);
            }
        }
    }
    for (contender, size, load) in wanted {
        let cases: Vec<(&Case, (u32, u32))> = summary
            .cases
            .iter()
            .filter(|c| c.contender == contender && c.size_bytes == size)
            .filter(|c| load_name(summary.settings[c.setting].load) == load)
            .filter_map(|c| Some((c, pair(c)?)))
            .collect();
        let cpus: BTreeSet<u32> = cases.iter().flat_map(|(_, (a, b))| [*a, *b]).collect_tree();
        let cpus: Vec<u32> = cpus.into_iter().collect();
        let labels: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let mut matrix = Matrix::new(labels.clone(), labels);
        for (case, (a, b)) in cases {
            if let (Some(figure), Ok(row), Ok(column)) =
                (Metric::ROUND_TRIP_P50.of(case), cpus.binary_search(&a), cpus.binary_search(&b))
            {
                matrix.set(row, column, &figure, 1e-9);
            }
        }
        views.push(View {
            label: format!(
                "{}, {}, {load}",
                summary.contenders[contender].label(),
                units::size(size)
            ),
            matrix: Some(matrix),
            ..View::default()
        });
    }
    (!views.is_empty()).then(|| Chart {
        id: "core-pairs",
        title: "Round trip by pair of cores".to_owned(),
        findings: Vec::new(),
        reading: "Row: CPU of the client; column: CPU of the server; the colour scale is on the right. Blocks along \
                  the diagonal are cores that share a cache, a die or a socket. An empty cell was not measured or \
                  cannot be measured (both ends spin on one core)."
            .to_owned(),
        kind: ChartKind::Heat,
        x: Axis::new("Server's CPU", Scale::Names, ""),
        y: Axis::new("Client's CPU", Scale::Names, "s"),
        views,
        initial: 0,
        workloads: &["ping-pong"],
    })
}
