//! The heat map of throughput by message length and socket buffer (item C3 of the cluster study).

use crossway_records::inputs::Workload;

use super::{Axis, Chart, ChartKind, Matrix, Scale, View};
use crate::summary::Summary;
use crate::units;

pub(super) fn heat_map(summary: &Summary) -> Option<Chart> {
    let buffer = |setting: usize| summary.settings[setting].socket_buffer_bytes;
    let mut views = Vec::new();
    for (index, contender) in summary.contenders.iter().enumerate() {
        let cases: Vec<_> = summary
            .cases
            .iter()
            .filter(|c| c.contender == index && c.workload == Workload::Throughput)
            .filter(|c| buffer(c.setting).is_some() && c.bytes_per_s.is_some())
            .collect();
        let mut lengths: Vec<u64> = cases.iter().map(|c| c.size_bytes).collect();
        let mut buffers: Vec<u64> = cases.iter().filter_map(|c| buffer(c.setting)).collect();
        lengths.sort_unstable();
        lengths.dedup();
        buffers.sort_unstable();
        buffers.dedup();
        if buffers.len() < 2 {
            continue;
        }
        let mut matrix = Matrix::new(
            buffers.iter().map(|b| units::size(*b)).collect(),
            lengths.iter().map(|l| units::size(*l)).collect(),
        );
        for case in &cases {
            if let (Some(figure), Some(w)) = (case.bytes_per_s, buffer(case.setting))
                && let (Ok(row), Ok(column)) =
                    (lengths.binary_search(&case.size_bytes), buffers.binary_search(&w))
            {
                matrix.set(row, column, &figure, 1.0);
            }
        }
        views.push(View { label: contender.label(), matrix: Some(matrix), ..View::default() });
    }
    (!views.is_empty()).then(|| Chart {
        id: "socket-buffer",
        title: "Message length and socket buffer".to_owned(),
        findings: Vec::new(),
        reading: "Throughput by message length (rows) and requested socket buffer (columns); the colour scale is on \
                  the right. The kernel clamps the requested size to its own limits and doubles it. The section “Steps \
                  and knees” lists the sizes from which throughput stays near its plateau (knees), each with the \
                  actual size of the buffer."
            .to_owned(),
        kind: ChartKind::Heat,
        x: Axis::new("Requested socket buffer", Scale::Names, ""),
        y: Axis::new("Message length", Scale::Names, "B/s"),
        views,
        initial: 0,
        workloads: &["throughput"],
    })
}
