//! What operators order a `tipcd` to do, and what it answers: the state that they can query and the settings that can be
//! changed.
//!
//! A crate of its own, because the two are converted to and from JSON here, which is a lot of code and not part of any
//! message: in the published program it is optimised for size (docs/decisions/0179-openings-once.md). For the same reason,
//! what converts them is never inlined.

mod keys;
mod views;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use keys::{KEY_USAGE, KeyFor, KeyText, RekeyingWhen, key_order, read_key_file};
pub use views::{
    BearerView, BroadcastView, CounterView, EncryptionView, GroupView, KeyView, LaneView, LinkView,
    MonitorView, MonitoredBearerView, MonitoredView, NamePage, NamePlace, NameView, NodeView,
    PeerKeysView, PeerView, SocketView, TrafficView,
};

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

impl Order {
    /// The order as JSON.
    ///
    /// # Errors
    /// A text of it is not UTF-8.
    #[inline(never)]
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The order that [`Order::to_json`] has converted.
    ///
    /// # Errors
    /// It is none.
    #[inline(never)]
    pub fn from_json(text: &[u8]) -> Result<Order, serde_json::Error> {
        serde_json::from_slice(text)
    }
}

impl Outcome {
    /// The outcome as JSON.
    ///
    /// # Errors
    /// A text of it is not UTF-8.
    #[inline(never)]
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The outcome that [`Outcome::to_json`] has converted.
    ///
    /// # Errors
    /// It is none.
    #[inline(never)]
    pub fn from_json(text: &[u8]) -> Result<Outcome, serde_json::Error> {
        serde_json::from_slice(text)
    }
}
