//! The state of links, and of the broadcast link, that a tipcd reports.

use serde::{Deserialize, Serialize};

/// State of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// `OWN:INTERFACE-PEER:INTERFACE`, as in the kernel's tool.
    pub name: String,
    /// The peer's address, in hexadecimal.
    pub peer: String,
    /// Name of the bearer.
    pub bearer: String,
    /// The peer's address on the medium.
    pub remote: String,
    /// Whether the link is up.
    pub up: bool,
    /// Whether the link carries traffic. A link that is up but not active is on standby.
    pub active: bool,
    /// State of the link: `reset`, `establishing`, `established` or `failing-over`.
    pub state: String,
    /// Network plane, `A` to `H`.
    pub plane: String,
    /// Largest packet, in bytes.
    pub mtu_bytes: u64,
    /// Priority in use, 0 to 31. Of the links to a peer, those with the highest priority carry the traffic.
    pub priority: u8,
    /// Silence in milliseconds after which the link fails.
    pub tolerance_ms: u64,
    /// Maximum send window: the number of packets that may be unacknowledged.
    pub window_packets: u16,
    /// Send window in use, which grows with acknowledgements and shrinks with losses.
    pub window_now_packets: u16,
    /// Smoothed round-trip time in microseconds; absent before it has been measured.
    pub round_trip_us: Option<u64>,
    /// Statistics since the link was created or the statistics were reset.
    #[serde(flatten)]
    pub counters: CounterView,
    /// Number of times the link has come up.
    pub ups: u64,
}

/// State of the broadcast link. A node has one for all peers; the links to the peers carry its acknowledgements and
/// retransmissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastView {
    /// `broadcast-link`, as in the kernel's tool.
    pub name: String,
    /// Whether the broadcast link is up, which means that the node has an address.
    pub up: bool,
    /// Number of peers that receive this node's broadcasts.
    pub listeners: u64,
    /// Largest packet, in bytes.
    pub mtu_bytes: u64,
    /// Size of the send window, in packets.
    pub window_packets: u16,
    /// How multicasts are sent for sockets that do not choose a method.
    pub method: crate::MulticastWay,
    /// For `autoselect`: replicast is used for messages to at most this percentage of the peers.
    pub replicast_percent: u64,
    /// Statistics. STATE messages are counted only if they carried information for this link.
    #[serde(flatten)]
    pub counters: CounterView,
}

/// Statistics of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterView {
    /// Packets with a sequence number that were accepted, without duplicates.
    pub received_packets: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Accepted packets that carried a fragment.
    pub received_fragments: u64,
    /// Messages that were received in fragments.
    pub received_fragmented: u64,
    /// Accepted packets that carried a bundle.
    pub received_bundles: u64,
    /// Messages that were received in bundles.
    pub received_bundled: u64,
    /// Packets with a sequence number that were sent, without retransmissions.
    pub sent_packets: u64,
    /// Bytes of all frames that were sent.
    pub sent_bytes: u64,
    /// Packets sent that carried a fragment.
    pub sent_fragments: u64,
    /// Messages that were sent in fragments.
    pub sent_fragmented: u64,
    /// Packets sent that carried a bundle.
    pub sent_bundles: u64,
    /// Messages that were sent in bundles.
    pub sent_bundled: u64,
    /// Packets sent again because the peer reported them missing.
    pub resent_packets: u64,
    /// Messages accepted for sending.
    pub profile_messages: u64,
    /// Bytes of these messages, including TIPC headers.
    pub profile_bytes: u64,
    /// Number of these messages by size: up to 64, 256, 1024, 4096, 16384 and 32768 bytes, and larger.
    pub profile: [u64; 7],
    /// Packets received out of order, ahead of a missing one.
    pub early_packets: u64,
    /// Packets that had already been received.
    pub duplicate_packets: u64,
    /// STATE messages received. Links exchange these for acknowledgements, gap reports and probes.
    pub received_states: u64,
    /// STATE messages sent.
    pub sent_states: u64,
    /// STATE messages received that demand an answer.
    pub received_probes: u64,
    /// STATE messages sent that demand an answer because the peer has been silent.
    pub sent_probes: u64,
    /// STATE messages received that report missing packets.
    pub received_naks: u64,
    /// STATE messages sent that report missing packets.
    pub sent_naks: u64,
    /// STATE messages sent with acknowledgements that were neither probes nor gap reports.
    pub sent_acks: u64,
    /// Number of times a message was refused because the backlog was full.
    pub congestions: u64,
    /// Maximum number of unacknowledged packets.
    pub queue_max_packets: u64,
    /// Average number of unacknowledged packets.
    pub queue_average_packets: u64,
}
