//! The state that a tipcd reports to an operator. Every view is a JSON object. The name of an integer with a unit ends
//! in that unit.

mod links;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use links::{BroadcastView, CounterView, LinkView};

/// State of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// 128-bit identity, as text if possible; absent before the configuration or a bearer has supplied one.
    pub identity: Option<String>,
    /// 32-bit address in hexadecimal; absent while the node asks its neighbours whether the address is free, or if
    /// there is no bearer.
    pub address: Option<String>,
    /// Network ID of the cluster.
    pub netid: u32,
    /// Capabilities announced to peers.
    pub capabilities: Vec<String>,
    /// Version of the tipcd.
    pub version: String,
    /// Process ID of the tipcd.
    pub pid: u32,
    /// Number of connected programs.
    pub programs: u64,
    /// Number of programs refused since the start, plus the number of requests refused because the program or its user
    /// has its share of descriptors in flight, sockets or bindings.
    pub turned_away: u64,
    /// Number of sockets of these programs.
    pub sockets: u64,
    /// Number of bindings in the name table.
    pub bindings: u64,
    /// Number of nodes that this node is in contact with.
    pub peers_up: u64,
    /// Bytes held in the queues of links and sockets.
    pub held_bytes: u64,
    /// Messages between sockets of this node; they do not appear in the statistics of links.
    pub local: TrafficView,
    /// Number of messages from programs since the start that were neither delivered nor returned.
    pub undelivered_messages: u64,
    /// Number of frames that the media of the enabled bearers did not accept. Those of disabled bearers no longer
    /// count.
    pub unsent_frames: u64,
    /// Number of frames or messages dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// State of encryption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionView {
    /// Whether the node has keys, and so encrypts what it sends.
    pub encrypts: bool,
    /// Whether plain frames are sent to, and accepted from, nodes that have not encrypted anything yet.
    pub plain_allowed: bool,
    /// Whether no node was heard within the last 30 s that does not encrypt. False if this node has no keys.
    pub all_peers_encrypt: bool,
    /// Interval in seconds at which the node replaces its key; absent for never.
    pub rekeying_s: Option<u64>,
    /// Number of times that the node changed to another key.
    pub switches: u64,
    /// The node's own keys.
    pub own: Vec<KeyView>,
    /// The other nodes' keys.
    pub peers: Vec<PeerKeysView>,
}

/// One key. The key itself is never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// Number of the key, 0 for the master key; absent if its owner has not used it yet.
    pub number: Option<u8>,
    /// `master`, `active`, `pending` (not in use by all yet) or `passive` (replaced).
    pub state: String,
    /// `cluster` or `node`: whose frames it protects.
    pub mode: String,
    /// Length of the AES key in bits.
    pub length_bits: u64,
    /// Own key: number of nodes that decrypt with it.
    pub users: u64,
}

/// The keys of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerKeysView {
    /// Identity of the node.
    pub identity: String,
    /// Number of this node's key that the other node decrypts with; 0 for none or the master key.
    pub uses: u8,
    /// The keys with which the other node encrypts.
    pub keys: Vec<KeyView>,
}

/// Message and byte counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficView {
    /// Number of messages.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
}

/// State of a bearer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BearerView {
    /// Medium and interface: `eth:eth0`, `udp:udp0`.
    pub name: String,
    /// State of the bearer's device according to the system: `up`, `no-carrier`, `down` or `gone`. The state is
    /// `no-address` if no device that is up has the bearer's address.
    pub state: String,
    /// Name of the device, if known.
    pub device: Option<String>,
    /// This node's address on the medium.
    pub address: String,
    /// Largest packet, in bytes.
    pub mtu_bytes: u64,
    /// Priority of the bearer's links.
    pub priority: u8,
    /// Silence in milliseconds after which the bearer's links fail.
    pub tolerance_ms: u64,
    /// Maximum send window of the bearer's links, in packets.
    pub window_packets: u16,
    /// For a UDP bearer, where discovery messages and broadcasts are sent: a multicast group or remotes.
    pub remotes: Vec<SocketAddr>,
    /// Remotes that were removed; discovery messages from them are ignored.
    pub removed: Vec<String>,
    /// Number of frames received from the medium since the bearer was enabled.
    pub received_frames: u64,
    /// Number of frames that the medium accepted since the bearer was enabled.
    pub sent_frames: u64,
    /// Number of frames that the medium did not accept since the bearer was enabled.
    pub unsent_frames: u64,
    /// Size of the receive buffer of the bearer's socket in bytes as granted by the system, including the system's own
    /// overhead; absent for a bearer that receives through a packet ring.
    pub receive_buffer_bytes: Option<u64>,
    /// Frames up to this length in bytes are sent in runs: several frames are passed to the system as one message,
    /// which the system splits. Absent if every frame is sent separately.
    pub run_frame_bytes_max: Option<u64>,
    /// Number of messages received that each carried a run of frames.
    pub received_runs: u64,
    /// Number of messages sent that each carried a run of frames.
    pub sent_runs: u64,
}

/// A binding in the name table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NameView {
    /// Type of the service, the first part of the bound name.
    #[serde(rename = "type")]
    pub service: u32,
    /// Lowest instance of the bound range.
    pub lower: u32,
    /// Highest instance of the bound range, included.
    pub upper: u32,
    /// Where the binding is visible: `cluster` or `node`.
    pub scope: String,
    /// Port number of the bound socket.
    pub port: u32,
    /// Address of the port's node, in hexadecimal.
    pub node: String,
}

/// Position in the name table: the next page begins after this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamePlace {
    /// Type of the service.
    pub service: u32,
    /// Lowest instance of the last range that was returned.
    pub lower: u32,
    /// Highest instance of the last range that was returned, included.
    pub upper: u32,
}

/// A page of the name table. All bindings of a range are on the same page, so a page may exceed the page size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamePage {
    /// Bindings, ordered by type and range.
    pub bindings: Vec<NameView>,
    /// The range after which the next page begins; `None` on the last page.
    pub next: Option<NamePlace>,
}

/// A socket's membership in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The group's service type.
    #[serde(rename = "type")]
    pub group: u32,
    /// The instance by which the member is addressed.
    pub instance: u32,
}

/// State of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketView {
    /// The socket's port number on this node.
    pub port: u32,
    /// `rdm`, `dgram`, `seqpacket` or `stream`.
    pub kind: String,
    /// The other end of the socket's connection as `PORT@NODE`; absent if the socket is not connected.
    pub connected_to: Option<String>,
    /// Bindings of the socket.
    pub bindings: Vec<NameView>,
    /// The group that the socket is a member of, with its instance there; absent if it is in none.
    pub group: Option<GroupView>,
    /// ID of the process that opened the socket; absent if it is unknown.
    pub pid: Option<u32>,
    /// Name of that process's command; absent if the process no longer exists.
    pub command: Option<String>,
    /// User ID of the process.
    pub uid: Option<u32>,
    /// Importance of the messages sent through the socket, 0 to 3.
    pub importance: u8,
    /// Number of messages waiting in the node.
    pub queued_messages: u64,
    /// Length of these messages in bytes, as counted against the queue limit.
    pub queued_bytes: u64,
    /// Messages that the program has sent through the socket.
    pub sent: TrafficView,
    /// Messages that have arrived for the socket.
    pub received: TrafficView,
    /// Statistics of the socket's lanes; absent if it has none.
    pub lanes: Option<LaneView>,
}

/// Statistics of a socket's lanes, the memory that its program shares with the tipcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneView {
    /// Messages that the program has sent through the lane to the tipcd; for a stream, pieces of at most 32 KiB.
    pub sent: u64,
    /// Messages put into the direct lane to the peer, a program of the same node, by the program itself or on its
    /// behalf by the tipcd.
    pub direct: u64,
    /// Number of times the program had to wake the tipcd for messages in its lane.
    pub woken: u64,
}

/// State of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// Identity of the node.
    pub identity: String,
    /// The node's address, in hexadecimal.
    pub address: String,
    /// Whether this node is in contact with that node.
    pub up: bool,
    /// Names of the links to the node.
    pub links: Vec<String>,
    /// Number of bindings of the node's sockets.
    pub bindings: u64,
    /// Capabilities that the node announced.
    pub capabilities: Vec<String>,
}

/// How nodes monitor each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorView {
    /// If a medium has at most this number of nodes, including this one, each node monitors all others.
    pub threshold: usize,
    /// The monitor of each bearer; nodes monitor each other on every medium separately.
    pub bearers: Vec<MonitoredBearerView>,
}

/// How nodes on a bearer monitor each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoredBearerView {
    /// Name of the bearer.
    pub bearer: String,
    /// Number of times this node has recomputed which nodes it monitors itself.
    pub table_generation: u32,
    /// Number of nodes on the medium, including this one.
    pub cluster_size: usize,
    /// Number of nodes in this node's domain: the next nodes in the ring, which this node monitors itself.
    pub domain_size: usize,
    /// Whether nodes monitor each other along a ring; if not, each monitors all others.
    pub active: bool,
    /// The nodes in ring order, this node first.
    pub nodes: Vec<MonitoredView>,
}

/// How a node is monitored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoredView {
    /// Address of the node.
    pub node: String,
    /// Whether the node is up.
    pub up: bool,
    /// Whether this node itself probes that node. If not, this node relies on the reports of other nodes about it.
    pub direct: bool,
    /// Generation of the node's domain record; 0 if the node has sent none.
    pub generation: u16,
    /// For each of the first members of the node's domain, whether the node reports the member as up. Covers the
    /// members up to the first that does not follow the node at the same place in this node's ring.
    pub applied: Vec<bool>,
    /// The remaining members of the node's domain: the address of each member, in hexadecimal, and whether the node
    /// reports the member as up.
    pub unapplied: Vec<(String, bool)>,
}
