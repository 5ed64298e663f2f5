//! Comparisons between two hosts of a netlab network. TCP is compared with iperf3 and sockperf on the same link and, on
//! a slow link, with the payload rate that the headers leave. TIPC is compared only with that payload rate, in guests
//! whose kernel supports TIPC.

use std::path::PathBuf;

use crossway_lab::case;
use crossway_lab::plan::Plan;
use crossway_netlab::{Lab, Link, Offloads, Topology as Network};
use crossway_records::inputs::Workload;
use crossway_records::record::Record;
use crossway_sys::topology::Topology;

use crate::comparison::{Comparison, Target};
use crate::tools::{self, Ends};
use crate::{Args, figure, pairs};

/// Measured time of a trial in milliseconds; a run of the tools takes the same time.
const MEASURE_MS: u64 = 1_000;
/// Measured time on the slow link in milliseconds. The rate is steady only after the link's queue has filled up.
const SLOW_MEASURE_MS: u64 = 2_000;
/// Number of trials on the slow link. A few are enough, because they hardly vary.
const SLOW_TRIALS: u32 = 3;

/// Rate of the slow link, the same as between the two boards of the Toshiba study.
const SLOW: &str = "100mbit";
const SLOW_BITS_PER_S: f64 = 100e6;
/// Size of a full Ethernet frame in bytes, as the token bucket counts it: a packet of 1500 bytes and a header of 14.
const FRAME_BYTES: f64 = 1514.0;
/// TCP payload of a full frame in bytes: 1500 minus 20 for IPv4, 20 for TCP and 12 for time stamps.
const TCP_PAYLOAD: f64 = 1448.0;
/// TIPC payload of a full frame in bytes: 1500 minus 24 for the header.
const TIPC_PAYLOAD: f64 = 1476.0;

/// Runs all comparisons. Prints which of them are impossible here, and why.
pub(crate) fn compare(args: &Args, out: &std::path::Path, found: &mut Vec<Comparison>) {
    for (name, offloads) in [("off", Offloads::Off), ("on", Offloads::On)] {
        if let Err(error) = against_tools(args, out.join(name), name, offloads, found) {
            println!("network, offloads {name}: left out: {error:#}");
        }
    }
    let slow = [
        ("netlab", "tcp", "tcp", TCP_PAYLOAD),
        ("guests", "tcp", "tcp", TCP_PAYLOAD),
        ("guests", "tipc-kernel-stream", "tipc", TIPC_PAYLOAD),
    ];
    for (kind, mechanism, protocol, payload) in slow {
        let out = out.join(format!("{kind}-{protocol}"));
        if let Err(error) = against_the_wire(args, out, kind, mechanism, payload, found) {
            println!("{SLOW} link, {mechanism} between {kind}: left out: {error:#}");
        }
    }
}

/// Alternates trials of Crossway with runs of the tools on one link.
fn against_tools(
    args: &Args,
    out: PathBuf,
    name: &str,
    offloads: Offloads,
    found: &mut Vec<Comparison>,
) -> anyhow::Result<()> {
    let text = format!(
        r#"
about = "TCP between two hosts beside public tools."
[testbed.net]
kind = "hosts"
[defaults]
testbed = "net"
trials = {}
warmup_ms = 100
measure_ms = {MEASURE_MS}
[group.net-throughput]
mechanisms = "tcp"
workload = "throughput"
size_bytes = "64 KiB"
[group.net-round-trip]
mechanisms = "tcp-nodelay"
workload = "ping-pong"
size_bytes = 64
"#,
        args.pairs
    );
    let mut plan = Plan::parse("network", "the benchmark's own plan", &text)?;
    if nothing_wanted(&plan, args)? {
        return Ok(());
    }
    let link = Link { offloads, ..Link::default() };
    let lab = Lab::up(&Network::of(&["a", "b"], link))?;
    let (a, b) = (lab.host("a")?, lab.host("b")?);
    plan.set_hosts(&format!("{},{}", quoted(&a.prefix()), quoted(&b.prefix())))?;
    let ends = Ends {
        server: Box::new(|program| b.command(program)),
        client: Box::new(|program| a.command(program)),
        address: b.ipv4.to_string(),
    };
    let mut rates = (Vec::new(), Vec::new());
    let mut round_trips = (Vec::new(), Vec::new());
    let counterpart = |record: &Record| match record.inputs.workload {
        Workload::Throughput => tools::iperf3_messages_per_s(&ends).map(Some),
        _ => tools::sockperf_round_trip_ns(&ends).map(Some),
    };
    pairs::run(&plan, &args.filter, out, counterpart, |record, theirs| {
        let figures = match record.inputs.workload {
            Workload::Throughput => &mut rates,
            _ => &mut round_trips,
        };
        if let (Some(ours), Some(theirs)) = (figure(record), theirs) {
            figures.0.push(ours);
            figures.1.push(theirs);
        }
    })?;
    let mut add = |what: &str, (ours, theirs): (Vec<f64>, Vec<f64>), target| {
        if !ours.is_empty() {
            let name = format!("between hosts, offloads {name}: {what}");
            found.push(Comparison::paired(name, &ours, &theirs, target));
        }
    };
    add("tcp throughput at 64 KiB: Crossway / iperf3", rates, Target::AtLeast(0.98));
    add("tcp-nodelay round trip at 64 B: Crossway / sockperf", round_trips, Target::AtMost(1.02));
    Ok(())
}

/// Returns whether the filters exclude all cases of the plan.
fn nothing_wanted(plan: &Plan, args: &Args) -> anyhow::Result<bool> {
    Ok(case::expand(plan, &Topology::read()?, &args.filter).is_empty())
}

/// Formats a command prefix in the syntax of `--hosts`. Arguments are quoted, because they may contain commas.
fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// Compares the payload rate over the slow link with the rate that full frames allow.
fn against_the_wire(
    args: &Args,
    out: PathBuf,
    kind: &str,
    mechanism: &str,
    payload: f64,
    found: &mut Vec<Comparison>,
) -> anyhow::Result<()> {
    let tipc = if kind == "guests" { "tipc = [\"kernel\"]" } else { "" };
    let text = format!(
        r#"
about = "What a slow link carries."
[testbed.slow]
kind = "{kind}"
rate = "{SLOW}"
offloads = "off"
{tipc}
[group.wire-{kind}]
testbed = "slow"
mechanisms = "{mechanism}"
workload = "throughput"
size_bytes = "64 KiB"
trials = {SLOW_TRIALS}
warmup_ms = 500
measure_ms = {SLOW_MEASURE_MS}
"#
    );
    let plan = Plan::parse("wire", "the benchmark's own plan", &text)?;
    if nothing_wanted(&plan, args)? {
        return Ok(());
    }
    let mut bits = Vec::new();
    pairs::run(
        &plan,
        &args.filter,
        out,
        |_| Ok(None),
        |record, _| {
            bits.extend(record.throughput.map(|t| t.bytes_per_s * 8.0));
        },
    )?;
    if bits.is_empty() {
        anyhow::bail!("no trial gave a figure");
    }
    let most = vec![SLOW_BITS_PER_S * payload / FRAME_BYTES; bits.len()];
    let name = format!(
        "{mechanism} between {kind} at {SLOW}: bits per second / {payload}/{FRAME_BYTES} of the rate"
    );
    found.push(Comparison::paired(name, &bits, &most, Target::AtLeast(0.99)));
    Ok(())
}
