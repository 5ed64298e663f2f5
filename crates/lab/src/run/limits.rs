//! Measures the limits that apply to a trial, between the trials of a run. The machine changes during a run, so a
//! measurement before the run says little about the hundredth trial.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossway_mech::Wait;
use crossway_sys::topology::Topology;
use crossway_sys::yardstick::Copies;

use crate::limits::{Copying, EXCHANGE_ATTEMPTS, EXCHANGE_MS, fastest_exchange};
use crossway_records::inputs::Workload;
use crossway_records::record::Record;

/// Maximum age at which a reading is used for another trial. Trials of competing cases are interleaved, so several of
/// them share one reading.
const FRESH: Duration = Duration::from_secs(2);
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
                let at_most = |ms: u64| Duration::from_millis(ms.min(EXCHANGE_MS));
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
            _ => EXCHANGE_ATTEMPTS,
        };
        let reading = fastest_exchange(cpus, warmup, span, attempts)
            .map(|exchange| exchange.round_trip_ns.median);
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
    use crossway_records::samples;

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
