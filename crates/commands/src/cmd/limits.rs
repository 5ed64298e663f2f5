//! `crossway limits`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use crossway_lab::env::Environment;
use crossway_lab::limits::{self, Ask};
use crossway_lab::meters::{HostAsk, HostMeter};
use crossway_lab::other_work::{self, OtherWork};
use crossway_lab::preflight::{self, Activity, Need, Severity};
use crossway_records::limits::{Limits as Readings, Spread, TWO_COPIES_FASTER};
use crossway_records::sorting::{CollectTree, SortSmall};
use crossway_report::units::{Quantity, size};
use crossway_sys::topology::Topology;
use crossway_sys::usage::Usage;

use super::Run;
use crate::args;
use crate::output;
use crate::table::{Align, Grid};
use crate::ui::Ui;

/// Maximum message size for which copies can be measured, bytes.
const COPY_MOST: u64 = 64 << 20;

/// Measure this machine's limits with bare loops: system calls, cache lines, wake-ups, blocking exchanges, copies
///
/// Takes about six seconds on an idle machine with two cores. To measure between cores, two pinned threads communicate
/// directly, in several memory layouts, of which the fastest counts.
#[derive(clap::Args)]
pub(crate) struct Limits {
    /// Print the limits as JSON, in the format of limits.json in a run's folder
    #[arg(long)]
    json: bool,
    /// Write the JSON to this file as well
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure only between these two CPUs, e.g. 0-1; may be repeated [default: every pair]
    #[arg(long = "pair", value_name = "A-B", value_parser = parse_pair)]
    pairs: Vec<(u32, u32)>,
    /// Sizes of the copied messages, separated by commas, in bytes or with a unit, e.g. 64,4KiB,1MiB [default: eight
    /// sizes from 64 bytes to 1 MiB]
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = copy_size)]
    sizes: Vec<u64>,
}

fn copy_size(text: &str) -> Result<u64, String> {
    match args::bytes(text)? {
        size @ 1..=COPY_MOST => Ok(size),
        _ => Err("the size must be from 1 byte to 64 MiB".to_owned()),
    }
}

fn parse_pair(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match numbers {
        Some((a, b)) if a != b => Ok((a, b)),
        Some(_) => Err("the two CPUs must be different".to_owned()),
        None => Err("write two CPU numbers, e.g. 0-1".to_owned()),
    }
}

impl Run for Limits {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let topology = Topology::read()?;
        let allowed = topology.allowed();
        for cpu in self.pairs.iter().flat_map(|(a, b)| [a, b]) {
            ensure!(
                allowed.contains(cpu),
                "CPU {cpu} cannot be used; this process may run only on these CPUs: {}",
                crossway_sys::topology::format_cpu_list(&allowed)
            );
        }
        let mut ask = Ask { pairs: self.pairs, ..Ask::default() };
        if !self.sizes.is_empty() {
            ask.sizes_bytes = self.sizes;
        }
        if let Some(file) = &self.save {
            output::check(file, "name another file with --save")?;
        }
        let named = ask.pairs.iter().flat_map(|(a, b)| [*a, *b]).collect_tree::<BTreeSet<_>>();
        let cpus = if named.is_empty() { allowed } else { named.into_iter().collect() };
        warn_of_others(cpus, ui)?;
        let meter = HostMeter::start(&HostAsk::default());
        let own = Usage::now();
        let progress = indicatif::ProgressBar::new_spinner();
        progress.enable_steady_tick(Duration::from_millis(100));
        let limits =
            limits::measure(&topology, &ask, |what| progress.set_message(what.to_owned()))?;
        progress.finish_and_clear();
        let own_ns = Usage::now().cpu_ns - own.cpu_ns;
        let others = meter.stop().cpu.ok().and_then(|host| OtherWork::of(&[host], own_ns, Some(0)));
        if let Some(told) = others.and_then(|others| other_work::warning_about(&[others])) {
            eprintln!("load: {told}");
        }
        if let Some(file) = &self.save {
            let text = serde_json::to_vec_pretty(&limits)?;
            output::write(file, "name another file with --save", |out| Ok(out.write_all(&text)?))?;
        }
        if self.json {
            ui.print_json(&limits)?;
        } else {
            print(ui, &limits);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints conditions that would distort figures of these CPUs, as `measure` does before it begins.
pub(super) fn warn_of_others(cpus: Vec<u32>, ui: &Ui) -> anyhow::Result<()> {
    let need = Need { roles: 2, cpus, spins: false };
    let activity = Activity::sample(Duration::from_millis(200));
    let findings = preflight::check(&Environment::take()?, &activity, &need);
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Warning) {
        ui.tell(&format!("{}: {}; {}", finding.about, finding.what, finding.next_step));
    }
    Ok(())
}

fn table(head: &[&str]) -> Grid {
    let align = |at| if at == 0 { Align::Left } else { Align::Right };
    Grid::new(head.iter().enumerate().map(|(at, head)| (*head, align(at))))
}

/// Formats the median, 10th and 90th percentile of a figure in the units of all other tables.
fn shown(quantity: Quantity, spread: &Spread) -> [String; 3] {
    [spread.median, spread.p10, spread.p90].map(|value| quantity.show(value))
}

fn times(spread: &Spread) -> [String; 3] {
    shown(Quantity::Duration, spread)
}

fn print(ui: &Ui, limits: &Readings) {
    println!("{}", ui.paint("1", "On one CPU"));
    let mut calls = table(&["", "median", "p10", "p90"]);
    for (name, spread) in [
        ("system call (getppid)", &limits.system_call_ns),
        ("clock read (CLOCK_MONOTONIC)", &limits.clock_read_ns),
        ("counter read", &limits.counter_read_ns),
    ] {
        let [median, p10, p90] = times(spread);
        calls.row([name.to_owned(), median, p10, p90]);
    }
    println!("{}\n", calls.text(ui));
    let mut memcpy = table(&["memcpy, same buffers", "median", "p10", "p90"]);
    for m in &limits.memcpy {
        let [median, p10, p90] = shown(Quantity::ByteRate, &m.bytes_per_s);
        memcpy.row([size(m.size_bytes), median, p10, p90]);
    }
    println!("{}\n", memcpy.text(ui));
    if !limits.cache_lines.is_empty() {
        println!("{}", ui.paint("1", "Cache-line round trip between CPUs"));
        // The report shows the whole matrix, which can have hundreds of pairs; the terminal shows its two ends.
        const SHOWN: usize = 24;
        let mut lines = table(&["CPUs", "two lines", "p10", "p90", "one line", "p10", "p90"]);
        let mut sorted: Vec<_> = limits.cache_lines.iter().collect();
        if sorted.len() > SHOWN {
            sorted.sort_small_by(|x, y| x.two_lines_ns.median.total_cmp(&y.two_lines_ns.median));
            let last = sorted.split_off(sorted.len() - SHOWN / 2);
            sorted.truncate(SHOWN / 2);
            sorted.extend(last);
            println!(
                "the {0} fastest and the {0} slowest of {1} pairs",
                SHOWN / 2,
                limits.cache_lines.len()
            );
        }
        for pair in sorted {
            let [two, two_10, two_90] = times(&pair.two_lines_ns);
            let [one, one_10, one_90] = times(&pair.one_line_ns);
            let name = format!("{}-{} {}", pair.a, pair.b, pair.relation);
            lines.row([name, two, two_10, two_90, one, one_10, one_90]);
        }
        println!("{}\n", lines.text(ui));
    }
    if !limits.wakes.is_empty() {
        println!("{}", ui.paint("1", "From the wake-up call until the sleeper runs"));
        let mut wakes = table(&["woken by, CPUs, time asleep", "median", "p10", "p90"]);
        for wake in &limits.wakes {
            let [median, p10, p90] = times(&wake.wake_to_run_ns);
            let asleep = Quantity::Duration.show(wake.idle_us as f64 * 1e3);
            let kind = format!("{:?}", wake.kind).to_lowercase();
            let name = format!("{kind}, {}-{}, {asleep}", wake.a, wake.b);
            wakes.row([name, median, p10, p90]);
        }
        println!("{}\n", wakes.text(ui));
    }
    if !limits.exchanges.is_empty() {
        println!("{}", ui.paint("1", "Round trip of two threads that wake each other and sleep"));
        let mut exchanges = table(&["woken by, CPUs", "median", "p10", "p90"]);
        for exchange in &limits.exchanges {
            let [median, p10, p90] = times(&exchange.round_trip_ns);
            let kind = format!("{:?}", exchange.kind).to_lowercase();
            exchanges.row([format!("{kind}, {}-{}", exchange.a, exchange.b), median, p10, p90]);
        }
        println!("{}\n", exchanges.text(ui));
    }
    if !limits.copies.is_empty() {
        println!("{}", ui.paint("1", "Copies between two CPUs, every byte written and read"));
        let mut copies =
            table(&["size", "copies", "CPUs", "msg/s one by one", "msg/s", "bytes", "p10", "p90"]);
        for c in &limits.copies {
            // The heads have the unit, so that a rate needs one line.
            let rate = |spread: &Spread| {
                let shown = Quantity::MessageRate.show(spread.median);
                shown.trim_end_matches(" msg/s").to_owned()
            };
            let [bytes, p10, p90] = shown(Quantity::ByteRate, &c.bytes_per_s);
            copies.row([
                size(c.size_bytes),
                c.copies.to_string(),
                format!("{}-{}", c.a, c.b),
                rate(&c.each_by_itself_msgs_per_s),
                rate(&c.msgs_per_s),
                if limits.two_copies_faster(c) {
                    format!("{bytes} ↓")
                } else {
                    format!("{bytes}  ")
                },
                p10,
                p90,
            ]);
        }
        println!("{}", copies.text(ui));
        if limits.copies.iter().any(|c| limits.two_copies_faster(c)) {
            ui.print_noted("1", "↓", TWO_COPIES_FASTER);
        }
    }
    if !limits.control.is_empty() {
        println!("\n{}", ui.paint("1", "Creating, querying and removing objects"));
        let mut rates = table(&["object, operation", "threads", "all threads", "p10", "p90"]);
        for c in &limits.control {
            let [median, p10, p90] = shown(Quantity::CallRate, &c.per_s);
            let name = format!("{}, {}", c.object, c.operation);
            rates.row([name, c.threads.to_string(), median, p10, p90]);
        }
        println!("{}", rates.text(ui));
    }
    for gap in &limits.gaps {
        println!("{} {gap}", ui.paint("33", "note"));
    }
}
