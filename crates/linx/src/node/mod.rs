//! The node: a process or thread of its own that knows all endpoints of a host and relays signals to other nodes.
//!
//! Signals between endpoints of the node do not pass through it.

mod channels;
mod clients;
mod directory;
mod intake;
mod links;
mod relays;
mod trace;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_sys::epoll::{Epoll, Ready, Trigger};
use crossway_sys::eventfd::EventFd;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::{OsError, fdpass, proc};
pub use crossway_tipc_client::Backend as TipcBackend;

use crate::registry::{Output, Registry};
use crate::spid::Widths;
use crate::trace::record::EventKind;
use crate::wire::local::Event;
use crate::{Error, Spid, Transport};
use clients::Clients;
use directory::{Directory, Listener};
use links::Links;
pub use links::{LinkAddress, LinkSettings};
use relays::Relays;
use trace::Tracing;

/// The settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The transport for signals between endpoints that do not specify one.
    pub transport: Transport,
    /// Capacity of a channel in bytes for each direction. The capacity of a FIFO is rounded up to a power-of-two number
    /// of pages.
    pub channel_bytes: usize,
    /// The mode of the node's directory if the node creates it. The mode controls access to the node.
    pub mode: u32,
    /// The group of the node's directory if the node creates it; `None` for the system's default.
    pub group: Option<u32>,
    /// The name that nodes dialled by this one use for their links to it.
    pub name: String,
    /// The addresses at which other nodes may dial this one.
    pub listen: Vec<LinkAddress>,
    /// The links to nodes that this one dials.
    pub links: Vec<LinkSettings>,
    /// A TIPC service type, 64 or above. This node is published under that type and links to all other nodes that are
    /// published under it. The links are named after the nodes ([`Settings::name`]), so those names must be different.
    /// `None` if the node belongs to no cluster.
    pub cluster: Option<u32>,
    /// A link's connection is closed if it is silent for this long.
    pub link_timeout: Duration,
    /// How long a link without a connection stays up; `None` means as long as [`Settings::link_timeout`].
    pub reconnect_within: Option<Duration>,
    /// The TIPC implementation (the kernel's or a `tipcd`) that is used for TIPC addresses.
    pub tipc: TipcBackend,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            transport: Transport::Uds,
            channel_bytes: 256 << 10,
            mode: 0o700,
            group: None,
            name: "node".to_owned(),
            listen: Vec::new(),
            links: Vec::new(),
            cluster: None,
            link_timeout: Duration::from_secs(1),
            reconnect_within: None,
            tipc: TipcBackend::Automatic,
        }
    }
}

/// The meaning of an epoll token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Stop,
    Listener,
    Client(usize),
    Relay(usize),
    Wire(usize),
    LinkListener(usize),
    Topology,
}

impl Token {
    const fn number(self) -> u64 {
        match self {
            Token::Stop => 0,
            Token::Listener => 1,
            Token::Client(index) => 1 << 56 | index as u64,
            Token::Relay(index) => 2 << 56 | index as u64,
            Token::Wire(index) => 3 << 56 | index as u64,
            Token::LinkListener(index) => 4 << 56 | index as u64,
            Token::Topology => 5 << 56,
        }
    }

    const fn of(number: u64) -> Token {
        let index = (number & ((1 << 56) - 1)) as usize;
        match number >> 56 {
            0 if index == 0 => Token::Stop,
            0 => Token::Listener,
            1 => Token::Client(index),
            2 => Token::Relay(index),
            3 => Token::Wire(index),
            4 => Token::LinkListener(index),
            _ => Token::Topology,
        }
    }
}

/// A node, which serves in a directory or is private ([`Node::spawn_private`]).
pub struct Node {
    listener: Listener,
    settings: Settings,
    epoll: Epoll,
    registry: Registry,
    clients: Clients,
    relays: Relays,
    links: Links,
    /// Outputs of the registry that must wait until the node has finished another step.
    waiting: VecDeque<Output>,
    /// Endpoints that will be closed because their programs misbehave.
    expelled: Vec<Spid>,
    tracing: Tracing,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// A node that runs in a thread; dropping it stops the node.
#[derive(Debug)]
pub struct NodeThread {
    stop: EventFd,
    thread: Option<JoinHandle<Result<(), Error>>>,
    /// The socket through which a private node receives its connections.
    hand_in: Option<OwnedFd>,
    listens_at: Vec<LinkAddress>,
}

impl NodeThread {
    /// Returns the addresses at which other nodes may dial this one, with the ports that the system chose.
    pub fn listens_at(&self) -> &[LinkAddress] {
        &self.listens_at
    }

    /// Creates a new connection to a private node ([`Node::spawn_private`]). This process, or another one to which it
    /// is passed, opens an endpoint on it ([`Endpoint::open_on`](crate::Endpoint::open_on)).
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the node is not private, [`Error::NodeGone`] if it has ended, [`Error::Os`].
    pub fn connection(&self) -> Result<OwnedFd, Error> {
        let Some(hand_in) = &self.hand_in else {
            let why =
                "this node is not private; connect to it by the path of its directory".to_owned();
            return Err(Error::NotPermitted(why));
        };
        let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket)?;
        match fdpass::send(hand_in, &[0], &[theirs.as_fd()]) {
            Ok(_) => Ok(ours),
            Err(_) => Err(Error::NodeGone),
        }
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        let _ = self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Node {
    /// Starts to serve in a directory, which is created if it does not exist. Endpoints can be opened from now on;
    /// [`Node::run`] then serves them.
    ///
    /// # Errors
    /// [`Error::Limit`] if a node serves there already, [`Error::BadName`] if the name of the node or of a link is not
    /// allowed, [`Error::Os`].
    pub fn bind(dir: &Path, settings: Settings) -> Result<Node, Error> {
        let descriptors = proc::raise_descriptor_limit();
        let listener = Listener::Directory(Directory::take(dir, settings.mode, settings.group)?);
        Self::behind(listener, settings, descriptors)
    }

    fn behind(listener: Listener, settings: Settings, descriptors: u64) -> Result<Node, Error> {
        let epoll = Epoll::new(256)?;
        epoll.add(listener.fd(), Token::Listener.number(), Trigger::WhileReadable)?;
        let clients = Clients::new(descriptors)?;
        crate::check_name(&settings.name)?;
        let mut node = Node {
            listener,
            settings,
            epoll,
            registry: Registry::new(Widths::FULL),
            clients,
            relays: Relays::default(),
            links: Links::default(),
            waiting: VecDeque::new(),
            expelled: Vec::new(),
            tracing: Tracing::new()?,
        };
        node.open_links()?;
        Ok(node)
    }

    /// Does the same as [`Node::bind`] and [`Node::run`], in a thread of this process.
    ///
    /// # Errors
    /// Those of [`Node::bind`].
    pub fn spawn(dir: &Path, settings: Settings) -> Result<NodeThread, Error> {
        Node::bind(dir, settings)?.start(None)
    }

    /// Starts a private node in a thread of this process. It has no name in the file system: only the holder of a
    /// [`NodeThread::connection`] can use it, and nothing remains of it, however the process ends.
    ///
    /// # Errors
    /// [`Error::BadName`] if the name of the node or of a link is not allowed, [`Error::Os`].
    pub fn spawn_private(settings: Settings) -> Result<NodeThread, Error> {
        let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket)?;
        Node::behind(Listener::Private(theirs), settings, u64::MAX)?.start(Some(ours))
    }

    fn start(self, hand_in: Option<OwnedFd>) -> Result<NodeThread, Error> {
        let mut node = self;
        let listens_at = node.listens_at();
        let stop = EventFd::new()?;
        let told = EventFd::from_fd(stop.duplicate()?);
        let thread = std::thread::Builder::new()
            .name("linx-node".into())
            .spawn(move || node.run(&told))
            .map_err(|e| OsError::new("clone", "LINX node", e))?;
        Ok(NodeThread { stop, thread: Some(thread), hand_in, listens_at })
    }

    /// Serves until `stop` is signalled. Then continues until the linked nodes have acknowledged everything sent
    /// before, for at most [`LINGER`].
    ///
    /// # Errors
    /// [`Error::Os`] if a system call that the node cannot do without fails.
    pub fn run(&mut self, stop: &EventFd) -> Result<(), Error> {
        self.epoll.add(stop, Token::Stop.number(), Trigger::WhileReadable)?;
        let mut ready: Vec<Ready> = Vec::new();
        let mut stops_at = None;
        loop {
            let busy = self.clients.has_work() || self.relays.has_work() || self.links.has_work();
            let until = if busy || (stops_at.is_some() && self.all_is_acknowledged()) {
                Some(Instant::now())
            } else {
                [self.next_instant(), stops_at].into_iter().flatten().min()
            };
            ready.clear();
            let found = self
                .epoll
                .wait(until)
                .map_err(|errno| OsError::new("epoll_wait", "LINX node", errno))?;
            ready.extend(found);
            let (mut stopped_now, is_idle) = (false, ready.is_empty() && !busy);
            for event in &ready {
                match Token::of(event.token) {
                    Token::Stop => {
                        stop.clear()?;
                        stops_at = Some(Instant::now() + LINGER);
                        stopped_now = true;
                    }
                    Token::Listener => self.admit()?,
                    Token::Client(index) => self.clients.changed(index, event.writable),
                    Token::Relay(index) => self.relays.changed(index),
                    Token::Wire(index) => self.links.changed(index, event.writable),
                    Token::LinkListener(index) => self.admit_wires(index)?,
                    Token::Topology => self.links.cluster_changed(),
                }
            }
            self.serve_clients();
            self.serve_wires();
            self.serve_relays();
            self.follow_cluster();
            self.supervise();
            self.work_off();
            if let Some(at) = stops_at {
                // Endpoints that were closed before the stop are noticed in the iteration after it.
                if at <= Instant::now() || (is_idle && !stopped_now && self.all_is_acknowledged()) {
                    return Ok(());
                }
                self.ask_for_acks();
            }
        }
    }

    /// Returns the next instant at which something must be done even if there is no event; `None` if there is none.
    fn next_instant(&self) -> Option<Instant> {
        [self.clients.next_instant(), self.links.next_instant()].into_iter().flatten().min()
    }

    /// Carries out the outputs of the registry.
    fn work_off(&mut self) {
        loop {
            while let Some(output) =
                self.waiting.pop_front().or_else(|| self.registry.poll_output())
            {
                if let Output::Event(endpoint, event) = &output {
                    self.tracing.event(*endpoint, event);
                }
                match output {
                    Output::Event(endpoint, Event::Gone { id, spid })
                        if self.tell_behind(endpoint, id, spid) => {}
                    Output::Event(spid, event) => self.clients.tell(spid, &event, Vec::new()),
                    Output::Link(link, message) => self.say(link, message),
                }
            }
            let mut gone = self.clients.flush();
            if !self.clients.has_tracer() {
                self.tracing.stop();
            }
            for spid in std::mem::take(&mut self.expelled) {
                gone.extend(self.clients.expel(spid));
            }
            if gone.is_empty() {
                return;
            }
            for spid in gone {
                self.close(spid);
            }
        }
    }

    /// Closes an endpoint.
    fn close(&mut self, spid: Spid) {
        self.close_relays(spid);
        self.tracing.opened_or_closed(EventKind::Close, spid, "");
        self.registry.handle_close(spid);
    }
}

/// Maximum time for which a node that was asked to stop waits for the linked nodes to acknowledge what it sent.
pub const LINGER: Duration = Duration::from_secs(1);

/// How long the node waits for the reports of endpoints before it answers a request for them.
const REPORT_WITHIN: Duration = Duration::from_millis(100);
