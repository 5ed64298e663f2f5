//! How long two `tipcd` need to notice that one of two media is cut, and for how long the traffic pauses, by the links' tolerance.
//!
//! `cargo bench -p crossway-tipc-node --bench failover [-- --cuts 9]`. Needs root: it makes its networks. All that was sent must have
//! arrived once and in order; otherwise there is no figure but a panic.

#[path = "../tests/failover/flows.rs"]
mod flows;
#[path = "../tests/failover/planes.rs"]
mod planes;

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use flows::Flows;
use planes::{Cut, Planes};

const TOLERANCES_MS: [u64; 3] = [50, 200, 1_500];

#[derive(Parser)]
struct Args {
    /// Cuts of each kind and tolerance
    #[arg(long, default_value_t = 7)]
    cuts: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// What the cuts of one kind gave, milliseconds.
#[derive(Default)]
struct Found {
    first: Vec<f64>,
    both: Vec<f64>,
    pause: Vec<f64>,
    calm: Vec<f64>,
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Median, least and most.
fn told(figures: &mut [f64]) -> String {
    figures.sort_by(f64::total_cmp);
    match (figures.first(), figures.get(figures.len() / 2), figures.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{median:.0} ({least:.0} to {most:.0})")
        }
        _ => "-".into(),
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!(
        "| tolerance | cut | first end knows | both know | longest pause | pause without a cut |"
    );
    println!("|---:|---|---:|---:|---:|---:|");
    for tolerance in TOLERANCES_MS.map(Duration::from_millis) {
        let mut planes = Planes::up(tolerance).context("cannot make the network")?;
        let flows = Flows::start([&planes.nodes[0].path, &planes.nodes[1].path]);
        for how in [Cut::Device, Cut::Carrier, Cut::Silence] {
            let mut found = Found::default();
            for n in 0..args.cuts {
                flows.await_arrivals_after(Instant::now());
                let begin = Instant::now();
                // As long as a cut takes to be noticed.
                std::thread::sleep(tolerance * 2);
                found.calm.push(ms(flows.longest_pause_since(begin)));
                let cut = planes.cut(n % 2, how);
                let noticed = planes.noticed(n % 2);
                let (first, last) = (noticed[0].min(noticed[1]), noticed[0].max(noticed[1]));
                flows.await_arrivals_after(last + Duration::from_millis(20));
                found.first.push(ms(first.saturating_duration_since(cut)));
                found.both.push(ms(last.saturating_duration_since(cut)));
                found.pause.push(ms(flows.longest_pause_since(cut)));
                planes.mend(n % 2, how);
            }
            let Found { mut first, mut both, mut pause, mut calm } = found;
            println!(
                "| {} ms | {} | {} | {} | {} | {} |",
                tolerance.as_millis(),
                match how {
                    Cut::Device => "one end's device goes down",
                    Cut::Carrier => "one end's device loses its carrier",
                    Cut::Silence => "silent, both ways",
                },
                told(&mut first),
                told(&mut both),
                told(&mut pause),
                told(&mut calm),
            );
        }
        let messages = flows.finish();
        eprintln!("{tolerance:?}: {messages} messages, each once and in order");
    }
    Ok(())
}
