//! Measures the limits that apply to a trial, between the trials of a run. The machine changes during a run, so a
//! measurement before the run says little about the hundredth trial.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossway_mech::Wait;
use crossway_sys::topology::Topology;
use crossway_sys::yardstick::{Copies, ExchangeKind, Exchanges, blocking_exchanges};

use crate::inputs::Workload;
use crate::limits::Copying;
use crate::record::Record;
use crate::stats;

/// Maximum age at which a reading is used for another trial. Trials of competing cases are interleaved, so several of
/// them share one reading.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum duration of the minimal exchange's warm-up, and of its measurement. Each takes as long as in the trial, if
/// that is shorter.
const EXCHANGE_AT_MOST: Duration = Duration::from_millis(100);
/// Maximum number of round trips per reading.
const EXCHANGES_AT_MOST: usize = 20_000;
/// An exchange between two CPUs counts only if each thread slept in at least this share of its round trips. Two threads
/// that find each other's answer before they begin to wait never sleep, and take a fraction of the time.
const SLEPT: f64 = 0.9;
/// Maximum number of attempts to measure an exchange that counts; one if the latest reading did not count.
const ATTEMPTS: usize = 3;

/// Length of the shortest trial, in milliseconds, for which the layout of a copy is optimised. Shorter trials only test
/// the plan, and the search would take longer than they do.
const COPIES_FROM_MS: u64 = 20;

type Reading = Result<f64, String>;

/// The latest reading of each limit.
#[derive(Debug, Default)]
pub(super) struct LimitsBetween {
    exchanges: BTreeMap<(u32, u32, Duration), (Instant, Reading)>,
    copies: BTreeMap<(u32, u32, u64, u32), Copied>,
}

#[derive(Debug)]
struct Copied {
    copying: Result<Copying, String>,
    latest: Option<(Instant, Reading)>,
}

impl LimitsBetween {
    /// Adds the limits that apply to a trial to its record; called before the trial. The trial must run on two fixed
    /// CPUs of this machine (for a blocking exchange, one is enough), and nothing else may run concurrently.
    pub(super) fn enter(&mut self, record: &mut Record, topology: &Topology) {
        let inputs = &record.inputs;
        let [a, b] = inputs.cpus[..] else { return };
        if inputs.testbed.is_some() || !inputs.load.is_idle() || !inputs.beside.is_empty() {
            return;
        }
        match inputs.workload {
            Workload::PingPong if inputs.wait == Wait::Block => {
                let at_most = |ms| Duration::from_millis(ms).min(EXCHANGE_AT_MOST);
                let (warmup, span) = (at_most(inputs.warmup_ms), at_most(inputs.measure_ms));
                let reading = self.exchange((a, b), warmup, span);
                enter(record, "blocking_exchange_ns", reading, |r| {
                    &mut r.calibration.blocking_exchange_ns
                });
            }
            Workload::Throughput if a != b && inputs.measure_ms >= COPIES_FROM_MS => {
                let size = inputs.size_bytes;
                let reading = self.copied(topology, (a, b), size, Copies::One);
                enter(record, "one_copy_bytes_per_s", reading, |r| {
                    &mut r.calibration.one_copy_bytes_per_s
                });
                let reading = self.copied(topology, (a, b), size, Copies::Two);
                enter(record, "two_copies_bytes_per_s", reading, |r| {
                    &mut r.calibration.two_copies_bytes_per_s
                });
            }
            _ => {}
        }
    }

    /// The median round trip with the fastest of the ways in which two sleeping threads can wake each other,
    /// nanoseconds.
    fn exchange(&mut self, cpus: (u32, u32), warmup: Duration, span: Duration) -> Reading {
        let key = (cpus.0, cpus.1, span);
        let attempts = match self.exchanges.get(&key) {
            Some((at, reading)) if at.elapsed() < FRESH => return reading.clone(),
            // What did not count in several attempts will hardly count now, and each attempt delays the run.
            Some((_, Err(_))) => 1,
            _ => ATTEMPTS,
        };
        let reading = exchange_ns(cpus, warmup, span, attempts);
        self.exchanges.insert(key, (Instant::now(), reading.clone()));
        reading
    }

    fn copied(
        &mut self,
        topology: &Topology,
        cpus: (u32, u32),
        size: u64,
        copies: Copies,
    ) -> Reading {
        let number = if copies == Copies::One { 1 } else { 2 };
        let copied = self.copies.entry((cpus.0, cpus.1, size, number)).or_insert_with(|| Copied {
            copying: Copying::search(topology, cpus, copies, size).map_err(|e| e.to_string()),
            latest: None,
        });
        match &copied.latest {
            Some((at, reading)) if at.elapsed() < FRESH => reading.clone(),
            _ => {
                let reading = match &copied.copying {
                    Ok(copying) => copying.bytes_per_s().map_err(|e| e.to_string()),
                    Err(why) => Err(why.clone()),
                };
                copied.latest = Some((Instant::now(), reading.clone()));
                reading
            }
        }
    }
}

/// Measures the exchange with futexes and with pipes; returns the smaller median of those in which the threads slept.
fn exchange_ns(cpus: (u32, u32), warmup: Duration, span: Duration, attempts: usize) -> Reading {
    let mut best = None;
    let mut why_not = String::new();
    for kind in [ExchangeKind::Futex, ExchangeKind::Pipe] {
        for _ in 0..attempts {
            let exchanges = blocking_exchanges(cpus, kind, warmup, span, EXCHANGES_AT_MOST)
                .map_err(|e| e.to_string())?;
            match asleep(cpus, &exchanges) {
                Ok(median) => {
                    best = Some(best.map_or(median, |best: f64| best.min(median)));
                    break;
                }
                Err(why) => why_not = why,
            }
        }
    }
    best.ok_or(why_not)
}

/// The median of the round trips, if the threads slept in nearly all of them. On one CPU, a round trip requires two
/// context switches in any case; one of them may be a preemption by the woken thread instead of a sleep.
fn asleep(cpus: (u32, u32), exchanges: &Exchanges) -> Reading {
    let median = stats::median(&exchanges.times).ok_or("no exchange was completed")?;
    let share = exchanges.sleeps_per_round_trip;
    if cpus.0 != cpus.1 && share < SLEPT {
        let percent = share * 100.0;
        return Err(format!("the two threads slept in only {percent:.0} % of the exchanges"));
    }
    Ok(median)
}

fn enter(
    record: &mut Record,
    name: &str,
    reading: Reading,
    at: fn(&mut Record) -> &mut Option<f64>,
) {
    match reading {
        Ok(value) => *at(record) = Some(value),
        Err(why) => drop(record.nulls.insert(format!("calibration.{name}"), why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn pair(topology: &Topology) -> Option<(u32, u32)> {
        let pair = topology.pairs().first().copied();
        if pair.is_none() {
            eprintln!(
                "SKIP limits between trials: one CPU only; widen the affinity, or use a machine with more CPUs"
            );
        }
        pair
    }

    #[test]
    fn exchanges_of_threads_that_stayed_awake_do_not_count() {
        let of = |sleeps_per_round_trip| Exchanges { times: vec![271.0; 9], sleeps_per_round_trip };
        assert_eq!(asleep((0, 1), &of(0.97)), Ok(271.0));
        let why = asleep((0, 1), &of(0.03)).unwrap_err();
        assert_eq!(why, "the two threads slept in only 3 % of the exchanges");
        // On one CPU, the other thread cannot answer while this one runs.
        assert_eq!(asleep((1, 1), &of(0.03)), Ok(271.0));
    }

    #[test]
    fn each_trial_gets_the_limit_that_binds_it() {
        let topology = Topology::read().expect("/proc");
        let Some((a, b)) = pair(&topology) else { return };
        let mut limits = LimitsBetween::default();
        let mut read = |change: &dyn Fn(&mut Record)| {
            let mut record = samples::ping_pong("pipe", 4096, 0, 1000, 1.0);
            (record.inputs.cpus, record.inputs.warmup_ms) = (vec![a, b], 1);
            record.inputs.measure_ms = COPIES_FROM_MS;
            change(&mut record);
            limits.enter(&mut record, &topology);
            let c = record.calibration;
            let taken = [
                ("blocking_exchange_ns", c.blocking_exchange_ns),
                ("one_copy_bytes_per_s", c.one_copy_bytes_per_s),
                ("two_copies_bytes_per_s", c.two_copies_bytes_per_s),
            ];
            // If other work keeps the machine's CPUs busy for seconds, a reading is null and has a reason.
            let tried = taken.map(|(name, value)| {
                value.is_some_and(|v| v > 0.0)
                    || record.nulls.contains_key(&format!("calibration.{name}"))
            });
            (tried, c.blocking_exchange_ns)
        };
        let (tried, exchange) = read(&|_| {});
        assert_eq!(tried, [true, false, false]);
        // Within two seconds, the next trial uses the same reading.
        let begun = Instant::now();
        let (_, again) = read(&|_| {});
        assert!(again == exchange || begun.elapsed() >= FRESH, "{again:?} after {exchange:?}");
        assert_eq!(read(&|r| r.inputs.cpus = vec![a, a]).0, [true, false, false]);
        let throughput = |r: &mut Record| r.inputs.workload = Workload::Throughput;
        assert_eq!(read(&throughput).0, [false, true, true]);
        for unbound in [
            &(|r: &mut Record| r.inputs.wait = Wait::Spin) as &dyn Fn(&mut Record),
            &|r| r.inputs.cpus.clear(),
            &|r| r.inputs.load.cpu = 2,
            &|r| (r.inputs.workload, r.inputs.measure_ms) = (Workload::Throughput, 1),
        ] {
            assert_eq!(read(unbound).0, [false; 3]);
        }
    }
}
