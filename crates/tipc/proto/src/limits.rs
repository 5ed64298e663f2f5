//! Every bound of the protocol and of this implementation, and what happens when it is reached.

use core::time::Duration;

/// Largest payload of one message, in octets (the kernel's `TIPC_MAX_USER_MSG_SIZE`). Longer sends are refused.
pub const MESSAGE_LEN_MAX: usize = 66_000;

/// Largest whole message: payload and the largest header. A longer size field is a malformed frame.
pub const WIRE_MESSAGE_LEN_MAX: usize = MESSAGE_LEN_MAX + 60;

/// Bearers of one node. One more is refused.
pub const BEARERS_MAX: usize = 3;

/// Links to one peer, each over a bearer of its own. A peer found on one bearer more is not linked to there.
pub const LINKS_PER_PEER_MAX: usize = 2;

/// Octets held back on a new link until an older one to the same peer has delivered what was sent before. When more come, contact with
/// the peer begins anew.
pub const HELD_OCTETS_MAX: usize = 8 << 20;

/// Peers of one node. Discovery of one more is dropped (`too-many-peers`) until another is forgotten.
pub const PEERS_MAX: usize = 8_192;

/// Gap-ack blocks of one kind in one STATE message. Further holes are reported by a later STATE.
pub const GAP_ACK_BLOCKS_MAX: usize = 64;

/// Smallest maximum packet a link may announce, in octets. A peer that announces less is not linked to.
pub const LINK_MTU_MIN: usize = 128;

/// Packets ahead of the next expected one that are kept (the kernel's receive window). Beyond it they are dropped
/// (`beyond-window`) and sent again by the peer.
pub const RECEIVE_WINDOW: u16 = 8_191;

/// Octets of packets kept ahead of the next expected one, per link. Beyond it they are dropped like those beyond the window, so a
/// hostile peer cannot make a node hold more than this for it.
pub const DEFERRED_OCTETS_MAX: usize = 8 << 20;

/// Received packets after which an acknowledgement is sent unasked, unless the peer is known to send more without one.
pub const ACK_EVERY: u16 = 16;

/// The same of a peer that sends as much as it can: half of what it was seen to send without an acknowledgement, up to this. Most of them
/// then travel with what goes there anyway.
pub const ACK_EVERY_MAX: u16 = 128;

/// Packets received out of order that bring an immediate report of the gap; a timer reports smaller ones.
pub const NACK_AFTER_DEFERRED: usize = 3;

/// Highest priority of a link.
pub const PRIORITY_MAX: u8 = 31;

/// First send window of a unicast link, in packets, and the least it falls to.
pub const WINDOW_MIN: u16 = 50;

/// Window up to which slow start goes on even after losses, in packets; the kernel's value.
pub const WINDOW_THRESHOLD_MIN: u16 = 300;

/// Largest send window, in packets, of a link over UDP. The kernel stays at 50 there; loss makes ours fall back.
pub const WINDOW_MAX_UDP: u16 = 1_024;

/// Largest send window, in packets, of a link over Ethernet.
pub const WINDOW_MAX_ETHERNET: u16 = 8_191;

/// Send window of the broadcast link, in packets.
pub const BCAST_WINDOW: u16 = 50;

/// Backlog behind a full window for messages of low importance, in packets; medium, high and critical have 2, 3 and 4 times as much.
/// A sender that would exceed it is told to wait; one message per attempt is still taken when the backlog has any room.
pub const BACKLOG_LOW: usize = 2 * WINDOW_MIN as usize;

/// Backlog for the protocol's own messages, in packets. It holds a bulk of 65,535 bindings in the smallest packets; beyond
/// it the link is reset, because the peer could no longer be kept consistent.
pub const BACKLOG_SYSTEM: usize = 32_768;

/// Packets sent again per gap report, so that one report never floods the medium.
pub const RESEND_PER_REPORT_MAX: usize = 512;

/// Bindings held per node, remote or own. One more is refused or dropped (`bad-binding`). Each takes about 130 octets of the table, with
/// the table's spare room; the benchmark `names` measures it.
pub const BINDINGS_PER_NODE_MAX: usize = 65_535;

/// Name updates of one peer that wait for an earlier one: the broadcast link and the unicast link deliver each in order, but the peer may
/// change between them. At one more contact with the peer begins anew, because its names can no longer be known.
pub const NAME_UPDATES_WAITING_MAX: usize = 8_192;

/// Sockets of one node. One more is refused.
pub const SOCKETS_MAX: usize = 65_536;

/// Octets queued in one socket, unless configured, for messages of low importance; medium, high and critical may fill 2, 4 and 8
/// times as much. A message beyond it is returned as overload or dropped (`overload`).
pub const SOCKET_RECEIVE_OCTETS: usize = 2 << 20;

/// What a queued message counts beyond its octets, so that empty connection requests fill a queue too.
pub const MESSAGE_OVERHEAD: usize = 768;

/// Blocks of 1 KiB that may be sent on a new connection before the peer has read any.
pub const CONNECTION_WINDOW_FIRST: u16 = 128;

/// Blocks granted with every acknowledgement: a quarter of the receive queue.
pub const CONNECTION_WINDOW: u16 = (SOCKET_RECEIVE_OCTETS / 1024 / 4) as u16;

/// Writes to a stream without an answer after which small ones are merged.
pub const MERGE_AFTER_WRITES: u32 = 4;
/// The most such writes; each time that merging shows no use, twice as many are needed.
pub const MERGE_AFTER_MAX: u32 = 1_024;

/// How long a connection request waits for its answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(8_000);
/// Least wait before a request that met a full listener is repeated; a random part of the timeout comes on top.
pub const CONNECT_RETRY: Duration = Duration::from_millis(100);
/// Time after which a connection asks whether its peer still exists; unanswered for as long again, it is aborted.
pub const CONNECTION_PROBE: Duration = Duration::from_secs(3_600);

/// Blocks of 1 KiB that a member of a group grants to one that does not send much: one largest message.
pub const GROUP_WINDOW_IDLE: u16 = (WIRE_MESSAGE_LEN_MAX / 1024 + 1) as u16;
/// Blocks that it grants to one that sends.
pub const GROUP_WINDOW_ACTIVE: u16 = GROUP_WINDOW_IDLE * 12;
/// Members that may have the large window at once: an eighth of all, but not less than this. Further ones go on with the small one until
/// a large one is given back.
pub const GROUP_ACTIVE_MIN: usize = 16;
/// And not more than this.
pub const GROUP_ACTIVE_MAX: usize = 64;
/// Members of one group that a member keeps. One more is not heard (`too-many-members`).
pub const GROUP_MEMBERS_MAX: usize = 16_384;
/// Members that said that they are there before their binding was known. One more is not heard.
pub const GROUP_JOINING_MAX: usize = 1_024;

/// Share of the peers, in percent, up to which a multicast goes as one copy to each node instead of by broadcast; one node more is
/// always reached that way.
pub const REPLICAST_PEERS_PERCENT: usize = 10;
/// Longest time that multicasts wait for the sign that nothing sent earlier by the other way is still under way. After it they are
/// delivered in the order in which they came.
pub const MCAST_SWITCH_WAIT: Duration = Duration::from_secs(5);
/// Least time between two changes of the way in a cluster with peers that do not know that sign.
pub const MCAST_METHOD_KEPT: Duration = Duration::from_secs(5);

/// Subscriptions at one node's topology service. The connection that makes one more is closed.
pub const SUBSCRIPTIONS_MAX: usize = 1 << 17;

/// Events that wait for one subscriber. When more wait its connection is closed: it does not read.
pub const SUBSCRIBER_EVENTS_MAX: usize = 1 << 18;

/// How long a node tries an address before it owns it.
pub const TRIAL_TIME: Duration = Duration::from_millis(1_000);
/// Time between two trial messages.
pub const TRIAL_INTERVAL: Duration = Duration::from_millis(125);
/// First time between two discovery requests; it doubles.
pub const DISCOVERY_FIRST: Duration = Duration::from_millis(250);
/// Longest time between two requests of a node without peers.
pub const DISCOVERY_ALONE_MAX: Duration = Duration::from_millis(1_000);
/// Longest time between two requests of a node with peers.
pub const DISCOVERY_LINKED_MAX: Duration = Duration::from_secs(60);

/// Silence after which a link fails, unless configured or imposed by the peer.
pub const TOLERANCE_DEFAULT: Duration = Duration::from_millis(1_500);
/// Least tolerance.
pub const TOLERANCE_MIN: Duration = Duration::from_millis(50);
/// Most tolerance.
pub const TOLERANCE_MAX: Duration = Duration::from_millis(30_000);
/// Longest time between two looks at a link.
pub const TICK_MAX: Duration = Duration::from_millis(500);
/// Looks without any sign of the peer after which the link fails.
pub const SILENT_TICKS_MAX: u32 = 4;
/// Looks at a link in reset at which RESET is always sent; later only every 16th.
pub const RESETS_AT_ONCE: u32 = 5;

/// Members of a node's domain in the overlapping ring monitor. A record with more is refused.
pub const DOMAIN_MEMBERS_MAX: usize = 64;
/// Nodes on a medium, this one included, up to which each watches all others, unless configured.
pub const MONITOR_THRESHOLD: usize = 32;
/// Most that this may be set to.
pub const MONITOR_THRESHOLD_MAX: usize = 4_095;
/// Probes, a quarter of a tick apart, after which a peer that another node has lost is lost here too when it answers none: three ticks.
pub const SUSPECT_PROBES: u32 = 12;

/// First wait before an unacknowledged tail is probed, until a round trip has been measured.
pub const PROBE_FIRST: Duration = Duration::from_millis(20);
/// Added to the measured round trip for the wait before a tail is probed.
pub const PROBE_MARGIN: Duration = Duration::from_millis(4);
/// Wait before a gap is reported again; it doubles up to the tick.
pub const NACK_REPEAT: Duration = Duration::from_millis(5);
/// Least time between two repetitions of one packet; a measured round trip that is longer takes its place.
pub const RESEND_HOLDOFF: Duration = Duration::from_millis(1);
/// A link fails when its oldest packet is not through this many tolerances after it was first sent again.
pub const RESEND_TOLERANCES: u32 = 10;

/// Wait before peers that have not acknowledged a broadcast are asked, and least time between two repairs of one peer's.
pub const BCAST_REPAIR: Duration = Duration::from_millis(10);

/// Answers to discovery that wait to be sent. One more is not given; the asker asks again.
pub const DISCOVERY_ANSWERS_MAX: usize = 1_024;

/// Time without a link after which a peer is forgotten.
pub const PEER_FORGET: Duration = Duration::from_secs(300);

/// What an operator may bound otherwise. The other constants of this module are the protocol's own, or what makes two ends agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// [`PEERS_MAX`].
    pub peers: usize,
    /// [`SOCKETS_MAX`].
    pub sockets: usize,
    /// [`BINDINGS_PER_NODE_MAX`].
    pub bindings_per_node: usize,
    /// [`SUBSCRIPTIONS_MAX`].
    pub subscriptions: usize,
    /// [`SUBSCRIBER_EVENTS_MAX`].
    pub subscriber_events: usize,
    /// [`PEER_FORGET`].
    pub peer_forget: Duration,
    /// [`CONNECTION_PROBE`].
    pub connection_probe: Duration,
    /// How long a group's member may hold up the broadcasts of another that does not say so itself; `None`: for ever, as with kernels.
    pub group_patience: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: PEERS_MAX,
            sockets: SOCKETS_MAX,
            bindings_per_node: BINDINGS_PER_NODE_MAX,
            subscriptions: SUBSCRIPTIONS_MAX,
            subscriber_events: SUBSCRIBER_EVENTS_MAX,
            peer_forget: PEER_FORGET,
            connection_probe: CONNECTION_PROBE,
            group_patience: None,
        }
    }
}
