//! Measures how much switches disturb a stream, how soon two ends that spin on one CPU leave the spinning transport,
//! and what watching a channel costs.
//!
//! `cargo bench -p crossway-channel --bench switches`. Both ends are threads of this process. This is a benchmark, not
//! a test: the exit status is always 0. CROSSWAY_SWITCHES is the number of forced switches for each pair of transports,
//! 1000 by default.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossway_channel::{Channel, Directory, EventKind, Options, Policy, Reason, Transport};
use crossway_sys::affinity;

/// How long the CPU time spent on watching is measured.
const WATCHED: Duration = Duration::from_secs(3);
/// Number of channels whose ends are put on one CPU.
const ESCAPES: usize = 9;

fn pair(policy: &Policy) -> (Channel, Channel) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        max_message: 4096,
        policy: policy.clone(),
        directory: Directory::at(dir.path()),
        ..Options::default()
    };
    let listener = options.clone().listen("bench").unwrap();
    let there = options.connect("bench", None).unwrap();
    (listener.accept(None).unwrap(), there)
}

fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() as f64 * share) as usize).min(sorted.len() - 1)]
}

/// The figures of a stream. `all` is the longest pause in each interval, in microseconds and sorted; `wrong` counts
/// damaged messages.
struct Pauses {
    all: Vec<f64>,
    messages: u64,
    wrong: u64,
    took: Duration,
    /// CPU time of the control thread per interval, in microseconds, and how often it slept per interval.
    control_us: f64,
    control_sleeps: f64,
}

impl Pauses {
    fn print(&self, what: &str) {
        println!(
            "{what}: {} intervals of {:.2} ms, {} messages, {} errors; longest pause in an interval: median {:.0} us, p99 {:.0} us, maximum {:.0} us, above 1 ms in {:.1} %; control thread: {:.0} us of CPU and {:.1} sleeps an interval",
            self.all.len(),
            self.took.as_secs_f64() * 1e3 / self.all.len() as f64,
            self.messages,
            self.wrong,
            at(&self.all, 0.5),
            at(&self.all, 0.99),
            at(&self.all, 1.0),
            self.all.iter().filter(|us| **us > 1e3).count() as f64 * 100.0 / self.all.len() as f64,
            self.control_us,
            self.control_sleeps,
        );
    }
}

/// Runs a stream of 64-byte messages at full load and checks their content, until `each` has returned `count` times.
/// Each call of `each` is one interval.
fn stream(
    cpus: (u32, u32),
    (here, there): (Channel, Channel),
    count: u32,
    each: impl Fn(u32) + Sync,
) -> Pauses {
    let (_quiet, mut receiver) = here.split();
    let (mut sender, _keeps) = there.split();
    let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut all, mut wrong, mut messages) = (Vec::new(), 0_u64, 0_u64);
    let (start, before) = (Instant::now(), (cpu_ns(true), control_sleeps()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin(cpus.1).unwrap();
            let mut msg = [0; 64];
            for number in 0_u64.. {
                msg[..8].copy_from_slice(&number.to_le_bytes());
                msg[56..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
                sender.send(&msg, None).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            sender.close(None).unwrap();
        });
        scope.spawn(|| {
            for n in 0..count {
                each(n);
                done.store(n + 1, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
        });
        affinity::pin(cpus.0).unwrap();
        let (mut seen, mut worst, mut last) = (0, Duration::ZERO, Instant::now());
        let word = |msg: &[u8], from: usize| {
            msg.get(from..from + 8).map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        };
        while let Ok((number, check)) =
            receiver.recv_in_place(None, |msg| (word(msg, 0), word(msg, 56)))
        {
            let right = Some(messages.wrapping_mul(0x9e37_79b9));
            wrong += u64::from(number != Some(messages) || check != right);
            messages += 1;
            let now = Instant::now();
            worst = worst.max(now - last);
            last = now;
            let passed = done.load(Ordering::Relaxed);
            if passed != seen {
                seen = passed;
                all.push(std::mem::take(&mut worst).as_nanos() as f64 / 1e3);
            }
        }
    });
    let took = start.elapsed();
    let each = |total: u64| total as f64 / f64::from(count);
    all.sort_by(f64::total_cmp);
    Pauses {
        all,
        messages,
        wrong,
        took,
        control_us: each(cpu_ns(true) - before.0) / 1e3,
        control_sleeps: each(control_sleeps() - before.1),
    }
}

/// Measures a stream during forced switches, one directly after another, and then the same stream without switches, in
/// intervals of the same length.
fn switches(cpus: (u32, u32), between: [Transport; 2]) {
    let count: u32 = std::env::var("CROSSWAY_SWITCHES")
        .map_or(1000, |count| count.parse().expect("CROSSWAY_SWITCHES is a number"));
    let still = Policy { dry_run: true, ..Policy::default() };
    let ends = pair(&still);
    let handle = ends.0.handle();
    let to = |n: u32| between[n as usize % 2];
    // The receiver binds itself to a CPU, which the threads of the next stream must not inherit.
    let apart = |ends, count, each: &(dyn Fn(u32) + Sync)| {
        std::thread::scope(|scope| scope.spawn(|| stream(cpus, ends, count, each)).join().unwrap())
    };
    let forced = apart(ends, count, &|n| handle.switch_to(to(n), None).unwrap());
    forced.print(&format!("{} <-> {} under full load", between[0], between[1]));
    let interval = forced.took / count;
    for on in between {
        let ends = pair(&still);
        ends.0.handle().switch_to(on, None).unwrap();
        let calm = apart(ends, count / 2, &|_| std::thread::sleep(interval));
        calm.print(&format!("  {on} without switches"));
    }
}

/// Lets both ends of a spinning channel exchange messages on one CPU, and returns how many milliseconds they take to
/// stop spinning for that reason; `None` if they do not within a minute.
fn escape(cpu: u32) -> Option<f64> {
    let (mut here, there) = pair(&Policy::default());
    let handle = here.handle();
    let events = handle.events();
    let (mut back, mut heard) = there.split();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            affinity::pin(cpu).unwrap();
            while heard.recv(&mut [0; 8], None).is_ok() {
                if back.send(b"pong", None).is_err() {
                    break;
                }
            }
        });
        let asking = scope.spawn(move || {
            affinity::pin(cpu).unwrap();
            handle.ask_for(Transport::ShmSpin);
            let mut since = None;
            let until = Instant::now() + Duration::from_secs(60);
            while Instant::now() < until {
                here.sender().send(b"ping", None).unwrap();
                here.receiver().recv(&mut [0; 8], None).unwrap();
                for event in events.try_iter() {
                    match event.what {
                        EventKind::Switched { to: Transport::ShmSpin, .. } => {
                            since = Some(Instant::now());
                        }
                        EventKind::Switched { from: Transport::ShmSpin, why, .. } => match why {
                            Reason::SameCpu(_) => {
                                return since.map(|since| since.elapsed().as_secs_f64() * 1e3);
                            }
                            _ => handle.ask_for(Transport::ShmSpin),
                        },
                        _ => {}
                    }
                }
            }
            None
        });
        asking.join().unwrap()
    })
}

/// Returns the CPU time of this process or, if `of_control`, of its control thread only, in nanoseconds.
fn cpu_ns(of_control: bool) -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
    tasks
        .filter(|task| !of_control || read(task.path().join("comm")).starts_with("crossway-chann"))
        .filter_map(|task| {
            read(task.path().join("schedstat")).split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// Returns how often the control thread has slept so far.
fn control_sleeps() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
    tasks
        .filter(|task| read(task.path().join("comm")).starts_with("crossway-chann"))
        .filter_map(|task| {
            let status = read(task.path().join("status"));
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum()
}

fn share(of_control: bool) -> f64 {
    let (before, start) = (cpu_ns(of_control), Instant::now());
    std::thread::sleep(WATCHED);
    (cpu_ns(of_control) - before) as f64 / start.elapsed().as_nanos() as f64 * 100.0
}

/// Prints the share of a CPU that an idle channel takes, and the share that the control thread takes at full load.
fn watching() {
    let (mut here, there) = pair(&Policy::default());
    println!("an idle channel, both ends: {:.3} % of a CPU", share(false));
    let (mut sender, keeps) = there.split();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sender.send(&[7; 64], None).unwrap();
            }
            drop((sender, keeps));
        });
        scope.spawn(|| while here.receiver().recv_in_place(None, <[u8]>::len).is_ok() {});
        println!("the control thread of a channel at full load: {:.3} % of a CPU", share(true));
        stop.store(true, Ordering::Relaxed);
    });
}

fn main() {
    let allowed = affinity::allowed().unwrap();
    let cpus = (allowed[0], *allowed.last().unwrap());
    // Started here, the control thread may run on every CPU.
    watching();
    use Transport::{ShmEventfd, ShmFutex, ShmSpin, UdsSeqpacket};
    let mut escapes: Vec<f64> = (0..ESCAPES)
        .filter_map(|_| std::thread::spawn(move || escape(cpus.0)).join().unwrap())
        .collect();
    escapes.sort_by(f64::total_cmp);
    match escapes.is_empty() {
        true => {
            println!(
                "no channel left the spinning transport within 60 s because both ends were on one CPU"
            )
        }
        false => println!(
            "escape from spinning on one CPU ({} of {ESCAPES} channels): median {:.0} ms, maximum {:.0} ms",
            escapes.len(),
            at(&escapes, 0.5),
            at(&escapes, 1.0)
        ),
    }
    for between in [[ShmEventfd, ShmFutex], [ShmSpin, ShmFutex], [UdsSeqpacket, ShmFutex]] {
        switches(cpus, between);
    }
}
