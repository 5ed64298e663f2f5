//! Sockets for other processes: the other end of `crossway_tipc_client`'s local protocol.
//!
//! A part of one event loop: the caller tells which descriptors are ready, the service works until it would have to wait. What a
//! program does wrong costs that program its socket or its connection, and nobody else anything.

mod client;
mod door;
mod downlane;
mod entrance;
mod held;
mod inbound;
mod inquiry;
mod lanes;
mod limits;
mod linger;
mod local;
mod offers;
mod orders;
mod outbound;
mod request;
mod shares;
mod token;
mod uplane;

pub use door::ServiceError;
pub(crate) use lanes::LaneCounts;
pub use limits::ServiceLimits;
pub(crate) use token::{Place, Token};

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crossway_sys::epoll::{Epoll, Ready, Report};
use crossway_sys::records::Inbox;
use crossway_sys::socket::{self, Credentials, Kind as UnixKind};
use crossway_sys::words::SharedWords;
use crossway_sys::{OsError, proc, random};
use crossway_tipc_client::protocol::control::Kind;
use crossway_tipc_client::protocol::record::SEND_HEADER_LEN;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::slot::{self, Phase as SharedPhase, State};
use crossway_tipc_client::protocol::{MESSAGE_LEN_MAX, epoch};
use crossway_tipc_proto::addr::{Port, SocketAddr};
use crossway_tipc_proto::node::{Event, Node};
use crossway_tipc_proto::socket::SocketError;
use crossway_tipc_proto::time::Nanos;

use client::Client;
use door::Door;
use entrance::TurnedAway;
use limits::STREAM_READ_OCTETS;
use local::{Local, Phase};
use shares::Shares;
use token::Table;

/// What the node's programs have, and how it reaches them.
#[derive(Debug)]
pub struct Service {
    door: Door,
    limits: ServiceLimits,
    clients: Table<Client>,
    sockets: Table<Local>,
    by_token: HashMap<u64, Place>,
    by_port: HashMap<Port, Place>,
    epochs: SharedWords,
    epochs_fd: OwnedFd,
    inbox: Inbox,
    scratch: Vec<u8>,
    /// What was copied out of a lane.
    gathered: Vec<u8>,
    /// Sockets whose descriptors may hold more to read.
    ready: VecDeque<Place>,
    /// Programs that ask something, served after what their sockets hold.
    asking: VecDeque<Place>,
    /// What each process and user has.
    shares: Shares,
    /// Programs in places that are kept for operators, who asked longest ago first.
    in_kept_places: VecDeque<Place>,
    turned_away: TurnedAway,
    /// Listening sockets whose program has too much on its way to be offered more.
    starved: BTreeSet<Place>,
    /// Something that was on its way was received.
    landed: bool,
    /// Sockets that have lanes.
    lanes: usize,
    /// Those whose lanes are looked at each turn.
    hot: Vec<Place>,
    lingers: BTreeSet<(Nanos, u32, u32)>,
    /// Messages of programs that reached nobody and were not to be returned.
    undelivered: u64,
    /// Orders of operators, with who is to be told what came of them.
    orders: VecDeque<(Place, Vec<u8>)>,
    /// Events of the node that were looked at and are still to be told to the caller.
    pub(crate) told: VecDeque<Event>,
}

impl Service {
    /// Opens the door at a path. `mode` are the permissions of its file.
    ///
    /// # Errors
    /// [`ServiceError`] names the path and says why not.
    pub fn open(
        path: &std::path::Path,
        mode: u32,
        limits: ServiceLimits,
    ) -> Result<Self, ServiceError> {
        let door = Door::open(path, mode)?;
        let (epochs, epochs_fd) = SharedWords::create_for_readers("tipcd-epochs", epoch::COUNT)?;
        Ok(Self {
            door,
            limits,
            clients: Table::default(),
            sockets: Table::default(),
            by_token: HashMap::new(),
            by_port: HashMap::new(),
            epochs,
            epochs_fd,
            inbox: Inbox::new(SEND_HEADER_LEN + MESSAGE_LEN_MAX),
            scratch: vec![0; STREAM_READ_OCTETS],
            gathered: Vec::with_capacity(STREAM_READ_OCTETS),
            ready: VecDeque::new(),
            asking: VecDeque::new(),
            shares: Shares::new(&limits, proc::descriptor_limit()),
            in_kept_places: VecDeque::new(),
            turned_away: TurnedAway::default(),
            starved: BTreeSet::new(),
            landed: false,
            lanes: 0,
            hot: Vec::new(),
            lingers: BTreeSet::new(),
            undelivered: 0,
            orders: VecDeque::new(),
            told: VecDeque::new(),
        })
    }

    /// Has the door watched.
    ///
    /// # Errors
    /// [`OsError`] of epoll_ctl.
    pub(crate) fn watch(&self, epoll: &Epoll) -> Result<(), OsError> {
        epoll.add(&self.door.fd, Token::Door.encode(), Report::WhileReadable)
    }

    /// Which process opened a socket.
    pub fn owner(&self, port: Port) -> Option<Credentials> {
        let local = self.sockets.get(*self.by_port.get(&port)?)?;
        self.clients.get(local.client)?.credentials
    }

    /// Programs that are connected.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Programs that were turned away, and requests that were refused because too much was on its way, since the start.
    pub const fn turned_away(&self) -> u64 {
        self.turned_away.count
    }

    /// Sockets that they have.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Sockets that have lanes.
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// What went by the lanes of a socket, if it has any.
    pub(crate) fn lane_counts(&self, port: Port) -> Option<LaneCounts> {
        let lanes = self.sockets.get(*self.by_port.get(&port)?)?.lanes.as_ref()?;
        Some(LaneCounts { sent: lanes.taken, woken: lanes.bells })
    }

    /// Where programs come in.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.door.path()
    }

    /// Messages of programs that reached nobody and were not to be returned, since the start.
    pub const fn undelivered(&self) -> u64 {
        self.undelivered
    }

    /// Whether there is something to do at once.
    pub(crate) fn is_busy(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When [`Service::handle_timeout`] wants to run.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.lingers.first().map(|(at, ..)| *at)
    }

    /// Handles a descriptor that is ready.
    pub(crate) fn handle_ready(
        &mut self,
        now: Nanos,
        node: &mut Node,
        epoll: &Epoll,
        token: Token,
        ready: &Ready,
    ) {
        match token {
            Token::Door => self.let_in(epoll),
            // A control connection that was ready before stands ahead of a socket that was written to first.
            Token::Client(place) => self.asking.push_back(place),
            Token::Socket(place) => {
                let Some(local) = self.sockets.get_mut(place) else { return };
                if ready.ended && local.holds {
                    // What it holds is nothing but filling.
                    return self.remove(now, node, epoll, place);
                }
                local.ended |= ready.ended;
                if ready.readable {
                    local.readable = true;
                    // Its end stands behind what is held back: that may take for ever, unless there is a limit to it.
                    if ready.ended && !local.stalled.is_empty() {
                        self.start_linger(now, node, epoll, place);
                    }
                    self.list(place);
                }
                if ready.writable
                    && let Some(local) = self.sockets.get_mut(place)
                {
                    local.writable = true;
                    self.deliver(now, node, epoll, place);
                }
            }
            Token::Lane(place) => {
                let lanes = self.sockets.get_mut(place).and_then(|local| local.lanes.as_mut());
                if let Some(lanes) = lanes.filter(|_| ready.readable) {
                    lanes.bells += 1;
                }
                self.warm(place);
                if let Some(local) = self.sockets.get_mut(place).filter(|l| l.has_down_lane()) {
                    // There may be room in the other lane.
                    local.writable = true;
                    self.deliver(now, node, epoll, place);
                }
            }
            Token::Bearer(_) | Token::Device | Token::Works | Token::Other => {}
        }
    }

    /// Puts a socket into the list of those to be read.
    fn list(&mut self, place: Place) {
        if let Some(local) = self.sockets.get_mut(place)
            && !std::mem::replace(&mut local.listed, true)
        {
            self.ready.push_back(place);
        }
    }

    /// Reads a few batches of each socket that has something, in turn, so that nobody keeps the others waiting; then answers one request
    /// of each program that asks, so that what it sent before has gone.
    pub(crate) fn read_ready(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll) {
        for _ in 0..self.ready.len() {
            let Some(place) = self.ready.pop_front() else { return };
            let Some(local) = self.sockets.get_mut(place) else { continue };
            local.listed = false;
            self.read(now, node, epoll, place);
            if self.sockets.get(place).is_some_and(Local::may_read) {
                self.list(place);
            }
        }
        self.take_hot(now, node, epoll);
        while let Some(place) = self.asking.pop_front() {
            self.serve_client(now, node, epoll, place);
        }
        self.offer_to_starved(now, node, epoll);
    }

    /// Takes note of what happened in the node. What is not only for a socket is kept to be told to the caller.
    pub(crate) fn handle_events(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll) {
        while let Some(event) = node.poll_event() {
            self.handle_event(now, node, epoll, &event);
            let of_a_socket = matches!(
                event,
                Event::SocketReady(_)
                    | Event::Connected { .. }
                    | Event::ConnectFailed { .. }
                    | Event::GroupShrank { .. }
            );
            if !of_a_socket {
                self.told.push_back(event);
            }
        }
    }

    fn handle_event(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, event: &Event) {
        match event {
            Event::SocketReady(port) => {
                if let Some(place) = self.by_port.get(port).copied() {
                    self.socket_changed(now, node, epoll, place);
                }
            }
            Event::Connected { port, peer } => {
                if let Some(place) = self.by_port.get(port).copied() {
                    self.connected(now, node, epoll, place, *peer);
                }
            }
            Event::ConnectFailed { port, error } => {
                if let Some(place) = self.by_port.get(port).copied() {
                    self.connect_failed(now, node, epoll, place, *error);
                }
            }
            Event::Withdrawn(binding) => self.age(epoch::of_service(binding.range.service)),
            Event::GroupShrank { group } => self.age(epoch::of_service(*group)),
            Event::PeerDown { peer } => self.age(epoch::of_node(peer.0)),
            _ => {}
        }
    }

    /// Something that destinations of this epoch may depend on is gone.
    fn age(&self, epoch: usize) {
        self.epochs.word(epoch).fetch_add(1, Ordering::Release);
    }

    fn set_state(&self, local: &Local, phase: SharedPhase, end: u8) {
        if let Some(client) = self.clients.get(local.client) {
            client.set_state(local.slot, State { phase, end });
        }
    }

    /// Looks what has become of a socket whose node says that it changed.
    fn socket_changed(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(port) = local.port else { return };
        if matches!(local.phase, Phase::Connected) && node.readiness(port).is_ok_and(|r| r.hangup) {
            local.phase = Phase::Disconnected;
            local.shuts = false;
            local.stalled.clear();
            // Who sends now is told EPIPE by the state, and who waits for room gets it: what comes is thrown away. Who reads
            // still gets everything before the end.
            local.readable = true;
            self.stop_linger(place);
            self.list(place);
            self.warm(place);
            if let Some(local) = self.sockets.get(place) {
                self.set_state(local, SharedPhase::Disconnected, 0);
            }
        }
        self.retry(now, node, epoll, place);
        self.deliver(now, node, epoll, place);
    }

    /// A request was accepted. The connection may be over already; that is told next.
    fn connected(
        &mut self,
        now: Nanos,
        node: &mut Node,
        epoll: &Epoll,
        place: Place,
        peer: SocketAddr,
    ) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.phase = Phase::Connected;
        (local.holds, local.readable) = (false, true);
        let word = u64::from(peer.port.0) << 32 | u64::from(peer.node.0);
        if let Some(client) = self.clients.get(local.client) {
            client.store(local.slot, slot::PEER, word);
            client.set_state(local.slot, State { phase: SharedPhase::Connected, end: 0 });
        }
        // What filled the descriptor goes, so that it polls writable.
        self.read(now, node, epoll, place);
        self.list(place);
    }

    fn connect_failed(
        &mut self,
        now: Nanos,
        node: &mut Node,
        epoll: &Epoll,
        place: Place,
        error: SocketError,
    ) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(client) = self.clients.get(local.client) else { return };
        client.store(local.slot, slot::ERROR, u64::from(error.errno().unsigned_abs()));
        if error == SocketError::TimedOut {
            // The request may be repeated, and until then the descriptor stays unwritable.
            local.phase = Phase::Open;
            client.set_state(local.slot, State { phase: SharedPhase::Open, end: 0 });
        } else {
            local.phase = Phase::Disconnected;
            client.set_state(local.slot, State { phase: SharedPhase::Disconnected, end: 0 });
            socket::shutdown_send(&local.fd);
            // What filled the descriptor goes: it polls writable, as that of any failed connect does.
            (local.holds, local.readable) = (false, true);
            self.read(now, node, epoll, place);
            self.list(place);
        }
    }

    /// Makes a socket's pair of descriptors and its place. Returns the program's end, the place, the token.
    fn make_pair(
        &mut self,
        epoll: &Epoll,
        kind: Kind,
        (client, slot): (Place, u32),
        phase: Phase,
    ) -> Result<(OwnedFd, Place, u64), OsError> {
        let unix = if kind == Kind::Stream { UnixKind::Stream } else { UnixKind::Seqpacket };
        let (ours, theirs) = socket::unix_pair(unix)?;
        if self.is_scarce(&ours) || self.is_scarce(&theirs) {
            let why =
                std::io::Error::from_raw_os_error(Refusal::Descriptors.errno().raw_os_error());
            return Err(OsError::new("socketpair", "", why));
        }
        let (token, cookie) = (random::unguessable()?, socket::cookie(&theirs)?);
        let names = (token, cookie);
        let most = self.limits.receive_octets;
        let place =
            self.sockets.insert(|_| Local::new(ours, names, kind, (client, slot), phase, most));
        let Some(local) = self.sockets.get(place) else {
            return Err(OsError::new("socketpair", "", std::io::Error::other("no place")));
        };
        if let Err(error) = epoll.add(&local.fd, Token::Socket(place).encode(), Report::Changes) {
            self.sockets.remove(place);
            return Err(error);
        }
        self.by_token.insert(token, place);
        Ok((theirs, place, token))
    }
}
