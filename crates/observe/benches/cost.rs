//! What observing costs: the time of a map, and how much slower programs run while eBPF records them.
//!
//! `cargo bench -p crossway-observe` as root. Figures on a machine that does something else say little.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossway_observe::ebpf::Probes;
use crossway_observe::import::Assembly;
use crossway_observe::map::Map;
use crossway_observe::recording::{Head, Method, Recorder, Totals};
use crossway_observe::snapshot::Snapshot;

/// Size of a message.
const SIZE: usize = 64;
/// How long a program runs with and without the recorder in a pair, and the number of pairs.
const TURN: Duration = Duration::from_millis(400);
const PAIRS: usize = 11;

fn main() {
    let role = std::env::args().nth(1).unwrap_or_default();
    match role.as_str() {
        "hold" => hold(),
        "echo" => echo(),
        "pump" => pump(),
        _ => {
            map();
            ping_pong();
            flood();
        }
    }
}

fn this(role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .arg(role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Holds 16 sockets until its input ends.
fn hold() {
    let pairs: Vec<_> = (0..8).map(|_| UnixStream::pair().unwrap()).collect();
    std::io::stdout().write_all(b"x").unwrap();
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    drop(pairs);
}

fn echo() {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut message = [0; SIZE];
    while input.read_exact(&mut message).is_ok() {
        output.write_all(&message).unwrap();
        output.flush().unwrap();
    }
}

/// Writes to and reads from a pipe of its own as fast as it can until its input ends.
fn pump() {
    std::thread::spawn(|| {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mut message = [0; SIZE];
        loop {
            writer.write_all(&message).unwrap();
            reader.read_exact(&mut message).unwrap();
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
}

fn map() {
    let mut holders: Vec<Child> = (0..300).map(|_| this("hold")).collect();
    for holder in &mut holders {
        holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }
    let mut best = Duration::MAX;
    let (mut processes, mut descriptors) = (0, 0);
    for _ in 0..5 {
        let began = Instant::now();
        let snapshot = Snapshot::take().unwrap();
        let map = Map::of(&snapshot, |_| true);
        best = best.min(began.elapsed());
        (processes, descriptors) = (map.processes.len(), snapshot.descriptors);
    }
    println!(
        "map of {processes} processes with {descriptors} descriptors: {best:.1?}, the best of 5"
    );
    for mut holder in holders {
        drop(holder.stdin.take());
        let _ = holder.wait();
    }
}

/// Records processes while `work` runs.
fn recorded<T>(folder: &Path, pids: &[u32], work: impl FnOnce() -> T) -> (T, Totals) {
    let mut probes = Probes::attach().unwrap_or_else(|error| panic!("{error}"));
    let method = Method {
        name: "ebpf".to_owned(),
        cost_ns_per_call: None,
        cost_note: String::new(),
        blind_to: String::new(),
    };
    let head = Head::new("bench", 0, method);
    let mut assembly = Assembly::new(Recorder::create(folder, head, false).unwrap());
    probes.follow(pids.iter().copied()).unwrap();
    let finished = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| probes.record(&mut assembly, || finished.load(Ordering::Relaxed)).unwrap());
        let done = work();
        finished.store(true, Ordering::Relaxed);
        done
    });
    probes.finish(&mut assembly).unwrap();
    (done, assembly.finish().unwrap())
}

/// Nanoseconds of a round trip.
fn round_trip(child: &mut Child) -> f64 {
    let (mut message, began, mut count) = ([0; SIZE], Instant::now(), 0_u32);
    while began.elapsed() < TURN {
        for _ in 0..100 {
            child.stdin.as_mut().unwrap().write_all(&message).unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut message).unwrap();
        }
        count += 100;
    }
    began.elapsed().as_nanos() as f64 / f64::from(count)
}

fn ping_pong() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = this("echo");
    let pids = [std::process::id(), child.id()];
    let (mut slower, mut added) = (Vec::new(), Vec::new());
    let mut plain_ns = 0.0;
    for pair in 0..PAIRS {
        let folder = dir.path().join(pair.to_string());
        // Which one is first alternates.
        let (plain, observed);
        if pair % 2 == 0 {
            plain = round_trip(&mut child);
            observed = recorded(&folder, &pids, || round_trip(&mut child)).0;
        } else {
            observed = recorded(&folder, &pids, || round_trip(&mut child)).0;
            plain = round_trip(&mut child);
        }
        slower.push(1.0 - plain / observed);
        // A write and a read at each end.
        added.push((observed - plain) / 4.0);
        plain_ns = plain;
    }
    drop(child.stdin.take());
    let _ = child.wait();
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2], values[1], values[values.len() - 2])
    };
    let ((slower, low, high), (ns, ns_low, ns_high)) = (median(slower), median(added));
    println!(
        "ping-pong of {SIZE} bytes over pipes, {:.1} us a round trip: {:.1} % slower ({:.1} to {:.1}), {ns:.0} ns an event \
         ({ns_low:.0} to {ns_high:.0}); median of {PAIRS} pairs, second smallest and second largest",
        plain_ns / 1000.0,
        slower * 100.0,
        low * 100.0,
        high * 100.0
    );
}

fn flood() {
    let dir = tempfile::tempdir().unwrap();
    for pumps in [1, 2] {
        let mut children: Vec<Child> = (0..pumps).map(|_| this("pump")).collect();
        std::thread::sleep(Duration::from_millis(200));
        let pids: Vec<u32> = children.iter().map(Child::id).collect();
        let folder = dir.path().join(format!("pumps-{pumps}"));
        let (_, totals) = recorded(&folder, &pids, || std::thread::sleep(Duration::from_secs(3)));
        let seconds = totals.span_ns as f64 / 1e9;
        println!(
            "{pumps} threads that call as fast as they can: {:.0} events a second for {seconds:.1} s, {} lost",
            (totals.events + totals.lost.overrun) as f64 / seconds,
            totals.lost.overrun
        );
        for child in &mut children {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
