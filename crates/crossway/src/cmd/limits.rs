//! `crossway limits`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use crossway_lab::limits::{self, Ask, Spread};
use crossway_sys::topology::Topology;

use super::Run;
use crate::output;
use crate::ui::Ui;

/// Measures what no mechanism on this machine can beat: system calls, cache lines, wake-ups, copies
///
/// Takes about five seconds on an idle machine of two cores. Between cores, threads pinned to both are measured, with
/// nothing in the way and the memory layout that came out best.
#[derive(clap::Args)]
pub(crate) struct Limits {
    /// Print JSON, as limits.json beside a run's records
    #[arg(long)]
    json: bool,
    /// Write the JSON into this file as well
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure between these CPUs only, e.g. 0-1; may be given several times [default: every pair]
    #[arg(long = "pair", value_name = "A-B", value_parser = parse_pair)]
    pairs: Vec<(u32, u32)>,
    /// Message sizes for copies in bytes, separated by commas
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=64 << 20))]
    sizes: Vec<u64>,
}

fn parse_pair(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match numbers {
        Some((a, b)) if a != b => Ok((a, b)),
        Some(_) => {
            Err("the two CPUs must be different: one core cannot wait for itself".to_owned())
        }
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

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(head.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
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

fn bytes(size: u64) -> String {
    match size {
        s if s >= 1 << 20 && s.is_multiple_of(1 << 20) => format!("{} MiB", s >> 20),
        s if s >= 1 << 10 && s.is_multiple_of(1 << 10) => format!("{} KiB", s >> 10),
        s => format!("{s} B"),
    }
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
        calls.add_row([name.to_owned(), median, p10, p90]);
    }
    println!("{calls}\n");
    let mut memcpy = table(&["memcpy, same place again", "median", "p10", "p90"]);
    for m in &limits.memcpy {
        let s = &m.bytes_per_s;
        memcpy.add_row([
            bytes(m.size_bytes),
            gigabytes(s.median),
            gigabytes(s.p10),
            gigabytes(s.p90),
        ]);
    }
    println!("{memcpy}\n");
    if !limits.cache_lines.is_empty() {
        println!("{}", ui.paint("1", "Cache-line round trip between CPUs"));
        // A matrix of hundreds of pairs is for the report; the terminal shows the ends.
        const SHOWN: usize = 24;
        let mut lines = table(&["CPUs", "two lines", "p10", "p90", "one line", "p10", "p90"]);
        let mut sorted: Vec<_> = limits.cache_lines.iter().collect();
        if sorted.len() > SHOWN {
            sorted.sort_by(|x, y| x.two_lines_ns.median.total_cmp(&y.two_lines_ns.median));
            let last = sorted.split_off(sorted.len() - SHOWN / 2);
            sorted.truncate(SHOWN / 2);
            sorted.extend(last);
            println!("the {} nearest and farthest of {} pairs", SHOWN, limits.cache_lines.len());
        }
        for pair in sorted {
            let [two, two_10, two_90] = times(&pair.two_lines_ns);
            let [one, one_10, one_90] = times(&pair.one_line_ns);
            let name = format!("{}-{} {}", pair.a, pair.b, pair.relation);
            lines.add_row([name, two, two_10, two_90, one, one_10, one_90]);
        }
        println!("{lines}\n");
    }
    if !limits.wakes.is_empty() {
        println!("{}", ui.paint("1", "From waking a sleeper to its running"));
        let mut wakes = table(&["by, after", "median", "p10", "p90"]);
        for wake in &limits.wakes {
            let [median, p10, p90] = times(&wake.wake_to_run_ns);
            let name = format!("{:?} {}-{}, {} us asleep", wake.kind, wake.a, wake.b, wake.idle_us)
                .to_lowercase();
            wakes.add_row([name, median, p10, p90]);
        }
        println!("{wakes}\n");
    }
    if !limits.copies.is_empty() {
        println!("{}", ui.paint("1", "Between two CPUs, every byte written and every byte read"));
        let mut copies = table(&[
            "size",
            "copies",
            "CPUs",
            "each by itself",
            "messages/s",
            "bytes/s",
            "p10",
            "p90",
        ]);
        for c in &limits.copies {
            copies.add_row([
                bytes(c.size_bytes),
                c.copies.to_string(),
                format!("{}-{}", c.a, c.b),
                format!("{:.3} M/s", c.each_by_itself_msgs_per_s.median / 1e6),
                format!("{:.3} M/s", c.msgs_per_s.median / 1e6),
                gigabytes(c.bytes_per_s.median),
                gigabytes(c.bytes_per_s.p10),
                gigabytes(c.bytes_per_s.p90),
            ]);
        }
        println!("{copies}");
    }
    for gap in &limits.gaps {
        println!("{} {gap}", ui.paint("33", "note"));
    }
}
