//! Crossway compared with hand-written C loops, public tools and the machine's limits, as ratios.
//!
//! Run by `make bench`, or `cargo bench -p crossway --bench ratios -- --keep records/bench`. Trials are paired and
//! interleaved, so that drift affects both sides alike: each trial of Crossway is next to a run of the reference, the
//! order alternates from pair to pair, and the cases are in a seeded random order. This is a benchmark, not a test:
//! missed targets are printed, and the exit status is 0.

mod comparison;
mod contender;
mod kept;
mod network;
mod pairs;
mod reference;
mod tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use comparison::{Comparison, Target};
use crossway_lab::case;
use crossway_lab::limits::Ask;
use crossway_lab::plan::Plan;
use crossway_mech::Wait;
use crossway_records::limits::Limits;
use crossway_records::record::Record;
use crossway_records::{inputs::Workload, stats};
use crossway_sys::topology::Topology;
use reference::{Reference, Touch};

/// Warm-up time of a trial. On a virtual machine, wake-ups in the first milliseconds of a trial are up to 50 % faster
/// than later ones.
const WARMUP_MS: u64 = 100;

#[derive(Parser)]
struct Args {
    /// Pairs of trials per case
    #[arg(long, default_value_t = 7)]
    pairs: u32,
    /// Milliseconds per trial
    #[arg(long, default_value_t = 100)]
    measure_ms: u64,
    /// Select only cases whose GROUP/CASE contains this pattern (the groups net-* and wire-* run between hosts; the
    /// group contender is a pipe through the C helper)
    #[arg(long)]
    filter: Vec<String>,
    /// Also add the ratios to the file for this processor in this folder, a line of JSON each
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Passed by cargo, and ignored
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns the plan of all comparisons on this machine. The group of a case decides what the case is compared with; see
/// [`counterpart_of`].
fn plan(args: &Args) -> anyhow::Result<Plan> {
    let common = format!(
        "placement = \"other-core\"\ntrials = {}\nwarmup_ms = {WARMUP_MS}\nmeasure_ms = {}\n",
        args.pairs, args.measure_ms
    );
    let text = format!(
        r#"
about = "What make bench compares."

[group.loops]
mechanisms = ["pipe", "uds-stream", "tcp", "shm-futex", "shm-spin"]
workload = ["throughput", "ping-pong"]
size_bytes = [64, "4 KiB", "64 KiB"]
{common}
[group.bare]
mechanisms = "pipe"
workload = ["throughput", "ping-pong"]
size_bytes = [64, "4 KiB"]
{common}
[group.bare-one-core]
mechanisms = "pipe"
workload = ["throughput", "ping-pong"]
size_bytes = [64, "4 KiB"]
placement = "same-core"
trials = {trials}
warmup_ms = {WARMUP_MS}
measure_ms = {measure_ms}
[group.large]
mechanisms = ["shm-futex", "shm-spin"]
workload = "throughput"
size_bytes = ["256 KiB", "1 MiB"]
{common}
[group.hybrid]
mechanisms = ["shm-futex"]
workload = "ping-pong"
size_bytes = 64
wait = {{ hybrid = {{ spin_us = 20 }} }}
{common}"#,
        trials = args.pairs,
        measure_ms = args.measure_ms
    );
    Ok(Plan::parse("ratios", "the benchmark's own plan", &text)?)
}

/// The results of a case: one figure per trial, in order.
#[derive(Default)]
struct Figures {
    crossway: Vec<f64>,
    reference: Vec<f64>,
    /// Cache-line round trip over two cache lines, in nanoseconds. The value for a trial is the median of the round
    /// trips measured before and after the trial.
    cache_line_ns: Vec<f64>,
    /// Messages per second with one copy, measured before each trial of a stream.
    one_copy: Vec<f64>,
}

/// Key of a case: mechanism, whether its wait class is hybrid, workload ([`RATE`] or [`RTT`]), and size in bytes.
type Key = (String, bool, &'static str, u64);

/// Returns which C loop a trial is compared with, according to the trial's group; `None` if the group is not
/// compared with a loop.
fn counterpart_of(record: &Record) -> Option<Touch> {
    match record.group.as_str() {
        "loops" => Some(Touch::Everything),
        group if group.starts_with(BARE) => Some(Touch::Nothing),
        _ => None,
    }
}

/// Cases of a group whose name has this prefix are compared with a loop that does not touch the payload.
const BARE: &str = "bare";
/// Name of the bare group in which both ends share a CPU.
const ONE_CORE: &str = "bare-one-core";

const RATE: &str = "throughput";
const RTT: &str = "round trip";

fn key(record: &Record) -> Option<Key> {
    let workload = match record.inputs.workload {
        Workload::Throughput => RATE,
        Workload::PingPong => RTT,
        _ => return None,
    };
    let hybrid = matches!(record.inputs.wait, Wait::Hybrid { .. });
    Some((record.mechanism.clone(), hybrid, workload, record.inputs.size_bytes))
}

/// Returns the figure of a trial: messages per second for throughput, the median in nanoseconds for round trips. `None`
/// if the record lacks the figure.
fn figure(record: &Record) -> Option<f64> {
    match record.inputs.workload {
        Workload::Throughput => record.throughput.map(|t| t.msgs_per_s),
        _ => record.latency_ns.first().map(|l| l.p50 as f64),
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let topology = Topology::read()?;
    let folder = tempfile::tempdir()?;
    let mut found = Vec::new();
    let plan = plan(&args)?;
    if !case::expand(&plan, &topology, &args.filter).is_empty() {
        within_this_machine(&args, &plan, &topology, folder.path(), &mut found)?;
    }
    contender::compare(&args, folder.path(), &mut found);
    network::compare(&args, &folder.path().join("network"), &mut found);
    comparison::print(&found);
    if let Some(folder) = &args.keep {
        let path = kept::add(&found, folder)?;
        println!(
            "kept in {}; `make bench-against` compares later builds with this one",
            path.display()
        );
    }
    Ok(())
}

fn within_this_machine(
    args: &Args,
    plan: &Plan,
    topology: &Topology,
    folder: &Path,
    found: &mut Vec<Comparison>,
) -> anyhow::Result<()> {
    let cpus = case::expand(plan, topology, &[])
        .first()
        .map(|case| case.inputs.cpus.clone())
        .unwrap_or_default();
    let [a, b] = cpus[..] else {
        println!("nothing to compare: two cores are needed");
        return Ok(());
    };
    let reference = Reference::build(folder, topology, a);
    if let Err(why) = &reference {
        println!("no C loops: {why}");
    }
    let limits_before = limits(topology, (a, b))?;
    let mut bare = BTreeMap::new();
    let figures = measure(args, plan, folder.join("out"), reference.as_ref().ok(), &mut bare)?;
    let limits_after = limits(topology, (a, b))?;
    against_loops(&figures, found);
    against_bare_loops(&bare, found);
    against_limits(&figures, [&limits_before, &limits_after], found);
    among_rings(&figures, found);
    tools::compare(&figures, (a, b), found);
    Ok(())
}

fn limits(topology: &Topology, pair: (u32, u32)) -> anyhow::Result<Limits> {
    let ask = Ask {
        pairs: vec![pair],
        copy_pairs: vec![pair],
        sizes_bytes: vec![64],
        repeats: 7,
        long_wakes: 1,
        ..Ask::default()
    };
    Ok(crossway_lab::limits::measure(topology, &ask, |what| eprintln!("limits: {what}"))?)
}

/// Runs the plan. If a trial is compared with a C loop, the loop runs before or after the trial with the same number of
/// messages. Returns the figures by case, except those of bare groups, which are added to `bare`.
fn measure(
    args: &Args,
    plan: &Plan,
    out: PathBuf,
    reference: Option<&Reference>,
    bare: &mut BTreeMap<(&'static str, Key), Figures>,
) -> anyhow::Result<BTreeMap<Key, Figures>> {
    let mut figures = BTreeMap::<Key, Figures>::new();
    let with_loop = |record: &Record| counterpart_of(record).is_some() && reference.is_some();
    let counterpart = |record: &Record| match (reference, counterpart_of(record)) {
        (Some(reference), Some(touch)) => reference.run(record, touch).map(Some),
        _ => Ok(None),
    };
    pairs::run(plan, &args.filter, out, counterpart, |record, theirs| {
        let (Some(key), Some(figure)) = (key(record), figure(record)) else { return };
        if record.group.starts_with(BARE) {
            let cores = if record.group == ONE_CORE { "one core" } else { "two cores" };
            let of_case: &mut Figures = bare.entry((cores, key)).or_default();
            // The bare loop reports the mean, so the mean is compared.
            let mean = record.throughput.map(|t| t.wall_ns as f64).zip(record.counts);
            let mean = mean.map_or(f64::NAN, |(wall_ns, c)| wall_ns / c.received.max(1) as f64);
            if let Some(theirs) = theirs {
                of_case.crossway.push(if record.inputs.workload == Workload::PingPong {
                    mean
                } else {
                    figure
                });
                of_case.reference.push(theirs);
            }
            return;
        }
        // Without a counterpart, the trial cannot be paired.
        if with_loop(record) && theirs.is_none() {
            return;
        }
        let of_case = figures.entry(key).or_default();
        of_case.crossway.push(figure);
        of_case.reference.extend(theirs);
        let lines =
            [record.calibration.cache_line_before_ns, record.calibration.cache_line_after_ns];
        let lines: Vec<f64> = lines.into_iter().flatten().collect();
        of_case.cache_line_ns.extend(stats::median(&lines));
        let one_copy = record.calibration.one_copy_bytes_per_s;
        of_case.one_copy.extend(one_copy.map(|b| b / record.inputs.size_bytes as f64));
    })?;
    Ok(figures)
}

fn bytes(size: u64) -> String {
    match size {
        s if s >= 1 << 20 => format!("{} MiB", s >> 20),
        s if s >= 1 << 10 => format!("{} KiB", s >> 10),
        s => format!("{s} B"),
    }
}

/// Compares Crossway with C loops that do the same work; the target is that Crossway adds nothing.
fn against_loops(figures: &BTreeMap<Key, Figures>, found: &mut Vec<Comparison>) {
    for ((mechanism, _, workload, size), f) in figures {
        if f.reference.is_empty() {
            continue;
        }
        let target = if *workload == RATE { Target::AtLeast(0.98) } else { Target::AtMost(1.02) };
        let name = format!("{mechanism} {workload} at {}: Crossway / C loop", bytes(*size));
        found.push(Comparison::paired(name, &f.crossway, &f.reference, target));
    }
}

/// Compares Crossway with bare C loops. The ratio shows the cost of clocks, sequence numbers and reading every byte.
fn against_bare_loops(
    figures: &BTreeMap<(&'static str, Key), Figures>,
    found: &mut Vec<Comparison>,
) {
    for ((cores, (mechanism, _, workload, size)), f) in figures {
        let size_text = bytes(*size);
        let name = format!(
            "{mechanism} {workload} at {size_text}, {cores}: Crossway / C loop that touches nothing"
        );
        if *workload == RTT && *size == 64 {
            found.push(Comparison::paired(name, &f.crossway, &f.reference, Target::AtMost(1.03)));
        } else {
            found.push(Comparison::paired_shown(name, &f.crossway, &f.reference));
        }
    }
}

fn against_limits(
    figures: &BTreeMap<Key, Figures>,
    limits: [&Limits; 2],
    found: &mut Vec<Comparison>,
) {
    let spin = |workload, size| figures.get(&("shm-spin".to_owned(), false, workload, size));
    if let Some(f) = spin(RTT, 64).filter(|f| f.cache_line_ns.len() == f.crossway.len()) {
        let name = "shm-spin round trip at 64 B / cache-line round trip, two lines".to_owned();
        found.push(Comparison::paired(name, &f.crossway, &f.cache_line_ns, Target::AtMost(1.5)));
    }
    let limited = |size| spin(RATE, size).filter(|f| f.one_copy.len() == f.crossway.len());
    for size in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let Some(f) = limited(size) else { continue };
        let name = format!("shm-spin throughput at {}: Crossway / one-copy limit", bytes(size));
        found.push(Comparison::paired(name, &f.crossway, &f.one_copy, Target::AtLeast(0.95)));
    }
    // A sender that does not know whether another message follows must hand over each one individually; the limit
    // with batching is shown for information.
    if let Some(f) = spin(RATE, 64) {
        let name = "shm-spin throughput at 64 B: Crossway / one-copy limit";
        let alone: Vec<f64> = limits
            .iter()
            .filter_map(|l| l.copy_limit(1, 64))
            .map(|l| l.each_by_itself_msgs_per_s.median)
            .collect();
        let target = Target::AtLeast(0.8);
        let by_itself = format!("{name}, each message handed over by itself");
        found.push(Comparison::unpaired(by_itself, &f.crossway, &alone, target));
        if let Some(f) = limited(64) {
            let name = format!("{name}, gathered");
            found.push(Comparison::paired_shown(name, &f.crossway, &f.one_copy));
        }
    }
}

fn among_rings(figures: &BTreeMap<Key, Figures>, found: &mut Vec<Comparison>) {
    let get = |mechanism: &str, hybrid, workload, size| {
        figures.get(&(mechanism.to_owned(), hybrid, workload, size))
    };
    let mut compare = |name: String, over: Option<&Figures>, under: Option<&Figures>, target| {
        if let (Some(over), Some(under)) = (over, under) {
            found.push(Comparison::unpaired(name, &over.crossway, &under.crossway, target));
        }
    };
    for size in [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        compare(
            format!("throughput at {}: shm-futex / shm-spin", bytes(size)),
            get("shm-futex", false, RATE, size),
            get("shm-spin", false, RATE, size),
            Target::AtLeast(0.9),
        );
    }
    compare(
        "round trip at 64 B, blocking: shm-futex / pipe".to_owned(),
        get("shm-futex", false, RTT, 64),
        get("pipe", false, RTT, 64),
        Target::AtMost(1.0),
    );
    compare(
        "round trip at 64 B: shm-futex, hybrid 20 us / shm-spin".to_owned(),
        get("shm-futex", true, RTT, 64),
        get("shm-spin", false, RTT, 64),
        Target::AtMost(1.1),
    );
}
