//! Which processes have channels to each other and to the outside: a pure function of a [`Snapshot`].
//!
//! A kernel object that several processes hold is one channel between all of them, as a pipe that a shell's children
//! inherited. Channels of which one process holds both ends are counted, not listed.

mod answer;
mod build;
mod listening;
mod moved;

use std::collections::BTreeMap;

use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

use crate::snapshot::{Gap, Process, Snapshot};
pub use answer::{Answer, answers};
pub use listening::Listener;

/// What carries a channel's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// A pipe.
    Pipe,
    /// A FIFO: a pipe with a path.
    Fifo,
    /// A UNIX stream socket.
    UnixStream,
    /// A UNIX datagram socket.
    UnixDatagram,
    /// A UNIX seqpacket socket.
    UnixSeqpacket,
    /// TCP within this host.
    TcpLocal,
    /// TCP to another host.
    TcpRemote,
    /// UDP within this host.
    UdpLocal,
    /// UDP to another host, or from anyone.
    UdpRemote,
    /// SCTP.
    Sctp,
    /// vsock.
    Vsock,
    /// netlink, to the kernel.
    Netlink,
    /// TIPC in the kernel.
    Tipc,
    /// Any other socket; `Channel::name` has the kernel's name of its protocol.
    OtherSocket,
    /// A POSIX message queue.
    PosixQueue,
    /// A System V message queue.
    SysvQueue,
    /// Memory that several processes map.
    SharedMemory,
    /// A counter that wakes (eventfd).
    Eventfd,
    /// A pseudo-terminal.
    Terminal,
    /// An io_uring that several processes hold.
    Uring,
}

impl Carrier {
    /// The carrier that recordings and JSON name with this word, e.g. `unix-stream`.
    pub fn of_word(word: &str) -> Option<Carrier> {
        let word: StrDeserializer<'_, Error> = word.into_deserializer();
        Carrier::deserialize(word).ok()
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Carrier::Pipe => "pipe",
            Carrier::Fifo => "FIFO",
            Carrier::UnixStream => "UNIX stream",
            Carrier::UnixDatagram => "UNIX datagram",
            Carrier::UnixSeqpacket => "UNIX seqpacket",
            Carrier::TcpLocal => "TCP on this host",
            Carrier::TcpRemote => "TCP",
            Carrier::UdpLocal => "UDP on this host",
            Carrier::UdpRemote => "UDP",
            Carrier::Sctp => "SCTP",
            Carrier::Vsock => "vsock",
            Carrier::Netlink => "netlink",
            Carrier::Tipc => "TIPC",
            Carrier::OtherSocket => "socket",
            Carrier::PosixQueue => "POSIX queue",
            Carrier::SysvQueue => "System V queue",
            Carrier::SharedMemory => "shared memory",
            Carrier::Eventfd => "eventfd",
            Carrier::Terminal => "pseudo-terminal",
            Carrier::Uring => "io_uring",
        }
    }
}

/// Who is at an end of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Party {
    /// A process on this machine.
    Process {
        /// Its number.
        pid: u32,
    },
    /// Another host, or anyone who sends to an address.
    Outside {
        /// Its address.
        address: String,
    },
    /// The kernel.
    Kernel,
    /// A process that cannot be identified, or nobody.
    Unknown {
        /// Why.
        why: String,
    },
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Channel {
    /// Identifies it as long as it exists, e.g. `pipe:123`.
    pub id: String,
    /// What carries its bytes.
    pub carrier: Carrier,
    /// Its path, address or name; empty if it has none.
    pub name: String,
    /// Who sends, if it has one direction; otherwise the client's end, where that is known.
    pub from: Vec<Party>,
    /// Who receives, if it has one direction; otherwise the server's end.
    pub to: Vec<Party>,
    /// Whether bytes flow in one direction only.
    pub one_way: bool,
    /// Bytes from `from` to `to` since it exists, if the kernel counts them.
    pub forward_bytes: Option<u64>,
    /// Bytes from `to` to `from` since it exists, if the kernel counts them.
    pub backward_bytes: Option<u64>,
    /// Bytes sent and not received yet, in both directions, if known. The kernel counts the memory that a UNIX socket's
    /// messages take, not their bytes.
    pub queued_bytes: Option<u64>,
    /// Size of shared memory in bytes.
    pub mapped_bytes: Option<u64>,
    /// What uses it, if it is recognised: `Crossway channel`, `tipcd`, `D-Bus` and so on.
    pub used_by: Option<&'static str>,
    /// The id of the UNIX stream pair that carries its bytes, if `crossway run` moved it; otherwise `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
}

impl Channel {
    /// The processes at both ends.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.from.iter().chain(&self.to).filter_map(|party| match party {
            Party::Process { pid } => Some(*pid),
            _ => None,
        })
    }
}

/// Who talks to whom.
#[derive(Clone, Debug, Serialize)]
pub struct Map {
    /// The processes that have a channel in the map, or were asked for.
    pub processes: Vec<Process>,
    /// The processes that were asked for.
    pub observed: Vec<u32>,
    /// The channels with an observed process at an end.
    pub channels: Vec<Channel>,
    /// The addresses at which observed processes wait for connections.
    pub listeners: Vec<Listener>,
    /// Number of channels of which one process holds all ends, such as pipes between its own threads.
    pub within_one_process: usize,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

impl Map {
    /// Derives the map of the processes for which `observed` is true.
    pub fn of(snapshot: &Snapshot, observed: impl Fn(&Process) -> bool) -> Map {
        let chosen: Vec<u32> =
            snapshot.processes.values().filter(|p| observed(p)).map(|p| p.pid).collect();
        let is_chosen = |pid: u32| chosen.binary_search(&pid).is_ok();
        let (mut channels, mut within) = (Vec::new(), 0);
        for channel in build::channels(snapshot) {
            if !channel.pids().any(is_chosen) {
                continue;
            }
            let first = channel.pids().next();
            let others = channel.from.iter().chain(&channel.to);
            let alone =
                others.clone().all(|p| matches!(p, Party::Process { pid } if Some(*pid) == first));
            if alone {
                within += 1;
            } else {
                channels.push(channel);
            }
        }
        let mut shown: BTreeMap<u32, &Process> = BTreeMap::new();
        for pid in channels.iter().flat_map(Channel::pids).chain(chosen.iter().copied()) {
            if let Some(process) = snapshot.processes.get(&pid) {
                shown.insert(pid, process);
            }
        }
        Map {
            processes: shown.into_values().cloned().collect(),
            listeners: listening::listeners(snapshot, is_chosen),
            observed: chosen,
            channels,
            within_one_process: within,
            gaps: snapshot.gaps.clone(),
        }
    }

    /// The name and number of a process, e.g. `redis-server (12)`.
    pub fn label(&self, pid: u32) -> String {
        match self.processes.binary_search_by_key(&pid, |p| p.pid) {
            Ok(at) => format!("{} ({pid})", self.processes[at].name),
            Err(_) => format!("process {pid}"),
        }
    }

    /// A party as text.
    pub fn party(&self, party: &Party) -> String {
        match party {
            Party::Process { pid } => self.label(*pid),
            Party::Outside { address } => address.clone(),
            Party::Kernel => "kernel".to_owned(),
            Party::Unknown { why } => format!("? ({why})"),
        }
    }
}
