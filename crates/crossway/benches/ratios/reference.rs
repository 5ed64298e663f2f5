//! The hand-written C loops in bench/c: compiles them, and runs them like a trial of Crossway.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use crossway_lab::payload::working_set_bytes;
use crossway_records::inputs::Workload;
use crossway_records::record::Record;
use crossway_sys::topology::Topology;
use serde::Deserialize;

/// What a C loop does with the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// What Crossway does: takes messages in turn from a large working set, numbers each, and reads every byte.
    Everything,
    /// Nothing: a single buffer stays in the cache and is never read.
    Nothing,
}

/// The compiled loops.
pub(crate) struct Reference {
    dir: PathBuf,
    working_set_bytes: u64,
}

/// The JSON that a loop prints.
#[derive(Deserialize)]
struct Line {
    messages: u64,
    wall_ns: u64,
    rtt_p50_ns: Option<f64>,
}

impl Reference {
    /// Compiles the loops into `dir`. Their working set is that of a role on `cpu`.
    pub(crate) fn build(dir: &Path, topology: &Topology, cpu: u32) -> anyhow::Result<Reference> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/c");
        let made = Command::new("make")
            .arg("--silent")
            .arg("-C")
            .arg(source)
            .arg(format!("OUT={}", dir.display()))
            .output()
            .context("cannot run make; install make and a C compiler")?;
        if !made.status.success() {
            bail!("bench/c does not compile: {}", String::from_utf8_lossy(&made.stderr).trim());
        }
        Ok(Reference { dir: dir.to_owned(), working_set_bytes: working_set_bytes(topology, cpu) })
    }

    /// Repeats a trial with a C loop, with the same size, the same CPUs, and the same numbers of messages in the
    /// warm-up and in the measured window. Returns the messages per second, or the median round trip in nanoseconds. A
    /// loop that touches nothing reads the clock only at its start and end, and therefore reports the mean round trip.
    pub(crate) fn run(&self, record: &Record, touch: Touch) -> anyhow::Result<f64> {
        let program = self.dir.join(record.mechanism.replace('-', "_"));
        let inputs = &record.inputs;
        let (workload, batch) = match inputs.workload {
            Workload::PingPong => ("ping-pong", record.latency_ns.first().map_or(1, |l| l.batch)),
            _ => ("throughput", 1),
        };
        let batch = if touch == Touch::Nothing { 0 } else { batch };
        let counts = record.counts.context("the trial counted no messages")?;
        let messages = counts.received.max(8);
        let [a, b] = inputs.cpus[..] else { bail!("the trial was not pinned to two CPUs") };
        let told = Command::new("timeout")
            .arg("60")
            .arg(&program)
            .arg(workload)
            .args(
                [
                    inputs.size_bytes,
                    messages,
                    a.into(),
                    b.into(),
                    self.working_set_bytes,
                    counts.warmup,
                ]
                .map(|n: u64| n.to_string()),
            )
            .arg(batch.to_string())
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        if !told.status.success() {
            bail!("{}: {}", told.status, String::from_utf8_lossy(&told.stderr).trim());
        }
        let line: Line = serde_json::from_slice(&told.stdout)?;
        match inputs.workload {
            Workload::PingPong => {
                line.rtt_p50_ns.context("the C loop's answer contains no round trip")
            }
            _ => Ok(line.messages as f64 * 1e9 / line.wall_ns as f64),
        }
    }
}
