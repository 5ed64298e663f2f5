//! Measures how good the automatic choice of transport is, by comparing a channel that chooses with channels whose
//! transport is pinned, under eight mixes of traffic.
//!
//! `cargo bench -p crossway-channel --bench choice`. Both ends are threads of this process, pinned to two CPUs. In each
//! round, every channel carries the mix once. The first part of that time is not measured, so that the channel can
//! settle. This is a benchmark, not a test: the exit status is always 0. CROSSWAY_CHANNEL_PROFILE names a profile of
//! this machine to use instead of the built-in one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossway_channel::{
    Channel, Directory, Options, Policy, Receiver, RecvError, Sender, Transport,
};
use crossway_sys::affinity;

const ROUNDS: usize = 5;
/// How long each channel is measured.
const MEASURED: Duration = Duration::from_millis(250);
/// How long a channel carries the mix before it is measured: with a pinned transport, and with the automatic choice.
const SETTLES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(1300)];
const MAX: usize = 64 << 10;
/// Number of messages between two clock reads.
const LOOK: u32 = 32;

/// A mix of traffic.
#[derive(Clone, Copy)]
enum Mix {
    /// Requests and replies of these lengths, one at a time. Compared by time per exchange.
    Exchange(usize, usize),
    /// Messages of these lengths in turn, as fast as possible. Compared by time per message.
    Stream(&'static [usize]),
    /// This number of messages of 64 bytes every millisecond. Compared by the CPU time of both ends per message,
    /// because the rate is fixed.
    Paced(u32),
}

const MIXES: [(&str, Mix); 8] = [
    ("requests 64 B, replies 64 B", Mix::Exchange(64, 64)),
    ("requests 64 B, replies 16 KiB", Mix::Exchange(64, 16 << 10)),
    ("stream of 64 B", Mix::Stream(&[64])),
    ("stream of 4 KiB", Mix::Stream(&[4 << 10])),
    ("stream of 64 KiB", Mix::Stream(&[64 << 10])),
    ("stream, 15 x 64 B, 1 x 16 KiB", Mix::Stream(&MIXED)),
    ("1,000 x 64 B a second", Mix::Paced(1)),
    ("bursts of 100 x 64 B, 1,000 a second", Mix::Paced(100)),
];

const MIXED: [usize; 16] = {
    let mut lengths = [64; 16];
    lengths[15] = 16 << 10;
    lengths
};

fn pair(pin: Option<Transport>) -> (Channel, Channel) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        max_message: MAX,
        policy: Policy { pin, ..Policy::default() },
        directory: Directory::at(dir.path()),
        ..Options::default()
    };
    let listener = options.clone().listen("bench").unwrap();
    let there = options.connect("bench", None).unwrap();
    (listener.accept(None).unwrap(), there)
}

/// Returns the CPU time of this process in nanoseconds.
fn cpu_ns() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let of = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    tasks.filter_map(of).sum()
}

/// Measures a mix of traffic once the settling time is over.
struct Meter {
    from: Instant,
    begun: Option<(Instant, f64, u64)>,
    count: u64,
}

impl Meter {
    fn new(settles: Duration) -> Meter {
        Meter { from: Instant::now() + settles, begun: None, count: 0 }
    }

    /// Counts a message. Returns the elapsed time and the CPU time per message, in nanoseconds, when the measurement is
    /// over; `None` before.
    fn passed(&mut self) -> Option<(f64, f64)> {
        self.count += 1;
        if !self.count.is_multiple_of(LOOK.into()) {
            return None;
        }
        let now = Instant::now();
        match self.begun {
            None if now >= self.from => self.begun = Some((now, cpu_ns(), self.count)),
            Some((begun, cpu, count)) if now >= begun + MEASURED => {
                let each = |ns: f64| ns / (self.count - count) as f64;
                return Some((each((now - begun).as_nanos() as f64), each(cpu_ns() - cpu)));
            }
            _ => {}
        }
        None
    }
}

fn ask(mut meter: Meter, tx: &mut Sender, rx: &mut Receiver, len: usize) -> (f64, f64) {
    let (msg, mut buf) = (vec![7; len], vec![0; MAX]);
    loop {
        tx.send(&msg, None).unwrap();
        rx.recv(&mut buf, None).unwrap();
        if let Some(figures) = meter.passed() {
            return figures;
        }
    }
}

fn answer(tx: &mut Sender, rx: &mut Receiver, len: usize) {
    let (msg, mut buf) = (vec![7; len], vec![0; MAX]);
    while rx.recv(&mut buf, None).is_ok() {
        tx.send(&msg, None).unwrap();
    }
}

fn receive(mut meter: Meter, rx: &mut Receiver, stop: &AtomicBool) -> (f64, f64) {
    let (mut buf, mut figures) = (vec![0; MAX], None);
    loop {
        match rx.recv(&mut buf, None) {
            Ok(_) if figures.is_none() => figures = meter.passed(),
            Ok(_) => stop.store(true, Ordering::Relaxed),
            Err(RecvError::Closed) => {
                return figures.expect("the sender stops when the figures are complete");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn stream(tx: &mut Sender, lengths: &[usize], stop: &AtomicBool) {
    let msg = vec![7; MAX];
    for len in lengths.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        tx.send(&msg[..*len], None).unwrap();
    }
}

fn pace(tx: &mut Sender, count: u32, stop: &AtomicBool) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..count {
            tx.send(&[7; 64], None).unwrap();
        }
        next += Duration::from_millis(1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Carries a mix over a new channel; returns the figure by which the mix is compared, and the transport at the end.
fn carry(mix: Mix, pin: Option<Transport>, cpus: (u32, u32)) -> (f64, Transport) {
    let (here, there) = pair(pin);
    let handle = here.handle();
    while pin.is_some_and(|pin| handle.transport() != pin || there.handle().transport() != pin) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ((mut tx, mut rx), (mut far_tx, mut far_rx)) = (here.split(), there.split());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            affinity::pin(cpus.1).unwrap();
            match mix {
                Mix::Exchange(_, len) => answer(&mut far_tx, &mut far_rx, len),
                Mix::Stream(lengths) => stream(&mut far_tx, lengths, stop),
                Mix::Paced(count) => pace(&mut far_tx, count, stop),
            }
            // In an exchange the other end may have closed already.
            let _ = far_tx.close(None);
        });
        let measuring = scope.spawn(move || {
            affinity::pin(cpus.0).unwrap();
            let meter = Meter::new(SETTLES[usize::from(pin.is_none())]);
            let (time, cpu) = match mix {
                Mix::Exchange(len, _) => ask(meter, &mut tx, &mut rx, len),
                Mix::Stream(_) | Mix::Paced(_) => receive(meter, &mut rx, stop),
            };
            let at_the_end = handle.transport();
            let _ = tx.close(None);
            (if matches!(mix, Mix::Paced(_)) { cpu } else { time }, at_the_end)
        });
        measuring.join().unwrap()
    })
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() {
    let allowed = affinity::allowed().unwrap();
    let cpus = (allowed[0], *allowed.last().unwrap());
    // Started here, the control thread may run on every CPU.
    drop(pair(None));
    let mut within = 0;
    for (name, mix) in MIXES {
        let (mut chosen, mut ended) = (Vec::new(), Vec::new());
        let mut fixed = Transport::LOCAL.map(|transport| (transport, Vec::new()));
        for _ in 0..ROUNDS {
            for (transport, figures) in &mut fixed {
                figures.push(carry(mix, Some(*transport), cpus).0);
            }
            let (figure, transport) = carry(mix, None, cpus);
            chosen.push(figure);
            ended.push(transport.id());
        }
        let (best, figures) = fixed
            .iter()
            .min_by(|a, b| median(&a.1).total_cmp(&median(&b.1)))
            .expect("there are transports");
        let ratios: Vec<f64> = chosen.iter().zip(figures).map(|(ours, best)| ours / best).collect();
        let (ratio, low, high) = (
            median(&ratios),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
        within += u32::from(ratio <= 1.1);
        ended.dedup();
        let what = if matches!(mix, Mix::Paced(_)) { "CPU ns/message" } else { "ns/message" };
        let all: Vec<String> =
            fixed.iter().map(|(t, figures)| format!("{t} {:.0}", median(figures))).collect();
        println!(
            "{name}: chose {}: {:.0} {what}, {ratio:.2} ({low:.2} to {high:.2}) of the best, {best}; fixed: {}",
            ended.join(", "),
            median(&chosen),
            all.join(", "),
        );
    }
    println!("within 10 % of the best transport: {within} of {} mixes", MIXES.len());
}
