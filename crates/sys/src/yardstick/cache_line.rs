//! How long it takes to pass a signal to another core and get one back.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Apart, on_two_cpus};
use crate::OsError;
use crate::clock::monotonic_ns;

/// The cache lines that the two cores share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One line that both cores write alternately.
    One,
    /// Two lines, each written by one core and read by the other, as for a request and a reply through memory.
    Two,
}

/// Measures round trips between two CPUs: nanoseconds per round trip for each of at most `batches` batches of `rounds`
/// round trips. Measures twice, with and without a pause between two looks at the line, and returns the times of the
/// faster way. Without pauses, a waiting CPU delays the other one if both are threads of one core, or if its looks slow
/// down the write that it waits for. A long pause delays the answer. On a busy machine the two loops seldom run at the
/// same time: after [`GIVE_UP_AFTER`](super::GIVE_UP_AFTER) the batches completed by then are returned.
///
/// # Errors
/// A CPU cannot be used, or other programs occupied one of them so much that no batch was completed.
#[inline(never)]
pub fn cache_line_round_trips(
    cpus: (u32, u32),
    lines: Lines,
    batches: usize,
    rounds: usize,
) -> Result<Vec<f64>, OsError> {
    // On a busy machine, one way may be completed and the other not.
    let paused = round_trips(cpus, lines, Look::Paused, batches, rounds);
    let incessant = round_trips(cpus, lines, Look::Incessant, batches, rounds);
    let ways = match (paused, incessant) {
        (Ok(paused), Ok(incessant)) => vec![paused, incessant],
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => vec![one],
        (Err(error), Err(_)) => return Err(error),
    };
    let median = |times: &Vec<f64>| {
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let faster = ways.into_iter().min_by(|a, b| median(a).total_cmp(&median(b)));
    Ok(faster.unwrap_or_default())
}

/// How a core waits for a line to change.
#[derive(Clone, Copy)]
enum Look {
    Incessant,
    Paused,
}

impl Look {
    #[inline(always)]
    fn finds(self, line: &AtomicU64, value: u64) -> bool {
        let found = line.load(Ordering::Acquire) == value;
        if !found && matches!(self, Look::Paused) {
            crate::spin::hint();
        }
        found
    }
}

fn round_trips(
    cpus: (u32, u32),
    lines: Lines,
    look: Look,
    batches: usize,
    rounds: usize,
) -> Result<Vec<f64>, OsError> {
    let request = Apart(AtomicU64::new(0));
    let reply = Apart(AtomicU64::new(0));
    let total = (batches * rounds) as u64;
    // With one line the requester writes odd numbers and the responder even ones; with two lines both write the
    // number of the round.
    let ask = |patience: &super::Patience| {
        let mut times = Vec::with_capacity(batches);
        let mut round = 0u64;
        'all: for _ in 0..batches {
            let start = monotonic_ns();
            for _ in 0..rounds {
                round += 1;
                let answered = match lines {
                    Lines::One => {
                        request.0.store(2 * round - 1, Ordering::Release);
                        patience.spin_until(|| look.finds(&request.0, 2 * round))
                    }
                    Lines::Two => {
                        request.0.store(round, Ordering::Release);
                        patience.spin_until(|| look.finds(&reply.0, round))
                    }
                };
                if !answered {
                    break 'all;
                }
            }
            times.push((monotonic_ns() - start) as f64 / rounds as f64);
        }
        (!times.is_empty()).then_some(times)
    };
    let answer = |patience: &super::Patience| {
        for round in 1..=total {
            let asked = match lines {
                Lines::One => {
                    let asked = patience.spin_until(|| look.finds(&request.0, 2 * round - 1));
                    request.0.store(2 * round, Ordering::Release);
                    asked
                }
                Lines::Two => {
                    let asked = patience.spin_until(|| look.finds(&request.0, round));
                    reply.0.store(round, Ordering::Release);
                    asked
                }
            };
            if !asked {
                break;
            }
        }
        // Whether enough rounds were completed is for the requester to say.
        Some(())
    };
    on_two_cpus(cpus, ask, answer).map(|(times, ())| times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_end_and_give_one_time_per_batch() {
        let allowed = crate::affinity::allowed().expect("affinity");
        let [a, b, ..] = allowed[..] else {
            eprintln!(
                "SKIP cache lines: one CPU only; widen the affinity, or use a machine with more CPUs"
            );
            return;
        };
        for lines in [Lines::One, Lines::Two] {
            let times = cache_line_round_trips((a, b), lines, 7, 10).expect("two CPUs");
            assert_eq!(times.len(), 7);
            assert!(times.iter().all(|t| *t > 0.0));
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_no_hang() {
        let error = cache_line_round_trips((0, 1000), Lines::Two, 1, 1).expect_err("no such CPU");
        assert!(error.to_string().contains("1000"), "{error}");
    }
}
