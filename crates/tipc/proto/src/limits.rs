//! Limits of the protocol and of this implementation. Each comment says what happens when the limit is reached.

use core::time::Duration;

/// Largest payload of one message, in bytes (the kernel's `TIPC_MAX_USER_MSG_SIZE`). Longer sends are refused.
pub const MESSAGE_LEN_MAX: usize = 66_000;

/// Largest message on the wire, in bytes: maximum payload plus the largest header. A frame with a larger size field is malformed.
pub const WIRE_MESSAGE_LEN_MAX: usize = MESSAGE_LEN_MAX + 60;

/// Maximum number of bearers of a node. Enabling another one fails.
pub const BEARERS_MAX: usize = 3;

/// Maximum number of links to a peer, each over a different bearer. A peer that is discovered on another bearer gets no
/// link there, unless one of its links stays down.
pub const LINKS_PER_PEER_MAX: usize = 2;

/// Maximum number of bytes held back on a new link until the older link to the same peer has delivered what was sent
/// earlier. If this limit is exceeded, contact with the peer is re-established from scratch.
pub const HELD_BYTES_MAX: usize = 8 << 20;

/// Maximum number of peers of a node that are in contact or have been. When it is reached, the peer that has been without
/// contact for the longest time is forgotten; if all are in contact, frames of further nodes are dropped
/// (`too-many-peers`).
pub const PEERS_MAX: usize = 8_192;

/// Maximum number of nodes that were discovered and have never been in contact. A further one replaces one of them, chosen
/// at random (`never-answered`), so that invented nodes do not keep a real one out: even if 14,000 nodes are invented per
/// second, a real one has 0.3 s on average to answer, each time that it is discovered.
pub const STRANGERS_MAX: usize = 4_096;

/// Maximum number of frames per second to nodes that have never sent anything but discovery messages, and likewise to those
/// that have answered but have never been in contact; further frames are sent later, or replaced by a request to all. Invented nodes have stations that do
/// not exist, and the system keeps frames to such a station for seconds, at the expense of frames to peers.
pub const GREETINGS_PER_SECOND: u32 = 128;

/// Maximum number of such frames at once.
pub const GREETINGS_AT_ONCE: u32 = 256;

/// How long such a node is remembered, unless peers are to be forgotten even sooner ([`PEER_FORGET`]).
pub const STRANGER_FORGET: Duration = Duration::from_secs(30);

/// Minimum time between two reports to an operator that frames are dropped for one reason
/// ([`Event::FramesRefused`](crate::node::Event::FramesRefused)).
pub const REFUSAL_REPORT: Duration = Duration::from_secs(60);

/// Maximum number of gap-ack blocks of each kind (unicast, broadcast) in a STATE message. Further gaps are reported in
/// a later STATE.
pub const GAP_ACK_BLOCKS_MAX: usize = 64;

/// Smallest maximum packet size that a peer may announce for a link, in bytes. No link is set up to a peer that announces less.
pub const LINK_MTU_MIN: usize = 128;

/// Receive window, as in the kernel: how many packets beyond the next expected one may be stored. Packets further ahead
/// are dropped (`beyond-window`), and the peer retransmits them.
pub const RECEIVE_WINDOW: u16 = 8_191;

/// Maximum number of bytes of out-of-order packets stored per link. Further packets are dropped like those beyond the
/// window. This bounds the memory that a hostile peer can occupy.
pub const DEFERRED_BYTES_MAX: usize = 8 << 20;

/// Number of received packets after which an acknowledgement is sent. It is larger for a peer that is known to send
/// more packets before it waits for an acknowledgement.
pub const ACK_EVERY: u16 = 16;

/// Upper bound of the number of packets after which an acknowledgement is sent to a peer that sends at full rate. For
/// such a peer, that number is half of the most packets received from it between two acknowledgements, so that most
/// acknowledgements are piggybacked on other packets.
pub const ACK_EVERY_MAX: u16 = 128;

/// A peer from which nothing has come for this time, with at least [`ACK_EVERY`] packets unacknowledged, waits for an
/// acknowledgement: its window is smaller than it seemed. Longer than the pauses of a peer that sends at full rate.
pub const ACK_DELAY: Duration = Duration::from_millis(2);

/// Number of out-of-order packets that triggers an immediate gap report; if there are fewer, a timer triggers it.
pub const NACK_AFTER_DEFERRED: usize = 3;

/// Highest priority of a link (TIPC_MAX_LINK_PRI of linux/tipc.h).
pub const PRIORITY_MAX: u8 = 31;

/// Initial send window of a unicast link, and its lower bound, in packets.
pub const WINDOW_MIN: u16 = 50;

/// Lower bound of the slow-start threshold after losses, in packets; the kernel's value.
pub const WINDOW_THRESHOLD_MIN: u16 = 300;

/// Largest send window of a link over UDP, in packets. The kernel's window stays at 50 there; this implementation
/// allows more, because it reduces the window after a loss.
pub const WINDOW_MAX_UDP: u16 = 1_024;

/// Largest send window of a link over Ethernet, in packets.
pub const WINDOW_MAX_ETHERNET: u16 = 8_191;

/// Send window of the broadcast link, in packets.
pub const BCAST_WINDOW: u16 = 50;

/// Backlog limit for messages of low importance while the window is full, in packets; medium, high and critical
/// messages have 2, 3 and 4 times as much. A sender has to wait while the backlog has reached its limit. Below the
/// limit, a whole message is accepted, even if its packets exceed the limit.
pub const BACKLOG_LOW: usize = 2 * WINDOW_MIN as usize;

/// Backlog limit for the protocol's own messages, in packets: enough for a bulk update of 65,535 bindings in the
/// smallest packets. If it is exceeded, contact with the peer is re-established, because the peer would otherwise miss
/// updates.
pub const BACKLOG_SYSTEM: usize = 32_768;

/// Maximum number of packets retransmitted per gap report, so that no single report can flood the medium.
pub const RESEND_PER_REPORT_MAX: usize = 512;

/// Maximum number of bindings per node, remote or own. Own ones beyond it are refused, remote ones dropped
/// (`bad-binding`). Each binding takes about 130 bytes in the table, including the table's spare capacity (measured by
/// the benchmark `names`).
pub const BINDINGS_PER_NODE_MAX: usize = 65_535;

/// Maximum number of name updates from one peer that wait for an earlier update. (The broadcast link and the unicast
/// link each deliver in order, but the peer may switch between them.) If this limit is exceeded, contact with the peer
/// is re-established from scratch, because its bindings can no longer be determined.
pub const NAME_UPDATES_WAITING_MAX: usize = 8_192;

/// Maximum number of sockets of a node. Opening another one fails.
pub const SOCKETS_MAX: usize = 65_536;

/// Default receive queue limit of a socket, in bytes, for messages of low importance; medium, high and critical
/// messages may fill 2, 4 and 8 times as much. Further messages are returned with the overload error, or dropped
/// (`overload`).
pub const SOCKET_RECEIVE_BYTES: usize = 2 << 20;

/// Overhead charged for each queued message in addition to its length, in bytes, so that empty connection requests also
/// fill a queue.
pub const MESSAGE_OVERHEAD: usize = 768;

/// Number of 1 KiB blocks that may be sent on a new connection before the peer has read any.
pub const CONNECTION_WINDOW_FIRST: u16 = 128;

/// Window granted with each acknowledgement, in blocks of 1 KiB: a quarter of the receive queue.
pub const CONNECTION_WINDOW: u16 = (SOCKET_RECEIVE_BYTES / 1024 / 4) as u16;

/// Number of successive writes to a stream after which small writes are merged, if the peer has sent no data in
/// between.
pub const MERGE_AFTER_WRITES: u32 = 4;
/// Upper bound of the number of writes after which merging begins. That number is [`MERGE_AFTER_WRITES`] initially and
/// doubles each time merging proves useless.
pub const MERGE_AFTER_MAX: u32 = 1_024;

/// Default time that a connection request waits for a reply.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(8_000);
/// Minimum delay before a connection request is repeated after the listener refused it because its queue was full. A
/// random time of up to a quarter of the connect timeout is added.
pub const CONNECT_RETRY: Duration = Duration::from_millis(100);
/// Idle time after which a connection probes its peer. If the probe is not answered within the same time, the
/// connection is aborted.
pub const CONNECTION_PROBE: Duration = Duration::from_secs(3_600);

/// Window that a group member grants to a member that sends little, in blocks of 1 KiB: one message of maximum size.
pub const GROUP_WINDOW_IDLE: u16 = (WIRE_MESSAGE_LEN_MAX / 1024 + 1) as u16;
/// Window that a group member grants to an active sender, in blocks of 1 KiB.
pub const GROUP_WINDOW_ACTIVE: u16 = GROUP_WINDOW_IDLE * 12;
/// Number of group members that may already have the window [`GROUP_WINDOW_ACTIVE`] when another one gets it, in a
/// small group; in a large group, this limit is an eighth of the members. Other members have the small window until one
/// of these members returns its large window.
pub const GROUP_ACTIVE_MIN: usize = 16;
/// Upper bound of the number of group members that may already have the window [`GROUP_WINDOW_ACTIVE`] when another one
/// gets it.
pub const GROUP_ACTIVE_MAX: usize = 64;
/// Maximum number of members that a group member keeps track of. Messages from any other member are dropped
/// (`too-many-members`).
pub const GROUP_MEMBERS_MAX: usize = 16_384;
/// Maximum number of members of a group that have announced themselves although their binding is not known yet. Further
/// announcements are dropped (`too-many-members`).
pub const GROUP_JOINING_MAX: usize = 1_024;

/// Replicast threshold: a multicast is sent as one copy to each node instead of by broadcast if the number of
/// destination nodes is at most this percentage of the peers, plus one.
pub const REPLICAST_PEERS_PERCENT: usize = 10;
/// Maximum time for which a receiver holds back multicasts after their sender has switched between broadcast and
/// replicast. They wait for the sender's marker message, which confirms that nothing sent earlier by the other method
/// is still in flight. When this time is over, they are delivered in order of arrival.
pub const MCAST_SWITCH_WAIT: Duration = Duration::from_secs(5);
/// Minimum time between two switches between broadcast and replicast while a peer does not support the marker message
/// of such a switch.
pub const MCAST_METHOD_KEPT: Duration = Duration::from_secs(5);

/// Maximum number of subscriptions at a node's topology service. A subscriber that requests another one is
/// disconnected.
pub const SUBSCRIPTIONS_MAX: usize = 1 << 17;

/// Largest part of the sockets of a node that its topology service uses for the subscribers of one user or of one other
/// node: one in this many. Further ones are disconnected.
pub const SUBSCRIBERS_PART: usize = 8;

/// Maximum number of events queued for one subscriber. A subscriber that reads too slowly and exceeds it is disconnected.
pub const SUBSCRIBER_EVENTS_MAX: usize = 1 << 18;

/// How long a node waits for objections to an address before it adopts the address.
pub const TRIAL_TIME: Duration = Duration::from_millis(1_000);
/// Interval between the messages that announce the address during this trial.
pub const TRIAL_INTERVAL: Duration = Duration::from_millis(125);
/// Initial interval between discovery requests; it doubles each time.
pub const DISCOVERY_FIRST: Duration = Duration::from_millis(250);
/// Longest interval between discovery requests of a node without peers.
pub const DISCOVERY_ALONE_MAX: Duration = Duration::from_millis(1_000);
/// Longest interval between discovery requests of a node with peers.
pub const DISCOVERY_LINKED_MAX: Duration = Duration::from_secs(60);

/// Default link tolerance: the silence after which a link fails, unless another value is configured or the peer imposes
/// one.
pub const TOLERANCE_DEFAULT: Duration = Duration::from_millis(1_500);
/// Smallest tolerance that can be configured (TIPC_MIN_LINK_TOL of linux/tipc.h).
pub const TOLERANCE_MIN: Duration = Duration::from_millis(50);
/// Largest tolerance that can be configured (TIPC_MAX_LINK_TOL of linux/tipc.h).
pub const TOLERANCE_MAX: Duration = Duration::from_millis(30_000);
/// Longest interval between supervision ticks of a link.
pub const TICK_MAX: Duration = Duration::from_millis(500);
/// Maximum number of successive ticks without a sign of life from the peer. If it is exceeded, the link fails at the
/// next tick.
pub const SILENT_TICKS_MAX: u32 = 4;
/// Number of RESET messages that a link sends when it enters the reset state and at the ticks that follow; after that,
/// it sends one only at every 16th tick.
pub const RESETS_AT_ONCE: u32 = 5;

/// Maximum number of members of a node's domain in the overlapping ring monitor. Records with more members are dropped
/// (`bad-monitor-record`).
pub const DOMAIN_MEMBERS_MAX: usize = 64;
/// Default threshold of the ring monitor: up to this number of nodes on a medium, including this one, each node
/// monitors all others.
pub const MONITOR_THRESHOLD: usize = 32;
/// Largest value to which the threshold of the ring monitor can be set.
pub const MONITOR_THRESHOLD_MAX: usize = 4_095;
/// Number of unanswered probes, sent a quarter of a tick apart, after which this node considers a peer lost that
/// another node has reported as lost: three ticks.
pub const SUSPECT_PROBES: u32 = 12;

/// Delay after which a link probes its peer because the last packets sent are not acknowledged. Used until a round trip
/// has been measured.
pub const PROBE_FIRST: Duration = Duration::from_millis(20);
/// Added to the measured round trip: the sum is the delay after which a link probes its peer because the last packets
/// sent are not acknowledged.
pub const PROBE_MARGIN: Duration = Duration::from_millis(4);
/// Delay before a gap is reported again; it doubles with each report, up to the interval of the supervision ticks.
pub const NACK_REPEAT: Duration = Duration::from_millis(5);
/// Minimum time between two retransmissions of one packet. If 1.25 times the measured round trip is longer, that is
/// used instead.
pub const RESEND_HOLDOFF: Duration = Duration::from_millis(1);
/// A link fails if its oldest packet is still not acknowledged this number of tolerances after the packet's first
/// retransmission.
pub const RESEND_TOLERANCES: u32 = 10;

/// Maximum number of bytes that a link may lose within [`DIVIDED_LOST_WITHIN`] in divided packets (packets that the
/// medium carries in fragments) before it stops sending such packets. The remaining fragments of the lost packets
/// occupy up to about 1.5 times as many bytes of the peer's reassembly memory, which is 4 MiB by default and shared by
/// all senders.
pub const DIVIDED_LOST_BYTES_MAX: usize = 256 << 10;
/// How long the receiving system stores the fragments of an incomplete packet (Linux's default for IPv4).
pub const DIVIDED_LOST_WITHIN: Duration = Duration::from_secs(30);
/// After too many divided packets were lost, how long a link sends only packets that the medium carries whole.
pub const DIVIDED_AVOIDED: Duration = Duration::from_secs(300);

/// Delay after a broadcast before the peers that have not acknowledged it are probed; also the minimum time between two
/// repairs for one peer.
pub const BCAST_REPAIR: Duration = Duration::from_millis(10);

/// Maximum number of queued discovery responses. Further requests are not answered; the nodes that sent them try again.
pub const DISCOVERY_ANSWERS_MAX: usize = 1_024;

/// How long a peer is remembered after contact with it was lost.
pub const PEER_FORGET: Duration = Duration::from_secs(300);

/// How long peers must have used a new key before a node uses it for everything; the kernel's value.
pub const KEY_STABLE: Duration = Duration::from_secs(10);
/// How long the master key protects all frames to peers that lack the active key; the kernel's value.
pub const KEY_GRACE: Duration = Duration::from_secs(5);
/// Silence of a peer's key after which the peer may use another one in its place; the kernel's value.
pub const KEY_SILENT: Duration = Duration::from_secs(3);
/// How long a peer's key that was replaced is accepted after its last frame; the kernel's value.
pub const KEY_PASSIVE: Duration = Duration::from_secs(15);
/// How long a peer that is silent counts as a user of this node's key: as long as the longest tolerance of a link.
pub const KEY_USER_SILENT: Duration = TOLERANCE_MAX;
/// Interval at which keys are examined: the longest supervision tick of links with the default tolerance.
pub const KEY_TICK: Duration = Duration::from_millis(375);
/// A key is sent to a peer that lacks it after up to five times this long, at random, so that not all nodes answer at
/// once; the kernel's value.
pub const KEY_DELIVERY_STEP: Duration = Duration::from_millis(500);
/// Minimum time between two deliveries of a key to a peer that lacks it; the kernel's value.
pub const KEY_DELIVERY_PAUSE: Duration = Duration::from_secs(5);
/// Interval of rekeying that a master key brings with it; the kernel's value.
pub const REKEYING_DEFAULT: Duration = Duration::from_secs(24 * 3_600);

/// Limits that an operator can configure. The other constants of this module cannot be configured, because the protocol
/// fixes them or both ends have to agree on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Limit of peers, by default [`PEERS_MAX`].
    pub peers: usize,
    /// Limit of sockets, by default [`SOCKETS_MAX`].
    pub sockets: usize,
    /// Limit of bindings per node, by default [`BINDINGS_PER_NODE_MAX`].
    pub bindings_per_node: usize,
    /// Limit of subscriptions, by default [`SUBSCRIPTIONS_MAX`].
    pub subscriptions: usize,
    /// Limit of subscriptions of one user ([`Node::set_user`](crate::node::Node::set_user)) and of the programs of one
    /// other node, by default three quarters of [`SUBSCRIPTIONS_MAX`]. An eighth of all is left for sockets without a user.
    pub subscriptions_per_user: usize,
    /// Limit of events queued for a subscriber, by default [`SUBSCRIBER_EVENTS_MAX`].
    pub subscriber_events: usize,
    /// How long a peer without a link is remembered, by default [`PEER_FORGET`].
    pub peer_forget: Duration,
    /// Idle time before a connection probes its peer, by default [`CONNECTION_PROBE`].
    pub connection_probe: Duration,
    /// Default of the time for which one slow group member may block another member's broadcasts; `None` means no
    /// limit, as in the kernel.
    pub group_patience: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: PEERS_MAX,
            sockets: SOCKETS_MAX,
            bindings_per_node: BINDINGS_PER_NODE_MAX,
            subscriptions: SUBSCRIPTIONS_MAX,
            subscriptions_per_user: SUBSCRIPTIONS_MAX / 4 * 3,
            subscriber_events: SUBSCRIBER_EVENTS_MAX,
            peer_forget: PEER_FORGET,
            connection_probe: CONNECTION_PROBE,
            group_patience: None,
        }
    }
}
