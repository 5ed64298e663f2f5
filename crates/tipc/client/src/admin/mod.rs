//! Administration of a `tipcd`: what an operator may see and change.
//!
//! An [`Order`] goes over the control connection as one request, as JSON; the [`Outcome`] comes back as JSON in an anonymous file, because
//! a name table may be larger than any message. Only root and the user who runs the tipcd are obeyed.

mod frames;
mod views;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crossway_sys::Errno;
use serde::{Deserialize, Serialize};

pub use frames::{Frames, Station, TracedFrame, encode_frame};
pub use views::{
    BearerView, BroadcastView, CounterView, GroupView, LaneView, LinkView, MonitorView,
    MonitoredBearerView, MonitoredView, NamePage, NamePlace, NameView, NodeView, PeerView,
    SocketView, TrafficView,
};

use crate::daemon::Daemon;
use crate::error::Error;
use crate::protocol::control::Request;

/// What to set on a link or a bearer; absent leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Silence after which a link fails.
    pub tolerance_ms: Option<u32>,
    /// Priority, 1 to 31.
    pub priority: Option<u8>,
    /// Largest send window.
    pub window_packets: Option<u16>,
}

/// How multicasts travel to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MulticastWay {
    /// As the number of nodes suggests, message by message.
    Autoselect,
    /// Once, by the broadcast link, where all media carry broadcasts.
    Broadcast,
    /// One copy to each node.
    Replicast,
}

/// What an operator asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The node: [`Outcome::Node`].
    Node,
    /// The bearers: [`Outcome::Bearers`].
    Bearers,
    /// The links: [`Outcome::Links`].
    Links,
    /// The broadcast link: [`Outcome::Broadcast`].
    Broadcast,
    /// A page of the name table, the first or that behind a place: [`Outcome::Names`].
    Names {
        /// Behind this range.
        behind: Option<NamePlace>,
    },
    /// The programs' sockets: [`Outcome::Sockets`].
    Sockets,
    /// The other nodes: [`Outcome::Peers`].
    Peers,
    /// Attaches the node to a medium: [`Outcome::Done`].
    EnableBearer {
        /// As tipcd's command line has it: `udp:10.0.0.1`.
        bearer: String,
        /// Name of the interface; the device's, or `udp0` and so on.
        name: Option<String>,
        /// What its links begin with.
        settings: Settings,
    },
    /// Detaches it.
    DisableBearer {
        /// The bearer's name, with or without its medium.
        name: String,
    },
    /// Has a UDP bearer send to one remote more.
    AddRemote {
        /// The bearer's name.
        name: String,
        /// The remote.
        remote: SocketAddr,
    },
    /// Takes one remote off a UDP bearer: the link to it ends and its discovery is not heard until it is added again. Others notice nothing.
    RemoveRemote {
        /// The bearer's name.
        name: String,
        /// The remote.
        remote: SocketAddr,
    },
    /// Sets what future links of a bearer begin with.
    SetBearer {
        /// The bearer's name.
        name: String,
        /// What to set.
        settings: Settings,
    },
    /// Begins the counters of a link, of the broadcast link by its name, or of all links anew.
    ResetStatistics {
        /// The link's name.
        name: Option<String>,
    },
    /// Says how multicasts travel whose sockets leave it to the node; absent leaves it.
    SetMulticasts {
        /// The way.
        method: Option<MulticastWay>,
        /// Where it is left to the node: the share of the peers up to which each gets a copy of its own.
        replicast_percent: Option<u8>,
    },
    /// Forgets a node that is down.
    RemovePeer {
        /// Its identity, or its address in hexadecimal.
        name: String,
    },
    /// Sets a link, and with it the peer's end.
    SetLink {
        /// The link's name.
        name: String,
        /// What to set.
        settings: Settings,
    },
    /// Who watches whom, on each bearer: [`Outcome::Monitor`].
    Monitor,
    /// Sets the number of nodes on a medium up to which each watches all others.
    SetMonitorThreshold {
        /// That number, 0 to 4095.
        nodes: usize,
    },
    /// All frames of all bearers from now on: [`Outcome::Done`], and a descriptor to read them from.
    Trace,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is not, for this reason.
    Refused(String),
    /// The node.
    Node(Box<NodeView>),
    /// The bearers.
    Bearers(Vec<BearerView>),
    /// The links.
    Links(Vec<LinkView>),
    /// The broadcast link.
    Broadcast(Box<BroadcastView>),
    /// Bindings.
    Names(NamePage),
    /// The sockets.
    Sockets(Vec<SocketView>),
    /// The other nodes.
    Peers(Vec<PeerView>),
    /// Who watches whom.
    Monitor(Box<MonitorView>),
}

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The tipcd cannot be reached.
    #[error(transparent)]
    Client(#[from] Error),
    /// This user may not.
    #[error(
        "the tipcd at {path} obeys only root and the user who started it: use that user, or sudo"
    )]
    NotPermitted {
        /// Its socket.
        path: String,
    },
    /// The tipcd refuses the order.
    #[error("{0}")]
    Refused(String),
    /// The tipcd answers something else, or nothing.
    #[error(
        "the tipcd at {path} does not carry out orders ({why}): use it and this program from one release"
    )]
    Nonsense {
        /// Its socket.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// A tipcd that is given orders.
#[derive(Debug)]
pub struct Administration {
    daemon: Arc<Daemon>,
}

impl Administration {
    /// Of the tipcd at `path`.
    ///
    /// # Errors
    /// [`AdminError::Client`].
    pub fn at(path: &Path) -> Result<Self, AdminError> {
        Ok(Self { daemon: Daemon::at(path)? })
    }

    /// Where it serves.
    pub fn path(&self) -> &Path {
        self.daemon.path()
    }

    /// Gives an order and waits for what comes of it.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn order(&self, order: &Order) -> Result<Outcome, AdminError> {
        self.carry_out(order).map(|(outcome, _)| outcome)
    }

    /// All frames of all bearers from now on.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn trace(&self) -> Result<Frames, AdminError> {
        match self.carry_out(&Order::Trace)? {
            (_, Some(fd)) => Ok(Frames::new(fd)),
            _ => Err(self.nonsense("no descriptor to read frames from")),
        }
    }

    /// The whole name table.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn names(&self) -> Result<Vec<NameView>, AdminError> {
        let mut bindings = Vec::new();
        let mut behind = None;
        loop {
            let Outcome::Names(page) = self.order(&Order::Names { behind })? else {
                return Err(self.nonsense("no name table"));
            };
            bindings.extend(page.bindings);
            behind = page.next;
            if behind.is_none() {
                return Ok(bindings);
            }
        }
    }

    /// That the answer is not one to this order.
    pub fn nonsense(&self, why: impl ToString) -> AdminError {
        AdminError::Nonsense { path: self.path().display().to_string(), why: why.to_string() }
    }

    fn carry_out(&self, order: &Order) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        let json = serde_json::to_vec(order).map_err(|e| self.nonsense(e))?;
        let answer =
            self.daemon.ask(&Request::Administer { order: &json }).map_err(
                |errno| match errno {
                    Errno::PERM => {
                        AdminError::NotPermitted { path: self.path().display().to_string() }
                    }
                    errno => self.nonsense(errno),
                },
            )?;
        let mut fds = answer.fds.into_iter();
        let Some(file) = fds.next() else { return Err(self.nonsense("no outcome")) };
        let mut text = Vec::new();
        File::from(file).read_to_end(&mut text).map_err(|e| self.nonsense(e))?;
        match serde_json::from_slice(&text).map_err(|e| self.nonsense(e))? {
            Outcome::Refused(why) => Err(AdminError::Refused(why)),
            outcome => Ok((outcome, fds.next())),
        }
    }
}
