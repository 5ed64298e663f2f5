//! `crossway linx bench`.

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use comfy_table::{Cell, CellAlignment, Table, presets};
use crossway_linx::bmark::{self, Client, Figures};
use serde::Serialize;

use crate::args;
use crate::own;
use crate::ui::Ui;

#[derive(clap::Args)]
pub(super) struct Bench {
    /// Cases to measure [default: all]
    #[arg(value_enum, value_name = "CASE")]
    cases: Vec<Case>,
    /// Endpoint of the running `crossway linx bench --serve` to measure against: its name, preceded by the names of the
    /// links that lead to it, if any, as in a/b/name [default: start a server for the measurement]
    #[arg(long, value_name = "PATH", conflicts_with = "serve")]
    server: Option<String>,
    /// Serve other clients at an endpoint of this name until interrupted, instead of measuring
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = bmark::SERVER, conflicts_with = "cases")]
    serve: Option<String>,
    /// Signal size in bytes, for the cases that use one size
    #[arg(long, value_name = "BYTES", default_value_t = bmark::SIZE)]
    size: usize,
    /// Number of times each operation is timed
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = positive)]
    times: usize,
    /// Number of signals in a burst
    #[arg(long, value_name = "COUNT", default_value_t = bmark::BURST, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,
    /// Number of pairs of processes that send in parallel, for the case `pairs`
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = positive)]
    pairs: usize,
    /// Give up if the server does not answer within this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = args::number)]
    timeout: f64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Exit when standard input closes: for a server started by its client
    #[arg(long, hide = true)]
    lifeline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Time from the request to close an endpoint until a client that has attached to the endpoint is notified of its
    /// end
    AttachDelay,
    /// Time for a signal to the server and back
    RoundTrip,
    /// Time from the start of a burst of signals until the server has received and echoed the last one
    Burst,
    /// Round trips with sizes from 1000 to 65,536 bytes, and their CPU use
    RoundTripRamp,
    /// Bursts of signals with sizes from 1000 to 65,536 bytes, and their CPU use
    BurstRamp,
    /// Bursts between several pairs of processes in parallel
    Pairs,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::AttachDelay => "attach delay",
            Case::RoundTrip | Case::RoundTripRamp => "round trip",
            Case::Burst | Case::BurstRamp => "burst",
            Case::Pairs => "pairs",
        }
    }
}

/// A row of the table, or an element of the JSON output.
#[derive(Serialize)]
struct Row {
    case: String,
    size_bytes: usize,
    times: usize,
    signals: u64,
    median_us: f64,
    p99_us: f64,
    longest_us: f64,
    signals_per_s: f64,
    mbytes_per_s: f64,
    /// CPU use of client and server together, without the nodes, in percent of one CPU.
    cpu_percent: f64,
}

impl Row {
    fn new(case: String, figures: &Figures) -> Row {
        let us = |ns: u64| ns as f64 / 1e3;
        let per_s = figures.signals_per_s();
        Row {
            case,
            size_bytes: figures.size,
            times: figures.times,
            signals: figures.signals,
            median_us: us(figures.median_ns),
            p99_us: us(figures.p99_ns),
            longest_us: us(figures.longest_ns),
            signals_per_s: per_s,
            mbytes_per_s: per_s * figures.size as f64 / 1e6,
            cpu_percent: figures.cpu_percent(),
        }
    }
}

fn positive(word: &str) -> Result<usize, String> {
    match word.parse() {
        Ok(0) => Err("give 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}; give a whole number of 1 or more")),
    }
}

/// A server process that was started for one measurement. It exits when this process ends, however that happens.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(dir: &Path, name: &str) -> anyhow::Result<Server> {
        let program = own::program()?;
        let mut command = Command::new(program);
        command.args(["linx", "--dir"]).arg(dir).args(["bench", "--lifeline", "--serve", name]);
        // The server reads this pipe, which closes when this process ends.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Ok(Server(child.context("cannot start the bench server")?))
    }
}

impl Bench {
    pub(super) fn run(self, dir: &Path, ui: &Ui) -> anyhow::Result<ExitCode> {
        if let Some(name) = &self.serve {
            if self.lifeline {
                std::thread::spawn(|| {
                    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                    std::process::exit(0);
                });
            }
            bmark::serve(dir, name)?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows = self.measure(dir)?;
        if self.json {
            ui.print_json(&rows)?;
        } else {
            print(&rows);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn cases(&self) -> &[Case] {
        if self.cases.is_empty() {
            <Case as clap::ValueEnum>::value_variants()
        } else {
            &self.cases
        }
    }

    fn patience(&self) -> anyhow::Result<Duration> {
        Duration::try_from_secs_f64(self.timeout).map_err(|error| {
            anyhow::anyhow!("--timeout: {error}; give a smaller number of seconds")
        })
    }

    fn measure(&self, dir: &Path) -> anyhow::Result<Vec<Row>> {
        let patience = self.patience()?;
        let own_name = |n: usize| format!("{}-{}-{n}", bmark::SERVER, std::process::id());
        let mut servers = Vec::new();
        let path = match &self.server {
            Some(path) => path.clone(),
            None => {
                servers.push(Server::start(dir, &own_name(0))?);
                own_name(0)
            }
        };
        let mut client = Client::new(dir, &path, patience).with_context(|| {
            format!(
                "cannot reach the bench server '{path}' (if none runs, start one with: crossway linx bench --serve)"
            )
        })?;
        let mut rows = Vec::new();
        let (size, times, burst) = (self.size, self.times, self.burst);
        for case in self.cases() {
            let mut add = |figures: &Figures| rows.push(Row::new(case.name().to_owned(), figures));
            match case {
                Case::AttachDelay => add(&client.attach_delay(times)?),
                Case::RoundTrip => add(&client.round_trip(size, times)?),
                Case::Burst => add(&client.burst(size, burst, times)?),
                Case::RoundTripRamp => {
                    for size in bmark::ramp() {
                        add(&client.round_trip(size, times)?);
                    }
                }
                Case::BurstRamp => {
                    for size in bmark::ramp() {
                        add(&client.burst(size, burst, times)?);
                    }
                }
                Case::Pairs => {
                    let mut paths = vec![path.clone(); self.pairs];
                    if self.server.is_none() {
                        for (n, path) in paths.iter_mut().enumerate().skip(1) {
                            servers.push(Server::start(dir, &own_name(n))?);
                            *path = own_name(n);
                        }
                    }
                    let figures = self.pairs_at_a_time(dir, &paths, patience)?;
                    rows.push(Row::new(format!("{} pairs", self.pairs), &figures));
                }
            }
        }
        Ok(rows)
    }

    /// Runs bursts in parallel, in one thread per server.
    fn pairs_at_a_time(
        &self,
        dir: &Path,
        paths: &[String],
        patience: Duration,
    ) -> anyhow::Result<Figures> {
        let mut clients = Vec::new();
        for path in paths {
            clients.push(Client::new(dir, path, patience)?);
        }
        let all: Vec<Figures> = std::thread::scope(|scope| {
            let threads: Vec<_> = clients
                .iter_mut()
                .map(|client| scope.spawn(|| client.burst(self.size, self.burst, self.times)))
                .collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(figures) => Ok(figures?),
                Err(_) => anyhow::bail!("a client thread panicked"),
            });
            joined.collect::<anyhow::Result<_>>()
        })?;
        let elapsed_ns = all.iter().map(|figures| figures.elapsed_ns).max().unwrap_or(0);
        let median = |of: fn(&Figures) -> u64| {
            let mut figures: Vec<u64> = all.iter().map(of).collect();
            figures.sort_unstable();
            figures.get(figures.len() / 2).copied().unwrap_or(0)
        };
        Ok(Figures {
            size: self.size,
            times: all.iter().map(|figures| figures.times).sum(),
            signals: all.iter().map(|figures| figures.signals).sum(),
            median_ns: median(|figures| figures.median_ns),
            p99_ns: median(|figures| figures.p99_ns),
            longest_ns: all.iter().map(|figures| figures.longest_ns).max().unwrap_or(0),
            elapsed_ns,
            // Each client counted the CPU time of the whole process; the last one to finish covers all of it.
            client_cpu_ns: all.iter().map(|figures| figures.client_cpu_ns).max().unwrap_or(0),
            server_cpu_ns: all.iter().map(|figures| figures.server_cpu_ns).sum(),
        })
    }
}

fn print(rows: &[Row]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "case",
        "bytes",
        "times",
        "median us",
        "p99 us",
        "longest us",
        "signals/s",
        "MB/s",
        "CPU %",
    ]);
    for row in rows {
        let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(&row.case),
            number(row.size_bytes.to_string()),
            number(row.times.to_string()),
            number(format!("{:.1}", row.median_us)),
            number(format!("{:.1}", row.p99_us)),
            number(format!("{:.1}", row.longest_us)),
            number(format!("{:.0}", row.signals_per_s)),
            number(format!("{:.1}", row.mbytes_per_s)),
            number(format!("{:.0}", row.cpu_percent)),
        ]);
    }
    println!("{}", table.trim_fmt());
}
