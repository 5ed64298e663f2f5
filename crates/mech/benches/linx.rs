//! Measures the cost of the LINX model relative to the mechanism below it, and compares the transports of the LINX
//! model.
//!
//! `cargo bench -p crossway-mech --bench linx`. Trials are paired: the two trials of a ratio run one after the other,
//! and their order alternates from pair to pair. Both ends are threads of this process, pinned to two CPUs. Signals and
//! messages are received in place and their bytes are not touched, so the relative cost of the calls is as high as
//! possible. This is a benchmark, not a test: the exit status is 0 whatever the result.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use crossway_mech::mechanisms::fifo::Fifo;
use crossway_mech::mechanisms::linx::{LinxFifo, LinxShm, LinxUds};
use crossway_mech::mechanisms::linx_link::LinxTcp;
use crossway_mech::mechanisms::shm_futex::ShmFutex;
use crossway_mech::mechanisms::tcp::Tcp;
use crossway_mech::mechanisms::uds_stream::UdsStream;
use crossway_mech::{Listener, Mechanism, Rx, Spec, Tx};
use crossway_sys::pipe::{PipeEnd, pipe};
use crossway_sys::socket::SocketType;
use crossway_sys::{Errno, affinity, records, socket};

/// Length in bytes of a signal's header and signal number on a channel.
const HEADER: usize = 24;
const PAIRS: usize = 11;
const TRIAL: Duration = Duration::from_millis(150);

/// Both ends of a channel, each with a buffer.
struct Ends<M: Mechanism> {
    here: (M::Tx, M::Rx, Vec<u8>),
    there: (M::Tx, M::Rx, Vec<u8>),
}

fn open<M: Mechanism>(len: usize) -> Ends<M> {
    let spec = Spec { max_message: len, ..Spec::default() };
    let (mut listener, mut offer) = M::listen(&spec).unwrap();
    let (there, here) = std::thread::scope(|scope| {
        let there = scope.spawn(|| M::connect(&spec, &mut offer).unwrap());
        let here = listener.accept(None).unwrap();
        (there.join().unwrap(), here)
    });
    Ends { here: (here.0, here.1, vec![7; len]), there: (there.0, there.1, vec![7; len]) }
}

/// Returns the two CPUs that all trials use. They are determined before any thread is pinned.
fn cpus() -> (u32, u32) {
    static CPUS: OnceLock<(u32, u32)> = OnceLock::new();
    *CPUS.get_or_init(|| {
        let allowed = affinity::allowed().unwrap();
        (allowed[0], *allowed.last().unwrap())
    })
}

/// What to measure. The result is in nanoseconds per message or round trip.
#[derive(Clone, Copy)]
enum What {
    Stream,
    /// Like `Stream`, but each message is sent from memory that the mechanism allocates for it.
    Allocated,
    RoundTrip,
}

impl<M: Mechanism> Ends<M> {
    fn trial(&mut self, what: What, count: u32) -> f64 {
        let ready = Barrier::new(2);
        let (here, there) = (&mut self.here, &mut self.there);
        let ns = std::thread::scope(|scope| {
            scope.spawn(|| {
                affinity::pin(cpus().1).unwrap();
                ready.wait();
                for _ in 0..count {
                    if let What::RoundTrip = what {
                        there.1.recv_in_place(&mut there.2, None, <[u8]>::len).unwrap();
                    }
                    if let What::Allocated = what {
                        let len = there.2.len();
                        there.0.send_in_place(len, &mut there.2, None, |_| ()).unwrap();
                    } else {
                        there.0.send(&there.2, None).unwrap();
                    }
                }
            });
            // In a thread of its own: nodes that are created later would inherit the CPU of this one.
            let here = scope.spawn(|| {
                affinity::pin(cpus().0).unwrap();
                ready.wait();
                let start = Instant::now();
                for _ in 0..count {
                    if let What::RoundTrip = what {
                        here.0.send(&here.2, None).unwrap();
                    }
                    let len = here.1.recv_in_place(&mut here.2, None, <[u8]>::len).unwrap();
                    assert_eq!(len, here.2.len());
                }
                start.elapsed().as_nanos() as f64
            });
            here.join().unwrap()
        });
        ns / f64::from(count)
    }
}

/// Measures two mechanisms and prints how many times as fast the first one is. The target of that ratio is `least`.
fn compare<M: Mechanism, N: Mechanism>(what: What, len: usize, least: f64) {
    compare_lengths::<M, N>(what, [len, len], least);
}

/// Like [`compare`], with messages of a different length for the second mechanism.
fn compare_lengths<M: Mechanism, N: Mechanism>(
    what: What,
    [len, of_other]: [usize; 2],
    least: f64,
) {
    let (mut over, mut under) = (open::<M>(len), open::<N>(of_other));
    let few = if len > 1 << 20 { 4 } else { 1000 };
    let once = over.trial(what, few).max(under.trial(what, few)).max(1.0);
    let count = (TRIAL.as_nanos() as f64 / once).clamp(f64::from(few), 4e6) as u32;
    let (mut over_ns, mut under_ns) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                over_ns.push(over.trial(what, count));
            } else {
                under_ns.push(under.trial(what, count));
            }
        }
    }
    let mut ratios: Vec<f64> = over_ns.iter().zip(&under_ns).map(|(o, u)| u / o).collect();
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let ratio = median(&mut ratios);
    let name = match what {
        What::Stream => "throughput",
        What::Allocated => "throughput of allocated messages",
        What::RoundTrip => "round trips",
    };
    let of_which = if of_other == len { String::new() } else { format!(" at {of_other} B") };
    println!(
        "{name} at {len} B: {} {:.0} ns, {}{of_which} {:.0} ns: {ratio:.3} times as fast ({:.3} to {:.3}), target {least:.2}: {}",
        M::ID,
        median(&mut over_ns),
        N::ID,
        median(&mut under_ns),
        ratios[0],
        ratios[ratios.len() - 1],
        if ratio >= least { "reached" } else { "MISSED" }
    );
}

/// Prints how long the kernel takes to send `len` bytes: without a header, with a header in front of the bytes, and
/// with a header in a separate buffer. Each figure is the shortest time of many calls, during which no receiver runs or
/// has to be woken. `send` sends the parts given to it; `to` is the other end.
fn print_cost_of_calls(
    what: &str,
    len: usize,
    mut send: impl FnMut(&[&[u8]]) -> Result<usize, Errno>,
    to: impl Into<File>,
) {
    let (bytes, mut to) = (vec![7; HEADER + len], to.into());
    let mut rest = bytes.clone();
    let ways: [&[&[u8]]; 3] =
        [&[&bytes[HEADER..]], &[&bytes], &[&bytes[..HEADER], &bytes[HEADER..]]];
    let least = ways.map(|parts| {
        let expected = parts.iter().map(|part| part.len()).sum();
        let times = (0..20_000).map(|_| {
            let start = Instant::now();
            let sent = send(parts).unwrap();
            let took = start.elapsed().as_nanos() as f64;
            assert_eq!(sent, expected);
            to.read_exact(&mut rest[..expected]).unwrap();
            took
        });
        times.fold(f64::MAX, f64::min)
    });
    println!(
        "{what}, one call to send {len} B: {:.0} ns; with {HEADER} B more: {:.0} ns ({:.2} times as fast); \
         with these bytes in a second buffer: {:.0} ns ({:.2} times as fast)",
        least[0],
        least[1],
        least[0] / least[1],
        least[2],
        least[0] / least[2]
    );
}

fn print_costs_of_calls(len: usize) {
    let (from, to) = socket::unix_pair(SocketType::Stream).unwrap();
    let by_socket = |parts: &[&[u8]]| match parts {
        [bytes] => socket::send(&from, bytes, false),
        parts => records::send_parts(&from, &slices(parts), false),
    };
    print_cost_of_calls("UNIX socket", len, by_socket, to);
    let (to, from) = pipe().unwrap();
    let mut from = PipeEnd::new(from).unwrap();
    from.set_capacity_bytes(4 * len).unwrap();
    let by_pipe = |parts: &[&[u8]]| match parts {
        [bytes] => from.write(bytes, false),
        parts => from.write_parts(&slices(parts), false),
    };
    print_cost_of_calls("pipe", len, by_pipe, to);
}

fn slices<'a>(parts: &[&'a [u8]]) -> [IoSlice<'a>; 2] {
    [IoSlice::new(parts[0]), IoSlice::new(parts[1])]
}

fn main() {
    cpus();
    for len in [4 << 10, 16 << 10, 64 << 10] {
        print_costs_of_calls(len);
    }
    compare::<LinxShm, LinxUds>(What::Stream, 64, 3.0);
    compare::<LinxShm, ShmFutex>(What::RoundTrip, 64, 1.0 / 1.3);
    for len in [64, 1 << 10] {
        compare::<LinxUds, UdsStream>(What::Stream, len, 0.0);
        compare::<LinxFifo, Fifo>(What::Stream, len, 0.0);
        compare::<LinxShm, ShmFutex>(What::Stream, len, 0.0);
    }
    for len in [4 << 10, 16 << 10, 64 << 10] {
        for what in [What::Stream, What::Allocated] {
            compare::<LinxUds, UdsStream>(what, len, 0.95);
            compare::<LinxFifo, Fifo>(what, len, 0.95);
            // Compares with messages that are longer by a header, so that its cost is left out.
            compare_lengths::<LinxUds, UdsStream>(what, [len, len + HEADER], 0.95);
            compare_lengths::<LinxFifo, Fifo>(what, [len, len + HEADER], 0.95);
        }
        // The cost of the header alone (a pipe's capacity is counted in pages).
        compare_lengths::<UdsStream, UdsStream>(What::Stream, [len + HEADER, len], 0.0);
        compare_lengths::<Fifo, Fifo>(What::Stream, [len + HEADER, len], 0.0);
        compare::<LinxShm, ShmFutex>(What::Stream, len, 0.0);
    }
    compare::<LinxTcp, Tcp>(What::Stream, 16 << 20, 0.9);
}
