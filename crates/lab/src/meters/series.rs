//! Packets over time: a thread that reads the interfaces' counters at a fixed interval.
//!
//! A sample costs one read of `/proc/net/dev`, some tens of microseconds; the total cost is part of the result. Each
//! sample has the time at which it was taken, so that a delay of the thread gives a longer interval instead of a wrong
//! rate.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_sys::procfs::{InterfaceCounters, interfaces};
use crossway_sys::usage::thread_cpu_ns;

use crossway_records::record::{PacketSample, PacketSeries};

/// Maximum number of samples per trial; when it is reached, only the last sample follows.
const SAMPLES_AT_MOST: usize = 100_000;

type Snapshot = (Instant, BTreeMap<String, InterfaceCounters>);

/// The sampling thread.
#[derive(Debug)]
pub(super) struct Sampler {
    interval_ms: u32,
    end: Sender<()>,
    thread: JoinHandle<(Vec<Snapshot>, u64)>,
}

impl Sampler {
    /// Takes the first sample and starts the thread that takes the others.
    pub(super) fn start(interval_ms: u32) -> Result<Sampler, String> {
        let interval = Duration::from_millis(interval_ms.max(1).into());
        let (end, ended) = mpsc::channel();
        let (tell_begun, begun) = mpsc::channel();
        // A thread starts in the network namespace of its creator and reads the counters of that namespace.
        let thread = std::thread::Builder::new()
            .name("packet-series".to_owned())
            .spawn(move || {
                let mut samples = Vec::new();
                let first = snapshot(&mut samples);
                let _ = tell_begun.send(first.map_err(|e| e.to_string()));
                let start = Instant::now();
                for n in 1.. {
                    let due = start + interval * n;
                    match ended.recv_timeout(due.saturating_duration_since(Instant::now())) {
                        Err(RecvTimeoutError::Timeout) if samples.len() < SAMPLES_AT_MOST => {
                            let _ = snapshot(&mut samples);
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
                let _ = snapshot(&mut samples);
                (samples, thread_cpu_ns())
            })
            .map_err(|e| {
                format!("cannot start the thread that samples the packet counters: {e}")
            })?;
        match begun.recv() {
            Ok(Ok(())) => Ok(Sampler { interval_ms, end, thread }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("the thread that samples the packet counters ended early".to_owned()),
        }
    }

    /// Takes the last sample and returns the samples of all interfaces that carried packets.
    pub(super) fn stop(self) -> Vec<PacketSeries> {
        let _ = self.end.send(());
        let Ok((samples, cost_ns)) = self.thread.join() else { return Vec::new() };
        series(&samples, self.interval_ms, cost_ns)
    }
}

fn snapshot(samples: &mut Vec<Snapshot>) -> Result<(), crossway_sys::OsError> {
    let counters = interfaces()?;
    samples.push((Instant::now(), counters));
    Ok(())
}

fn series(samples: &[Snapshot], interval_ms: u32, cost_ns: u64) -> Vec<PacketSeries> {
    let Some((begun, first)) = samples.first() else { return Vec::new() };
    let of = |name: &String| {
        let before = &first[name];
        let counted = samples.iter().filter_map(|(at, counters)| {
            let since = counters.get(name)?.since(before);
            Some(PacketSample {
                at_ns: at.duration_since(*begun).as_nanos() as u64,
                tx_packets: since.tx_packets,
                rx_packets: since.rx_packets,
            })
        });
        PacketSeries {
            host: String::new(),
            interface: name.clone(),
            interval_ms,
            samples: counted.collect(),
            cost_ns,
        }
    };
    let used = |s: &PacketSeries| s.samples.last().is_some_and(|s| s.tx_packets + s.rx_packets > 0);
    first.keys().map(of).filter(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begun: Instant, ms: u64, packets: [(&str, u64, u64); 2]) -> Snapshot {
        let counters = packets.map(|(name, tx_packets, rx_packets)| {
            (name.to_owned(), InterfaceCounters { tx_packets, rx_packets, ..Default::default() })
        });
        (begun + Duration::from_millis(ms), BTreeMap::from(counters))
    }

    #[test]
    fn a_series_counts_from_its_first_sample_and_leaves_idle_interfaces_out() {
        let now = Instant::now();
        let samples = [
            at(now, 0, [("eth0", 7, 100), ("lo", 5, 5)]),
            at(now, 10, [("eth0", 17, 103), ("lo", 5, 5)]),
            at(now, 25, [("eth0", 19, 110), ("lo", 5, 5)]),
        ];
        let found = series(&samples, 10, 99);
        let [only] = &found[..] else { panic!("one interface, not {found:?}") };
        assert_eq!((only.interface.as_str(), only.interval_ms, only.cost_ns), ("eth0", 10, 99));
        let told: Vec<_> = only
            .samples
            .iter()
            .map(|s| (s.at_ns / 1_000_000, s.tx_packets, s.rx_packets))
            .collect();
        assert_eq!(told, [(0, 0, 0), (10, 10, 3), (25, 12, 10)]);
    }

    #[test]
    fn the_sampler_takes_samples_until_it_is_stopped_and_knows_its_cost() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
        let watchdog = Instant::now() + Duration::from_secs(120);
        // On a busy machine, the thread may not run at all during a first window.
        let lo = loop {
            let sampler = Sampler::start(1).expect("a thread");
            for _ in 0..10 {
                socket.send_to(&[1], socket.local_addr().expect("bound")).expect("sent");
                std::thread::sleep(Duration::from_millis(2));
            }
            let found = sampler.stop();
            let lo = found.into_iter().find(|s| s.interface == "lo").expect("loopback was used");
            assert!(lo.samples.last().expect("the last one").tx_packets >= 10, "{lo:?}");
            if lo.samples.len() > 2 {
                break lo;
            }
            assert!(Instant::now() < watchdog, "never a sample between the first and the last");
        };
        assert!(lo.cost_ns > 0);
        for pair in lo.samples.windows(2) {
            assert!(pair[0].at_ns < pair[1].at_ns && pair[0].tx_packets <= pair[1].tx_packets);
        }
    }
}
