//! The findings of the Toshiba study.

use super::*;

fn sweep(made: &mut Made, tcp: impl Fn(u64) -> Does, tipc: impl Fn(u64) -> Does) {
    for n in 1..=40 {
        let bytes = 512 * n;
        made.both(Workload::Throughput, Ends::Between, bytes, tcp(bytes), tipc(bytes));
    }
}

#[test]
fn t3_a_size_parts_tcp_and_tipc_or_none_does() {
    let flat = |_| DOES;
    let crossing =
        |bytes: u64| Does { ns: if bytes < 4096 { 130_000.0 } else { 80_000.0 }, ..DOES };
    judged("T3", Confirmed, "leads from 4 KiB on", |m| sweep(m, flat, crossing));
    judged("T3", NotConfirmed, "TCP at 40", |m| sweep(m, flat, |_| Does { ns: 150_000.0, ..DOES }));
    // A few sizes, or a single one, cannot show that there is no such size.
    for sizes in [&[512][..], &[512, 1024, 1536]] {
        judged("T3", Undecided, "`crossway measure toshiba` measures 512 B to", |m| {
            for bytes in sizes {
                let slower = Does { ns: 150_000.0, ..DOES };
                m.both(Workload::Throughput, Ends::Between, *bytes, DOES, slower);
            }
        });
    }
    judged("T3", Undecided, "do not show whether TIPC or TCP is faster at 3", |m| {
        sweep(m, |_| Does { scatter: 0.6, ..DOES }, |_| Does { scatter: 0.6, ..DOES });
    });
    without_records("T3", "toshiba");
}

#[test]
fn t3_cpu_is_judged_on_both_sides() {
    let load = |a: f64, b: f64| move |_| Does { load: (a, b), ..DOES };
    judged("T3 CPU", Confirmed, "lower than TCP's at the sender: yes at all 25 sizes", |m| {
        sweep(m, load(0.4, 0.4), load(0.2, 0.3));
    });
    judged("T3 CPU", NotConfirmed, "at the receiver: no at all 25 sizes", |m| {
        sweep(m, load(0.4, 0.4), load(0.2, 0.6));
    });
    judged("T3 CPU", Undecided, "undecided at", |m| {
        sweep(m, |_| Does { scatter: 0.7, ..DOES }, |_| Does { scatter: 0.7, ..DOES });
    });
    for id in ["T3 CPU", "T8"] {
        let make = |counted: bool| {
            let mut made = Made::new();
            sweep(&mut made, load(0.4, 0.4), load(0.2, 0.3));
            stream(&mut made, (0.0518, 0.1025), 0.02);
            made.records.iter_mut().filter(|_| !counted).for_each(|r| r.host_cpu.clear());
            made.finding(id).why
        };
        assert!(make(false).contains("leaves out soft interrupts"), "{id}: {}", make(false));
        assert!(!make(true).contains("soft interrupts"), "{id}: {}", make(true));
    }
    without_records("T3 CPU", "toshiba");
}

#[test]
fn four_trials_decide_nothing() {
    let mut made = Made::new();
    let tcp = Does { load: (0.4, 0.4), packets: (2.8, 1.4), ..DOES };
    sweep(
        &mut made,
        |_| tcp,
        |bytes| Does {
            ns: if bytes < 4096 { 130_000.0 } else { 80_000.0 },
            load: (0.2, 0.2),
            packets: (2.8, 0.1),
            ..DOES
        },
    );
    stream(&mut made, (0.0518, 0.1025), 0.02);
    zoom(&mut made, |b| if b > 2952 { 3.0 } else { 2.0 });
    small(&mut made, 0.07, 1.0, 0.01);
    round_trips(&mut made, 1.08, 0.02);
    decides_only_with_five(
        &made,
        &["T3", "T3 CPU", "T4", "T5", "T6", "T7", "T8", "T14", "T15"],
        &[],
    );
    made.records.retain(|r| r.inputs.trial == 0);
    assert_eq!(made.finding("T8").trials_needed, Some(5));
}

/// Adds trials of the sizes around the study's step. `tipc` returns TIPC's packets per message at a size; each packet
/// takes about a tenth of a message's time.
fn zoom(made: &mut Made, tipc: impl Fn(u64) -> f64) {
    for bytes in 2940..=2966 {
        let packets = tipc(bytes);
        let tipc = Does { ns: 70_000.0 + 10_000.0 * packets, packets: (packets, 0.1), ..DOES };
        made.both(
            Workload::Throughput,
            Ends::Between,
            bytes,
            Does { packets: (2.02, 1.0), ..DOES },
            tipc,
        );
    }
}

#[test]
fn t4_counts_the_packet_and_looks_for_the_step() {
    judged("T4", Confirmed, "with one more packet", |m| {
        zoom(m, |b| if b > 2952 { 3.0 } else { 2.0 })
    });
    judged("T4", NotConfirmed, "no additional packet is sent at 2953", |m| zoom(m, |_| 3.0));
    // An additional packet that costs no time makes no step.
    judged("T4", NotConfirmed, "no step of 1.5 %", |m| {
        for bytes in 2940..=2966 {
            let packets = if bytes > 2952 { 3.0 } else { 2.0 };
            let tipc = Does { packets: (packets, 0.1), ..DOES };
            m.both(Workload::Throughput, Ends::Between, bytes, DOES, tipc);
        }
    });
    judged("T4", Undecided, "neither zero nor one", |m| {
        zoom(m, |b| if b > 2952 { 2.5 } else { 2.0 })
    });
    without_records("T4", "toshiba");
}

fn small(made: &mut Made, tcp: f64, tipc: f64, scatter: f64) {
    let does = |packets: f64| Does { packets: (packets, 0.1), scatter, ..DOES };
    made.both(Workload::Throughput, Ends::Between, 16, does(tcp), does(tipc));
}

#[test]
fn t5_names_the_side_that_bundles_messages() {
    judged("T5", Confirmed, "TIPC one", |m| small(m, 0.07, 1.0, 0.01));
    judged("T5", NotConfirmed, "Linux 5.5 and later combine", |m| small(m, 0.07, 0.1, 0.01));
    judged("T5", NotConfirmed, "Crossway's TIPC node in user space combines", |m| {
        small(m, 0.07, 0.1, 0.01);
        for record in m.records.iter_mut().filter(|r| r.mechanism == "tipc-kernel-stream") {
            record.mechanism = "tipc-node-stream".to_owned();
        }
    });
    judged("T5", NotConfirmed, "TCP sends at least one packet", |m| small(m, 1.0, 1.0, 0.01));
    judged("T5", Undecided, "do not decide", |m| {
        // The trials lie on both sides of the bound.
        for (at, packets) in [0.2, 0.9, 0.3, 0.8, 0.45].into_iter().enumerate() {
            let trials = m.add(
                "tcp",
                Workload::Throughput,
                Ends::Between,
                16,
                Does { packets: (packets, 0.1), ..DOES },
            );
            let keep = trials[at].clone();
            let from = m.records.len() - 5;
            m.records.truncate(from);
            m.records.push(keep);
        }
        m.add("tipc-kernel-stream", Workload::Throughput, Ends::Between, 16, DOES);
    });
    without_records("T5", "toshiba");
}

fn acks(made: &mut Made, tcp: f64, tipc: f64) {
    let does = |back: f64| Does { packets: (2.8, 2.8 * back), ..DOES };
    made.both(Workload::Throughput, Ends::Between, 4096, does(tcp), does(tipc));
}

#[test]
fn t6_weighs_the_packets_back() {
    judged("T6", Confirmed, "TCP's receiver sends back 0.5", |m| acks(m, 0.5, 0.05));
    judged("T6", NotConfirmed, "sends back 0.09", |m| acks(m, 0.1, 0.05));
    judged("T6", NotConfirmed, "TIPC's 0.4", |m| acks(m, 0.5, 0.4));
    judged("T6", NotMeasurable, "no packets were counted", |m| {
        acks(m, 0.5, 0.05);
        m.records.iter_mut().for_each(|r| r.net.clear());
    });
    without_records("T6", "toshiba");
}

pub(super) fn round_trips(made: &mut Made, factor: f64, scatter: f64) {
    for bytes in [16, 512, 4096, 16_384] {
        let tcp = Does { scatter, ..DOES };
        made.both(
            Workload::PingPong,
            Ends::Between,
            bytes,
            tcp,
            Does { ns: DOES.ns * factor, ..tcp },
        );
    }
}

#[test]
fn t7_calls_round_trips_equal_within_a_quarter() {
    judged("T7", Confirmed, "yes at all 4 sizes", |m| round_trips(m, 1.08, 0.02));
    judged("T7", Undecided, "fewer than 3 measured sizes cannot confirm", |m| {
        m.both(Workload::PingPong, Ends::Between, 512, DOES, DOES);
    });
    judged("T7", NotConfirmed, "1.6", |m| round_trips(m, 1.65, 0.02));
    judged("T7", Undecided, "equal within 25 %: undecided at", |m| round_trips(m, 1.24, 0.3));
    without_records("T7", "toshiba");
}

fn stream(made: &mut Made, tipc: (f64, f64), scatter: f64) {
    let tcp = Does { load: (0.0916, 0.1925), scatter, ..DOES };
    made.both(STREAM, Ends::Between, 262_144, tcp, Does { load: tipc, ..tcp });
}

#[test]
fn t8_compares_the_load_of_both_hosts() {
    judged("T8", Confirmed, "points", |m| stream(m, (0.0518, 0.1025), 0.02));
    judged("T8", NotConfirmed, "receiver -", |m| stream(m, (0.0518, 0.25), 0.02));
    judged("T8", Undecided, "points", |m| stream(m, (0.0916, 0.1925), 0.5));
    without_records("T8", "toshiba");
}

#[test]
fn t14_follows_from_the_others() {
    let rest = |m: &mut Made, streaming: (f64, f64)| {
        let tcp = |_| Does { load: (0.4, 0.4), packets: (2.8, 1.4), ..DOES };
        sweep(m, tcp, |bytes| Does {
            ns: if bytes < 2048 { 130_000.0 } else { 80_000.0 },
            load: (0.2, 0.2),
            packets: (2.8, 0.1),
            ..DOES
        });
        stream(m, streaming, 0.02);
    };
    judged("T14", Confirmed, "T8 confirmed", |m| rest(m, (0.05, 0.1)));
    judged("T14", NotConfirmed, "T8 not confirmed", |m| rest(m, (0.05, 0.4)));
    judged("T14", NotMeasurable, "T3 not measurable here", |m| stream(m, (0.05, 0.1), 0.02));
}

#[test]
fn t15_weighs_payload_against_bytes_on_the_wire() {
    let wire = |m: &mut Made, tipc: f64| {
        let tipc = Does { overhead: tipc, ..DOES };
        m.both(Workload::Throughput, Ends::Between, 32_768, Does { overhead: 1.04, ..DOES }, tipc);
    };
    judged("T15", Confirmed, "1388/1442", |m| wire(m, 1.025));
    judged("T15", NotConfirmed, "1388/1442", |m| wire(m, 1.06));
    judged("T15", NotMeasurable, "no bytes were counted", |m| {
        wire(m, 1.025);
        m.records.iter_mut().for_each(|r| r.net.clear());
    });
    without_records("T15", "toshiba");
}
