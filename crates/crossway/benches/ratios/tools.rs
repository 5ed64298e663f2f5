//! Public tools that measure the same thing: sockperf for TCP's round trip, iperf3 for TCP's throughput.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::comparison::{Comparison, Target};
use crate::{Figures, Key, RATE, RTT};

/// Runs of each tool.
const RUNS: usize = 5;
/// How long a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Compares where the tools are installed and Crossway's figures are there.
pub(crate) fn compare(
    figures: &BTreeMap<Key, Figures>,
    (a, b): (u32, u32),
    found: &mut Vec<Comparison>,
) {
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
        &|| sockperf_round_trip_ns(a, b),
    );
    // iperf3's receiver does not look at what it receives, ours reads every byte.
    tool(
        "tcp throughput at 64 KiB: Crossway / iperf3",
        get(RATE, 64 << 10),
        Target::AtLeast(0.98),
        &|| iperf3_messages_per_s(a, b),
    );
}

/// A server that is killed and waited for in any case.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(cpu: u32, program: &str, args: &[String]) -> anyhow::Result<Server> {
    let child = Command::new("taskset")
        .args(["-c", &cpu.to_string(), program])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(Server(child))
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until somebody listens there, as the kernel's table says: connecting would use up a one-shot server.
fn wait_for_listener(port: u16) -> anyhow::Result<()> {
    let until = Instant::now() + START_LIMIT;
    let ending = format!(":{port:04X}");
    loop {
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let mut text = String::new();
            if let Ok(mut file) = std::fs::File::open(table) {
                file.read_to_string(&mut text)?;
            }
            let listens = |line: &str| {
                let mut words = line.split_whitespace().skip(1);
                words.next().is_some_and(|at| at.ends_with(&ending)) && words.nth(1) == Some("0A")
            };
            if text.lines().any(listens) {
                return Ok(());
            }
        }
        if Instant::now() > until {
            bail!("its server does not listen");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn client(cpu: u32, program: &str, args: &[&str]) -> anyhow::Result<String> {
    let told = Command::new("timeout")
        .args(["30", "taskset", "-c", &cpu.to_string(), program])
        .args(args)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !told.status.success() {
        bail!("{program}: {}", told.status);
    }
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// sockperf reports half the round trip, in microseconds; its sockets send without delay.
fn sockperf_round_trip_ns(a: u32, b: u32) -> anyhow::Result<f64> {
    let port = free_port()?.to_string();
    let args = ["server", "--tcp", "-i", "127.0.0.1", "-p", &port].map(str::to_owned);
    let _server = server(b, "sockperf", &args)?;
    wait_for_listener(port.parse()?)?;
    let args = ["ping-pong", "--tcp", "-i", "127.0.0.1", "-p", &port, "-m", "64", "-t", "1"];
    let told = client(a, "sockperf", &args)?;
    let half = told
        .lines()
        .find(|line| line.contains("percentile 50.000"))
        .and_then(|line| line.split('=').nth(1))
        .context("sockperf printed no median")?;
    Ok(half.trim().parse::<f64>()? * 2.0 * 1000.0)
}

/// Writes of 64 KiB over one connection.
fn iperf3_messages_per_s(a: u32, b: u32) -> anyhow::Result<f64> {
    let port = free_port()?.to_string();
    let args = ["-s", "-1", "-B", "127.0.0.1", "-p", &port].map(str::to_owned);
    let _server = server(b, "iperf3", &args)?;
    wait_for_listener(port.parse()?)?;
    let args = ["-c", "127.0.0.1", "-p", &port, "-l", "64K", "-t", "1", "-J"];
    let told: serde_json::Value = serde_json::from_str(&client(a, "iperf3", &args)?)?;
    let bits = told["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .context("iperf3 printed no throughput")?;
    Ok(bits / 8.0 / (64.0 * 1024.0))
}
