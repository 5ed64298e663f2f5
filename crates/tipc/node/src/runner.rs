//! A node with its bearers.

mod event_loop;
mod frames;
mod pace;

use std::time::Duration;

use crossway_sys::epoll::{Epoll, Ready, Trigger};
use crossway_sys::link_watch::LinkChange;
use crossway_sys::records::Inbox;
use crossway_sys::{Errno, OsError, clock};
use crossway_tipc_proto::addr::BearerId;
use crossway_tipc_proto::crypto::{Keyring, OVERHEAD};
use crossway_tipc_proto::node::{BearerConfig, BearerError, Config, Event, Node};
use crossway_tipc_proto::time::Nanos;

use crate::bearer::{Bearer, BearerOpenError, SOCKET_BYTES};
use crate::cipher::Gcm;
use crate::notice::Notice;
use crate::outbox::{Attached, Outbox, Traffic};
use crate::service::Token;
use crate::spec::BearerSpec;
use crate::tap::Tap;
use crossway_tipc_proto::addr::NetworkId;

/// Length in bytes of the largest message received by one call: a UDP datagram, or a run of them.
const DATAGRAM_LEN_MAX: usize = 65_536;

/// Maximum number of ready descriptors fetched at a time.
const READY_PER_TURN: usize = 256;

/// Maximum time that a medium without room delays the end of the node.
const STOP_LIMIT: Duration = Duration::from_millis(100);

/// Why the node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// A bearer cannot be opened.
    #[error("cannot enable bearer {spec}: {source}")]
    Open {
        /// Specification of the bearer.
        spec: String,
        /// The underlying error.
        source: BearerOpenError,
    },
    /// The node refuses a bearer.
    #[error("cannot enable bearer {spec}: {source}")]
    Refused {
        /// Specification of the bearer.
        spec: String,
        /// The underlying error.
        source: BearerError,
    },
    /// A system call other than waiting failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
    /// Waiting for frames, programs and timers failed.
    #[error("waiting for frames failed: {0}")]
    Poll(#[from] Errno),
}

/// A node with its bearers and its keys.
#[derive(Debug)]
pub struct Runner {
    node: Node,
    keyring: Keyring<Gcm>,
    /// Whether bearers that are enabled from now on leave room for encryption.
    leaves_room: bool,
    network: NetworkId,
    /// Size requested for each bearer's socket buffers, in bytes.
    socket_bytes: usize,
    bearers: Vec<Attached>,
    outbox: Outbox,
    inbox: Inbox,
    /// Running traces.
    taps: Vec<Tap>,
    epoll: Epoll,
    /// Buffer for the ready descriptors of a turn.
    ready: Vec<Ready>,
}

pub(crate) use event_loop::Companion;
pub(crate) use pace::Pace;

pub(crate) fn now() -> Nanos {
    Nanos(clock::monotonic_ns())
}

impl Runner {
    /// Creates a node without bearers and keys.
    ///
    /// # Errors
    /// [`RunnerError::Os`] if epoll or getrandom fails.
    pub fn new(cfg: Config) -> Result<Self, RunnerError> {
        let network = cfg.network;
        Ok(Self {
            node: Node::new(cfg),
            keyring: Keyring::new(Gcm::new()?),
            leaves_room: false,
            network,
            socket_bytes: SOCKET_BYTES,
            bearers: Vec::new(),
            outbox: Outbox::default(),
            inbox: Inbox::of_runs(DATAGRAM_LEN_MAX).with_sources(),
            taps: Vec::new(),
            epoll: Epoll::new(READY_PER_TURN)?,
            ready: Vec::with_capacity(READY_PER_TURN),
        })
    }

    /// The epoll instance of the event loop.
    pub(crate) const fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    /// The node, for queries and commands. Frames caused by a command are sent by the next [`Runner::turn`].
    pub const fn node(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Sets the size in bytes requested for the socket buffers of bearers enabled from now on. The system may grant
    /// less.
    pub const fn set_socket_bytes(&mut self, bytes: usize) {
        self.socket_bytes = bytes;
    }

    /// Number of frames that the media of the enabled bearers did not accept. Those of disabled bearers no longer
    /// count.
    pub fn unsent(&self) -> u64 {
        self.bearers.iter().map(|b| b.traffic.frames_unsent).sum()
    }

    /// Traffic statistics of a bearer; `None` if it is not enabled.
    pub fn traffic(&self, id: BearerId) -> Option<Traffic> {
        self.bearers.iter().find(|b| b.id == id).map(|b| b.traffic)
    }

    /// The time at which there is something to do even if no frame and no command arrives; a time in the past means
    /// immediately, `None` that there is nothing to do.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let deadlines =
            [self.node.poll_timeout(), self.outbox.poll_timeout(), self.keyring.poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    /// The keys with which frames are encrypted and decrypted.
    pub const fn keyring(&mut self) -> &mut Keyring<Gcm> {
        &mut self.keyring
    }

    /// Makes bearers that are enabled from now on leave room for encryption in their packets.
    pub const fn leave_room(&mut self) {
        self.leaves_room = true;
    }

    /// The device of a bearer that has no room for encryption; `None` if all have.
    pub(crate) fn without_room(&self) -> Option<&str> {
        let full = |b: &&Attached| !b.leaves_room && matches!(b.bearer, Bearer::Ethernet(_));
        self.bearers.iter().find(full).and_then(|b| b.device.as_deref())
    }

    /// Opens a bearer and attaches the node to it. `name` is shown to peers and has at most 15 bytes.
    ///
    /// # Errors
    /// [`RunnerError`] names the bearer and the reason.
    pub fn enable(&mut self, spec: &BearerSpec, name: &str) -> Result<BearerId, RunnerError> {
        let bearer = Bearer::open(spec, self.network, self.socket_bytes)
            .map_err(|source| RunnerError::Open { spec: spec.to_string(), source })?;
        self.attach(spec, name, bearer).map_err(|refused| refused.0)
    }

    /// The network ID for bearers opened from now on, and the size in bytes requested for their socket buffers.
    pub(crate) const fn opening(&self) -> (NetworkId, usize) {
        (self.network, self.socket_bytes)
    }

    /// Attaches the node to an open bearer.
    ///
    /// # Errors
    /// [`RunnerError::Refused`] or [`RunnerError::Os`], together with the bearer, because closing it may take long.
    pub(crate) fn attach(
        &mut self,
        spec: &BearerSpec,
        name: &str,
        mut bearer: Bearer,
    ) -> Result<BearerId, Box<(RunnerError, Bearer)>> {
        let room = if self.leaves_room { OVERHEAD } else { 0 };
        let mut cfg = BearerConfig::new(name, bearer.addr(), bearer.mtu().saturating_sub(room));
        cfg.broadcasts = bearer.broadcasts();
        cfg.stations = bearer.stations();
        cfg.whole_max = bearer.whole_max().saturating_sub(room);
        let id = match self.node.enable_bearer(now(), cfg) {
            Ok(id) => id,
            Err(source) => {
                let refused = RunnerError::Refused { spec: spec.to_string(), source };
                return Err(Box::new((refused, bearer)));
            }
        };
        self.bearers.push(Attached {
            id,
            ring: bearer.take_ring(),
            bearer,
            device: spec.device().map(str::to_owned),
            traffic: Traffic::default(),
            pace: Pace::default(),
            held: false,
            leaves_room: self.leaves_room,
        });
        let watched = self.bearers.last().map_or(Ok(()), |attached| self.wait_for_bearer(attached));
        match watched {
            Ok(()) => Ok(id),
            Err(error) => match self.detach(id) {
                Ok(attached) => Err(Box::new((error.into(), attached.bearer))),
                Err(_) => Ok(id),
            },
        }
    }

    /// Registers a bearer's descriptors with epoll, including the one for notifications about its device.
    fn wait_for_bearer(&self, attached: &Attached) -> Result<(), OsError> {
        if let Some(watch) = attached.bearer.watch() {
            self.epoll.add(watch, Token::Device.encode(), Trigger::WhileReadable)?;
        }
        let token = Token::Bearer(attached.id.0.into()).encode();
        attached.bearer.fds().try_for_each(|fd| self.epoll.add(fd, token, Trigger::WhileReadable))
    }

    /// The bearers, in the order in which they were enabled.
    pub(crate) fn bearers(&self) -> impl Iterator<Item = &Attached> {
        self.bearers.iter()
    }

    /// Returns a bearer by its number; `None` if it is not enabled.
    pub(crate) fn bearer(&mut self, id: BearerId) -> Option<&mut Bearer> {
        self.bearers.iter_mut().find(|b| b.id == id).map(|b| &mut b.bearer)
    }

    /// Detaches the node from a bearer; peers are notified. Closing the returned bearer may take long.
    ///
    /// # Errors
    /// [`BearerError::NoSuchBearer`].
    pub(crate) fn detach(&mut self, id: BearerId) -> Result<Attached, BearerError> {
        let index = self.bearers.iter().position(|b| b.id == id);
        let index = index.ok_or(BearerError::NoSuchBearer)?;
        self.node.disable_bearer(now(), id)?;
        self.flush();
        self.outbox.forget(index);
        let attached = self.bearers.remove(index);
        // Errors for descriptors that were not registered are ignored.
        for fd in attached.bearer.watch().into_iter().chain(attached.bearer.fds()) {
            let _ = self.epoll.remove(fd);
        }
        Ok(attached)
    }

    /// Handles devices that have lost or regained their carrier.
    fn look_at_devices(&mut self) {
        for Attached { id, bearer, .. } in &mut self.bearers {
            while let Some(change) = bearer.device_change() {
                match change {
                    LinkChange::Lost => self.node.medium_lost(now(), *id),
                    LinkChange::Back => self.node.medium_back(now(), *id),
                }
            }
        }
    }

    /// Starts a trace of all frames on all bearers.
    pub(crate) fn tap(&mut self, tap: Tap) {
        self.taps.push(tap);
    }

    /// Sends pending frames, as many as one turn allows. Afterwards, [`Runner::poll_timeout`] shows whether there are
    /// more.
    fn flush(&mut self) {
        while let Some(key) = self.keyring.poll_distribution() {
            self.node.send_key(&key);
        }
        self.outbox.flush(
            now(),
            &mut self.node,
            &mut self.keyring,
            &mut self.bearers,
            &mut self.taps,
        );
    }

    /// Ends all contacts in an orderly way and closes the bearers.
    pub fn stop(&mut self) {
        self.node.stop(now());
        let limit = now() + STOP_LIMIT;
        self.flush();
        while let Some(again) = self.outbox.poll_timeout()
            && again < limit
        {
            std::thread::sleep(again.since(now()));
            self.flush();
        }
        self.bearers.clear();
    }

    /// Returns the next condition of a medium that an operator may want to know about.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.bearers.iter_mut().find_map(|b| {
            if let Some(errno) = b.bearer.take_unwatched() {
                return Some(Notice::DeviceNotWatched { bearer: b.id, errno });
            }
            let errno = b.bearer.take_refusal()?;
            Some(Notice::RunsRefused { bearer: b.id, errno })
        })
    }

    /// Returns the next event of the node.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.node.poll_event()
    }
}
