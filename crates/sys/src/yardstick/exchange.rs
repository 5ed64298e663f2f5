//! The bare exchange between two threads that sleep while they wait: the cost of a blocking request and its reply
//! without other overhead.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::{read, write};

use super::{Apart, Patience, on_two_cpus};
use crate::clock::monotonic_ns;
use crate::usage::thread_switches;
use crate::{OsError, futex, pipe};

/// How the two threads wake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// FUTEX_WAKE and FUTEX_WAIT on two words.
    Futex,
    /// One byte through a pipe each way. A pipe's wake-up notifies the scheduler that the waker is about to sleep; a
    /// futex's wake-up does not. The pipe is therefore cheaper on one CPU and, on some machines, also between two CPUs.
    Pipe,
}

/// Round trips between two threads that may sleep while they wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanges {
    /// Nanoseconds of each round trip.
    pub times: Vec<f64>,
    /// Sleeps per round trip of the thread that slept less often, counted as voluntary context switches during the
    /// round trips in `times`: about 1 if both threads slept each time. A thread does not sleep if the word has
    /// changed, or the byte has arrived, before it begins to wait.
    pub sleeps_per_round_trip: f64,
}

/// Measures round trips between threads on two CPUs, or on the same CPU: at most `samples` round trips, limited to those
/// that begin within `span` after `warmup`.
///
/// # Errors
/// A CPU cannot be used, or a call fails.
#[inline(never)]
pub fn blocking_exchanges(
    cpus: (u32, u32),
    kind: ExchangeKind,
    warmup: Duration,
    span: Duration,
    samples: usize,
) -> Result<Exchanges, OsError> {
    let (there, back) = (pipe::pipe()?, pipe::pipe()?);
    let wires = Wires {
        request: Apart(AtomicU32::new(0)),
        reply: Apart(AtomicU32::new(0)),
        phase: AtomicU8::new(WARM_UP),
        failed: AtomicBool::new(false),
        there,
        back,
    };
    let ask = |_: &Patience| {
        let mut times = vec![1.0; samples];
        let mut taken = 0;
        let mut last = monotonic_ns();
        let first = last + warmup.as_nanos() as u64;
        let end = first + span.as_nanos() as u64;
        let mut round = 0u32;
        let mut before = None;
        while taken < samples && last < end {
            if before.is_none() && last >= first {
                before = Some(thread_switches().0);
                wires.phase.store(MEASURED, Ordering::Release);
                last = monotonic_ns();
            }
            round = round.wrapping_add(1);
            wires.ask(kind, round)?;
            let now = monotonic_ns();
            if before.is_some() {
                times[taken] = (now - last) as f64;
                taken += 1;
            }
            last = now;
        }
        let sleeps = before.map_or(0, |before| thread_switches().0 - before);
        wires.phase.store(OVER, Ordering::Release);
        wires.ask(kind, round.wrapping_add(1))?;
        times.truncate(taken);
        Some((times, sleeps))
    };
    let answer = |_: &Patience| {
        let mut round = 0u32;
        let mut before = None;
        loop {
            round = round.wrapping_add(1);
            wires.hear_request(kind, round)?;
            // Read between the request and its reply: OVER is set before the last request and after the reply to the
            // one before it, so neither side can leave while the other waits.
            let phase = wires.phase.load(Ordering::Acquire);
            if phase == MEASURED && before.is_none() {
                before = Some(thread_switches().0);
            }
            let sleeps = (phase == OVER).then(thread_switches).map(|(sleeps, _)| sleeps);
            wires.reply(kind, round)?;
            if let Some(sleeps) = sleeps {
                return Some(before.map_or(0, |before| sleeps - before));
            }
        }
    };
    on_two_cpus(cpus, ask, answer).map(|((times, asker), answerer)| Exchanges {
        sleeps_per_round_trip: asker.min(answerer) as f64 / times.len().max(1) as f64,
        times,
    })
}

/// The phases of the exchange: the warm-up, the measured round trips, and the last round trip, which is not measured.
const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

struct Wires {
    request: Apart<AtomicU32>,
    reply: Apart<AtomicU32>,
    /// The phase of the round trip; the requesting thread sets it before the request.
    phase: AtomicU8,
    /// A call of one side failed: the other must stop sleeping.
    failed: AtomicBool,
    there: (OwnedFd, OwnedFd),
    back: (OwnedFd, OwnedFd),
}

impl Wires {
    #[inline(always)]
    fn ask(&self, kind: ExchangeKind, round: u32) -> Option<()> {
        let answered = match kind {
            ExchangeKind::Futex => {
                tell(&self.request.0, round).and_then(|()| self.hear(&self.reply.0, round))
            }
            ExchangeKind::Pipe => put(&self.there.1).and_then(|()| take(&self.back.0)),
        };
        answered.or_else(|| self.fail())
    }

    #[inline(always)]
    fn hear_request(&self, kind: ExchangeKind, round: u32) -> Option<()> {
        let heard = match kind {
            ExchangeKind::Futex => self.hear(&self.request.0, round),
            ExchangeKind::Pipe => take(&self.there.0),
        };
        heard.or_else(|| self.fail())
    }

    #[inline(always)]
    fn reply(&self, kind: ExchangeKind, round: u32) -> Option<()> {
        let told = match kind {
            ExchangeKind::Futex => tell(&self.reply.0, round),
            ExchangeKind::Pipe => put(&self.back.1),
        };
        told.or_else(|| self.fail())
    }

    #[inline(always)]
    fn hear(&self, word: &AtomicU32, round: u32) -> Option<()> {
        while word.load(Ordering::Acquire) != round {
            if self.failed.load(Ordering::Acquire) {
                return None;
            }
            futex::wait(word, round.wrapping_sub(1), None).ok()?;
        }
        Some(())
    }

    #[cold]
    fn fail(&self) -> Option<()> {
        self.failed.store(true, Ordering::Release);
        for word in [&self.request.0, &self.reply.0] {
            // The value must differ from the one that the sleeper expects, or it could fall asleep again right after
            // being woken.
            word.fetch_add(1 << 31, Ordering::AcqRel);
            let _ = futex::wake(word);
        }
        let _ = (put(&self.there.1), put(&self.back.1));
        None
    }
}

#[inline(always)]
fn tell(word: &AtomicU32, round: u32) -> Option<()> {
    word.store(round, Ordering::Release);
    futex::wake(word).ok().map(drop)
}

#[inline(always)]
fn put(to: impl AsFd) -> Option<()> {
    (write(to, &[1]) == Ok(1)).then_some(())
}

#[inline(always)]
fn take(from: impl AsFd) -> Option<()> {
    let mut byte = [0u8; 1];
    (read(from, &mut byte) == Ok(1)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_end_by_number_and_by_time_on_two_cpus_and_on_one() {
        let allowed = crate::affinity::allowed().expect("affinity");
        let (a, b) = (allowed[0], allowed[allowed.len() - 1]);
        for kind in [ExchangeKind::Futex, ExchangeKind::Pipe] {
            for cpus in [(a, a), (a, b)] {
                let exchange = |warmup, span, samples| {
                    blocking_exchanges(cpus, kind, warmup, span, samples).expect("CPUs")
                };
                let long = Duration::from_secs(60);
                let Exchanges { times, sleeps_per_round_trip } = exchange(Duration::ZERO, long, 20);
                assert_eq!(times.len(), 20);
                assert!(times.iter().all(|t| *t > 0.0));
                assert!(sleeps_per_round_trip >= 0.0);
                // The shortest possible exchanges, so that the end arrives at every point of a round.
                for _ in 0..300 {
                    let none = exchange(Duration::ZERO, Duration::ZERO, 20);
                    assert!(none.times.is_empty() && none.sleeps_per_round_trip == 0.0);
                    assert_eq!(exchange(Duration::ZERO, long, 1).times.len(), 1);
                }
            }
        }
    }
}
