//! Provides sockets to other processes: the `tipcd` side of the local protocol of `crossway_tipc_client`.
//!
//! The service is part of an event loop: the caller reports which descriptors are ready, and the service works until it
//! would block. A program that violates the protocol loses its socket or its connection; others are not affected.

mod bindings;
mod client;
mod context;
mod direct;
mod downlane;
mod entrance;
mod events;
mod halves;
mod held;
mod inbound;
mod inquiry;
mod lanes;
mod limits;
mod linger;
mod listening;
mod local;
mod offers;
mod orders;
mod outbound;
mod request;
mod settling;
mod shares;
mod token;
mod uplane;

pub(crate) use context::Context;
pub(crate) use lanes::LaneCounts;
pub use limits::ServiceLimits;
pub use listening::ServiceError;
pub(crate) use token::{Place, Token};

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crossway_sys::epoll::{Epoll, Ready, Trigger};
use crossway_sys::records::Inbox;
use crossway_sys::socket::{self, Credentials, SocketType};
use crossway_sys::words::SharedWords;
use crossway_sys::{OsError, proc, random};
use crossway_tipc_client::protocol::control::SocketKind;
use crossway_tipc_client::protocol::lane::outlet;
use crossway_tipc_client::protocol::record::SEND_HEADER_LEN;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::{MESSAGE_LEN_MAX, epoch};
use crossway_tipc_proto::addr::Port;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::time::Nanos;

use client::Client;
use entrance::TurnedAway;
use limits::STREAM_READ_BYTES;
use listening::ListeningSocket;
use local::{Local, Phase};
use settling::Settling;
use shares::Shares;
use token::Table;

/// The programs, their sockets and descriptors, and the state of all of these.
#[derive(Debug)]
pub struct Service {
    listening: ListeningSocket,
    limits: ServiceLimits,
    clients: Table<Client>,
    sockets: Table<Local>,
    by_token: HashMap<u64, Place>,
    by_port: HashMap<Port, Place>,
    epochs: SharedWords,
    epochs_fd: OwnedFd,
    inbox: Inbox,
    scratch: Vec<u8>,
    /// Buffer for data copied from a lane.
    gathered: Vec<u8>,
    /// Sockets whose descriptors may hold more data.
    ready: VecDeque<Place>,
    /// Programs with a pending request. Requests are answered after the data in their sockets has been read.
    asking: VecDeque<Place>,
    /// What is on its way between programs, and who waits for it.
    settling: Settling,
    /// The share that each process and each user has of the common resources.
    shares: Shares,
    /// Programs on connections reserved for operators; the one that has been idle longest is first.
    in_kept_places: VecDeque<Place>,
    turned_away: TurnedAway,
    /// Listening sockets with requests that cannot be offered because their programs have too many descriptors in
    /// flight.
    starved: BTreeSet<Place>,
    /// Set when a program has received descriptors that were in flight.
    landed: bool,
    /// Number of sockets with lanes.
    lanes: usize,
    /// Sockets whose lanes are checked in each turn.
    hot: Vec<Place>,
    lingers: BTreeSet<(Nanos, u32, u32)>,
    /// Direct lanes into which the service wants to put something while a program is writing to them.
    blocked: direct::Blocked,
    /// Number of messages from programs since the start that were neither delivered nor returned.
    undelivered: u64,
    /// Operators' orders, each with the connection on which it must be answered.
    orders: VecDeque<(Place, Vec<u8>)>,
    /// Events of the node that have been processed here and must still be passed to the caller.
    pub(crate) unreported: VecDeque<Event>,
}

impl Service {
    /// Opens the listening socket at a path. `mode` sets the permissions of its file.
    ///
    /// # Errors
    /// [`ServiceError`] names the path and the reason.
    pub fn open(
        path: &std::path::Path,
        mode: u32,
        limits: ServiceLimits,
    ) -> Result<Self, ServiceError> {
        let listening = ListeningSocket::open(path, mode)?;
        let (epochs, epochs_fd) = SharedWords::create_for_readers("tipcd-epochs", epoch::COUNT)?;
        Ok(Self {
            listening,
            limits,
            clients: Table::default(),
            sockets: Table::default(),
            by_token: HashMap::new(),
            by_port: HashMap::new(),
            epochs,
            epochs_fd,
            inbox: Inbox::new(SEND_HEADER_LEN + MESSAGE_LEN_MAX),
            scratch: vec![0; STREAM_READ_BYTES],
            gathered: Vec::with_capacity(STREAM_READ_BYTES),
            ready: VecDeque::new(),
            asking: VecDeque::new(),
            settling: Settling::new()?,
            shares: Shares::new(&limits, proc::descriptor_limit()),
            in_kept_places: VecDeque::new(),
            turned_away: TurnedAway::default(),
            starved: BTreeSet::new(),
            landed: false,
            lanes: 0,
            hot: Vec::new(),
            lingers: BTreeSet::new(),
            blocked: direct::Blocked::default(),
            undelivered: 0,
            orders: VecDeque::new(),
            unreported: VecDeque::new(),
        })
    }

    /// Registers the listening socket with epoll.
    ///
    /// # Errors
    /// [`OsError`] of epoll_ctl.
    pub(crate) fn watch(&self, epoll: &Epoll) -> Result<(), OsError> {
        epoll.add(&self.listening.fd, Token::Listening.encode(), Trigger::WhileReadable)
    }

    /// Returns the process that opened a socket, if it is known.
    pub fn owner(&self, port: Port) -> Option<Credentials> {
        let local = self.sockets.get(*self.by_port.get(&port)?)?;
        self.clients.get(local.client)?.credentials
    }

    /// Number of connected programs.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Number of programs refused since the start, plus the number of requests refused because of a share: of descriptors
    /// in flight, sockets or bindings.
    pub const fn turned_away(&self) -> u64 {
        self.turned_away.count
    }

    /// Number of sockets of all programs.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Number of sockets with lanes.
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the statistics of a socket's lanes, if it has any.
    pub(crate) fn lane_counts(&self, port: Port) -> Option<LaneCounts> {
        let lanes = self.sockets.get(*self.by_port.get(&port)?)?.lanes.as_ref()?;
        let direct = lanes.memory.words().word(outlet::SEQUENCE).load(Ordering::Relaxed);
        Some(LaneCounts { sent: lanes.taken, direct, woken: lanes.bells })
    }

    /// Path of the listening socket.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.listening.path()
    }

    /// Number of messages from programs since the start that were neither delivered nor returned.
    pub const fn undelivered(&self) -> u64 {
        self.undelivered
    }

    /// Whether there is something to do immediately.
    pub(crate) fn is_busy(&self) -> bool {
        !self.ready.is_empty() || self.settling.is_awaited()
    }

    /// The time at which [`Service::handle_timeout`] must be called; `None` if there is nothing to wait for.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        let lingers = self.lingers.first().map(|(at, ..)| *at);
        lingers.into_iter().chain(self.blocked.poll_timeout()).min()
    }

    /// Handles a ready descriptor.
    pub(crate) fn handle_ready(&mut self, cx: &mut Context<'_>, token: Token, ready: &Ready) {
        match token {
            Token::Listening => self.let_in(cx.epoll),
            // A control connection that was ready before takes precedence over a socket that was written to first.
            Token::Client(place) => self.asking.push_back(place),
            Token::Socket(place) => {
                let Some(local) = self.sockets.get_mut(place) else { return };
                if ready.ended && local.holds {
                    // It only holds padding.
                    return self.remove(cx, place);
                }
                let ended = ready.ended && !local.ends_by_half();
                local.ended |= ended;
                local.halves.reported |= ready.ended && !ended;
                if ready.readable {
                    local.readable = true;
                    // Its end comes after the messages held back: that may take for ever, so it must be limited.
                    if ended && !local.stalled.is_empty() {
                        self.start_linger(cx, place);
                    }
                    self.list(place);
                }
                if ready.writable
                    && let Some(local) = self.sockets.get_mut(place)
                {
                    local.writable = true;
                    self.deliver(cx, place);
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
                    self.deliver(cx, place);
                }
            }
            Token::Bearer(_) | Token::Device | Token::Jobs | Token::Other => {}
        }
    }

    /// Makes epoll report room in a socket's descriptor for as long as the socket waits for it.
    fn watch_room(&mut self, epoll: &Epoll, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let waits = !local.writable;
        if std::mem::replace(&mut local.watches_room, waits) != waits {
            let trigger = if waits { Trigger::Changes } else { Trigger::Input };
            // The descriptor is registered as long as the socket exists.
            let _ = epoll.change(&local.fd, Token::Socket(place).encode(), trigger);
        }
    }

    /// Adds a socket to the list of those to be read.
    fn list(&mut self, place: Place) {
        if let Some(local) = self.sockets.get_mut(place)
            && !std::mem::replace(&mut local.listed, true)
        {
            self.ready.push_back(place);
        }
    }

    /// Reads a few batches from each socket with data, in turn, so that none delays the others. Then answers one
    /// request of each program that has sent one; data sent before a request has been processed by then.
    pub(crate) fn read_ready(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.ready.len() {
            let Some(place) = self.ready.pop_front() else { return };
            let Some(local) = self.sockets.get_mut(place) else { continue };
            local.listed = false;
            self.read(cx, place);
            if self.sockets.get(place).is_some_and(Local::may_read) {
                self.list(place);
            }
        }
        self.take_hot(cx);
        while let Some(place) = self.asking.pop_front() {
            self.serve_client(cx, place);
        }
        self.offer_to_starved(cx);
    }

    /// Creates a socket's pair of descriptors and its entry. Returns the program's end, the place of the entry and the
    /// token.
    fn make_pair(
        &mut self,
        epoll: &Epoll,
        kind: SocketKind,
        (client, slot): (Place, u32),
        phase: Phase,
    ) -> Result<(OwnedFd, Place, u64), OsError> {
        let unix =
            if kind == SocketKind::Stream { SocketType::Stream } else { SocketType::Seqpacket };
        let (ours, theirs) = socket::unix_pair(unix)?;
        if self.is_scarce(&ours) || self.is_scarce(&theirs) {
            let why =
                std::io::Error::from_raw_os_error(Refusal::Descriptors.errno().raw_os_error());
            return Err(OsError::new("socketpair", "", why));
        }
        let (token, cookie) = (random::unguessable()?, socket::cookie(&theirs)?);
        let names = (token, cookie);
        let most = self.limits.receive_bytes;
        let place =
            self.sockets.insert(|_| Local::new(ours, names, kind, (client, slot), phase, most));
        let Some(local) = self.sockets.get(place) else {
            return Err(OsError::new("socketpair", "", std::io::Error::other("no place")));
        };
        if let Err(error) = epoll.add(&local.fd, Token::Socket(place).encode(), Trigger::Input) {
            self.sockets.remove(place);
            return Err(error);
        }
        self.by_token.insert(token, place);
        self.shares.opened(self.program(client));
        Ok((theirs, place, token))
    }
}
