//! Measures how long two `tipcd` processes, or a `tipcd` and the kernel of a guest, take to detect that one of two
//! media was cut, and how long the traffic pauses, for several tolerances of the links.
//!
//! `cargo bench -p crossway-tipc-node --bench failover [-- --cuts 9] [--peer tipcd|kernel]`. Needs root, because it
//! creates networks and boots a guest. It panics without printing figures unless all messages arrived once and in
//! order.

mod far_end;
#[path = "../../tests/failover/flows.rs"]
mod flows;
mod guest;
#[path = "../../tests/failover/planes.rs"]
mod planes;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use flows::Flows;
use guest::BesideKernel;
use planes::{Cut, Planes};

const TOLERANCES_MS: [u64; 3] = [50, 200, 1_500];

/// Minimum tolerance with a guest's kernel, in milliseconds. A guest shares the machine's CPUs, and its kernel's clock
/// ticks slowly, so with a shorter tolerance it loses links without a cut.
const LEAST_OF_KERNEL_MS: u64 = 200;

/// What runs the other end.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    Tipcd,
    Kernel,
}

#[derive(Parser)]
struct Args {
    /// Number of cuts of each kind and tolerance
    #[arg(long, default_value_t = 7)]
    cuts: usize,
    /// Only measure with this peer
    #[arg(long)]
    peer: Option<Peer>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Results for one kind of cut, in milliseconds.
#[derive(Default)]
struct Found {
    own: Vec<f64>,
    other: Vec<f64>,
    pause: Vec<f64>,
    calm: Vec<f64>,
}

/// A network with traffic, in which the first host's media can be cut.
trait Site {
    /// Cuts medium `n` and returns the time of the cut.
    fn cut(&mut self, n: usize, how: Cut) -> Instant;

    fn restore(&mut self, n: usize, how: Cut);

    /// How long after the instant `cut` the nodes of the first host and of the other lost their links on medium `n`.
    /// Fails if they have lost anything else.
    fn noticed(&mut self, n: usize, cut: Instant) -> [Duration; 2];

    /// Waits until every flow has delivered a message after this instant.
    fn await_arrivals_after(&self, instant: Instant);

    /// The longest pause that ended after `begin`, in any flow.
    fn longest_pause_since(&self, begin: Instant) -> Duration;

    /// Ends the traffic and returns the number of messages received, after checking that none is missing.
    fn finish(self) -> u64;
}

/// Two tipcd processes.
struct Pair {
    planes: Planes,
    flows: Flows,
}

impl Pair {
    fn up(tolerance: Duration) -> anyhow::Result<Self> {
        let planes = Planes::up(tolerance).context("cannot make the network")?;
        let flows = Flows::start([&planes.nodes[0].path, &planes.nodes[1].path]);
        Ok(Self { planes, flows })
    }
}

impl Site for Pair {
    fn cut(&mut self, n: usize, how: Cut) -> Instant {
        self.planes.cut(n, how)
    }

    fn restore(&mut self, n: usize, how: Cut) {
        self.planes.restore(n, how);
    }

    fn noticed(&mut self, n: usize, cut: Instant) -> [Duration; 2] {
        self.planes.noticed(n).map(|at| at.saturating_duration_since(cut))
    }

    fn await_arrivals_after(&self, instant: Instant) {
        self.flows.await_arrivals_after(instant);
    }

    fn longest_pause_since(&self, begin: Instant) -> Duration {
        self.flows.longest_pause_since(begin)
    }

    fn finish(self) -> u64 {
        self.flows.finish()
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Formats the median, minimum and maximum.
fn told(mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    match (figures.first(), figures.get(figures.len() / 2), figures.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{median:.0} ({least:.0} to {most:.0})")
        }
        _ => "-".into(),
    }
}

/// Cuts the two media in turn, `cuts` times in each way, and prints a line of the table for each way.
fn measure(mut site: impl Site, tolerance: Duration, cuts: usize) {
    for how in [Cut::Device, Cut::Carrier, Cut::Silence] {
        let mut found = Found::default();
        for n in 0..cuts {
            site.await_arrivals_after(Instant::now());
            let begin = Instant::now();
            // As long as a cut takes to be detected.
            std::thread::sleep(tolerance * 2);
            found.calm.push(ms(site.longest_pause_since(begin)));
            let cut = site.cut(n % 2, how);
            let [own, other] = site.noticed(n % 2, cut);
            site.await_arrivals_after(cut + own.max(other) + Duration::from_millis(20));
            found.own.push(ms(own));
            found.other.push(ms(other));
            found.pause.push(ms(site.longest_pause_since(cut)));
            site.restore(n % 2, how);
        }
        let Found { own, other, pause, calm } = found;
        println!(
            "| {} ms | {} | {} | {} | {} | {} |",
            tolerance.as_millis(),
            match how {
                Cut::Device => "first device goes down",
                Cut::Carrier => "first device loses its carrier",
                Cut::Silence => "silent, both directions",
            },
            told(own),
            told(other),
            told(pause),
            told(calm),
        );
    }
    let messages = site.finish();
    eprintln!("{tolerance:?}: {messages} messages, each once and in order");
}

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(exit) = crossway_netlab::run_guest_subcommand(&words) {
        return Ok(exit);
    }
    if words == [far_end::ROLE] {
        far_end::run();
        return Ok(ExitCode::SUCCESS);
    }
    let args = Args::parse();
    for peer in [Peer::Tipcd, Peer::Kernel] {
        if args.peer.is_some_and(|only| only != peer) {
            continue;
        }
        println!(
            "{}\n\n| tolerance | cut | noticed at the first end | noticed at the other end | longest pause | pause without a cut |\n|---:|---|---:|---:|---:|---:|",
            match peer {
                Peer::Tipcd => "A tipcd and another",
                Peer::Kernel => "A tipcd and the kernel of a guest",
            }
        );
        let least = if peer == Peer::Kernel { LEAST_OF_KERNEL_MS } else { 0 };
        for tolerance in TOLERANCES_MS.into_iter().filter(|ms| *ms >= least) {
            let tolerance = Duration::from_millis(tolerance);
            match peer {
                Peer::Tipcd => measure(Pair::up(tolerance)?, tolerance, args.cuts),
                Peer::Kernel => measure(BesideKernel::up(tolerance)?, tolerance, args.cuts),
            }
        }
        println!();
    }
    Ok(ExitCode::SUCCESS)
}
