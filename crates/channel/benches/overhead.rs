//! Measures what a channel costs compared to the raw transport.
//!
//! `cargo bench -p crossway-channel --bench overhead`. Trials are paired: in each pair, the raw transport and the
//! channel run one after the other, and the order alternates from pair to pair. Both ends are threads of this process,
//! pinned to two CPUs. This is a benchmark, not a test: the exit status is always 0.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use crossway_channel::{Channel, Directory, Options, Policy, Transport};
use crossway_mech::mechanisms::shm_eventfd::ShmEventfd;
use crossway_mech::mechanisms::shm_futex::ShmFutex;
use crossway_mech::mechanisms::shm_spin::ShmSpin;
use crossway_mech::mechanisms::uds_seqpacket::UdsSeqpacket;
use crossway_mech::{Listener, Mechanism, Rx, Spec, Tx, Wait};
use crossway_sys::affinity;

const PAIRS: usize = 9;
const TRIAL: Duration = Duration::from_millis(120);
const MAX: usize = 64 << 10;

/// One end, of the raw transport or of a channel.
trait End: Send {
    fn send(&mut self, len: usize);
    /// Receives a message and returns its last byte.
    fn recv(&mut self) -> u8;
}

struct Raw<T, R>(T, R, Vec<u8>);

impl<T: Tx, R: Rx> End for Raw<T, R> {
    #[inline]
    fn send(&mut self, len: usize) {
        self.0.send(&self.2[..len], None).unwrap();
    }

    #[inline]
    fn recv(&mut self) -> u8 {
        let len = self.1.recv(&mut self.2, None).unwrap();
        self.2[len - 1]
    }
}

struct Ours(Channel, Vec<u8>);

impl End for Ours {
    #[inline]
    fn send(&mut self, len: usize) {
        self.0.sender().send(&self.1[..len], None).unwrap();
    }

    #[inline]
    fn recv(&mut self) -> u8 {
        let len = self.0.receiver().recv(&mut self.1, None).unwrap();
        self.1[len - 1]
    }
}

/// Both ends of a mechanism, without a channel.
type Raws<M> = (
    Raw<<M as Mechanism>::Tx, <M as Mechanism>::Rx>,
    Raw<<M as Mechanism>::Tx, <M as Mechanism>::Rx>,
);

fn raw<M: Mechanism>(wait: Wait) -> Raws<M> {
    let spec = Spec { max_message: MAX, wait, ..Spec::default() };
    let (mut listener, mut offer) = M::listen(&spec).unwrap();
    let (tx, rx) = M::connect(&spec, &mut offer).unwrap();
    let (other_tx, other_rx) = listener.accept(None).unwrap();
    (Raw(tx, rx, vec![7; MAX]), Raw(other_tx, other_rx, vec![7; MAX]))
}

fn ours(transport: Transport) -> (Ours, Ours) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        max_message: MAX,
        policy: Policy { pin: Some(transport), ..Policy::default() },
        directory: Directory::at(dir.path()),
        ..Options::default()
    };
    let listener = options.clone().listen("bench").unwrap();
    let there = options.connect("bench", None).unwrap();
    let here = listener.accept(None).unwrap();
    while here.handle().transport() != transport || there.handle().transport() != transport {
        std::thread::sleep(Duration::from_millis(1));
    }
    (Ours(here, vec![7; MAX]), Ours(there, vec![7; MAX]))
}

/// Returns the two CPUs on which all trials run. The first call must come before any thread is pinned.
fn cpus() -> (u32, u32) {
    static CPUS: OnceLock<(u32, u32)> = OnceLock::new();
    *CPUS.get_or_init(|| {
        let allowed = affinity::allowed().unwrap();
        (allowed[0], *allowed.last().unwrap())
    })
}

/// Runs `here` and `there` at the same time, each on a CPU of its own; returns how long `here` took, in nanoseconds.
fn together<E: End>(
    ends: &mut (E, E),
    here: impl FnOnce(&mut E),
    there: impl FnOnce(&mut E) + Send,
) -> f64 {
    let ready = Barrier::new(2);
    std::thread::scope(|scope| {
        let (first, second) = (&mut ends.0, &mut ends.1);
        let ready = &ready;
        scope.spawn(move || {
            affinity::pin(cpus().1).unwrap();
            ready.wait();
            there(second);
        });
        affinity::pin(cpus().0).unwrap();
        ready.wait();
        let start = Instant::now();
        here(first);
        start.elapsed().as_nanos() as f64
    })
}

/// Returns the nanoseconds per message of a stream that the first end receives.
fn stream<E: End>(ends: &mut (E, E), len: usize, count: u32) -> f64 {
    let receive = |end: &mut E| (0..count).for_each(|_| _ = std::hint::black_box(end.recv()));
    together(ends, receive, |end| (0..count).for_each(|_| end.send(len))) / f64::from(count)
}

/// Returns the nanoseconds per round trip.
fn round_trip<E: End>(ends: &mut (E, E), len: usize, count: u32) -> f64 {
    let ask = |end: &mut E| {
        for _ in 0..count {
            end.send(len);
            std::hint::black_box(end.recv());
        }
    };
    let answer = |end: &mut E| {
        for _ in 0..count {
            std::hint::black_box(end.recv());
            end.send(len);
        }
    };
    together(ends, ask, answer) / f64::from(count)
}

/// Returns the median of nine figures and an interval that contains the true median with a probability of 96 %: from
/// the second smallest figure to the second largest.
fn median(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    (figures[PAIRS / 2], figures[1], figures[PAIRS - 2])
}

/// Runs the paired trials of one case and prints the result.
fn compare<M: Mechanism>(
    transport: Transport,
    wait: Wait,
    what: &str,
    len: usize,
    measure: fn(&mut Raws<M>, usize, u32) -> f64,
    measure_ours: fn(&mut (Ours, Ours), usize, u32) -> f64,
) {
    let (mut raws, mut channels) = (raw::<M>(wait), ours(transport));
    let once = measure(&mut raws, len, 2000).max(1.0);
    measure_ours(&mut channels, len, 2000);
    let count = (TRIAL.as_nanos() as f64 / once).clamp(1000.0, 8e6) as u32;
    let (mut raw_ns, mut ours_ns) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                raw_ns.push(measure(&mut raws, len, count));
            } else {
                ours_ns.push(measure_ours(&mut channels, len, count));
            }
        }
    }
    let ratios = raw_ns.iter().zip(&ours_ns).map(|(raw, ours)| ours / raw).collect();
    let differences = raw_ns.iter().zip(&ours_ns).map(|(raw, ours)| ours - raw).collect();
    let ((ratio, low, high), (more, least, most)) = (median(ratios), median(differences));
    println!(
        "{transport:14} {what:10} {len:>6} B  raw {:>9.1} ns  channel {:>9.1} ns  ratio {ratio:.3} ({low:.3} to {high:.3})  difference {more:.1} ns ({least:.1} to {most:.1})",
        median(raw_ns).0,
        median(ours_ns).0,
    );
}

fn both<M: Mechanism>(transport: Transport, wait: Wait) {
    for len in [64, 4 << 10, 64 << 10] {
        compare::<M>(transport, wait, "stream", len, stream, stream);
    }
    compare::<M>(transport, wait, "round trip", 64, round_trip, round_trip);
}

fn main() {
    cpus();
    // The control thread is started while nothing is pinned.
    drop(ours(Transport::ShmFutex));
    both::<ShmSpin>(Transport::ShmSpin, Wait::Spin);
    both::<ShmFutex>(Transport::ShmFutex, Wait::Block);
    both::<ShmEventfd>(Transport::ShmEventfd, Wait::Block);
    both::<UdsSeqpacket>(Transport::UdsSeqpacket, Wait::Block);
}
