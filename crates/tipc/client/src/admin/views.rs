//! What a tipcd tells an operator. Every view is a flat object of JSON; integers have their unit last in the name.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its 128-bit identity, as text where it is text; absent until a bearer or the configuration supplied one.
    pub identity: Option<String>,
    /// Its 32-bit address, in hexadecimal; absent while it is tried or there is no bearer.
    pub address: Option<String>,
    /// Number of the cluster.
    pub netid: u32,
    /// What it announces to its peers.
    pub capabilities: Vec<String>,
    /// Version of the tipcd.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Programs that use it.
    pub programs: u64,
    /// Programs that were not let in, and requests that were refused because too many descriptors were on their way.
    pub turned_away: u64,
    /// Sockets that they have.
    pub sockets: u64,
    /// Bindings in the name table.
    pub bindings: u64,
    /// Peers in contact.
    pub peers_up: u64,
    /// Octets held in the queues of links and sockets.
    pub held_octets: u64,
    /// Messages between sockets of this node, which no link counts.
    pub local: TrafficView,
    /// Messages of programs that reached nobody and were not to be returned.
    pub undelivered_messages: u64,
    /// Frames that a medium did not take.
    pub unsent_frames: u64,
    /// What was dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// Messages and their octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficView {
    /// Messages.
    pub messages: u64,
    /// Octets.
    pub octets: u64,
}

/// A bearer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BearerView {
    /// Medium and interface: `eth:eth0`, `udp:udp0`.
    pub name: String,
    /// What the system says of its device: `up`, `no-carrier`, `down` or `gone`; `no-address` when the host has the bearer's address on no
    /// device that is up.
    pub state: String,
    /// The device, as far as it is known.
    pub device: Option<String>,
    /// This node's address on the medium.
    pub address: String,
    /// Largest packet.
    pub mtu_octets: u64,
    /// Priority of its links.
    pub priority: u8,
    /// Silence after which its links fail.
    pub tolerance_ms: u64,
    /// Largest send window of its links.
    pub window_packets: u16,
    /// Of a UDP bearer: where discovery and broadcasts go, a multicast group or remotes.
    pub remotes: Vec<SocketAddr>,
    /// Remotes that were removed, whose discovery is not heard.
    pub removed: Vec<String>,
    /// Frames that came.
    pub received_frames: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames that the medium did not take.
    pub unsent_frames: u64,
    /// Receive buffer of its socket as the system granted it, with what the system itself needs of it; absent for a bearer that receives
    /// through a ring.
    pub receive_buffer_octets: Option<u64>,
    /// Frames of up to so many octets go to the system in runs, as one message each; absent: each frame goes by itself.
    pub run_frame_octets_max: Option<u64>,
    /// Runs of frames that came as one message.
    pub received_runs: u64,
    /// Runs of frames that were sent as one.
    pub sent_runs: u64,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// `OWN:INTERFACE-PEER:INTERFACE`, as the kernel's tool names it.
    pub name: String,
    /// The peer's address, in hexadecimal.
    pub peer: String,
    /// The bearer's name.
    pub bearer: String,
    /// The peer's address on the medium.
    pub remote: String,
    /// It is up.
    pub up: bool,
    /// It carries traffic; one that is up and does not stands by.
    pub active: bool,
    /// Its state by name.
    pub state: String,
    /// Network plane, `A` to `H`.
    pub plane: String,
    /// Largest packet.
    pub mtu_octets: u64,
    /// Priority.
    pub priority: u8,
    /// Silence after which it fails.
    pub tolerance_ms: u64,
    /// Largest send window.
    pub window_packets: u16,
    /// Send window now.
    pub window_now_packets: u16,
    /// Smoothed round trip; absent until one was measured.
    pub round_trip_us: Option<u64>,
    /// What it counted.
    #[serde(flatten)]
    pub counters: CounterView,
    /// How often it came up.
    pub ups: u64,
}

/// The broadcast link: one for all peers, whose links carry its acknowledgements and repairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastView {
    /// `broadcast-link`, as the kernel's tool names it.
    pub name: String,
    /// It is up: the node has an address.
    pub up: bool,
    /// Peers that get this node's broadcasts.
    pub listeners: u64,
    /// Largest packet.
    pub mtu_octets: u64,
    /// Send window.
    pub window_packets: u16,
    /// How multicasts travel whose sockets leave it to the node.
    pub method: super::MulticastWay,
    /// Where that is `autoselect`: the share of the peers up to which each gets a copy of its own.
    pub replicast_percent: u64,
    /// What it counted; of STATE messages those that carried something for it.
    #[serde(flatten)]
    pub counters: CounterView,
}

/// Counters of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterView {
    /// Sequenced packets accepted.
    pub received_packets: u64,
    /// Their octets.
    pub received_octets: u64,
    /// Those that carried a part of a message.
    pub received_fragments: u64,
    /// Messages that had been cut into these.
    pub received_fragmented: u64,
    /// Those that carried several messages.
    pub received_bundles: u64,
    /// Messages in these.
    pub received_bundled: u64,
    /// Sequenced packets sent for the first time.
    pub sent_packets: u64,
    /// Octets of all frames sent.
    pub sent_octets: u64,
    /// Packets that carried a part of a message.
    pub sent_fragments: u64,
    /// Messages that were cut into these.
    pub sent_fragmented: u64,
    /// Packets that carried several messages.
    pub sent_bundles: u64,
    /// Messages in these.
    pub sent_bundled: u64,
    /// Packets sent again.
    pub resent_packets: u64,
    /// Messages taken for sending.
    pub profile_messages: u64,
    /// Their octets, headers of TIPC included.
    pub profile_octets: u64,
    /// How many there were by size: up to 64, 256, 1024, 4096, 16384, 32768 octets, and larger.
    pub profile: [u64; 7],
    /// Packets that came before their turn.
    pub early_packets: u64,
    /// Packets that had come before.
    pub duplicate_packets: u64,
    /// STATE messages received.
    pub received_states: u64,
    /// STATE messages sent.
    pub sent_states: u64,
    /// Probes received.
    pub received_probes: u64,
    /// Probes sent.
    pub sent_probes: u64,
    /// Gap reports received.
    pub received_naks: u64,
    /// Gap reports sent.
    pub sent_naks: u64,
    /// Acknowledgements sent that were neither probes nor gap reports.
    pub sent_acks: u64,
    /// How often a message was not taken because too many waited.
    pub congestions: u64,
    /// Most packets that were not acknowledged at once.
    pub queue_max_packets: u64,
    /// Packets that were not acknowledged, on average.
    pub queue_average_packets: u64,
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NameView {
    /// Service type.
    #[serde(rename = "type")]
    pub service: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
    /// `cluster` or `node`.
    pub scope: String,
    /// The port bound to it.
    pub port: u32,
    /// The port's node, in hexadecimal.
    pub node: String,
}

/// Where the next page of the name table begins: behind this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamePlace {
    /// Service type.
    pub service: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
}

/// A page of the name table: whole ranges, at least as many bindings as fill it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamePage {
    /// The bindings, by type and range.
    pub bindings: Vec<NameView>,
    /// Where the next page begins, if there is more.
    pub next: Option<NamePlace>,
}

/// A socket's membership in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The group's service type.
    #[serde(rename = "type")]
    pub group: u32,
    /// The number under which the member is addressed.
    pub instance: u32,
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketView {
    /// Its port.
    pub port: u32,
    /// `rdm`, `dgram`, `seqpacket` or `stream`.
    pub kind: String,
    /// The other end of its connection: `PORT@NODE`.
    pub connected_to: Option<String>,
    /// What it has bound.
    pub bindings: Vec<NameView>,
    /// The group that it is a member of, and its number there.
    pub group: Option<GroupView>,
    /// The process that opened it.
    pub pid: Option<u32>,
    /// That process's command, unless it is gone.
    pub command: Option<String>,
    /// Its user.
    pub uid: Option<u32>,
    /// Importance of its messages, 0 to 3.
    pub importance: u8,
    /// Messages that wait in the node.
    pub queued_messages: u64,
    /// Octets that these count.
    pub queued_octets: u64,
    /// Messages sent.
    pub sent: TrafficView,
    /// Messages received.
    pub received: TrafficView,
    /// What went by its lanes; none where it has no lanes.
    pub lanes: Option<LaneView>,
}

/// What went by the lanes of a socket, the memory that its program shares with the tipcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneView {
    /// Messages that the program sent so, pieces of at most 32 KiB of a stream.
    pub sent: u64,
    /// Times that it had to wake the tipcd for them.
    pub woken: u64,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// Its identity.
    pub identity: String,
    /// Its address, in hexadecimal.
    pub address: String,
    /// There is contact.
    pub up: bool,
    /// Names of the links to it.
    pub links: Vec<String>,
    /// Bindings it has.
    pub bindings: u64,
    /// What it announced.
    pub capabilities: Vec<String>,
}

/// Who watches whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorView {
    /// Nodes on a medium, the own included, up to which each watches all others.
    pub threshold: usize,
    /// By bearer.
    pub bearers: Vec<MonitoredBearerView>,
}

/// Who watches whom on a bearer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoredBearerView {
    /// The bearer's name.
    pub bearer: String,
    /// Counts the changes of roles.
    pub table_generation: u32,
    /// Nodes on the medium, the own included.
    pub cluster_size: usize,
    /// Nodes in the own domain.
    pub domain_size: usize,
    /// Whether nodes watch each other along a ring.
    pub active: bool,
    /// The nodes, the own first, in the order of the ring.
    pub nodes: Vec<MonitoredView>,
}

/// How a node is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoredView {
    /// Its address.
    pub node: String,
    /// It is seen.
    pub up: bool,
    /// From here; otherwise by others.
    pub direct: bool,
    /// Of its domain; 0 without one.
    pub generation: u16,
    /// Whether it sees the members of its domain that follow it in the ring.
    pub applied: Vec<bool>,
    /// The rest of its domain, which the ring here does not have at that place.
    pub unapplied: Vec<(String, bool)>,
}
