//! Administration of a `tipcd`: the state that an operator can query and the settings that can be changed.
//!
//! An [`Order`] is sent over the control connection as a JSON request. The [`Outcome`] is returned as JSON in an
//! anonymous file, because a name table may be larger than any message. Only root and the user who runs the tipcd may
//! give orders.

mod frames;
mod keys;
mod views;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossway_sys::Errno;
use serde::{Deserialize, Serialize};

pub use frames::{Frames, Station, TracedFrame, encode_frame};
pub use keys::{KEY_USAGE, KeyFor, KeyText, RekeyingWhen, key_order, read_key_file};
pub use views::{
    BearerView, BroadcastView, CounterView, EncryptionView, GroupView, KeyView, LaneView, LinkView,
    MonitorView, MonitoredBearerView, MonitoredView, NamePage, NamePlace, NameView, NodeView,
    PeerKeysView, PeerView, SocketView, TrafficView,
};

use crate::daemon::{ANSWER_LIMIT, Daemon, ENDED, outcome};
use crate::error::Error;
use crate::protocol::control::Request;

/// Settings of a link or a bearer; `None` leaves a setting unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Silence after which a link fails, in milliseconds.
    pub tolerance_ms: Option<u32>,
    /// Link priority, 1 to 31.
    pub priority: Option<u8>,
    /// Maximum send window, in packets.
    pub window_packets: Option<u16>,
}

/// How a multicast message is sent to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MulticastWay {
    /// Chosen for each message by the number of destination nodes.
    Autoselect,
    /// Sent once, over the broadcast link, if all media support broadcasts.
    Broadcast,
    /// Sent as one copy to each destination node.
    Replicast,
}

/// A query or command from an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Queries the state of the node: [`Outcome::Node`].
    Node,
    /// Queries the bearers: [`Outcome::Bearers`].
    Bearers,
    /// Queries the links: [`Outcome::Links`].
    Links,
    /// Queries the broadcast link: [`Outcome::Broadcast`].
    Broadcast,
    /// Queries one page of the name table, which may be the first or begin after a given range: [`Outcome::Names`].
    Names {
        /// Range after which the page begins; `None` for the first page.
        behind: Option<NamePlace>,
    },
    /// Queries the programs' sockets: [`Outcome::Sockets`].
    Sockets,
    /// Queries the other nodes: [`Outcome::Peers`].
    Peers,
    /// Enables a bearer, which attaches the node to a medium: [`Outcome::Done`].
    EnableBearer {
        /// The bearer as on tipcd's command line, such as `udp:10.0.0.1`.
        bearer: String,
        /// Name of the interface. By default, the name of the device, or `udp0`, `udp1` and so on.
        name: Option<String>,
        /// Initial settings of the bearer's links.
        settings: Settings,
    },
    /// Disables a bearer: its links go down, and their traffic moves to other bearers if there are any.
    DisableBearer {
        /// Name of the bearer, with or without its medium.
        name: String,
    },
    /// Adds a remote address to a UDP bearer.
    AddRemote {
        /// Name of the bearer.
        name: String,
        /// Address of the remote.
        remote: SocketAddr,
    },
    /// Removes a remote address from a UDP bearer. The link to it ends, and discovery messages from it are ignored
    /// until it is added again. Other links are not affected.
    RemoveRemote {
        /// Name of the bearer.
        name: String,
        /// Address of the remote.
        remote: SocketAddr,
    },
    /// Sets the defaults for future links of a bearer.
    SetBearer {
        /// Name of the bearer.
        name: String,
        /// The settings to change; the others stay as they are.
        settings: Settings,
    },
    /// Resets the statistics of one link, of the broadcast link, or of all links.
    ResetStatistics {
        /// Name of the link; `None` for all.
        name: Option<String>,
    },
    /// Sets how multicasts are sent for sockets that do not choose a method; `None` leaves a value unchanged.
    SetMulticasts {
        /// The method for sockets that do not choose one.
        method: Option<MulticastWay>,
        /// For [`MulticastWay::Autoselect`]: replicast is used for messages to at most this percentage of the peers.
        replicast_percent: Option<u8>,
    },
    /// Forgets a node that is down.
    RemovePeer {
        /// Identity of the node, or its address in hexadecimal.
        name: String,
    },
    /// Changes settings of a link. The peer adopts a new tolerance or priority; the window applies to this end only.
    SetLink {
        /// Name of the link.
        name: String,
        /// The settings to change; the others stay as they are.
        settings: Settings,
    },
    /// Queries how nodes monitor each other on each bearer: [`Outcome::Monitor`].
    Monitor,
    /// Sets the threshold of monitoring: if a medium has at most this number of nodes, each node monitors all others.
    SetMonitorThreshold {
        /// Threshold, 0 to 4095 nodes.
        nodes: usize,
    },
    /// Queries the state of encryption: [`Outcome::Keys`].
    Keys,
    /// Sets a key: frames are encrypted from now on.
    SetKey {
        /// The key.
        key: KeyText,
        /// Whose key it is.
        owner: KeyFor,
    },
    /// Sets when the node replaces its key by a random one, which it sends to the other nodes.
    SetRekeying {
        /// When.
        when: RekeyingWhen,
    },
    /// Removes all keys: frames are no longer encrypted.
    FlushKeys,
    /// Sets whether plain frames are sent to, and accepted from, nodes that have not encrypted anything yet.
    SetPlain {
        /// Whether they are.
        allowed: bool,
    },
    /// Starts a trace of all frames on all bearers: [`Outcome::Done`], and a descriptor from which to read the frames.
    Trace,
}

impl Order {
    /// Maximum time to wait for the answer. The system may take seconds to attach a bearer to a device or to detach it: on
    /// a machine whose kernel threads got no CPU time, more than 10 s.
    const fn answer_limit(&self) -> Duration {
        match self {
            Self::EnableBearer { .. } | Self::DisableBearer { .. } => Duration::from_secs(60),
            _ => ANSWER_LIMIT,
        }
    }
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The order was carried out.
    Done,
    /// The order was refused, for this reason.
    Refused(String),
    /// State of the node.
    Node(Box<NodeView>),
    /// State of the bearers.
    Bearers(Vec<BearerView>),
    /// State of the links.
    Links(Vec<LinkView>),
    /// State of the broadcast link.
    Broadcast(Box<BroadcastView>),
    /// A page of bindings.
    Names(NamePage),
    /// State of the sockets.
    Sockets(Vec<SocketView>),
    /// State of the other nodes.
    Peers(Vec<PeerView>),
    /// State of the monitoring.
    Monitor(Box<MonitorView>),
    /// State of encryption.
    Keys(Box<EncryptionView>),
}

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Connecting to the tipcd failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// The user is not authorised.
    #[error(
        "the tipcd at {path} accepts commands only from root and the user who started it: run this as that user, or with sudo"
    )]
    NotPermitted {
        /// Path of the tipcd's socket.
        path: String,
    },
    /// The tipcd has refused the order, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The tipcd has not answered in time.
    #[error(
        "the tipcd at {path} has not answered for {} s: it is stopped, or still waits for the system to carry out the \
         command; look at its state before you repeat the command", .limit.as_secs()
    )]
    Late {
        /// Path of the tipcd's socket.
        path: String,
        /// How long it had time to answer.
        limit: Duration,
    },
    /// The tipcd's answer is invalid or incomplete.
    #[error(
        "the tipcd at {path} did not answer this command correctly ({why}): check that it still runs, and that it is \
         of the same release as this program"
    )]
    Nonsense {
        /// Path of the tipcd's socket.
        path: String,
        /// What is wrong with the answer.
        why: String,
    },
}

/// A connection for administering a tipcd.
#[derive(Debug)]
pub struct Administration {
    daemon: Arc<Daemon>,
}

impl Administration {
    /// Connects to the tipcd at `path`.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    pub fn at(path: &Path) -> Result<Self, AdminError> {
        Ok(Self { daemon: Daemon::at(path)? })
    }

    /// Path of the tipcd's socket.
    pub fn path(&self) -> &Path {
        self.daemon.path()
    }

    /// Sends an order and waits for its outcome.
    ///
    /// # Errors
    /// [`AdminError`] if the order fails.
    pub fn order(&self, order: &Order) -> Result<Outcome, AdminError> {
        self.carry_out(order).map(|(outcome, _)| outcome)
    }

    /// Starts a trace of all frames on all bearers.
    ///
    /// # Errors
    /// [`AdminError`] if the order fails.
    pub fn trace(&self) -> Result<Frames, AdminError> {
        match self.carry_out(&Order::Trace)? {
            (_, Some(fd)) => Ok(Frames::new(fd)),
            _ => Err(self.nonsense("its answer has no descriptor from which to read frames")),
        }
    }

    /// Queries the whole name table.
    ///
    /// # Errors
    /// [`AdminError`] if the order fails.
    pub fn names(&self) -> Result<Vec<NameView>, AdminError> {
        let mut bindings = Vec::new();
        let mut behind = None;
        loop {
            let Outcome::Names(page) = self.order(&Order::Names { behind })? else {
                return Err(self.nonsense("its answer has no name table"));
            };
            bindings.extend(page.bindings);
            behind = page.next;
            if behind.is_none() {
                return Ok(bindings);
            }
        }
    }

    /// Returns the error for an answer that does not match the order.
    pub fn nonsense(&self, why: impl ToString) -> AdminError {
        AdminError::Nonsense { path: self.path().display().to_string(), why: why.to_string() }
    }

    fn carry_out(&self, order: &Order) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        let json = serde_json::to_vec(order).map_err(|e| self.nonsense(e))?;
        let path = || self.path().display().to_string();
        let limit = order.answer_limit();
        let answer = match self.daemon.exchange(&Request::Administer { order: &json }, limit) {
            Ok(answer) => outcome(answer),
            Err(ENDED) => {
                let path = self.path().to_owned();
                return Err(Error::DaemonGone { path, what: ENDED }.into());
            }
            Err(_) => return Err(AdminError::Late { path: path(), limit }),
        };
        let answer = answer.map_err(|errno| match errno {
            Errno::PERM => AdminError::NotPermitted { path: path() },
            errno => self.nonsense(errno),
        })?;
        let mut fds = answer.fds.into_iter();
        let Some(file) = fds.next() else { return Err(self.nonsense("its answer has no result")) };
        let mut text = Vec::new();
        File::from(file).read_to_end(&mut text).map_err(|e| self.nonsense(e))?;
        match serde_json::from_slice(&text).map_err(|e| self.nonsense(e))? {
            Outcome::Refused(why) => Err(AdminError::Refused(why)),
            outcome => Ok((outcome, fds.next())),
        }
    }
}
