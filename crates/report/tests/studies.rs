//! Findings of the studies: each judged in all three ways by synthetic records, and shown in every form.

#[path = "synthetic/mod.rs"]
mod synthetic;

use std::path::Path;

use crossway_lab::inputs::{Ends, Wait, Workload};
use crossway_lab::record::{HostMeters, IfaceMeters, Record, Span, Status};
use crossway_report::steps::Shapes;
use crossway_report::studies::{self, Finding, Verdict};
use crossway_report::{Run, html, json, terminal};
use synthetic::{Ask, MADE, Noise};

use Verdict::{Confirmed, NotConfirmed, NotMeasurable};

const STREAM: Workload = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };

/// How one protocol does with one size.
#[derive(Clone, Copy)]
struct Does {
    /// Nanoseconds per message, round trip or exchange.
    ns: f64,
    /// Packets forward and back per message.
    packets: (f64, f64),
    /// Busy share of the sender's and of the receiver's host.
    load: (f64, f64),
    /// Bytes on the wire per byte of payload.
    overhead: f64,
    /// Scatter of the trials.
    scatter: f64,
}

const DOES: Does =
    Does { ns: 100_000.0, packets: (1.0, 0.5), load: (0.2, 0.2), overhead: 1.05, scatter: 0.01 };

/// Five trials of each of the two on a testbed.
struct Made {
    records: Vec<Record>,
    noise: Noise,
}

impl Made {
    fn new() -> Made {
        Made { records: Vec::new(), noise: Noise::new(77) }
    }

    fn add(
        &mut self,
        mechanism: &str,
        workload: Workload,
        ends: Ends,
        bytes: u64,
        does: Does,
    ) -> &mut [Record] {
        let ask = Ask::idle(workload, bytes);
        let first = self.records.len();
        for trial in 0..5 {
            let mut r = synthetic::trial(&MADE[0], &ask, trial, 5, trial, &mut self.noise);
            let ns = does.ns * self.noise.around(does.scatter);
            r.plan = "own".to_owned();
            r.mechanism = mechanism.to_owned();
            r.case = format!("{mechanism}/{workload:?}/{bytes}/{ends:?}");
            r.inputs.wait = Wait::Block;
            (r.status, r.reason, r.remedy) = (Status::Ok, None, None);
            r.inputs.testbed = Some("ethernet".to_owned());
            r.inputs.ends = ends;
            r.inputs.testbed_spec = Some(
                serde_json::from_value(serde_json::json!({
                    "name": "ethernet", "kind": "guests", "rate": "100mbit", "mtu_bytes": 1500, "offloads": "off",
                    "tipc": ["kernel"],
                }))
                .expect("a testbed"),
            );
            r.host = "a to b".to_owned();
            let messages = 1000;
            let counts = r.counts.as_mut().expect("counted");
            (counts.sent, counts.received, counts.bytes) = (messages, messages, messages * bytes);
            let throughput = r.throughput.as_mut().expect("timed");
            throughput.wall_ns = (ns * messages as f64) as u64;
            throughput.msgs_per_s = 1e9 / ns;
            throughput.bytes_per_s = throughput.msgs_per_s * bytes as f64;
            for latency in r.latency_ns.iter_mut().filter(|l| l.span == Span::RoundTrip) {
                latency.p50 = ns as u64;
            }
            let wall = throughput.wall_ns;
            let there = if ends == Ends::Between { "b" } else { "a" };
            (r.roles[0].host, r.roles[1].host) = ("a".to_owned(), there.to_owned());
            r.host_cpu = [("a", does.load.0), ("b", does.load.1)]
                .into_iter()
                .map(|(host, share)| HostMeters {
                    host: host.to_owned(),
                    busy_ns: (share * wall as f64 * self.noise.around(does.scatter)) as u64,
                    softirq_ns: 0,
                    irq_ns: 0,
                    steal_ns: 0,
                    cpus: 1,
                    span_ns: Some(wall),
                })
                .collect();
            r.net = [("a", does.packets.0), ("b", does.packets.1)]
                .into_iter()
                .map(|(host, packets)| IfaceMeters {
                    host: host.to_owned(),
                    name: "eth0".to_owned(),
                    tx_packets: (packets * messages as f64) as u64,
                    tx_bytes: (does.overhead * (messages * bytes) as f64) as u64,
                    ..IfaceMeters::default()
                })
                .collect();
            self.records.push(r);
        }
        &mut self.records[first..]
    }

    fn both(
        &mut self,
        workload: Workload,
        ends: Ends,
        bytes: u64,
        tcp: Does,
        tipc: Does,
    ) -> &mut Made {
        self.add("tcp", workload, ends, bytes, tcp);
        self.add("tipc-kernel-stream", workload, ends, bytes, tipc);
        self
    }

    fn finding(&self, id: &str) -> Finding {
        let mut records = self.records.clone();
        if records.is_empty() {
            records.push(synthetic::skipped("cma", "not asked for", "nothing"));
        }
        // The plan's name makes a study shown even where nothing of it is decided.
        let plan = if id.starts_with('T') { "toshiba" } else { "cluster" };
        records.iter_mut().for_each(|r| r.plan = plan.to_owned());
        let run = Run::of_records(Path::new("run"), records);
        let all = studies::all(&run, &Shapes::of(&run));
        let mut found = all.into_iter().flat_map(|s| s.findings).filter(|f| f.id == id);
        found.next().expect("the finding is listed")
    }
}

/// The verdict on what was made, and a word that its reason must hold.
fn judged(id: &str, verdict: Verdict, word: &str, make: impl FnOnce(&mut Made)) {
    let mut made = Made::new();
    make(&mut made);
    let finding = made.finding(id);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.why.contains(word), "'{word}' is not in: {}", finding.why);
}

/// Without records each finding names the plan that takes them.
fn without_records(id: &str, plan: &str) {
    judged(id, NotMeasurable, &format!("crossway measure {plan}"), |_| {});
}

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
    judged("T3", Confirmed, "ahead from 4 KiB on", |m| sweep(m, flat, crossing));
    judged("T3", NotConfirmed, "TCP at 40", |m| sweep(m, flat, |_| Does { ns: 150_000.0, ..DOES }));
    judged("T3", NotMeasurable, "of 40 sizes do the trials tell", |m| {
        sweep(m, |_| Does { scatter: 0.6, ..DOES }, |_| Does { scatter: 0.6, ..DOES });
    });
    without_records("T3", "toshiba");
}

#[test]
fn t3_cpu_is_judged_on_both_sides() {
    let load = |a: f64, b: f64| move |_| Does { load: (a, b), ..DOES };
    judged("T3 CPU", Confirmed, "lower at the sender and lower", |m| {
        sweep(m, load(0.4, 0.4), load(0.2, 0.3));
    });
    judged("T3 CPU", NotConfirmed, "not lower at the receiver", |m| {
        sweep(m, load(0.4, 0.4), load(0.2, 0.6));
    });
    judged("T3 CPU", NotMeasurable, "not told apart", |m| {
        sweep(m, |_| Does { scatter: 0.7, ..DOES }, |_| Does { scatter: 0.7, ..DOES });
    });
    without_records("T3 CPU", "toshiba");
}

#[test]
fn one_trial_decides_nothing_but_counts() {
    let mut made = Made::new();
    sweep(
        &mut made,
        |_| DOES,
        |bytes| Does { ns: if bytes < 4096 { 130_000.0 } else { 80_000.0 }, ..DOES },
    );
    stream(&mut made, (0.0518, 0.1025), 0.02);
    acks(&mut made, 0.5, 0.05);
    zoom(&mut made, |_| 3.0);
    made.records.retain(|r| r.inputs.trial == 0);
    for id in ["T3", "T3 CPU", "T6", "T8", "T14"] {
        assert_eq!(made.finding(id).verdict, NotMeasurable, "{id}");
    }
    assert_eq!(made.finding("T4").verdict, NotConfirmed, "packets were counted");
}

/// Sizes around the study's edge with so many packets at each; a packet costs a tenth of the whole.
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
    judged("T4", Confirmed, "with one packet more", |m| {
        zoom(m, |b| if b > 2952 { 3.0 } else { 2.0 })
    });
    judged("T4", NotConfirmed, "no packet more is sent at 2953", |m| zoom(m, |_| 3.0));
    // A packet more that costs nothing makes no step.
    judged("T4", NotConfirmed, "no step of 1.5 %", |m| {
        for bytes in 2940..=2966 {
            let packets = if bytes > 2952 { 3.0 } else { 2.0 };
            let tipc = Does { packets: (packets, 0.1), ..DOES };
            m.both(Workload::Throughput, Ends::Between, bytes, DOES, tipc);
        }
    });
    judged("T4", NotMeasurable, "neither none nor one", |m| {
        zoom(m, |b| if b > 2952 { 2.5 } else { 2.0 })
    });
    without_records("T4", "toshiba");
}

fn small(made: &mut Made, tcp: f64, tipc: f64, scatter: f64) {
    let does = |packets: f64| Does { packets: (packets, 0.1), scatter, ..DOES };
    made.both(Workload::Throughput, Ends::Between, 16, does(tcp), does(tipc));
}

#[test]
fn t5_tells_who_puts_messages_together() {
    judged("T5", Confirmed, "TIPC one", |m| small(m, 0.07, 1.0, 0.01));
    judged("T5", NotConfirmed, "Nagle", |m| small(m, 0.07, 0.1, 0.01));
    judged("T5", NotConfirmed, "TCP sends a packet", |m| small(m, 1.0, 1.0, 0.01));
    judged("T5", NotMeasurable, "do not tell", |m| {
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

fn round_trips(made: &mut Made, factor: f64, scatter: f64) {
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
    judged("T7", Confirmed, "at 4 of 4 sizes", |m| round_trips(m, 1.08, 0.02));
    judged("T7", NotConfirmed, "1.6", |m| round_trips(m, 1.65, 0.02));
    judged("T7", NotMeasurable, "equal within a quarter at", |m| round_trips(m, 1.24, 0.3));
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
    judged("T8", NotMeasurable, "points", |m| stream(m, (0.0916, 0.1925), 0.5));
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

fn exchanges(made: &mut Made, ends: Ends, sizes: &[u64], does: impl Fn(u64) -> (Does, Does)) {
    for bytes in sizes {
        let (tcp, tipc) = does(*bytes);
        made.both(Workload::Exchange, ends, *bytes, tcp, tipc);
    }
}

const SMALL: [u64; 5] = [64, 256, 1024, 2048, 4096];

#[test]
fn c1_fits_a_line() {
    let line = |bytes: u64| Does { ns: 100_000.0 + 40.0 * bytes as f64, ..DOES };
    judged("C1", Confirmed, "farthest from its line", |m| {
        exchanges(m, Ends::Between, &SMALL, |b| (line(b), line(b)));
    });
    judged("C1", NotConfirmed, "% off", |m| {
        let bent = |b: u64| Does { ns: if b == 1024 { 400_000.0 } else { line(b).ns }, ..DOES };
        exchanges(m, Ends::Between, &SMALL, |b| (line(b), bent(b)));
    });
    judged("C1", NotMeasurable, "scatter across it", |m| {
        exchanges(m, Ends::Between, &SMALL, |b| (line(b), line(b)));
        // One size's median lies a third off, but its trials lie on both sides of the line.
        let wild = m.records.iter_mut().filter(|r| r.inputs.size_bytes == 1024);
        for (r, factor) in wild.zip([0.6, 0.62, 0.65, 1.3, 1.4].into_iter().cycle()) {
            let throughput = r.throughput.as_mut().expect("timed");
            throughput.msgs_per_s = 1e9 / (line(1024).ns * factor);
        }
    });
    judged("C1", NotMeasurable, "three sizes", |m| {
        exchanges(m, Ends::Between, &SMALL[..2], |b| (line(b), line(b)));
    });
    without_records("C1", "cluster");
}

fn buffers(made: &mut Made, scatter: f64, jump: impl Fn(u64, u64) -> f64) {
    for length in [4096u64, 16_384] {
        for power in 11..=17 {
            let asked = 1u64 << power;
            let does = Does { ns: 30_000.0 / jump(asked, length), scatter, ..DOES };
            for r in made.add("tcp", Workload::Throughput, Ends::Between, length, does) {
                r.inputs.socket_buffer_bytes = Some(asked);
                r.facts.insert("so_sndbuf_bytes".to_owned(), 2 * asked as i64);
            }
        }
    }
}

#[test]
fn c3_looks_for_the_jump_at_w_equal_l() {
    judged("C3", Confirmed, "from the next smaller W to W = L", |m| {
        buffers(m, 0.02, |w, l| if w < l { 0.4 } else { 1.0 });
    });
    judged("C3", NotConfirmed, "4 KiB: 1.0", |m| buffers(m, 0.02, |_, _| 1.0));
    judged("C3", NotMeasurable, "from the next smaller", |m| {
        buffers(m, 0.8, |w, l| if w < l { 0.85 } else { 1.0 });
    });
    without_records("C3", "cluster");
    let mut made = Made::new();
    buffers(&mut made, 0.02, |w, l| if w < l { 0.4 } else { 1.0 });
    let told = &made.finding("C3").figures[0].what;
    assert!(
        told.contains(
            "L 4 KiB: nine tenths of the plateau from W 4 KiB (read back 8 KiB) on, W/L 1.00"
        ),
        "{told}"
    );
}

fn faster(by: impl Fn(u64) -> f64, scatter: f64) -> impl Fn(u64) -> (Does, Does) {
    move |bytes| {
        let tcp = Does { scatter, ..DOES };
        (tcp, Does { ns: tcp.ns / by(bytes), ..tcp })
    }
}

#[test]
fn c4_asks_for_the_lead_its_best_and_its_fall() {
    let falling = |bytes: u64| 2.6 - bytes as f64 / 4096.0;
    judged("C4", Confirmed, "at best twice: yes", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(falling, 0.02));
    });
    judged("C4", NotConfirmed, "at least 15 % wider: no", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(|_| 0.9, 0.02));
    });
    judged("C4", NotMeasurable, "do not tell", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(|_| 2.0, 0.3));
    });
    without_records("C4", "cluster");
}

#[test]
fn c5_counts_the_packets_of_an_exchange() {
    let with = |tcp: f64, tipc: f64| {
        move |_| {
            let does = |each: f64| Does { packets: (each / 2.0, each / 2.0), ..DOES };
            (does(tcp), does(tipc))
        }
    };
    judged("C5", Confirmed, "TCP takes 9.00 packets, TIPC 4.00", |m| {
        exchanges(m, Ends::Between, &[64], with(9.0, 4.0));
    });
    judged("C5", NotConfirmed, "TIPC 8.00", |m| exchanges(m, Ends::Between, &[64], with(9.0, 8.0)));
    judged("C5", NotMeasurable, "no packets were counted", |m| {
        exchanges(m, Ends::Between, &[64], with(9.0, 4.0));
        m.records.iter_mut().for_each(|r| r.net.clear());
    });
    without_records("C5", "cluster");
}

#[test]
fn c6_takes_the_largest_receive() {
    let largest = |m: &mut Made, bytes: i64| {
        for r in m.add("tcp", Workload::Throughput, Ends::Between, 16_384, DOES) {
            r.facts.insert("largest_recv_bytes".to_owned(), bytes);
        }
    };
    judged("C6", Confirmed, "4344", |m| largest(m, 4344));
    judged("C6", NotConfirmed, "16384", |m| largest(m, 16_384));
    without_records("C6", "cluster");
}

#[test]
fn c7_needs_both_sides_of_tipcs_limit() {
    let refused = |bytes: u64| {
        let why = "its largest message here is 66000 bytes";
        let mut r = synthetic::skipped("tipc-kernel-seqpacket", why, "a smaller size");
        r.inputs.size_bytes = bytes;
        r
    };
    judged("C7 TIPC", Confirmed, "carried 66,000", |m| {
        m.add("tipc-kernel-seqpacket", Workload::Throughput, Ends::Between, 66_000, DOES);
        m.records.push(refused(66_001));
    });
    judged("C7 TIPC", NotConfirmed, "66,001 bytes were carried", |m| {
        m.add("tipc-kernel-seqpacket", Workload::Throughput, Ends::Between, 66_001, DOES);
    });
    judged("C7 TIPC", NotConfirmed, "66,000 bytes were refused", |m| {
        m.records.push(refused(66_000));
    });
    without_records("C7 TIPC", "cluster");
    // A skip for another reason is no refusal, and the reason is told.
    judged("C7 TIPC", NotMeasurable, "no guest kernel", |m| {
        let mut r = synthetic::skipped(
            "tipc-kernel-stream",
            "no guest kernel",
            "apt-get install user-mode-linux",
        );
        r.inputs.size_bytes = 66_001;
        m.records.push(r);
    });
}

#[test]
fn c7_looks_whether_tcps_bandwidth_goes_on_rising() {
    let rising = |m: &mut Made, by: f64, scatter: f64| {
        for (bytes, ns) in [(16_384, 400_000.0), (65_536, 1_600_000.0 / by)] {
            m.add("tcp", Workload::Exchange, Ends::Between, bytes, Does { ns, scatter, ..DOES });
        }
    };
    judged("C7 TCP", Confirmed, "rises no more", |m| rising(m, 0.9, 0.02));
    judged("C7 TCP", NotConfirmed, "goes on rising", |m| rising(m, 1.8, 0.02));
    judged("C7 TCP", NotMeasurable, "do not tell", |m| rising(m, 1.1, 0.6));
    without_records("C7 TCP", "cluster");
}

#[test]
fn c8_wants_twice_within_a_node() {
    judged("C8", Confirmed, "as many exchanges", |m| {
        exchanges(m, Ends::Within, &SMALL, faster(|_| 2.6, 0.02));
    });
    judged("C8", NotConfirmed, "TIPC makes 1.", |m| {
        exchanges(m, Ends::Within, &SMALL, faster(|_| 1.5, 0.02));
    });
    judged("C8", NotMeasurable, "TIPC makes", |m| {
        exchanges(m, Ends::Within, &SMALL, faster(|_| 2.0, 0.5));
    });
    // Exchanges between hosts say nothing of one.
    judged("C8", NotMeasurable, "crossway measure cluster", |m| {
        exchanges(m, Ends::Between, &SMALL, faster(|_| 2.6, 0.02));
    });
}

#[test]
fn findings_are_in_every_form_and_only_where_they_belong() {
    let mut made = Made::new();
    round_trips(&mut made, 1.08, 0.02);
    for r in &mut made.records {
        (r.inputs.messages, r.inputs.study_messages) = (Some(200), Some(10_000));
    }
    let run = Run::of_records(Path::new("run"), made.records.clone());
    let text = terminal::terminal(&run, false);
    assert!(text.contains("- T7 Latency: confirmed."), "{text}");
    assert!(!text.contains("cluster)"), "the other study has nothing to say: {text}");
    let markdown = terminal::markdown(&run);
    assert!(markdown.contains("| T7 Latency | Ping-pong: the round trips"), "{markdown}");
    let document = json::document(&run);
    let findings = document["studies"][0]["findings"].as_array().expect("findings");
    let t7 = findings.iter().find(|f| f["id"] == "T7").expect("T7");
    assert_eq!(t7["verdict"], "confirmed");
    assert!(t7["measured"][0]["low"].as_f64() < t7["measured"][0]["high"].as_f64());
    let mut page = Vec::new();
    html::write(&run, &mut page).expect("the page can be made");
    let page = String::from_utf8(page).expect("text");
    assert!(page.contains("id=\"study-toshiba\"") && !page.contains("id=\"study-cluster\""));
    assert!(page.contains("200 for the study&#x27;s 10,000"), "the factor is shown");
    // A run that has nothing to do with the studies has no such section.
    let run =
        Run::of_records(Path::new("run"), vec![synthetic::skipped("vsock", "none", "modprobe")]);
    assert_eq!(studies::all(&run, &Shapes::of(&run)).len(), 0);
}
