//! Common parts of the checks: watchdog, skipping, opened channels, payloads.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_mech::mechanisms::signal::Signal;
use crossway_mech::mechanisms::tipc_node;
use crossway_mech::{Boundaries, Deadline, Listener, Mechanism, Probe, Spec, Wait};
use crossway_sys::signal_queue;

use super::peer::this_program;

/// Time after which a check counts as hung. In an emulated kernel that eight checks share, some checks take 20 s, and
/// on a busy machine several times as long.
const WATCHDOG: Duration = Duration::from_secs(240);

/// Time limit of a step of a check. Shorter than the limit of the check, so that the error names the step.
pub(crate) const STEP_WATCHDOG: Duration = Duration::from_secs(100);

/// A deadline that only a broken mechanism reaches.
pub(crate) fn soon() -> Deadline {
    Some(Instant::now() + STEP_WATCHDOG)
}

/// The command that starts a tipcd; the tipcd's arguments must be appended.
fn tipcd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-guest-part"));
    command.arg("tipcd");
    command
}

/// Whether the mechanism works here; tested once per mechanism.
pub(crate) fn probe<M: Mechanism>() -> Probe {
    static PROBES: LazyLock<Mutex<HashMap<&str, Probe>>> = LazyLock::new(Mutex::default);
    // Removes the leased objects of earlier test processes, killed or not, as the program itself does at its start.
    static SWEPT: std::sync::Once = std::sync::Once::new();
    SWEPT.call_once(|| {
        crossway_sys::lease::sweep_dead_runs().unwrap();
        // Not below /tmp, over which a check mounts another file system.
        tipc_node::start_by(tipcd, Some("/var/tmp".into()));
    });
    let mut probes = PROBES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    probes.entry(M::ID).or_insert_with(M::probe).clone()
}

/// Runs `body` if the mechanism works here; fails if it panics or does not end.
pub(crate) fn check<M: Mechanism>(body: impl FnOnce() + Send + 'static) {
    if let Probe::Missing(missing) = probe::<M>() {
        eprintln!("SKIP {}: {missing}", M::ID);
        return;
    }
    if would_be_killed::<M>() {
        return again_with_signals_blocked();
    }
    let (ended, end) = mpsc::channel::<()>();
    let thread = start("check", move || {
        let _ended = ended;
        body();
    });
    match end.recv_timeout(WATCHDOG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{} hangs in this check", M::ID),
        _ => join(thread),
    }
}

/// Whether the mechanism would kill this process because one of its threads does not block real-time signals.
pub(crate) fn would_be_killed<M: Mechanism>() -> bool {
    M::ID == Signal::ID && !signal_queue::all_threads_block()
}

/// Runs the calling test again, with the same standard input, in a process in which all threads block real-time signals
/// from its start on.
pub(crate) fn again_with_signals_blocked() {
    let test = std::thread::current().name().expect("a test's thread has its name").to_owned();
    // A child inherits the mask of the thread that starts it.
    let run = move || {
        signal_queue::block_all().unwrap();
        let words = [test.as_str(), "--exact", "--nocapture"];
        Command::new(this_program()).args(words).stdin(Stdio::inherit()).output().unwrap()
    };
    let output = join(start("blocking", run));
    let (text, errors) =
        [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t)).into();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

/// Reports that a part of a check is skipped.
pub(crate) fn skip<M: Mechanism>(why: &str) {
    eprintln!("SKIP {}: {why}", M::ID);
}

/// Starts a thread under a name that appears in the message of a panic.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap()
}

/// Waits for a thread and propagates its panic.
pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// One end of a channel.
pub(crate) struct End<M: Mechanism> {
    pub(crate) tx: M::Tx,
    pub(crate) rx: M::Rx,
}

/// The way of waiting that suits the mechanism best: sleeping if it can.
pub(crate) fn natural_wait<M: Mechanism>() -> Wait {
    if M::caps().can_block { Wait::Block } else { Wait::Spin }
}

/// Every way of waiting that the mechanism supports.
pub(crate) fn every_wait<M: Mechanism>() -> Vec<Wait> {
    let caps = M::caps();
    let mut ways = Vec::new();
    if caps.can_block {
        ways.push(Wait::Block);
    }
    if caps.can_spin {
        ways.push(Wait::Spin);
    }
    if caps.can_block && caps.can_spin {
        ways.push(Wait::Hybrid { spin_us: 20 });
    }
    ways
}

/// A spec with the mechanism's natural wait, for messages of up to 8 KiB, or up to the mechanism's maximum if that is
/// smaller.
pub(crate) fn natural_spec<M: Mechanism>() -> Spec {
    Spec { wait: natural_wait::<M>(), max_message: fits::<M>(LARGEST_ASKED), ..Spec::default() }
}

/// The message size in bytes that [`natural_spec`] requests, unless the mechanism supports less.
const LARGEST_ASKED: usize = 8 * 1024;

/// Returns `len`, or the mechanism's largest message in bytes if that is smaller.
pub(crate) fn fits<M: Mechanism>(len: usize) -> usize {
    M::caps().max_message.map_or(len, |most| len.min(most))
}

/// Opens a channel within this process: the listening end and the connecting end.
pub(crate) fn open<M: Mechanism>(spec: &Spec) -> (End<M>, End<M>) {
    let (mut listener, mut offer) = M::listen(spec).unwrap();
    let there = spec.clone();
    let connector = start("connector", move || {
        let (tx, rx) = M::connect(&there, &mut offer).unwrap();
        End::<M> { tx, rx }
    });
    let (tx, rx) = listener.accept(soon()).unwrap();
    (End { tx, rx }, join(connector))
}

/// Whether the mechanism preserves message boundaries.
pub(crate) fn keeps_boundaries<M: Mechanism>() -> bool {
    M::caps().boundaries == Boundaries::Message
}

/// A generator of reproducible payloads (SplitMix64).
pub(crate) struct Payload(u64);

impl Payload {
    pub(crate) fn new(seed: u64) -> Self {
        Payload(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// Message sizes at the boundaries where mechanisms break, and random ones in between, none above `max`.
pub(crate) fn sizes<M: Mechanism>(max: usize) -> Vec<usize> {
    let mut sizes = vec![1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 256, 511, 512, 4095, 4096, 4097, max];
    if M::caps().carries_empty {
        sizes.extend([0, 0, 1, 0]);
    }
    let mut random = Payload::new(max as u64);
    sizes.extend((0..80).map(|_| 1 + random.below(max)));
    sizes.retain(|&size| size <= max);
    sizes
}

/// CPU time that the calling thread has used, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    crossway_sys::procfs::task_schedule(None).unwrap().run_ns
}
