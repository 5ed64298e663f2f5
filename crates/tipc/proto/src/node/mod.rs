//! A whole node: bearers, neighbours, links, names.
//!
//! The caller owns time and I/O. After any `handle_*` call or command it drains [`Node::poll_transmit`] and [`Node::poll_event`], then
//! sleeps until [`Node::poll_timeout`] or the next frame:
//!
//! ```
//! use crossway_tipc_proto::node::{Config, Node};
//! use crossway_tipc_proto::time::Nanos;
//!
//! let mut node = Node::new(Config { seed: 1, ..Config::default() });
//! let mut frame = Vec::new();
//! let now = Nanos(0);
//! node.handle_timeout(now);
//! while let Some(transmit) = node.poll_transmit(now, &mut frame) {
//!     // send `frame` to `transmit.dest` on bearer `transmit.bearer`
//! }
//! while let Some(_event) = node.poll_event() {}
//! assert_eq!(node.poll_timeout(), None, "a node without bearers waits for nothing");
//! ```

mod administer;
mod bearer;
mod contact;
mod deliver;
mod discovery;
mod groups;
mod handover;
mod input;
mod monitoring;
mod multicast;
mod names;
mod options;
mod output;
mod peer;
mod reject;
mod report;
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
use crate::drops::DropCounters;
use crate::limits::{BEARERS_MAX, Limits, MONITOR_THRESHOLD};
use crate::link::LinkDownReason;
use crate::name_table::{Binding, NameTable};
use crate::rng::Rng;
use crate::seq::Seq;
use crate::socket::{MulticastMethod, Socket, SocketError};
use crate::time::Nanos;
use crate::wire::{Capabilities, Discovery};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bearer::Bearer;
use peer::Peer;
use topology::Topology;

/// What this node announces: exactly what it speaks, which is all there is.
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

/// What a peer must understand. Kernels since Linux 4.17 of 2018 do; what older ones do instead is not spoken here, so discovery does not
/// lead to contact with them ([`Event::TooOld`]).
pub const REQUIRED: Capabilities = Capabilities::SYN
    .and(Capabilities::BCAST_SYNCH)
    .and(Capabilities::BCAST_STATE_NACK)
    .and(Capabilities::BLOCK_FLOWCTL)
    .and(Capabilities::NODE_ID128);

/// What a node is told at its birth.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Its identity; the first bearer supplies one when there is none.
    pub id: Option<NodeId>,
    /// A fixed address. Without it the address follows from the identity and is tried for a second first.
    pub addr: Option<NodeAddr>,
    /// The cluster.
    pub network: NetworkId,
    /// Seed of the node's random numbers. Two lives of one node must have different seeds.
    pub seed: u64,
    /// Capabilities that are not announced, as of an older node, and not used either. None by default. Without one of [`REQUIRED`]
    /// nodes of this kind refuse the node.
    pub withheld: Capabilities,
    /// Bounds of its tables, and times.
    pub limits: Limits,
    /// How multicasts travel whose sockets leave it to the node.
    pub multicasts: MulticastPolicy,
}

/// How multicasts travel to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MulticastPolicy {
    /// The way of sockets that do not choose one.
    pub method: MulticastMethod,
    /// Where that is left open: the share of the peers, in percent, up to which each gets a copy of its own.
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
    /// What the node announces.
    const fn announced(&self) -> Capabilities {
        CAPABILITIES.without(self.withheld)
    }
}

/// Where a frame is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One station.
    Unicast(MediaAddr),
    /// All stations: the medium's broadcast or multicast address, or each configured remote in turn.
    Broadcast,
}

/// A frame to be sent; its octets are in the buffer that was given to [`Node::poll_transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The bearer to send on.
    pub bearer: BearerId,
    /// Where to.
    pub dest: Destination,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The trial is over: this is the node's address from now on.
    AddressSettled(NodeAddr),
    /// Another node uses our address. It is ignored.
    DuplicateAddress {
        /// Its identity.
        id: NodeId,
        /// Where it sends from.
        media: MediaAddr,
    },
    /// A node was found that lacks what this one needs of a peer ([`REQUIRED`]). There is no contact with it.
    TooOld {
        /// Its address.
        peer: NodeAddr,
        /// What it lacks.
        missing: Capabilities,
    },
    /// A link came up. [`Event::PeerUp`] follows when it is the first to its node.
    LinkUp {
        /// The node at the other end.
        peer: NodeAddr,
        /// Our end's bearer.
        bearer: BearerId,
    },
    /// A link went down. [`Event::PeerDown`] follows when no other was left to its node.
    LinkDown {
        /// The node at the other end.
        peer: NodeAddr,
        /// Our end's bearer.
        bearer: BearerId,
        /// Why.
        reason: LinkDownReason,
    },
    /// Contact with a node began.
    PeerUp {
        /// The node.
        peer: NodeAddr,
    },
    /// Contact with a node was lost, and with it what was under way from and to it.
    PeerDown {
        /// The node.
        peer: NodeAddr,
    },
    /// A binding came into the table.
    Published(Binding),
    /// A binding left the table.
    Withdrawn(Binding),
    /// A member of a group can no longer be sent to by some socket of this node.
    GroupShrank {
        /// The group.
        group: u32,
    },
    /// Something changed for a socket: ask what it can do now.
    SocketReady(Port),
    /// A request for a connection was accepted.
    Connected {
        /// The socket that asked.
        port: Port,
        /// Who accepted.
        peer: SocketAddr,
    },
    /// A request for a connection failed.
    ConnectFailed {
        /// The socket that asked.
        port: Port,
        /// Refused or timed out.
        error: SocketError,
    },
}

/// The node's own address, or its way to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Address {
    /// No bearer yet, so nobody to ask.
    None,
    /// Asking whether anybody minds.
    Trial { candidate: NodeAddr, until: Nanos },
    /// Owned.
    Own(NodeAddr),
}

/// A TIPC node.
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
    /// Nodes on a medium up to which everybody watches everybody.
    monitor_threshold: usize,
    /// Peers in contact.
    linked: usize,
    /// Those among them that do not understand name updates by broadcast.
    unnumbered: usize,
    bcast: BcastSender,
    names: NameTable,
    next_key: u32,
    /// Number of the next name update to be sent.
    update_number: Seq,
    /// Discovery messages that wait to be sent.
    answers: VecDeque<(Transmit, Vec<u8>)>,
    /// Broadcasts of the broadcast link that still have to go out on further bearers.
    bcast_copies: VecDeque<(BearerId, Vec<u8>)>,
    /// Sockets that wait for room on the broadcast link, and at which level.
    bcast_waiting: VecDeque<(Port, usize)>,
    /// Peers that may have something to send.
    ready: VecDeque<NodeAddr>,
    timers: BTreeSet<(Nanos, NodeAddr)>,
    sockets: BTreeMap<Port, Socket>,
    socket_timers: BTreeSet<(Nanos, Port)>,
    /// The sockets of this node in each group.
    groups: BTreeMap<u32, BTreeSet<Port>>,
    /// Sockets for which a link has room again.
    woken: VecDeque<Port>,
    topology: Topology,
    /// The node works on its own sockets' messages.
    serving: bool,
    /// Room for the messages that a packet completes, empty between packets.
    assembled: Vec<Vec<u8>>,
    /// Messages between sockets of this node.
    local: VecDeque<Vec<u8>>,
    /// What went that way.
    local_traffic: Traffic,
    events: VecDeque<Event>,
    drops: DropCounters,
}

impl Node {
    /// A node without bearers.
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
            local: VecDeque::new(),
            local_traffic: Traffic::default(),
            events: VecDeque::new(),
            drops: DropCounters::default(),
            cfg,
        };
        node.open_topology();
        node
    }

    /// The node's address, once it is settled.
    pub const fn addr(&self) -> Option<NodeAddr> {
        match self.address {
            Address::Own(addr) => Some(addr),
            Address::None | Address::Trial { .. } => None,
        }
    }

    /// The node's identity, once a bearer or the configuration supplied one.
    pub const fn id(&self) -> Option<NodeId> {
        self.id
    }

    /// The name table.
    pub const fn names(&self) -> &NameTable {
        &self.names
    }

    /// Drops by reason since the node began.
    pub const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Whether [`Node::poll_event`] has one.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event, oldest first. The queue holds what the calls since the last draining caused.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Octets held in the queues of all links and sockets, for the bound on memory.
    pub fn octets(&self) -> usize {
        let links = self.peers.values().map(Peer::octets).sum::<usize>();
        let sockets = self.sockets.values().map(Socket::octets).sum::<usize>();
        let monitors = self.bearers.iter().flatten().map(|b| b.monitor.octets()).sum::<usize>();
        self.bcast.octets() + links + sockets + monitors
    }

    fn own(&self) -> NodeAddr {
        self.addr().unwrap_or_default()
    }
}
