//! Readings of hosts and their interfaces, each with the host's name.

use serde::{Deserialize, Deserializer, Serialize};

use super::{figure, local};

/// CPU time of one host during the measured part, summed over its CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostMeters {
    /// Name of the host.
    #[serde(default = "local")]
    pub host: String,
    /// CPU time except idle, I/O wait and steal, nanoseconds.
    pub busy_ns: u64,
    /// Soft interrupts, nanoseconds.
    pub softirq_ns: u64,
    /// Hard interrupts, nanoseconds.
    pub irq_ns: u64,
    /// Time taken away by the hypervisor, nanoseconds.
    pub steal_ns: u64,
    /// Number of CPUs that were counted. On a host that shares its kernel with others, these are the CPUs that the
    /// host's agent may use, otherwise all.
    pub cpus: u32,
    /// Time between the two readings, nanoseconds; null in schema 1. The load of the host is `busy_ns` divided by
    /// `span_ns` and by `cpus`.
    #[serde(default)]
    pub span_ns: Option<u64>,
}

impl HostMeters {
    /// The busy fraction of the host's CPUs, 0 to 1; `None` if `span_ns` is null.
    pub fn load(&self) -> Option<f64> {
        let span_ns = self.span_ns.filter(|ns| *ns > 0)?;
        (self.cpus > 0).then(|| self.busy_ns as f64 / (span_ns as f64 * f64::from(self.cpus)))
    }
}

/// Deserialises one entry, several, or none.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<HostMeters>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Several(Vec<HostMeters>),
        One(HostMeters),
        Nothing(()),
    }
    Ok(match Form::deserialize(from)? {
        Form::Several(all) => all,
        Form::One(only) => vec![only],
        Form::Nothing(()) => Vec::new(),
    })
}

/// One interface's traffic during the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IfaceMeters {
    /// Name of the host.
    #[serde(default = "local")]
    pub host: String,
    /// Name of the interface, e.g. `lo`.
    pub name: String,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Outgoing packets that were dropped; null in schema 1.
    #[serde(default)]
    pub tx_dropped: Option<u64>,
    /// Incoming packets that were dropped; null in schema 1.
    #[serde(default)]
    pub rx_dropped: Option<u64>,
}

/// Packets on the wire. The forward direction is that of the messages, or of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    /// Packets on the wire in both directions per message, round trip or exchange (item C5 of the cluster study).
    #[serde(deserialize_with = "figure::one")]
    pub per_msg: f64,
    /// Messages per forward packet (item T5 of Toshiba's study). On loopback, where the directions cannot be
    /// distinguished, messages per packet.
    #[serde(deserialize_with = "figure::one")]
    pub msgs_per_packet: f64,
    /// Packets in the reverse direction (acknowledgements and, for round trips, the replies) per forward packet (item
    /// T6 of Toshiba's study); null on loopback.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub reverse_per_forward: Option<f64>,
}

/// Packets of one interface over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketSeries {
    /// Name of the host.
    pub host: String,
    /// Name of the interface.
    pub interface: String,
    /// Requested time between two samples, milliseconds.
    pub interval_ms: u32,
    /// The samples, oldest first. The first is taken at the start.
    pub samples: Vec<PacketSample>,
    /// CPU time of the thread that took all samples of this host, nanoseconds: the cost of measuring.
    pub cost_ns: u64,
}

/// Numbers of packets since the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSample {
    /// Time since the first sample, by the host's own clock, nanoseconds.
    pub at_ns: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets received.
    pub rx_packets: u64,
}

/// A transport protocol that retransmits lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP, and MPTCP over it: segments.
    Tcp,
    /// SCTP: packets sent, and the number of times chunks were retransmitted.
    Sctp,
    /// TIPC's links: packets.
    Tipc,
}

impl Transport {
    /// The transport protocol of a mechanism; `None` if the mechanism does not retransmit or retransmissions are not
    /// counted.
    pub fn of(mechanism: &str) -> Option<Transport> {
        let carrier = crate::family::carrier(mechanism)?;
        match (carrier.transport, carrier.node) {
            (crossway_mech::Transport::Tcp, None) => Some(Transport::Tcp),
            (crossway_mech::Transport::Sctp, None) => Some(Transport::Sctp),
            (crossway_mech::Transport::Tipc, None) => Some(Transport::Tipc),
            // A node's links also carry its own messages, and a `tipcd` retransmits by itself.
            _ => None,
        }
    }

    /// The reason why there is no count for a mechanism.
    pub fn why_none(mechanism: &str) -> String {
        let carrier = crate::family::carrier(mechanism);
        match carrier.map(|carrier| carrier.transport) {
            Some(crossway_mech::Transport::Udp) => "UDP does not retransmit".to_owned(),
            _ if carrier.is_some_and(|carrier| carrier.node.is_some()) => format!(
                "a node carries the messages of {mechanism} over connections that also carry the node's own messages"
            ),
            _ => format!("{mechanism} has no transport protocol that counts retransmissions"),
        }
    }
}

/// Retransmissions of a host's transport protocol during the measured part, for the whole host including unrelated
/// traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retransmissions {
    /// Name of the host.
    pub host: String,
    /// The protocol, which determines what is counted.
    pub transport: Transport,
    /// Number of packets or segments sent, including retransmissions.
    pub sent: u64,
    /// Number of retransmissions.
    pub again: u64,
}

#[cfg(test)]
mod tests {
    use crate::record::Record;

    #[test]
    fn a_record_of_schema_1_is_read_with_its_host_and_interface() {
        let mut old = serde_json::to_value(crate::samples::ping_pong("tcp", 64, 0, 9000, 1.0))
            .expect("a record");
        let fields = old.as_object_mut().expect("an object");
        for new in ["packets", "packet_series", "retransmissions"] {
            assert!(fields.remove(new).is_some(), "{new} is a field");
        }
        fields.insert("schema".to_owned(), 1.into());
        let host = r#"{"busy_ns":5,"softirq_ns":1,"irq_ns":0,"steal_ns":0,"cpus":2}"#;
        let iface = r#"[{"name":"lo","tx_packets":3,"rx_packets":3,"tx_bytes":9,"rx_bytes":9}]"#;
        for (name, text) in [("host_cpu", host), ("net", iface)] {
            fields.insert(name.to_owned(), serde_json::from_str(text).expect("JSON"));
        }
        let record: Record = serde_json::from_value(old.clone()).expect("an old record");
        assert_eq!(record.host_cpu.len(), 1);
        assert_eq!((record.host_cpu[0].host.as_str(), record.host_cpu[0].busy_ns), ("local", 5));
        assert_eq!((record.net[0].host.as_str(), record.net[0].tx_dropped), ("local", None));
        old["host_cpu"] = serde_json::Value::Null;
        let record: Record = serde_json::from_value(old).expect("an old record");
        assert!(record.host_cpu.is_empty());
    }
}
