//! Steps, staircases and knees: the report finds those that exist, explains them by known facts, and finds no others.

#[path = "synthetic/mod.rs"]
mod synthetic;

use std::path::Path;

use crossway_records::inputs::{Wait, Workload};
use crossway_records::record::{IfaceMeters, Record, Status};
use crossway_report::steps::{Over, Shape, Shapes};
use crossway_report::{Run, html, json, svg, terminal};
use synthetic::{Ask, MADE, Noise};

/// Returns five trials of one-way messages of this size; `ns` returns the time per message in nanoseconds.
fn trials(
    mechanism: &str,
    size: u64,
    noise: &mut Noise,
    ns: impl Fn(&mut Noise) -> f64,
) -> Vec<Record> {
    let ask = Ask::idle(Workload::Throughput, size);
    (0..5)
        .map(|trial| {
            let mut record = synthetic::trial(&MADE[0], &ask, trial, 5, trial, noise);
            record.mechanism = mechanism.to_owned();
            record.case = format!("synthetic/{mechanism}/{size}");
            record.inputs.wait = Wait::Block;
            (record.status, record.reason, record.remedy) = (Status::Ok, None, None);
            let throughput = record.throughput.as_mut().expect("it is a throughput");
            throughput.msgs_per_s = 1e9 / ns(noise);
            throughput.bytes_per_s = throughput.msgs_per_s * size as f64;
            record
        })
        .collect()
}

fn run_of(records: Vec<Record>) -> Run {
    Run::of_records(Path::new("run"), records)
}

/// Returns a series of a protocol that needs one more packet at each size of `k * piece - head + 1` bytes, for `k` from
/// 1. The packet counts of the trials show this.
fn cut_series(
    mechanism: &str,
    sizes: impl Iterator<Item = u64>,
    piece: u64,
    head: u64,
) -> Vec<Record> {
    let mut noise = Noise::new(11);
    sizes
        .flat_map(|size| {
            let packets = (size + head).div_ceil(piece);
            let mut records = trials(mechanism, size, &mut noise, |noise| {
                (800.0 + 0.3 * size as f64 + 240.0 * packets as f64) * noise.around(0.01)
            });
            for record in &mut records {
                record.facts.insert("mtu_bytes".to_owned(), 1500);
                let sent = record.counts.expect("counted").received * packets;
                record.net = vec![IfaceMeters {
                    host: "a".to_owned(),
                    name: "eth0".to_owned(),
                    tx_packets: sent,
                    rx_packets: 0,
                    tx_bytes: 0,
                    rx_bytes: 0,
                    ..Default::default()
                }];
            }
            records
        })
        .collect()
}

#[test]
fn the_studies_step_is_found_explained_and_shown_everywhere() {
    let run = run_of(cut_series("tipc-kernel-stream", 2930..=2975, 1476, 0));
    let shapes = Shapes::of(&run);
    assert_eq!(shapes.found.len(), 1, "{shapes:?}");
    let found = &shapes.found[0];
    let Shape::Step { after_x, at_x, change, packets, .. } = &found.shape else {
        panic!("{found:?}")
    };
    assert_eq!((*after_x, *at_x), (2952.0, 2953.0));
    assert!(*change < -0.08 && *change > -0.13, "one packet of about eleven: {change}");
    assert_eq!(*packets, Some((2.0, 3.0)));
    assert_eq!(
        found.cause.as_deref(),
        Some("a message needs 3 packets once it exceeds 2 x 1476 bytes")
    );

    let line = "tipc-kernel-stream, one way, two cores, shared cache, no load added: step down at 2953 B, throughput −";
    assert!(terminal::terminal(&run, false, 100).replace('\n', " ").contains(line));
    let markdown = terminal::markdown(&run);
    assert!(markdown.contains("| step down | at 2953 B | throughput −"), "{markdown}");
    assert!(markdown.contains("packets per message: 2.00 before, 3.00 after"));
    let document = json::document(&run);
    assert_eq!(document["steps"][0]["shape"]["at_bytes"], 2953.0);
    let mut page = Vec::new();
    html::write(&run, &mut page).expect("the page can be made");
    let page = String::from_utf8(page).expect("text");
    assert!(page.contains("id=\"steps\"") && page.contains("\"label\":\"step at 2953 B\""));
    let chart = svg::chart(&run, "throughput").expect("a chart");
    assert!(chart.contains("step at 2953 B"));
}

#[test]
fn todays_cut_is_distinguished_from_the_studies() {
    // Linux' TIPC with encryption built in: 1388 bytes a fragment, the header of 24 cut along.
    let run = run_of(cut_series("tipc-kernel-stream", 2730..=2775, 1388, 24));
    let found = Shapes::of(&run).found;
    assert_eq!(found.len(), 1, "{found:?}");
    let cause = found[0].cause.as_deref().expect("explained");
    assert_eq!(cause, "a message needs 3 packets once it exceeds 2 x 1388 - 24 (its header) bytes");
    // The same jump on a byte stream has no such cause.
    let run = run_of(cut_series("tcp", 2730..=2775, 1388, 24));
    let found = Shapes::of(&run).found;
    assert_eq!((found.len(), found[0].cause.as_deref()), (1, None));
}

#[test]
fn steps_too_close_to_distinguish_are_a_staircase() {
    let sizes = (1..80).map(|n| 512 * n);
    let run = run_of(cut_series("tipc-kernel-stream", sizes, 1388, 24));
    let found = Shapes::of(&run).found;
    let staircase = found.iter().find_map(|f| match f.shape {
        Shape::Staircase { period, height_ns, .. } => Some((period, height_ns, f.cause.clone())),
        _ => None,
    });
    let (period, height_ns, cause) = staircase.expect("a staircase");
    assert_eq!(period, 1388.0);
    assert!((height_ns - 240.0).abs() < 80.0, "{height_ns}");
    assert_eq!(cause.as_deref(), Some("one more packet for every 1388 bytes"));
}

#[test]
fn smooth_curves_are_silent_in_every_form() {
    // Sixty runs of six noisy smooth series; one alarm in a hundred runs is allowed.
    let mut alarms = 0;
    for seed in 0..60 {
        let mut noise = Noise::new(500 + seed);
        let mut records = Vec::new();
        for (at, mechanism) in
            ["pipe", "tcp", "udp", "vmsplice", "cma", "tipc-kernel-rdm"].iter().enumerate()
        {
            for n in 1..40u64 {
                let size = 512 * n;
                let fixed = 4_000.0 + 900.0 * at as f64;
                let mut some = trials(mechanism, size, &mut noise, |noise| {
                    (fixed + 0.4 * size as f64) * noise.around(0.06)
                });
                for record in &mut some {
                    record.facts.insert("mtu_bytes".to_owned(), 1500);
                }
                records.extend(some);
            }
        }
        let run = run_of(records);
        let shapes = Shapes::of(&run);
        assert_eq!(shapes.series, 6);
        alarms += usize::from(!shapes.found.is_empty());
    }
    assert!(alarms <= 3, "{alarms} of 60 runs of smooth curves raised an alarm");
}

/// Returns a run with 16 KiB messages over several socket buffers. The throughput is low with buffers below `knee`.
fn buffers(seed: u64, knee: f64) -> Run {
    let mut noise = Noise::new(seed);
    let mut records = Vec::new();
    for power in 11..=20 {
        let asked = 1u64 << power;
        let ns = 20_000.0 / (asked as f64 / knee).min(1.0).powf(0.5);
        let mut some = trials("tcp", 16_384, &mut noise, |noise| ns * noise.around(0.05));
        for record in &mut some {
            record.inputs.socket_buffer_bytes = Some(asked);
            record.facts.insert("so_sndbuf_bytes".to_owned(), 2 * asked as i64);
        }
        records.extend(some);
    }
    run_of(records)
}

#[test]
fn a_buffer_that_holds_a_message_is_a_knee_with_what_the_kernel_made_of_it() {
    let run = buffers(3, 16_384.0);
    let found = Shapes::of(&run).found;
    let knee = found.iter().find(|f| matches!(f.shape, Shape::Knee { .. })).expect("a knee");
    assert_eq!((knee.over, knee.size_bytes), (Over::SocketBuffer, Some(16_384)));
    let Shape::Knee { x, before_x, read_back, start, .. } = knee.shape else { unreachable!() };
    assert_eq!((x, before_x, read_back), (16_384.0, 8_192.0, Some(32_768)));
    assert!(start < 0.5);
    assert!(knee.cause.as_deref().expect("explained").contains("W = L"));
    assert!(
        terminal::terminal(&run, false, 100).replace('\n', " ").contains("buffer / message = 1.00")
    );
    // Noise on a flat curve makes no knee.
    let flat = (0..60).filter(|seed| !Shapes::of(&buffers(900 + seed, 1.0)).found.is_empty());
    assert!(flat.count() <= 2);
}
