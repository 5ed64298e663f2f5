//! Findings of the studies: each is judged in all three ways by synthetic records, and shown in every form.

mod cluster;
mod enea;
#[path = "../synthetic/mod.rs"]
mod synthetic;
mod toshiba;

use std::path::Path;

use crossway_lab::inputs::{Ends, Wait, Workload};
use crossway_lab::moves::MoveRecord;
use crossway_lab::record::{HostMeters, IfaceMeters, Record, Span, Status};
use crossway_report::steps::Shapes;
use crossway_report::studies::{self, Finding, Verdict};
use crossway_report::{Run, html, json, terminal};
use synthetic::{Ask, MADE, Noise};
use toshiba::round_trips;

use Verdict::{Confirmed, NotConfirmed, NotMeasurable, Undecided};

const STREAM: Workload = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };

/// The invented performance of one protocol at one size.
#[derive(Clone, Copy)]
struct Does {
    /// Nanoseconds per message, round trip or exchange.
    ns: f64,
    /// Packets per message in the direction of the messages and in the other one.
    packets: (f64, f64),
    /// Busy share of the CPUs of the sender's and of the receiver's host.
    load: (f64, f64),
    /// Bytes on the wire per byte of payload.
    overhead: f64,
    /// Relative scatter of the trials.
    scatter: f64,
}

const DOES: Does =
    Does { ns: 100_000.0, packets: (1.0, 0.5), load: (0.2, 0.2), overhead: 1.05, scatter: 0.01 };

/// Builds five trials of each of the two protocols on a testbed.
struct Made {
    records: Vec<Record>,
    moves: Vec<MoveRecord>,
    noise: Noise,
}

impl Made {
    fn new() -> Made {
        Made { records: Vec::new(), moves: Vec::new(), noise: Noise::new(77) }
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
        // With the plan's name the study is shown even if none of its findings is decided.
        let plan = if id.starts_with('T') { "toshiba" } else { "cluster" };
        records.iter_mut().for_each(|r| r.plan = plan.to_owned());
        let mut run = Run::of_records(Path::new("run"), records);
        run.moves = self.moves.clone();
        let all = studies::all(&run, &Shapes::of(&run));
        let mut found = all.into_iter().flat_map(|s| s.findings).filter(|f| f.id == id);
        found.next().expect("the finding is listed")
    }
}

/// Checks the verdict on the records that `make` adds, and that its reason contains `word`.
fn judged(id: &str, verdict: Verdict, word: &str, make: impl FnOnce(&mut Made)) {
    let mut made = Made::new();
    make(&mut made);
    let finding = made.finding(id);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.why.contains(word), "'{word}' is not in: {}", finding.why);
}

/// Checks that the findings are decided by five trials of each case, and by neither one nor four. The findings in
/// `certain` are decided by every number of trials.
fn decides_only_with_five(made: &Made, ids: &[&str], certain: &[&str]) {
    for trials in [1, 4, 5] {
        let mut few =
            Made { records: made.records.clone(), moves: made.moves.clone(), ..Made::new() };
        few.records.retain(|r| r.inputs.trial < trials);
        few.moves.retain(|r| r.trial < trials);
        for id in ids.iter().chain(certain) {
            let finding = few.finding(id);
            let decided = matches!(finding.verdict, Confirmed | NotConfirmed);
            let wanted = trials == 5 || certain.contains(id);
            assert_eq!(decided, wanted, "{id} with {trials} trials: {finding:?}");
            assert!(decided || finding.verdict == Undecided, "{finding:?}");
            let most = finding.figures.iter().map(|figure| figure.value.n).max();
            assert!(most.is_none_or(|n| n <= trials as usize), "{finding:?}");
        }
    }
}

/// Checks that without records, a finding names the plan that would produce them.
fn without_records(id: &str, plan: &str) {
    judged(id, NotMeasurable, &format!("crossway measure {plan}"), |_| {});
}

#[test]
fn findings_are_in_every_form_and_only_where_they_belong() {
    let mut made = Made::new();
    round_trips(&mut made, 1.08, 0.02);
    for r in &mut made.records {
        (r.inputs.messages, r.inputs.study_messages) = (Some(200), Some(10_000));
    }
    let run = Run::of_records(Path::new("run"), made.records.clone());
    let text = terminal::terminal(&run, false, 100);
    assert!(text.contains("- T7 (Latency): confirmed."), "{text}");
    assert!(!text.contains("cluster)"), "the other study has nothing to say: {text}");
    assert!(
        !text.contains("not measurable"),
        "of another plan only what it has records of: {text}"
    );
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
    assert!(page.contains("200 instead of the study&#x27;s 10,000"), "the factor is shown");
    // A run unrelated to the studies has no such section.
    let run =
        Run::of_records(Path::new("run"), vec![synthetic::skipped("vsock", "none", "modprobe")]);
    assert_eq!(studies::all(&run, &Shapes::of(&run)).len(), 0);
}

#[test]
fn the_report_of_a_studys_own_plan_leads_with_its_verdicts() {
    let mut made = Made::new();
    round_trips(&mut made, 1.08, 0.02);
    for record in &mut made.records {
        record.plan = "toshiba".to_owned();
    }
    let run = Run::of_records(Path::new("run"), made.records);
    let text = terminal::terminal(&run, false, 100);
    let (headline, finding) = (text.find("Findings: 1 confirmed"), text.find("- T7 (Latency)"));
    assert!(headline.is_some() && headline < finding && finding < text.find("RTT p50"), "{text}");
    let mut page = Vec::new();
    html::write(&run, &mut page).expect("the page can be made");
    let page = String::from_utf8(page).expect("text");
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("Findings: 1 confirmed") < at("<section id=\"study-toshiba\""));
    assert!(at("<section id=\"study-toshiba\"") < at("<section id=\"comparison\""));
}
