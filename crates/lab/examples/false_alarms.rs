//! Measures how often `crossway compare` calls a build faster or slower than itself (an A/A test).
//!
//! Takes the folders of several runs of one plan by one build on one machine, in the order in which they were made, and
//! compares
//!
//! - each run with the next one, and every pair of runs, like a check that compares two runs. This includes changes of
//!   the machine between the runs;
//! - random halves of the trials of all runs, five against five. This shows the statistics alone, since both halves
//!   share the state of the machine.
//!
//! `cargo run --release -p crossway-lab --example false_alarms -- out/RUN out/RUN ...`

use std::collections::BTreeMap;
use std::path::PathBuf;

use crossway_records::compare::{ComparisonReport, FailOn, GateCall, Terms, Verdict, compare};
use crossway_records::record::{Record, Status};
use crossway_records::records_io::read_records;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// Trials per random half, as many as most presets use.
const TRIALS: usize = 5;
/// Number of random halves.
const DRAWS: usize = 400;

#[derive(Default)]
struct Tally {
    comparisons: usize,
    /// Number of comparisons in which at least one figure was called faster or slower.
    with_alarm: usize,
    gates_slower: usize,
    gates_undecided: usize,
    figures: usize,
    faster: usize,
    slower: usize,
    unclear: usize,
}

impl Tally {
    fn add(&mut self, report: &ComparisonReport) {
        let gate: FailOn = "slower:5%".parse().expect("a gate");
        let (faster, slower) = (report.count(Verdict::Faster), report.count(Verdict::Slower));
        let any = |call| report.comparisons.iter().any(|c| gate.call(c) == call);
        self.comparisons += 1;
        self.with_alarm += usize::from(faster + slower > 0);
        self.gates_slower += usize::from(any(GateCall::Slower));
        self.gates_undecided += usize::from(any(GateCall::Undecided));
        self.figures += report.comparisons.len();
        self.faster += faster;
        self.slower += slower;
        self.unclear += report.count(Verdict::Unclear);
    }

    fn print(&self, what: &str) {
        let share = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
        println!(
            "{what}: {} comparisons, {} figures\n  figures called faster {:.2} %, slower {:.2} %, unclear {:.2} %\n  \
             comparisons with a false alarm {:.1} %, gate slower:5% fails as slower {:.1} %, as undecided {:.1} %",
            self.comparisons,
            self.figures,
            share(self.faster, self.figures),
            share(self.slower, self.figures),
            share(self.unclear, self.figures),
            share(self.with_alarm, self.comparisons),
            share(self.gates_slower, self.comparisons),
            share(self.gates_undecided, self.comparisons)
        );
    }
}

fn compared(a: &[&Record], b: &[&Record]) -> ComparisonReport {
    compare(a, b, &[], &Terms::default())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.len() < 2 {
        return Err("name the folders of two or more runs of one plan".into());
    }
    let mut runs = Vec::new();
    for folder in &folders {
        runs.push(read_records(folder)?.records);
    }
    let of = |at: usize| runs[at].iter().collect::<Vec<_>>();
    let (mut next, mut pairs, mut halves) = (Tally::default(), Tally::default(), Tally::default());
    for a in 0..runs.len() {
        for b in a + 1..runs.len() {
            let report = compared(&of(a), &of(b));
            pairs.add(&report);
            if b == a + 1 {
                next.add(&report);
            }
        }
    }
    let mut cases: BTreeMap<(&str, &str), Vec<&Record>> = BTreeMap::new();
    for record in runs.iter().flatten().filter(|r| r.status == Status::Ok) {
        cases.entry((&record.group, &record.case)).or_default().push(record);
    }
    let mut random = Pcg64::seed_from_u64(1);
    for _ in 0..DRAWS {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for trials in cases.values_mut().filter(|trials| trials.len() >= 2 * TRIALS) {
            let (drawn, _) = trials.partial_shuffle(&mut random, 2 * TRIALS);
            a.extend_from_slice(&drawn[..TRIALS]);
            b.extend_from_slice(&drawn[TRIALS..]);
        }
        halves.add(&compared(&a, &b));
    }
    next.print("each run with the next");
    pairs.print("every pair of runs");
    halves.print("random halves of all trials");
    Ok(())
}
