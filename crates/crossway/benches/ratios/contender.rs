//! The overhead of a contender: a pipe through the C helper, compared with the mechanism `pipe`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use crossway_lab::catalogue;
use crossway_lab::contender::Folders;
use crossway_lab::plan::Plan;

use crate::comparison::{Comparison, Target};
use crate::{Args, RATE, RTT, WARMUP_MS, bytes, figure, key, pairs};

/// Compares the contender with the mechanism, or prints why the contender cannot be built.
pub(crate) fn compare(args: &Args, folder: &Path, found: &mut Vec<Comparison>) {
    if let Err(error) = attempt(args, folder, found) {
        println!("no contender to compare with: {error:#}");
    }
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let text = format!(
        "[group.contender]\nmechanisms = [\"pipe\", \"pipe-c\"]\nworkload = [\"throughput\", \"ping-pong\"]\n\
         size_bytes = [64, \"4 KiB\"]\nplacement = \"other-core\"\ntrials = {}\nwarmup_ms = {WARMUP_MS}\nmeasure_ms = {}\n",
        args.pairs, args.measure_ms
    );
    Ok(Plan::parse("ratios-contender", "the benchmark's own plan", &text)?)
}

fn attempt(args: &Args, folder: &Path, found: &mut Vec<Comparison>) -> anyhow::Result<()> {
    let tree = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contenders/pipe.toml"));
    let folders = Folders { declarations: Vec::new(), cache: folder.join("cache") };
    catalogue::declare(folders.load(&[tree])?.contenders)?;
    let contender = catalogue::contenders().first().context("pipe.toml declares nothing")?;
    contender.build()?;
    // By workload and size: the figures of each trial, for the mechanism and for the contender.
    type Trials = BTreeMap<u32, f64>;
    let mut cases: BTreeMap<(&'static str, u64), [Trials; 2]> = BTreeMap::new();
    let filters = &args.filter;
    pairs::run(
        &plan(args)?,
        filters,
        folder.join("contender"),
        |_| Ok(None),
        |record, _| {
            let (Some((mechanism, _, workload, size)), Some(figure)) =
                (key(record), figure(record))
            else {
                return;
            };
            let side = usize::from(mechanism != "pipe");
            cases.entry((workload, size)).or_default()[side].insert(record.inputs.trial, figure);
        },
    )?;
    for ((workload, size), [own, theirs]) in cases {
        let both: Vec<(f64, f64)> =
            own.iter().filter_map(|(trial, own)| Some((*theirs.get(trial)?, *own))).collect();
        if both.is_empty() {
            continue;
        }
        let (over, under): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
        let target = match workload {
            RATE => Target::AtLeast(0.97),
            RTT => Target::AtMost(1.03),
            _ => continue,
        };
        let name = format!("pipe {workload} at {}: contender / mechanism", bytes(size));
        found.push(Comparison::paired(name, &over, &under, target));
    }
    Ok(())
}
