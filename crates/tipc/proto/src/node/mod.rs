//! A whole node: bearers, neighbours, links, names and sockets.

mod administer;
mod bearer;
mod contact;
mod deliver;
mod discovery;
mod ending;
mod groups;
mod handover;
mod input;
mod keys;
mod monitoring;
mod multicast;
mod names;
mod options;
mod output;
mod peer;
mod reject;
mod report;
mod roster;
mod send;
mod sockets;
mod stream;
mod subscriptions;
mod topology;
mod tunnel;

pub use crate::monitor::MonitoredReport;
pub use administer::{BearerReport, SettingError, Traffic};
pub use bearer::{BearerConfig, BearerError};
pub use handover::{ConnectionRequest, Incoming, Taken};
pub use monitoring::MonitorReport;
pub use options::option;
pub use report::{BroadcastReport, LinkReport, PeerReport, SocketReport};

use crate::addr::{BearerId, MediaAddr, NetworkId, NodeAddr, NodeId, Port, SocketAddr};
use crate::bcast::BcastSender;
use crate::drops::{DropCounters, DropReason};
use crate::limits::{BEARERS_MAX, Limits, MONITOR_THRESHOLD};
use crate::link::LinkDownReason;
use crate::name_table::{Binding, NameTable};
use crate::rng::Rng;
use crate::seq::Seq;
use crate::socket::{MulticastMethod, Socket, SocketError};
use crate::time::Nanos;
use crate::wire::{Capabilities, Discovery, KeyMessage, Packet};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bearer::Bearer;
use peer::Peer;
use roster::Roster;
use topology::Topology;

/// Capabilities that this node announces: all those that Linux 6.1 announces.
pub const CAPABILITIES: Capabilities = Capabilities::SYN
    .and(Capabilities::BCAST_SYNCH)
    .and(Capabilities::BCAST_STATE_NACK)
    .and(Capabilities::BLOCK_FLOWCTL)
    .and(Capabilities::BCAST_RCAST)
    .and(Capabilities::NODE_ID128)
    .and(Capabilities::LINK_PROTO_SEQNO)
    .and(Capabilities::MCAST_RBCTL)
    .and(Capabilities::GAP_ACK_BLOCK)
    .and(Capabilities::TUNNEL_ENHANCED)
    .and(Capabilities::NAGLE)
    .and(Capabilities::NAMED_BCAST);

/// Capabilities that a peer must have. Kernels since Linux 4.17 (2018) have them. This node does not support the
/// alternatives that older kernels use, and makes no contact with such kernels ([`Event::TooOld`]).
pub const REQUIRED: Capabilities = Capabilities::SYN
    .and(Capabilities::BCAST_SYNCH)
    .and(Capabilities::BCAST_STATE_NACK)
    .and(Capabilities::BLOCK_FLOWCTL)
    .and(Capabilities::NODE_ID128);

/// Configuration of a node.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Identity of the node; if `None`, it is derived from the first bearer.
    pub id: Option<NodeId>,
    /// A fixed address. If `None`, the node derives an address from its identity, and tries that address for a second
    /// before it adopts it.
    pub addr: Option<NodeAddr>,
    /// Network ID of the cluster.
    pub network: NetworkId,
    /// Seed of the node's random numbers. Must differ each time the node starts.
    pub seed: u64,
    /// Capabilities that this node neither announces nor uses, to emulate an older node; none by default. Other nodes
    /// of this implementation refuse a node that lacks one of [`REQUIRED`].
    pub withheld: Capabilities,
    /// Limits of the node's tables, and times.
    pub limits: Limits,
    /// How multicasts of sockets that do not choose a method are sent.
    pub multicasts: MulticastPolicy,
}

/// How multicasts are sent to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MulticastPolicy {
    /// Method for sockets that do not choose one.
    pub method: MulticastMethod,
    /// For the automatic method: replicast is used if the number of destination nodes is at most this percentage of the
    /// peers, plus one.
    pub replicast_percent: usize,
}

impl Default for MulticastPolicy {
    fn default() -> Self {
        Self {
            method: MulticastMethod::Automatic,
            replicast_percent: crate::limits::REPLICAST_PEERS_PERCENT,
        }
    }
}

impl Config {
    /// The capabilities that the node announces.
    const fn announced(&self) -> Capabilities {
        CAPABILITIES.without(self.withheld)
    }
}

/// Destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One station, by its address on the medium.
    Unicast(MediaAddr),
    /// All stations, through the medium's broadcast or multicast address or, if the bearer has a list of remotes, by
    /// one copy to each remote.
    Broadcast,
}

/// A frame to be sent; its bytes are in the buffer passed to [`Node::poll_transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The bearer to send on.
    pub bearer: BearerId,
    /// Destination on that bearer's medium.
    pub dest: Destination,
    /// The node at the other end of the link that sends the frame; `None` for discovery messages and broadcasts.
    pub peer: Option<NodeAddr>,
}

/// An event for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The address trial has ended: this is the node's address from now on.
    AddressSettled(NodeAddr),
    /// A node announces this node's address or that of a peer in contact, but is another node, or is found at another
    /// station than the peer. The announcement is ignored.
    DuplicateAddress {
        /// The address that is already in use.
        addr: NodeAddr,
        /// Identity of the announcing node.
        id: NodeId,
        /// Media address that the node announces.
        media: MediaAddr,
    },
    /// Frames are dropped for a reason that an operator may have to act upon. After this event, there is none for the same
    /// reason for [`REFUSAL_REPORT`](crate::limits::REFUSAL_REPORT); [`Node::drops`] counts all of them.
    FramesRefused {
        /// The bearer on which the frame arrived.
        bearer: BearerId,
        /// The station that sent the frame, as far as that is known.
        from: Option<MediaAddr>,
        /// The reason, one of [`DropReason::UnlistedSource`], [`DropReason::WrongSource`], [`DropReason::TooManyPeers`],
        /// [`DropReason::NeverAnswered`], and those of encryption: [`DropReason::Encrypted`], [`DropReason::Plain`],
        /// [`DropReason::NoKey`] and [`DropReason::NotGenuine`].
        reason: DropReason,
    },
    /// A node was found that lacks a required capability ([`REQUIRED`]). There is no contact with it.
    TooOld {
        /// Address of the node.
        peer: NodeAddr,
        /// Capabilities that the node lacks.
        missing: Capabilities,
    },
    /// A link came up. [`Event::PeerUp`] follows if it is the first link to the peer.
    LinkUp {
        /// The node at the other end.
        peer: NodeAddr,
        /// Bearer at our end.
        bearer: BearerId,
    },
    /// A link went down. [`Event::PeerDown`] follows if it was the last link to the peer.
    LinkDown {
        /// The node at the other end.
        peer: NodeAddr,
        /// Bearer at our end.
        bearer: BearerId,
        /// Why the link went down.
        reason: LinkDownReason,
    },
    /// Contact with a node was established.
    PeerUp {
        /// Address of the node.
        peer: NodeAddr,
    },
    /// Contact with a node was lost, along with everything in flight from and to it.
    PeerDown {
        /// Address of the node.
        peer: NodeAddr,
    },
    /// A binding was added to the table.
    Published(Binding),
    /// A binding was removed from the table.
    Withdrawn(Binding),
    /// A socket of this node that is in the group can no longer reach one of the other members.
    GroupShrank {
        /// Service type of the group.
        group: u32,
    },
    /// A socket's readiness may have changed; see [`Node::readiness`].
    SocketReady(Port),
    /// A connection request was accepted.
    Connected {
        /// The socket that made the request.
        port: Port,
        /// The socket that accepted the request.
        peer: SocketAddr,
    },
    /// A connection request failed.
    ConnectFailed {
        /// The socket that made the request.
        port: Port,
        /// Whether the request was refused or timed out.
        error: SocketError,
    },
}

/// State of the node's own address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Address {
    /// No bearer yet, so the address cannot be tried.
    None,
    /// Trying an address: waiting for objections.
    Trial { candidate: NodeAddr, until: Nanos },
    /// The address belongs to the node.
    Own(NodeAddr),
}

/// The state of a TIPC node.
///
/// The caller owns time and I/O, and calls in a loop:
///
/// 1. [`Node::handle_frame`] for each frame received on a bearer, and commands such as [`Node::send`] (a node whose
///    frames are encrypted is driven through a [`Keyring`](crate::crypto::Keyring));
/// 2. [`Node::handle_timeout`] once [`Node::poll_timeout`] has passed;
/// 3. [`Node::poll_transmit`] until it returns `None`, sending each frame;
/// 4. [`Node::poll_event`] until it returns `None`; then the caller sleeps until [`Node::poll_timeout`] or the next
///    frame.
///
/// Times must not decrease from one call to the next.
///
/// ```
/// use crossway_tipc_proto::node::{Config, Node};
/// use crossway_tipc_proto::time::Nanos;
///
/// let mut node = Node::new(Config { seed: 1, ..Config::default() });
/// let mut frame = Vec::new();
/// let now = Nanos(0);
/// node.handle_timeout(now);
/// while let Some(transmit) = node.poll_transmit(now, &mut frame) {
///     // send `frame` to `transmit.dest` on bearer `transmit.bearer`
/// }
/// while let Some(_event) = node.poll_event() {}
/// assert_eq!(node.poll_timeout(), None, "a node without bearers waits for nothing");
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    cfg: Config,
    rng: Rng,
    id: Option<NodeId>,
    address: Address,
    signature: u16,
    net_hash: u32,
    bearers: [Option<Bearer>; BEARERS_MAX],
    peers: BTreeMap<NodeAddr, Peer>,
    roster: Roster,
    /// When the caller was last told that frames are dropped for a reason.
    refusals_reported: [Option<Nanos>; DropReason::ALL.len()],
    /// Largest number of nodes on a medium for which each node monitors all others.
    monitor_threshold: usize,
    /// Number of peers with which there is contact.
    linked: usize,
    /// Number of those peers that do not support name updates by broadcast.
    unnumbered: usize,
    bcast: BcastSender,
    names: NameTable,
    next_key: u32,
    /// Number of the next name update to be sent.
    update_number: Seq,
    /// Discovery messages to be sent.
    answers: VecDeque<(Transmit, Vec<u8>)>,
    /// Copies of broadcasts to be sent on bearers other than the first.
    bcast_copies: VecDeque<(BearerId, Vec<u8>)>,
    /// Sockets that wait for room on the broadcast link, each with the level it needs.
    bcast_waiting: VecDeque<(Port, usize)>,
    /// Peers that may have something to send.
    ready: VecDeque<NodeAddr>,
    timers: BTreeSet<(Nanos, NodeAddr)>,
    sockets: BTreeMap<Port, Socket>,
    socket_timers: BTreeSet<(Nanos, Port)>,
    /// The sockets of this node that are in each group, by the group's service type.
    groups: BTreeMap<u32, BTreeSet<Port>>,
    /// Sockets to be woken because the link that they waited for has room again.
    woken: VecDeque<Port>,
    topology: Topology,
    /// Whether messages between the node's own sockets are being processed.
    serving: bool,
    /// Buffer for the messages completed by a packet, empty between packets.
    assembled: Vec<Packet>,
    /// Whether the frame that is being processed was encrypted.
    sealed: bool,
    /// Keys that peers sent in encrypted frames.
    keys: VecDeque<(NodeAddr, KeyMessage)>,
    /// Messages between sockets of this node that have not been delivered yet.
    local: VecDeque<Packet>,
    /// Statistics of the messages between sockets of this node.
    local_traffic: Traffic,
    events: VecDeque<Event>,
    drops: DropCounters,
}

impl Node {
    /// Creates a node without bearers. It has a configured address immediately, any other once it has a bearer.
    pub fn new(cfg: Config) -> Self {
        let mut rng = Rng::new(cfg.seed);
        let signature = Discovery::legal_signature(rng.next_u16(), cfg.announced());
        let net_hash = rng.next_u32();
        let own = cfg.addr.unwrap_or_default();
        let mut names = NameTable::new(Rng::new(!cfg.seed).next_u64());
        names.limit(cfg.limits.bindings_per_node);
        let mut node = Self {
            rng,
            id: cfg.id,
            address: Address::None,
            signature,
            net_hash,
            bearers: [const { None }; BEARERS_MAX],
            peers: BTreeMap::new(),
            roster: Roster::default(),
            refusals_reported: [None; DropReason::ALL.len()],
            monitor_threshold: MONITOR_THRESHOLD,
            linked: 0,
            unnumbered: 0,
            bcast: BcastSender::new(own, cfg.network, usize::from(u16::MAX)),
            names,
            next_key: 1,
            update_number: Seq(0),
            answers: VecDeque::new(),
            bcast_copies: VecDeque::new(),
            bcast_waiting: VecDeque::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            sockets: BTreeMap::new(),
            socket_timers: BTreeSet::new(),
            groups: BTreeMap::new(),
            woken: VecDeque::new(),
            topology: Topology::default(),
            serving: false,
            assembled: Vec::new(),
            sealed: false,
            keys: VecDeque::new(),
            local: VecDeque::new(),
            local_traffic: Traffic::default(),
            events: VecDeque::new(),
            drops: DropCounters::default(),
            cfg,
        };
        node.open_topology();
        if let Some(addr) = node.cfg.addr {
            node.settle(addr);
        }
        node
    }

    /// The node's address; `None` before the address trial has ended.
    pub const fn addr(&self) -> Option<NodeAddr> {
        match self.address {
            Address::Own(addr) => Some(addr),
            Address::None | Address::Trial { .. } => None,
        }
    }

    /// The node's identity; `None` until the configuration or a bearer has supplied one.
    pub const fn id(&self) -> Option<NodeId> {
        self.id
    }

    /// All bindings that this node knows: its own, and those of peers in contact.
    pub const fn names(&self) -> &NameTable {
        &self.names
    }

    /// Numbers of drops since the node was created, by reason.
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Whether [`Node::poll_event`] would return an event.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the oldest event that the caller has not retrieved yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Number of bytes in the queues of all links and sockets, and in the domain records of peers, for the memory
    /// limit.
    pub fn held_bytes(&self) -> usize {
        let links = self.peers.values().map(Peer::held_bytes).sum::<usize>();
        let sockets = self.sockets.values().map(Socket::held_bytes).sum::<usize>();
        let monitors = self.bearers.iter().flatten().map(|b| b.monitor.held_bytes()).sum::<usize>();
        self.bcast.held_bytes() + links + sockets + monitors
    }

    fn own(&self) -> NodeAddr {
        self.addr().unwrap_or_default()
    }
}
