//! Measures the physical limits of a machine, which no mechanism on it can beat.
//!
//! The limits ([`Limits`]) are measured without overhead: threads pinned to their CPUs, minimal loops, the best of several memory
//! layouts. They are measured with every run and saved as `limits.json`, so that each figure can be compared with the
//! limit that applies to it.

mod control;
mod copying;
mod exchange;
mod waiting;

use std::time::Duration;

use crossway_records::limits::{Limits, Memcpy, PairLines, SCHEMA, Spread};
use crossway_sys::OsError;
use crossway_sys::topology::Topology;
use crossway_sys::yardstick::{CallKind, Lines, cache_line_round_trips, call_times, memcpy_times};

pub(crate) use copying::Copying;
pub(crate) use exchange::{EXCHANGE_ATTEMPTS, EXCHANGE_MS, fastest_exchange};

/// Which limits to measure, and how thoroughly.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Pairs of CPUs for the cache-line matrix; empty for every pair.
    pub pairs: Vec<(u32, u32)>,
    /// Pairs of CPUs between which copies, wake-ups and blocking exchanges are measured. If empty: the only pair in `pairs`, or else one
    /// pair of each kind of proximity.
    pub copy_pairs: Vec<(u32, u32)>,
    /// Message sizes for the copies, bytes; rounded up to whole cache lines.
    pub sizes_bytes: Vec<u64>,
    /// Number of runs per figure of copies. For IPC objects, there are as many runs, but at most five.
    pub repeats: usize,
    /// Approximate duration of one run of copies on an idle machine, milliseconds. A run with IPC objects takes as
    /// long, but at most 5 ms.
    pub run_ms: u32,
    /// Number of samples of the wake-up after 10 ms of sleep, each of which takes 10 ms. The wake-up after 20 us is
    /// sampled 20 times as often.
    pub long_wakes: usize,
}

impl Default for Ask {
    /// All limits; takes about six seconds on two cores.
    fn default() -> Ask {
        Ask {
            pairs: Vec::new(),
            copy_pairs: Vec::new(),
            sizes_bytes: vec![64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
            repeats: 7,
            run_ms: 15,
            long_wakes: 30,
        }
    }
}

impl Ask {
    /// The short form of the measurement that accompanies each run, with the message sizes of the run up to 1 MiB
    /// (larger ones count as 1 MiB); takes two to three seconds on two cores. If there are more than eight sizes, the
    /// default sizes are used instead.
    pub fn beside_a_run(mut sizes_bytes: Vec<u64>) -> Ask {
        const SIZES_AT_MOST: usize = 8;
        for size in &mut sizes_bytes {
            *size = (*size).clamp(64, 1 << 20).next_multiple_of(64);
        }
        sizes_bytes.sort_unstable();
        sizes_bytes.dedup();
        let usual = Ask::default();
        if sizes_bytes.len() > SIZES_AT_MOST {
            sizes_bytes = usual.sizes_bytes;
        }
        Ask { sizes_bytes, repeats: 3, run_ms: 5, long_wakes: 10, ..Ask::default() }
    }
}

/// Maximum number of pairs, unless the request names pairs. If there are more, only pairs of first hardware threads of
/// cores are measured, and at most this many.
const PAIRS_AT_MOST: usize = 2048;

/// Measures everything requested. `tell` is called with a description before each step.
///
/// # Errors
/// A CPU cannot be used, or is occupied by something else for seconds.
pub fn measure(
    topology: &Topology,
    ask: &Ask,
    mut tell: impl FnMut(&str),
) -> Result<Limits, OsError> {
    let mut gaps = Vec::new();
    tell("system call and clocks");
    let spread = |kind| spread_of(&call_times(kind, 31, 1000));
    let mut limits = Limits {
        schema: SCHEMA,
        taken_unix_ms: crossway_sys::clock::unix_ms(),
        system_call_ns: spread(CallKind::SystemCall),
        clock_read_ns: spread(CallKind::ClockRead),
        counter_read_ns: spread(CallKind::CounterRead),
        cache_lines: Vec::new(),
        wakes: Vec::new(),
        exchanges: Vec::new(),
        memcpy: Vec::new(),
        copies: Vec::new(),
        control: Vec::new(),
        gaps: Vec::new(),
    };
    tell("memcpy");
    limits.memcpy = memcpy();
    let pairs = pairs_to_measure(topology, ask, &mut gaps);
    tell("cache lines between cores");
    for &(a, b) in &pairs {
        limits.cache_lines.push(PairLines {
            a,
            b,
            relation: relation(topology, a, b),
            one_line_ns: spread_of(&cache_line_round_trips((a, b), Lines::One, 15, 500)?),
            two_lines_ns: spread_of(&cache_line_round_trips((a, b), Lines::Two, 15, 500)?),
        });
    }
    let chosen = copy_pairs(topology, ask);
    for &(a, b) in &chosen {
        tell(&format!("wake-ups from cpu {a} to cpu {b}"));
        limits.wakes.extend(waiting::measure((a, b), ask.long_wakes)?);
        tell(&format!("copies from cpu {a} to cpu {b}"));
        limits.copies.extend(copying::measure(topology, (a, b), ask)?);
    }
    for cpus in exchange_pairs(topology, &chosen) {
        tell(&format!("blocking exchanges of cpu {} with cpu {}", cpus.0, cpus.1));
        let span = Duration::from_millis(EXCHANGE_MS);
        match fastest_exchange(cpus, span, span, EXCHANGE_ATTEMPTS) {
            Ok(exchange) => limits.exchanges.push(exchange),
            Err(why) => gaps.push(format!(
                "no blocking exchange between CPUs {} and {} counts: {why}",
                cpus.0, cpus.1
            )),
        }
    }
    tell("creating, querying and removing IPC objects");
    limits.control = control::measure(ask.run_ms.min(5), ask.repeats.min(5), &mut gaps);
    limits.gaps = gaps;
    Ok(limits)
}

fn spread_of(samples: &[f64]) -> Spread {
    Spread::of(samples).expect("loops return as many finite times as they were asked for")
}

/// Measures the round trip through two cache lines between two CPUs, nanoseconds. This is done before and after each
/// trial and takes a few milliseconds.
///
/// # Errors
/// A CPU cannot be used, or is occupied by something else for seconds.
pub fn cache_line_round_trip_ns(cpu_a: u32, cpu_b: u32) -> Result<f64, OsError> {
    Ok(spread_of(&cache_line_round_trips((cpu_a, cpu_b), Lines::Two, 9, 500)?).median)
}

fn memcpy() -> Vec<Memcpy> {
    (6..=24)
        .step_by(2)
        .filter_map(|power| {
            let bytes = 1usize << power;
            // About 1 MiB per batch for small sizes, one copy for large ones.
            let rounds = ((1usize << 20) / bytes).max(1);
            let times = memcpy_times(bytes, 15, rounds);
            let bytes_per_s = Spread::inverse(&times, bytes as f64 * 1e9)?;
            Some(Memcpy { size_bytes: bytes as u64, bytes_per_s })
        })
        .collect()
}

fn pairs_to_measure(topology: &Topology, ask: &Ask, gaps: &mut Vec<String>) -> Vec<(u32, u32)> {
    let mut pairs = if ask.pairs.is_empty() { topology.pairs() } else { ask.pairs.clone() };
    if pairs.is_empty() {
        gaps.push("only one CPU can be used, so nothing between cores can be measured".to_owned());
    }
    if pairs.len() > PAIRS_AT_MOST && ask.pairs.is_empty() {
        let first_thread =
            |cpu: u32| topology.cpu(cpu).is_some_and(|c| c.siblings.first() == Some(&cpu));
        pairs.retain(|(a, b)| first_thread(*a) && first_thread(*b));
        pairs.truncate(PAIRS_AT_MOST);
        gaps.push(format!(
            "more than {PAIRS_AT_MOST} pairs of CPUs: {} pairs of cores were measured; name others with --pair",
            pairs.len()
        ));
    }
    pairs
}

/// The pairs between which copies, wake-ups and exchanges are measured: those requested, or one pair for each kind of proximity
/// (cores that share a cache, cores that do not, hardware threads, sockets).
fn copy_pairs(topology: &Topology, ask: &Ask) -> Vec<(u32, u32)> {
    if !ask.copy_pairs.is_empty() {
        return ask.copy_pairs.clone();
    }
    if let [only] = ask.pairs[..] {
        return vec![only];
    }
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut kinds = Vec::new();
    for (a, b) in topology.pairs() {
        let kind = relation(topology, a, b);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            found.push((a, b));
        }
    }
    found
}

/// The pairs whose blocking exchange is measured: those of the copies, and one CPU with itself.
fn exchange_pairs(topology: &Topology, copy_pairs: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let first = copy_pairs.first().map(|(a, _)| *a).or_else(|| topology.allowed().first().copied());
    copy_pairs.iter().copied().chain(first.map(|cpu| (cpu, cpu))).collect()
}

/// The proximity of two CPUs in words; empty if the system does not report it.
pub fn relation(topology: &Topology, a: u32, b: u32) -> String {
    let Some(relation) = topology.relation(a, b) else { return String::new() };
    if relation.same_cpu {
        "same CPU".to_owned()
    } else if relation.same_core == Some(true) {
        "hardware threads of one core".to_owned()
    } else if relation.same_socket == Some(false) {
        "different sockets".to_owned()
    } else {
        match relation.shared_cache_level {
            Some(0) => "no shared cache".to_owned(),
            Some(level) => format!("shared L{level}"),
            None => String::new(),
        }
    }
}

/// Idle times before a wake-up: one as in a busy exchange, and one long enough for the core to enter an idle state.
const IDLE: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(10)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_quantiles() {
        let spread = Spread::of(&[5.0, 1.0, 2.0, 3.0, 4.0]).expect("samples");
        assert_eq!((spread.n, spread.min, spread.median), (5, 1.0, 3.0));
        assert!((spread.p10 - 1.4).abs() < 1e-12 && (spread.p90 - 4.6).abs() < 1e-12);
        assert_eq!(Spread::inverse(&[2.0, 4.0], 8.0).expect("samples").median, 3.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_run_asks_for_its_own_sizes_unless_they_are_a_series() {
        assert_eq!(Ask::beside_a_run(vec![4096, 64, 1, 100, 64]).sizes_bytes, [64, 128, 4096]);
        let series = (1..80).map(|n| 512 * n).collect();
        assert_eq!(Ask::beside_a_run(series).sizes_bytes, Ask::default().sizes_bytes);
    }

    #[test]
    fn everything_is_measured_once_for_a_small_ask() {
        let topology = Topology::read().expect("/proc");
        let Some(pair) = topology.pairs().first().copied() else {
            eprintln!(
                "SKIP limits: one CPU only; widen the affinity, or use a machine with more CPUs"
            );
            return;
        };
        let ask = Ask {
            pairs: vec![pair],
            sizes_bytes: vec![64, 4096],
            repeats: 1,
            run_ms: 1,
            long_wakes: 2,
            ..Ask::default()
        };
        let mut told = Vec::new();
        let limits = measure(&topology, &ask, |what| told.push(what.to_owned())).expect("two CPUs");
        assert_eq!(limits.cache_lines.len(), 1);
        assert_eq!(limits.wakes.len(), 4);
        assert_eq!(limits.copies.len(), 4);
        assert!(limits.two_lines_ns(pair.1, pair.0).is_some());
        assert_eq!(limits.copy_limit(1, 1000).map(|c| c.size_bytes), Some(64));
        assert_eq!(limits.copy_limit(2, 1 << 20).map(|c| c.size_bytes), Some(4096));
        assert!(limits.copies.iter().all(|c| c.bytes_per_s.median > 0.0));
        let mut turned = limits.clone();
        let mut slower = |n: usize, spread: f64| -> Vec<bool> {
            for c in &mut turned.copies {
                let middle = f64::from(c.copies);
                let readings = (0..n).map(|i| middle + spread * i as f64 / n as f64);
                c.bytes_per_s = Spread::of(&readings.collect::<Vec<_>>()).expect("readings");
            }
            turned.copies.iter().map(|c| turned.two_copies_faster(c)).collect()
        };
        let ones: Vec<bool> = limits.copies.iter().map(|c| c.copies == 1).collect();
        assert_eq!(slower(5, 0.5), ones);
        // Readings that overlap, or too few, do not show it.
        assert_eq!(slower(5, 2.0), [false; 4]);
        assert_eq!(slower(3, 0.0), [false; 4]);
        assert!(told.len() >= 5);
        let text = serde_json::to_string(&limits).expect("JSON");
        assert_eq!(serde_json::from_str::<Limits>(&text).expect("read back"), limits);
    }
}
