//! Calibrates the measuring instruments before any measurement: the clock's step and cost, and the empty measuring
//! loop.

use std::collections::BTreeMap;
use std::time::Duration;

use crossway_mech::Access;
use crossway_sys::clock::Ticker;
use crossway_sys::usage;

use crate::line_buffer::LineBuffer;
use crate::payload::{Checker, Source, write_in_place};
use crate::role_context::Samples;
use crossway_records::record::{Calibration, HarnessCost};

/// Time for calibrating the clock's rate, long enough to determine it to a few parts in a million.
const TICKER_TIME: Duration = Duration::from_millis(100);
const READS: usize = 20_000;
const LOOP_MESSAGES: u32 = 200_000;
/// Time after which a calibration ends with fewer reads or messages, for hosts on which these are slow, such as a guest
/// whose clock is a system call of its host.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// Number of operations between two checks of the time.
const CHUNK: usize = 500;
/// Message size of the empty loop, bytes: the smallest of the presets, for which the loop's own cost matters most.
const LOOP_SIZE: usize = 64;
const REPETITIONS: usize = 5;

/// The clock for timed loops, and the properties of the instruments.
#[derive(Clone, Copy, Debug)]
pub struct Instruments {
    /// The clock.
    pub ticker: Ticker,
    /// The properties that records contain.
    pub calibration: Calibration,
}

/// Calibrates the instruments; takes about 150 ms, and 40 ms more if CPU time is counted by ticks.
#[inline(never)]
pub fn calibrate() -> Instruments {
    let ticker = Ticker::calibrate(TICKER_TIME);
    Instruments {
        ticker,
        calibration: Calibration {
            clock_read_ns: least(|| read_cost_ns(&ticker)),
            clock_step_ns: step_ns(&ticker),
            empty_loop_ns: least(empty_loop_ns),
            cpu_clock_step_ns: usage::cpu_clock_step_ns().map(|ns| ns as f64),
            cache_line_before_ns: None,
            cache_line_after_ns: None,
            ..Calibration::default()
        },
    }
}

/// Measures what the harness (the code that prepares, reads and checks messages) costs per message in a case, with
/// messages of the case's size but without a mechanism. Takes a few milliseconds.
#[inline(never)]
pub fn harness(
    ticker: &Ticker,
    size: usize,
    access: Access,
    working_set_bytes: usize,
) -> HarnessCost {
    let mut scratch = LineBuffer::new(size.max(1), 1);
    let hot = LineBuffer::new(size.max(1), 2);
    let mut source = Source::new(size, 0, 1, working_set_bytes);
    let mut checker = Checker::new(size, access, 0, 1);
    // Copied as a mechanism would copy it, so that a message that is not in the cache costs as much here as it would
    // there.
    let plain = least(|| {
        per_message_ns(size, || {
            scratch[..size].copy_from_slice(std::hint::black_box(&hot[..size]));
            std::hint::black_box(&mut scratch);
        })
    });
    let sender = match access {
        Access::Copy => {
            least(|| {
                per_message_ns(size, || {
                    scratch[..size].copy_from_slice(std::hint::black_box(source.next_message()));
                    std::hint::black_box(&mut scratch);
                })
            }) - plain
        }
        Access::InPlace => least(|| {
            per_message_ns(size, || {
                let sequence = source.next_sequence();
                write_in_place(std::hint::black_box(&mut scratch[..size]), sequence);
            })
        }),
    };
    let receiver = least(|| {
        per_message_ns(size, || {
            std::hint::black_box(checker.check(std::hint::black_box(&scratch[..size])));
        })
    });
    let mut samples = Samples::default();
    samples.prepare(READS);
    let mut last = ticker.now();
    let begin = last;
    for _ in 0..READS {
        let now = ticker.now();
        samples.store(now.wrapping_sub(last));
        last = now;
    }
    HarnessCost {
        sender_ns_per_msg: sender.max(0.0),
        receiver_ns_per_msg: receiver,
        clock_ns_per_sample: ticker.ns_per_tick() * last.wrapping_sub(begin) as f64 / READS as f64,
    }
}

/// Total bytes of one measurement in [`harness`], unless these are fewer than two or more than [`HARNESS_MESSAGES`]
/// messages.
const HARNESS_BYTES: usize = 1 << 20;
const HARNESS_MESSAGES: usize = 2_000;

fn per_message_ns(size: usize, mut one: impl FnMut()) -> f64 {
    let messages = (HARNESS_BYTES / size.max(1)).clamp(2, HARNESS_MESSAGES);
    let begin = std::time::Instant::now();
    for _ in 0..messages {
        one();
    }
    begin.elapsed().as_nanos() as f64 / messages as f64
}

/// Repeats a measurement and returns the minimum, which is the best estimate of the actual cost, because interruptions
/// only add time.
fn least(mut measure: impl FnMut() -> f64) -> f64 {
    (0..REPETITIONS).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

fn read_cost_ns(ticker: &Ticker) -> f64 {
    let begin = ticker.now();
    let mut reads = 0;
    while reads < READS && ticker.ns(ticker.now() - begin) < LONG_ENOUGH.as_nanos() as u64 {
        for _ in 0..CHUNK {
            std::hint::black_box(ticker.now());
        }
        reads += CHUNK;
    }
    ticker.ns_per_tick() * (ticker.now() - begin) as f64 / reads as f64
}

/// The clock's step, nanoseconds. It is more than a tick if the counter advances by several ticks at a time, as it may
/// do on a virtual machine.
fn step_ns(ticker: &Ticker) -> f64 {
    let mut seen = BTreeMap::<u64, usize>::new();
    let begin = std::time::Instant::now();
    for read in 0..READS {
        if read % CHUNK == 0 && begin.elapsed() > LONG_ENOUGH {
            break;
        }
        let last = ticker.now();
        // Intervals of many lengths tell a counter with large steps from reads that always take the same time.
        for work in 0..read % DELAYS {
            std::hint::black_box(work);
        }
        *seen.entry(ticker.now().wrapping_sub(last)).or_default() += 1;
    }
    ticker.ns_per_tick() * stride(&seen)
}

/// Number of different delays between two reads.
const DELAYS: usize = 128;
/// Intervals with the same number of steps have at most this many lengths, which are consecutive: two if a step is not
/// a whole number of ticks, three if the processor corrects the counter within a step.
const LENGTHS_OF_ONE: usize = 3;

/// The step of a counter in ticks, from how often each interval between two reads was seen: the distance between the
/// groups of neighbouring intervals; 1 if intervals of all lengths were seen. Intervals that are rare do not count, since
/// they come from interruptions and from moves between cores, whose counters may differ by any amount.
fn stride(seen: &BTreeMap<u64, usize>) -> f64 {
    let all: usize = seen.values().sum();
    let frequent = seen.iter().filter(|(_, count)| **count * 1_000 >= all);
    let mut groups: Vec<Vec<(u64, usize)>> = Vec::new();
    for (&interval, &count) in frequent {
        match groups.last_mut().filter(|g| g.last().is_some_and(|(last, _)| last + 1 == interval)) {
            Some(group) => group.push((interval, count)),
            None => groups.push(vec![(interval, count)]),
        }
    }
    if groups.iter().any(|group| group.len() > LENGTHS_OF_ONE) {
        return 1.0;
    }
    let mean = |group: &Vec<(u64, usize)>| {
        let counted = group.iter().map(|(interval, count)| *interval as f64 * *count as f64);
        counted.sum::<f64>() / group.iter().map(|(_, count)| *count as f64).sum::<f64>()
    };
    let means: Vec<f64> = groups.iter().map(mean).collect();
    let steps = means.windows(2).map(|pair| pair[1] - pair[0]);
    // Of a single length, it is only known that it is a multiple of the step.
    steps.min_by(f64::total_cmp).or(means.first().copied()).unwrap_or(1.0).max(1.0)
}

/// Cost of the loop without a mechanism, nanoseconds per message: numbering, reading and checking.
fn empty_loop_ns() -> f64 {
    let mut source = Source::new(LOOP_SIZE, 0, 1, 64 * LOOP_SIZE);
    let mut checker = Checker::new(LOOP_SIZE, Access::Copy, 0, 1);
    let begin = std::time::Instant::now();
    let mut messages = 0;
    while messages < LOOP_MESSAGES && begin.elapsed() < LONG_ENOUGH {
        for _ in 0..CHUNK {
            let message = source.next_message();
            checker.check(std::hint::black_box(message));
        }
        messages += CHUNK as u32;
    }
    begin.elapsed().as_nanos() as f64 / f64::from(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_have_a_cost_and_a_step() {
        let Instruments { calibration, .. } = calibrate();
        assert!(calibration.clock_read_ns > 0.0);
        assert!(calibration.clock_step_ns > 0.0);
        assert!(calibration.empty_loop_ns > 0.0);
    }

    #[test]
    fn every_size_and_access_has_a_cost_of_the_harness() {
        let ticker = Ticker::Monotonic;
        for access in [Access::Copy, Access::InPlace] {
            for size in [1, 64, 4096, 100_000] {
                let cost = harness(&ticker, size, access, 1 << 20);
                assert!(cost.receiver_ns_per_msg > 0.0 && cost.clock_ns_per_sample > 0.0);
                assert!(cost.sender_ns_per_msg >= 0.0 && cost.sender_ns_per_msg.is_finite());
            }
        }
    }

    #[test]
    fn the_step_is_the_distance_between_groups_of_intervals() {
        let seen = |intervals: &[(u64, usize)]| intervals.iter().copied().collect();
        assert_eq!(stride(&seen(&[(26, 9000), (52, 5000), (78, 300), (1001, 1)])), 26.0);
        // A step of 25.96 ticks, with a counter that now and then advances by one tick within a step.
        let uneven = [(1, 2470), (25, 1862), (26, 15550), (51, 30), (52, 114), (78, 1)];
        assert!((24.0..27.0).contains(&stride(&seen(&uneven))));
        let all_lengths: Vec<(u64, usize)> = (24..150).map(|ticks| (ticks, 100)).collect();
        assert_eq!(stride(&seen(&all_lengths)), 1.0);
        let even: Vec<(u64, usize)> = (12..75).map(|n| (2 * n, 100)).collect();
        assert_eq!(stride(&seen(&even)), 2.0);
        assert_eq!(stride(&seen(&[(26, 9000)])), 26.0);
        assert_eq!(stride(&seen(&[])), 1.0);
    }
}
