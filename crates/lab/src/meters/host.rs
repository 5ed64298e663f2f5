//! A host's meters: CPU time, packets, retransmissions.

use std::collections::BTreeMap;
use std::time::Instant;

use crossway_sys::affinity;
use crossway_sys::procfs::{CpuTimes, HostCpu, InterfaceCounters, interfaces};
use serde::{Deserialize, Serialize};

use super::retransmissions::{self, Sent};
use super::series::Sampler;
use crossway_records::record::{HostMeters, IfaceMeters, PacketSeries, Retransmissions, Transport};

/// What to measure on a host during a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAsk {
    /// Whether to read the traffic of the interfaces.
    pub interfaces: bool,
    /// The transport protocol whose retransmissions are read; null to read none.
    pub transport: Option<Transport>,
    /// Interval in milliseconds at which packets are sampled; null for no series.
    pub series_ms: Option<u32>,
    /// Whether to count only the CPUs that the reading thread may use, for a host that shares its kernel with others.
    pub own_cpus_only: bool,
}

/// The running meters of a host.
#[derive(Debug)]
pub struct HostMeter {
    begun: Instant,
    cpus: Option<Vec<u32>>,
    cpu: Result<HostCpu, String>,
    interfaces: Option<Result<BTreeMap<String, InterfaceCounters>, String>>,
    sent: Option<(Transport, Result<Sent, String>)>,
    sampler: Option<Result<Sampler, String>>,
}

/// The readings of a host's meters, without the host's name, which the meters may not know. A reading that failed has
/// the reason instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReading {
    /// CPU time.
    pub cpu: Result<HostMeters, String>,
    /// Traffic of the interfaces that had any, if it was requested.
    pub net: Result<Vec<IfaceMeters>, String>,
    /// Retransmissions, if they were requested.
    pub retransmissions: Result<Option<Retransmissions>, String>,
    /// Packets over time, if they were requested.
    pub series: Result<Vec<PacketSeries>, String>,
}

impl HostMeter {
    /// Takes the first readings. Slow readings are taken first, so that those that should be close to the window are
    /// taken last.
    pub fn start(ask: &HostAsk) -> Self {
        let sent = ask.transport.map(|transport| (transport, retransmissions::read(transport)));
        let cpus = if ask.own_cpus_only { affinity::allowed().ok() } else { None };
        let sampler = ask.series_ms.map(Sampler::start);
        HostMeter {
            sent,
            cpus,
            sampler,
            interfaces: ask.interfaces.then(|| interfaces().map_err(|e| e.to_string())),
            begun: Instant::now(),
            cpu: HostCpu::now().map_err(|e| e.to_string()),
        }
    }

    /// Takes the second readings and returns the differences.
    pub fn stop(self) -> HostReading {
        let cpu = self.used();
        let net = match self.interfaces {
            Some(before) => before.and_then(|before| traffic(&before)),
            None => Ok(Vec::new()),
        };
        let series = match self.sampler {
            Some(sampler) => sampler.map(Sampler::stop),
            None => Ok(Vec::new()),
        };
        let retransmissions = match self.sent {
            Some((transport, before)) => {
                before.and_then(|before| retransmissions::since(transport, before).map(Some))
            }
            None => Ok(None),
        };
        HostReading { cpu, net, retransmissions, series }
    }

    fn used(&self) -> Result<HostMeters, String> {
        let before = self.cpu.as_ref().map_err(Clone::clone)?;
        let used = HostCpu::now().map_err(|e| e.to_string())?.since(before);
        let span_ns = self.begun.elapsed().as_nanos() as u64;
        let (total, cpus) = match &self.cpus {
            Some(own) => {
                let each = used.per_cpu.iter().filter(|(cpu, _)| own.contains(cpu));
                let each: Vec<CpuTimes> = each.map(|(_, times)| *times).collect();
                (each.iter().fold(CpuTimes::default(), sum), each.len())
            }
            None => (used.total, used.per_cpu.len()),
        };
        Ok(HostMeters {
            host: String::new(),
            busy_ns: total.busy_within(span_ns * cpus as u64),
            softirq_ns: total.softirq_ns,
            irq_ns: total.irq_ns,
            steal_ns: total.steal_ns,
            cpus: cpus as u32,
            span_ns: Some(span_ns),
        })
    }
}

fn sum(a: CpuTimes, b: &CpuTimes) -> CpuTimes {
    CpuTimes {
        user_ns: a.user_ns + b.user_ns,
        system_ns: a.system_ns + b.system_ns,
        idle_ns: a.idle_ns + b.idle_ns,
        iowait_ns: a.iowait_ns + b.iowait_ns,
        irq_ns: a.irq_ns + b.irq_ns,
        softirq_ns: a.softirq_ns + b.softirq_ns,
        steal_ns: a.steal_ns + b.steal_ns,
    }
}

/// The traffic since `before`, of interfaces that had any.
fn traffic(before: &BTreeMap<String, InterfaceCounters>) -> Result<Vec<IfaceMeters>, String> {
    let now = interfaces().map_err(|e| e.to_string())?;
    let used = now.iter().filter_map(|(name, now)| {
        let used = now.since(before.get(name)?);
        let any = used.tx_packets + used.rx_packets + used.tx_dropped + used.rx_dropped > 0;
        any.then(|| IfaceMeters {
            host: String::new(),
            name: name.clone(),
            tx_packets: used.tx_packets,
            rx_packets: used.rx_packets,
            tx_bytes: used.tx_bytes,
            rx_bytes: used.rx_bytes,
            tx_dropped: Some(used.tx_dropped),
            rx_dropped: Some(used.rx_dropped),
        })
    });
    Ok(used.collect())
}

impl HostReading {
    /// Sets the host's name in all readings.
    #[must_use]
    pub fn named(mut self, host: &str) -> Self {
        if let Ok(cpu) = &mut self.cpu {
            host.clone_into(&mut cpu.host);
        }
        for entry in self.net.iter_mut().flatten() {
            host.clone_into(&mut entry.host);
        }
        for entry in self.retransmissions.iter_mut().flatten() {
            host.clone_into(&mut entry.host);
        }
        for entry in self.series.iter_mut().flatten() {
            host.clone_into(&mut entry.host);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_reading_travels_as_words_and_gets_its_host_s_name() {
        let ask = HostAsk {
            interfaces: true,
            transport: Some(Transport::Tcp),
            series_ms: Some(1),
            own_cpus_only: true,
        };
        let text = serde_json::to_string(&ask).expect("words");
        assert_eq!(serde_json::from_str::<HostAsk>(&text).expect("the same"), ask);

        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
        let meter = HostMeter::start(&ask);
        for _ in 0..10 {
            socket.send_to(&[1; 100], socket.local_addr().expect("bound")).expect("sent");
        }
        let reading = meter.stop().named("a");
        let text = serde_json::to_string(&reading).expect("words");
        assert_eq!(serde_json::from_str::<HostReading>(&text).expect("the same"), reading);

        let cpu = reading.cpu.expect("CPU times");
        assert_eq!(cpu.host, "a");
        assert_eq!(cpu.cpus as usize, affinity::allowed().expect("affinity").len());
        let net = reading.net.expect("traffic");
        let lo = net.iter().find(|i| i.name == "lo").expect("loopback was used");
        assert!(lo.host == "a" && lo.tx_packets >= 10 && lo.tx_bytes >= 1280, "{lo:?}");
        let again = reading.retransmissions.expect("TCP counts").expect("asked for");
        assert_eq!((again.host.as_str(), again.transport), ("a", Transport::Tcp));
        let series = reading.series.expect("sampled");
        let lo = series.iter().find(|s| s.interface == "lo").expect("loopback was used");
        assert!(lo.host == "a" && lo.samples.last().expect("a last one").tx_packets >= 10);
    }
}
