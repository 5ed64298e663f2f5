//! A whole node: bearers, neighbours, links, names and sockets.

mod administer;
mod bearer;
mod config;
mod contact;
mod deliver;
mod discovery;
mod ending;
mod event;
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
pub use config::{CAPABILITIES, Config, MulticastPolicy, REQUIRED};
pub use event::{Destination, Event, Transmit};
pub use handover::{ConnectionRequest, Incoming, Taken};
pub use monitoring::MonitorReport;
pub use options::option;
pub use report::{BroadcastReport, LinkReport, PeerReport, SocketReport};

use crate::addr::{BearerId, NodeAddr, NodeId, Port};
use crate::bcast::BcastSender;
use crate::drops::{DropCounters, DropReason};
use crate::limits::{BEARERS_MAX, MONITOR_THRESHOLD};
use crate::name_table::NameTable;
use crate::rng::Rng;
use crate::seq::Seq;
use crate::socket::Socket;
use crate::time::Nanos;
use crate::wire::{Discovery, KeyMessage, Packet};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bearer::Bearer;
use peer::Peer;
use roster::Roster;
use topology::Topology;

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
    /// Boxed, because the tree moves its entries whenever a node comes or goes, and a peer takes kilobytes.
    peers: BTreeMap<NodeAddr, Box<Peer>>,
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
        let links = self.peers.values().map(|peer| peer.held_bytes()).sum::<usize>();
        let sockets = self.sockets.values().map(Socket::held_bytes).sum::<usize>();
        let monitors = self.bearers.iter().flatten().map(|b| b.monitor.held_bytes()).sum::<usize>();
        self.bcast.held_bytes() + links + sockets + monitors
    }

    fn own(&self) -> NodeAddr {
        self.addr().unwrap_or_default()
    }
}
