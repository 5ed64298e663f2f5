//! SYNTHETIC limits of an invented machine.

use crossway_records::limits::{
    CopyLimit, Exchange, ExchangeKind, Layout, Limits, Memcpy, PairLines, Spread, Wake, WakeKind,
};

fn spread(median: f64) -> Spread {
    Spread { n: 15, min: median * 0.9, p10: median * 0.95, median, p90: median * 1.1 }
}

/// Returns invented limits of eight CPUs in two clusters.
pub(crate) fn limits() -> Limits {
    let mut cache_lines = Vec::new();
    for a in 0..8u32 {
        for b in a + 1..8 {
            let near = if a / 2 == b / 2 {
                40.0
            } else if a / 4 == b / 4 {
                90.0
            } else {
                190.0
            };
            cache_lines.push(PairLines {
                a,
                b,
                relation: "synthetic".to_owned(),
                one_line_ns: spread(near),
                two_lines_ns: spread(near * 1.6),
            });
        }
    }
    let copies = [1u32, 2]
        .into_iter()
        .flat_map(|copies| (6..=20).step_by(2).map(move |power| (copies, 1u64 << power)))
        .map(|(copies, size_bytes)| {
            let bytes = 18e9 / f64::from(copies) * size_bytes as f64 / (size_bytes as f64 + 900.0);
            CopyLimit {
                copies,
                a: 0,
                b: 1,
                size_bytes,
                msgs_per_s: spread(bytes / size_bytes as f64),
                each_by_itself_msgs_per_s: spread(bytes / size_bytes as f64),
                bytes_per_s: spread(bytes),
                layout: Layout {
                    ring_bytes: 1 << 17,
                    hand_over_bytes: 1 << 10,
                    working_set_bytes: 1 << 23,
                },
            }
        })
        .collect();
    Limits {
        schema: 1,
        taken_unix_ms: 1_767_323_045_000,
        system_call_ns: spread(90.0),
        clock_read_ns: spread(21.0),
        counter_read_ns: spread(9.0),
        cache_lines,
        wakes: [(50, 4_300.0), (10_000, 32_000.0)]
            .map(|(idle_us, ns)| Wake {
                kind: WakeKind::Futex,
                a: 0,
                b: 1,
                idle_us,
                wake_to_run_ns: spread(ns),
            })
            .to_vec(),
        exchanges: vec![Exchange {
            a: 0,
            b: 1,
            kind: ExchangeKind::Futex,
            round_trip_ns: spread(11_000.0),
        }],
        memcpy: [64u64, 4096, 1 << 20]
            .map(|size_bytes| Memcpy { size_bytes, bytes_per_s: spread(25e9) })
            .to_vec(),
        copies,
        control: Vec::new(),
        gaps: Vec::new(),
    }
}
