//! `crossway limits`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use crossway_lab::limits::{self, Ask, Spread};
use crossway_report::units::size;
use crossway_sys::topology::Topology;

use super::Run;
use crate::args;
use crate::output;
use crate::table::{Align, Grid};
use crate::ui::Ui;

/// Largest copy that can be measured, bytes.
const COPY_MOST: u64 = 64 << 20;

/// Measure what no mechanism on this machine can beat: system calls, cache lines, wake-ups, copies
///
/// Takes about five seconds on an idle machine with two cores. Between cores, two pinned threads communicate directly, with the
/// fastest of several memory layouts.
#[derive(clap::Args)]
pub(crate) struct Limits {
    /// Print JSON, in the format of limits.json in a run's folder
    #[arg(long)]
    json: bool,
    /// Write the JSON to this file as well
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure between these CPUs only, e.g. 0-1; may be repeated [default: every pair]
    #[arg(long = "pair", value_name = "A-B", value_parser = parse_pair)]
    pairs: Vec<(u32, u32)>,
    /// Message sizes for copies, separated by commas: bytes, or with a unit, e.g. 64,4KiB,1MiB
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
                "cpu {cpu} cannot be used; this process may use {}",
                crossway_sys::topology::format_cpu_list(&allowed)
            );
        }
        let mut ask = Ask { pairs: self.pairs, ..Ask::default() };
        if !self.sizes.is_empty() {
            ask.sizes_bytes = self.sizes;
        }
        if let Some(file) = &self.save {
            output::check(file, "--save")?;
        }
        let progress = indicatif::ProgressBar::new_spinner();
        progress.enable_steady_tick(std::time::Duration::from_millis(100));
        let limits =
            limits::Limits::measure(&topology, &ask, |what| progress.set_message(what.to_owned()))?;
        progress.finish_and_clear();
        if let Some(file) = &self.save {
            let text = serde_json::to_vec_pretty(&limits)?;
            output::write(file, "--save", |out| Ok(out.write_all(&text)?))?;
        }
        if self.json {
            ui.print_json(&limits)?;
        } else {
            print(ui, &limits);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(head: &[&str]) -> Grid {
    let align = |at| if at == 0 { Align::Left } else { Align::Right };
    Grid::new(head.iter().enumerate().map(|(at, head)| (*head, align(at))))
}

fn ns(value: f64) -> String {
    match value {
        v if v < 100.0 => format!("{v:.1} ns"),
        v if v < 10_000.0 => format!("{v:.0} ns"),
        v => format!("{:.1} us", v / 1000.0),
    }
}

fn times(spread: &Spread) -> [String; 3] {
    [ns(spread.median), ns(spread.p10), ns(spread.p90)]
}

fn gigabytes(bytes_per_s: f64) -> String {
    format!("{:.2} GB/s", bytes_per_s / 1e9)
}

fn print(ui: &Ui, limits: &limits::Limits) {
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
        let s = &m.bytes_per_s;
        memcpy.row([size(m.size_bytes), gigabytes(s.median), gigabytes(s.p10), gigabytes(s.p90)]);
    }
    println!("{}\n", memcpy.text(ui));
    if !limits.cache_lines.is_empty() {
        println!("{}", ui.paint("1", "Cache-line round trip between CPUs"));
        // The report shows the whole matrix, which can have hundreds of pairs; the terminal shows its two ends.
        const SHOWN: usize = 24;
        let mut lines = table(&["CPUs", "two lines", "p10", "p90", "one line", "p10", "p90"]);
        let mut sorted: Vec<_> = limits.cache_lines.iter().collect();
        if sorted.len() > SHOWN {
            sorted.sort_by(|x, y| x.two_lines_ns.median.total_cmp(&y.two_lines_ns.median));
            let last = sorted.split_off(sorted.len() - SHOWN / 2);
            sorted.truncate(SHOWN / 2);
            sorted.extend(last);
            println!("the {} fastest and slowest of {} pairs", SHOWN, limits.cache_lines.len());
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
        let mut wakes = table(&["by, after", "median", "p10", "p90"]);
        for wake in &limits.wakes {
            let [median, p10, p90] = times(&wake.wake_to_run_ns);
            let name = format!("{:?} {}-{}, {} us asleep", wake.kind, wake.a, wake.b, wake.idle_us)
                .to_lowercase();
            wakes.row([name, median, p10, p90]);
        }
        println!("{}\n", wakes.text(ui));
    }
    if !limits.copies.is_empty() {
        println!("{}", ui.paint("1", "Copies between two CPUs, every byte written and read"));
        let mut copies = table(&[
            "size",
            "copies",
            "CPUs",
            "one at a time",
            "messages/s",
            "bytes/s",
            "p10",
            "p90",
        ]);
        for c in &limits.copies {
            copies.row([
                size(c.size_bytes),
                c.copies.to_string(),
                format!("{}-{}", c.a, c.b),
                format!("{:.3} M/s", c.each_by_itself_msgs_per_s.median / 1e6),
                format!("{:.3} M/s", c.msgs_per_s.median / 1e6),
                gigabytes(c.bytes_per_s.median),
                gigabytes(c.bytes_per_s.p10),
                gigabytes(c.bytes_per_s.p90),
            ]);
        }
        println!("{}", copies.text(ui));
    }
    if !limits.control.is_empty() {
        println!("\n{}", ui.paint("1", "Creating, querying and removing objects"));
        let mut rates = table(&["object, operation", "threads", "per second", "p10", "p90"]);
        for c in &limits.control {
            let [median, p10, p90] =
                [c.per_s.median, c.per_s.p10, c.per_s.p90].map(|rate| format!("{rate:.0}"));
            let name = format!("{}, {}", c.object, c.operation);
            rates.row([name, c.threads.to_string(), median, p10, p90]);
        }
        println!("{}", rates.text(ui));
    }
    for gap in &limits.gaps {
        println!("{} {gap}", ui.paint("33", "note"));
    }
}
