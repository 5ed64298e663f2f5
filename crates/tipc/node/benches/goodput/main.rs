//! Compares the speed of two nodes in user space with that of kernel TCP on the same link. Trials of the two alternate,
//! and each pair gives a ratio.
//!
//! `cargo bench -p crossway-tipc-node --bench goodput [-- --filter loss --json goodput.json]`. Needs root, because it
//! creates networks. This is a benchmark, not a test: if a target is missed, that is printed and the exit status is 0.
//! If a trial fails, it is named and the exit status is 1.

mod cases;
mod report;
mod role;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use cases::{Place, all};
use clap::{Parser, Subcommand};
use report::Row;
use trial::Site;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Number of pairs of trials per case
    #[arg(long, default_value_t = 7)]
    pairs: u32,
    /// Milliseconds before measuring, so that send windows can grow
    #[arg(long, default_value_t = 300)]
    warmup_ms: u64,
    /// Milliseconds per trial; four times as many on slow or lossy links
    #[arg(long, default_value_t = 500)]
    measure_ms: u64,
    /// Only cases whose name contains one of these
    #[arg(long)]
    filter: Vec<String>,
    /// An argument for each tipcd, such as --tipcd-arg=--lane-after=0
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    tipcd_arg: Vec<String>,
    /// Microseconds for which TIPC's receivers on a tipcd spin before they sleep
    #[arg(long, default_value_t = 0)]
    spin_us: u64,
    /// Also write the figures as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Part {
    /// One end of a trial; for internal use by this program
    #[command(hide = true)]
    Role(role::Role),
}

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(exit) = crossway_netlab::run_guest_subcommand(&words) {
        return Ok(exit);
    }
    let args = Args::parse();
    if let Some(Part::Role(role)) = &args.part {
        return role.play().map(|()| ExitCode::SUCCESS);
    }
    remove_networks_when_interrupted()?;
    let wanted =
        |name: &str| args.filter.is_empty() || args.filter.iter().any(|f| name.contains(f));
    let (warmup, measure) =
        (Duration::from_millis(args.warmup_ms), Duration::from_millis(args.measure_ms));
    let mut rows = Vec::new();
    let mut failed = 0;
    for place in Place::ALL {
        let cases: Vec<_> =
            all().into_iter().filter(|c| c.place == place && wanted(c.name)).collect();
        if cases.is_empty() {
            continue;
        }
        let mut site = Site::make(place, &args.tipcd_arg)
            .with_context(|| format!("cannot set up {place:?}"))?;
        site.spin_us = args.spin_us;
        let mut found: Vec<Row> = cases.into_iter().map(Row::new).collect();
        for pair in 0..args.pairs {
            for row in &mut found {
                eprint!("\r{place:?}: pair {} of {}, {:<30}", pair + 1, args.pairs, row.case.name);
                let case = row.case;
                // Alternate the order, so that leftovers of one affect both.
                let (first, second) = match pair % 2 {
                    0 => (case.ours, case.theirs),
                    _ => (case.theirs, case.ours),
                };
                let mut trial = |carrier| site.run(&case, carrier, warmup, measure);
                match trial(first).and_then(|one| Ok((one, trial(second)?))) {
                    Ok((one, two)) if pair % 2 == 0 => row.add(one, two),
                    Ok((one, two)) => row.add(two, one),
                    Err(error) => {
                        failed += 1;
                        eprintln!("\n{error:#}");
                    }
                }
            }
        }
        eprintln!();
        rows.extend(found);
    }
    report::print(&rows);
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&report::json(&rows))?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    anyhow::ensure!(failed == 0, "{failed} pairs of trials failed, see above");
    Ok(ExitCode::SUCCESS)
}

fn remove_networks_when_interrupted() -> anyhow::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            crossway_netlab::remove_all_of_this_process();
            std::process::exit(130);
        }
    });
    Ok(())
}
