//! Command line options of a tipcd.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, FromArgMatches};
use crossway_tipc_client::admin::Settings;
use crossway_tipc_proto::addr::NodeAddr;
use crossway_tipc_proto::limits::Limits;

use crate::bearer::SOCKET_BYTES;
use crate::service::ServiceLimits;
use crate::spec::BearerSpec;

/// Default maximum number of log lines per second, on average.
const LOG_RATE: u32 = 10;

/// Command line options of a tipcd.
#[derive(Debug, Args)]
pub struct TipcdOptions {
    /// Bearers, up to three: `eth:DEVICE` (needs CAP_NET_RAW) or `udp:LOCAL-ADDRESS[%DEVICE][,mtu=BYTES][,REMOTE...]`.
    /// `mtu` is the size of the largest packet, not counting the IP and UDP headers, by default 14000 over IPv4 and
    /// 1280 over IPv6. Packets that fit the device's own MTU (up to 1472 over IPv4 and 1452 over IPv6 if it is 1500)
    /// are sent in batches, many per system call [default: none, for a node that serves this host only]
    #[arg(value_name = "BEARER")]
    pub(crate) bearers: Vec<BearerSpec>,
    /// Identity of the node: up to 16 of A-Z a-z 0-9 . : _ @ - [default: derived from the first bearer's address]
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Fixed 32-bit address of the node in hexadecimal, used immediately and without asking the neighbours whether it is
    /// free [default: derived from the identity once there is a bearer]
    #[arg(long, value_parser = parse_addr)]
    pub(crate) address: Option<NodeAddr>,
    /// Number of the cluster, 1 to 9999 as in the kernel; nodes with different numbers ignore each other
    #[arg(long, default_value_t = 4711, value_parser = clap::value_parser!(u32).range(1..=9999))]
    pub(crate) netid: u32,
    /// Socket to which programs connect [default: $TIPCD_SOCKET, or /run/tipcd.sock, or tipcd.sock in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Permissions of the socket in octal; users who may write to it may use the node
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    pub(crate) mode: u32,
    /// Encrypt all frames with the keys in this file (mode 0600; each line as after `tipc node set key`), and accept only
    /// encrypted ones
    #[arg(long, value_name = "PATH")]
    pub(crate) key_file: Option<PathBuf>,
    /// While nodes get their keys: also accept plain frames of nodes that have not encrypted anything yet, and send them
    /// such frames. This lets anyone in who could come in without keys; end it with `crossway tipc node set plain refused`
    #[arg(long)]
    pub(crate) allow_plain: bool,
    /// Exit when standard input closes, for example because the program that started the tipcd has ended
    #[arg(long)]
    pub(crate) until_stdin_ends: bool,
    /// Log nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Also log when names are published and withdrawn
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) names: bool,
    /// Maximum average number of log lines per second, with bursts of ten times as many; further lines are only counted
    #[arg(long, value_name = "N", default_value_t = LOG_RATE, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) log_rate: u32,

    /// Milliseconds of silence after which a link fails, 50 to 30000; the larger value of both ends applies [default:
    /// 1500]
    #[arg(long, value_name = "MS", help_heading = "Links", value_parser = clap::value_parser!(u32).range(50..=30_000))]
    pub(crate) tolerance: Option<u32>,
    /// Priority of links, 1 to 31; traffic uses the links with the highest priority [default: 10]
    #[arg(long, value_name = "N", help_heading = "Links", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) priority: Option<u8>,
    /// Maximum send window of links in packets, 1 to 8191 [default: 1024 over UDP, 8191 over Ethernet]
    #[arg(long, value_name = "PACKETS", help_heading = "Links", value_parser = clap::value_parser!(u16).range(1..=8191))]
    pub(crate) window: Option<u16>,

    /// Maximum number of programs that use the node at the same time; further ones are refused and receive the reason
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = ServiceLimits::default().clients, value_parser = at_least(1))]
    pub(crate) clients: usize,
    /// Maximum number of programs of one user that use the node at the same time; does not apply to root and the user
    /// who runs the tipcd [default: three quarters of --clients]
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = at_least(1))]
    pub(crate) clients_per_user: Option<usize>,
    /// Maximum number of connections of one process to the tipcd; a process needs one
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = ServiceLimits::default().clients_per_process, value_parser = at_least(1))]
    pub(crate) clients_per_process: usize,
    /// Number of connections in addition to --clients that are reserved for root and the user who runs the tipcd, so
    /// that their commands (crossway tipc) work even if no further program is admitted. If all of them are in use, the
    /// one that has been idle longest is closed
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = ServiceLimits::default().operators)]
    pub(crate) operators: usize,
    /// Maximum number of sockets of one program; further ones are refused (EMFILE)
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = ServiceLimits::default().sockets_per_client, value_parser = at_least(1))]
    pub(crate) sockets_per_client: usize,
    /// Maximum number of sockets of the programs of one user; does not apply to root and the user who runs the tipcd, for
    /// whom an eighth is reserved [default: three quarters of --sockets or, if that is less, of the sockets for which it
    /// may open files]
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = at_least(1))]
    pub(crate) sockets_per_user: Option<usize>,
    /// Maximum number of bytes queued for one socket at low importance (for medium, high and critical importance 2, 4
    /// and 8 times as many). Beyond it, messages are returned to their sender (TIPC_ERR_OVERLOAD) and connections are
    /// throttled
    #[arg(long, value_name = "BYTES", help_heading = "Limits", default_value_t = ServiceLimits::default().receive_bytes, value_parser = at_least(1_024))]
    pub(crate) queue: usize,
    /// Maximum number of other nodes in contact, or lost and not yet forgotten. Beyond it, the node that was lost first is
    /// forgotten; if all are in contact, further nodes are ignored
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = Limits::default().peers, value_parser = at_least(1))]
    pub(crate) peers: usize,
    /// Seconds after which a node with which contact was lost is forgotten; one that never was in contact is forgotten
    /// after 30 s at the latest
    #[arg(long, value_name = "S", help_heading = "Limits", default_value_t = Limits::default().peer_forget.as_secs(), value_parser = seconds())]
    pub(crate) peer_forget: u64,
    /// Maximum number of sockets of all programs and the topology service together; the service has one, and one more
    /// for each subscriber. Further sockets are refused
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = Limits::default().sockets, value_parser = at_least(1))]
    pub(crate) sockets: usize,
    /// Maximum number of bindings of each node in the cluster, this one included; further ones are refused or dropped
    /// (bad-binding). Each takes about 130 bytes
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = Limits::default().bindings_per_node, value_parser = at_least(16))]
    pub(crate) bindings_per_node: usize,
    /// Maximum number of bindings of the programs of one user; does not apply to root and the user who runs the tipcd,
    /// for whom an eighth of --bindings-per-node is reserved [default: three quarters of --bindings-per-node]
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = at_least(1))]
    pub(crate) bindings_per_user: Option<usize>,
    /// Maximum number of subscriptions to the topology service; a connection that exceeds it is closed
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = Limits::default().subscriptions)]
    pub(crate) subscriptions: usize,
    /// Maximum number of subscriptions of the programs of one user, and of those of one other node; does not apply to root
    /// and the user who runs the tipcd, for whom an eighth of --subscriptions is reserved [default: three quarters of
    /// --subscriptions]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) subscriptions_per_user: Option<usize>,
    /// Maximum number of events queued for one subscriber; if it falls further behind, its connection is closed
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = Limits::default().subscriber_events, value_parser = at_least(1))]
    pub(crate) subscriber_events: usize,
    /// Seconds of silence after which a connection probes its peer; if the probe is not answered within the same time,
    /// the connection is aborted
    #[arg(long, value_name = "S", help_heading = "Limits", default_value_t = Limits::default().connection_probe.as_secs(), value_parser = seconds())]
    pub(crate) connection_probe: u64,
    /// Milliseconds for which a group member that does not read may block the broadcasts of other members, which then
    /// continue without it [default: unlimited, as in the kernel]
    #[arg(long, value_name = "MS", help_heading = "Limits", value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400_000))]
    pub(crate) group_patience: Option<u64>,
    /// Size requested from the system for the socket buffers of each bearer, in bytes; `crossway tipc bearer list
    /// --details` shows what was granted
    #[arg(long, value_name = "BYTES", help_heading = "Limits", default_value_t = SOCKET_BYTES, value_parser = at_least(4_096))]
    pub(crate) bearer_buffer: usize,
    /// Milliseconds for which data sent before a close or shutdown is kept while the receiver does not read; after
    /// that, the receiver gets a reset
    #[arg(long, value_name = "MS", help_heading = "Limits", default_value_t = ServiceLimits::default().linger.as_millis() as u64, value_parser = RangedU64ValueParser::<u64>::new().range(..=3_600_000))]
    pub(crate) linger: u64,
    /// Number of messages after which a socket gets lanes, which are rings in memory shared by its program and the
    /// tipcd; 0 for never
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = ServiceLimits::default().lane_after)]
    pub(crate) lane_after: u32,
    /// Maximum number of sockets that have lanes at the same time; further sockets work without lanes
    #[arg(long, value_name = "N", help_heading = "Limits", default_value_t = ServiceLimits::default().lanes)]
    pub(crate) lanes: usize,
    /// Size of each of the two rings of a socket with lanes, in bytes; at least 69632 are used, for the longest
    /// message. A direct lane between two programs of this node has four times as many, or up to 4194304 if the
    /// messages are long
    #[arg(long, value_name = "BYTES", help_heading = "Limits", default_value_t = ServiceLimits::default().lane_bytes, value_parser = RangedU64ValueParser::<usize>::new().range(4_096..=16 << 20))]
    pub(crate) lane_bytes: usize,
    /// Pass all messages between two programs of this node through the tipcd, even if their sockets are connected to
    /// each other
    #[arg(long, help_heading = "Limits")]
    pub(crate) no_direct_lanes: bool,
}

impl TipcdOptions {
    /// Parses options, given without a program name.
    ///
    /// # Errors
    /// The error message from clap.
    pub fn from_words(words: &[String]) -> Result<Self, String> {
        let command = Self::augment_args(clap::Command::new("tipcd")).no_binary_name(true);
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        Self::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    /// Returns the limits of the service for programs.
    pub(crate) const fn limits(&self) -> ServiceLimits {
        ServiceLimits {
            clients: self.clients,
            clients_per_user: match self.clients_per_user {
                Some(clients) => clients,
                None => self.clients - self.clients / 4,
            },
            clients_per_process: self.clients_per_process,
            operators: self.operators,
            sockets_per_client: self.sockets_per_client,
            sockets: self.sockets,
            sockets_per_user: self.sockets_per_user,
            bindings: self.bindings_per_node,
            bindings_per_user: self.bindings_per_user,
            receive_bytes: self.queue,
            linger: Duration::from_millis(self.linger),
            lane_after: self.lane_after,
            lanes: self.lanes,
            lane_bytes: self.lane_bytes,
            direct: !self.no_direct_lanes,
        }
    }

    /// Returns the limits of the node.
    pub(crate) fn node_limits(&self) -> Limits {
        Limits {
            peers: self.peers,
            sockets: self.sockets,
            bindings_per_node: self.bindings_per_node,
            subscriptions: self.subscriptions,
            subscriptions_per_user: self
                .subscriptions_per_user
                .unwrap_or(self.subscriptions - self.subscriptions / 4),
            subscriber_events: self.subscriber_events,
            peer_forget: Duration::from_secs(self.peer_forget),
            connection_probe: Duration::from_secs(self.connection_probe),
            group_patience: self.group_patience.map(Duration::from_millis),
        }
    }

    /// Returns the initial settings of links.
    pub(crate) const fn settings(&self) -> Settings {
        Settings {
            tolerance_ms: self.tolerance,
            priority: self.priority,
            window_packets: self.window,
        }
    }
}

/// Returns a parser of a number of seconds, up to a year.
fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=31_536_000)
}

fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected permissions in octal, 0 to 0777".into()),
    }
}

fn parse_addr(text: &str) -> Result<NodeAddr, String> {
    match u32::from_str_radix(text, 16) {
        Ok(0) | Err(_) => Err("expected 1 to 8 hexadecimal digits, not all 0".into()),
        Ok(addr) => Ok(NodeAddr(addr)),
    }
}
