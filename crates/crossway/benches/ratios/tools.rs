//! Comparisons with public tools that measure the same figures: sockperf for the round trip of TCP, iperf3 for its
//! throughput.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::comparison::{Comparison, Target};
use crate::{Figures, Key, RATE, RTT};

/// Number of runs of each tool.
const RUNS: usize = 5;
/// Maximum time until a server listens.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Runs the comparisons for which the tool is installed and Crossway has a figure.
pub(crate) fn compare(
    figures: &BTreeMap<Key, Figures>,
    (a, b): (u32, u32),
    found: &mut Vec<Comparison>,
) {
    let loopback = Ends {
        server: Box::new(move |program| pinned(b, program)),
        client: Box::new(move |program| pinned(a, program)),
        address: "127.0.0.1".to_owned(),
    };
    let get = |workload, size| figures.get(&("tcp".to_owned(), false, workload, size));
    let mut tool =
        |name: &str, ours: Option<&Figures>, target, run: &dyn Fn() -> anyhow::Result<f64>| {
            let Some(ours) = ours else { return };
            let mut theirs = Vec::new();
            for _ in 0..RUNS {
                match run() {
                    Ok(figure) => theirs.push(figure),
                    Err(error) => {
                        println!("{name}: left out: {error:#}");
                        return;
                    }
                }
            }
            found.push(Comparison::unpaired(name.to_owned(), &ours.crossway, &theirs, target));
        };
    tool(
        "tcp round trip at 64 B: Crossway / sockperf",
        get(RTT, 64),
        Target::AtMost(1.02),
        &|| sockperf_round_trip_ns(&loopback),
    );
    // iperf3's receiver does not read the data that it receives; ours reads every byte.
    tool(
        "tcp throughput at 64 KiB: Crossway / iperf3",
        get(RATE, 64 << 10),
        Target::AtLeast(0.98),
        &|| iperf3_messages_per_s(&loopback),
    );
}

/// Where a tool's two ends run, and the server's address.
pub(crate) struct Ends<'a> {
    /// Returns a command that runs the given program where the server runs.
    pub(crate) server: Box<dyn Fn(&str) -> Command + 'a>,
    /// Returns a command that runs the given program where the client runs.
    pub(crate) client: Box<dyn Fn(&str) -> Command + 'a>,
    /// The server's address.
    pub(crate) address: String,
}

fn pinned(cpu: u32, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), program]);
    command
}

/// A server process that is killed and reaped on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(ends: &Ends<'_>, program: &str, args: &[&str]) -> anyhow::Result<Server> {
    let child = (ends.server)(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(Server(child))
}

/// Returns a port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until the kernel's table shows that the server listens. A test connection would use up a server that serves
/// only one client.
fn wait_for_listener(ends: &Ends<'_>, port: u16) -> anyhow::Result<()> {
    let until = Instant::now() + START_LIMIT;
    let ending = format!(":{port:04X}");
    loop {
        // The tables of the network in which the server runs; without IPv6 the second does not exist.
        let told = (ends.server)("cat").args(["/proc/net/tcp", "/proc/net/tcp6"]).output()?;
        let listens = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|at| at.ends_with(&ending)) && words.nth(1) == Some("0A")
        };
        if String::from_utf8_lossy(&told.stdout).lines().any(listens) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("its server does not listen");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn client(ends: &Ends<'_>, program: &str, args: &[&str]) -> anyhow::Result<String> {
    let told = (ends.client)("timeout")
        .args(["30", program])
        .args(args)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !told.status.success() {
        bail!("{program}: {}", told.status);
    }
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// Returns the round trip that sockperf measures, in nanoseconds. sockperf itself reports half the round trip, in
/// microseconds; its sockets send without delay (TCP_NODELAY).
pub(crate) fn sockperf_round_trip_ns(ends: &Ends<'_>) -> anyhow::Result<f64> {
    let (port, at) = (free_port()?.to_string(), ends.address.as_str());
    let _server = server(ends, "sockperf", &["server", "--tcp", "-i", at, "-p", &port])?;
    wait_for_listener(ends, port.parse()?)?;
    let args = ["ping-pong", "--tcp", "-i", at, "-p", &port, "-m", "64", "-t", "1"];
    let told = client(ends, "sockperf", &args)?;
    let half = told
        .lines()
        .find(|line| line.contains("percentile 50.000"))
        .and_then(|line| line.split('=').nth(1))
        .context("sockperf printed no median")?;
    Ok(half.trim().parse::<f64>()? * 2.0 * 1000.0)
}

/// Returns the messages per second that iperf3 measures, with 64 KiB per write over one connection.
pub(crate) fn iperf3_messages_per_s(ends: &Ends<'_>) -> anyhow::Result<f64> {
    let (port, at) = (free_port()?.to_string(), ends.address.as_str());
    let _server = server(ends, "iperf3", &["-s", "-1", "-B", at, "-p", &port])?;
    wait_for_listener(ends, port.parse()?)?;
    let args = ["-c", at, "-p", &port, "-l", "64K", "-t", "1", "-J"];
    let told: serde_json::Value = serde_json::from_str(&client(ends, "iperf3", &args)?)?;
    let bits = told["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .context("iperf3 printed no throughput")?;
    Ok(bits / 8.0 / (64.0 * 1024.0))
}
