//! The state of one end, behind one lock.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use super::Parts;
use super::release::Release;
use crate::event::{Event, EventKind, Reason};
use crate::judge::Judge;
use crate::message::{Message, OfferText};
use crate::net::Network;
use crate::net::session::Session;
use crate::net::stream::Route;
use crate::net::wire::Wire;
use crate::policy::Policy;
use crate::protocol::Switch;
use crate::transport::{Halves, RxHalf, Transport, TxHalf};

/// Entries that a log keeps.
const LOG: usize = 64;

/// A peer on another host.
#[derive(Clone)]
pub(crate) struct Abroad {
    /// How it is reached.
    pub(crate) network: Arc<Network>,
    pub(crate) transport: Transport,
    /// Where it is, in words.
    pub(crate) peer: String,
    /// Where the connecting end found it.
    pub(crate) place: Option<Route>,
}

/// Where an end is in a move of its listening end to another process that is not given the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moving {
    /// No move is under way.
    No,
    /// The process that is left: it has told the connecting end, which has answered or not.
    Leaving(Option<Result<(), String>>),
    /// The connecting end: it looks for the new process.
    Searching,
    /// The new process: the connecting end has not come yet.
    Awaiting(Instant),
}

/// The transport that a switch leads to.
pub(super) struct Pending {
    pub(super) transport: Transport,
    pub(super) why: Reason,
    pub(super) since: Instant,
    /// Until they are installed.
    pub(super) halves: Option<Halves>,
}

/// Old halves, to be dropped by the control thread: that unmaps memory, which takes time.
#[derive(Default)]
pub(super) struct Old {
    pub(super) tx: Vec<TxHalf>,
    pub(super) rx: Vec<RxHalf>,
}

/// The state of one end.
pub(crate) struct State {
    pub(crate) switch: Switch,
    /// That of the settled epoch.
    pub(crate) transport: Transport,
    pub(super) pending: Option<Pending>,
    pub(super) next_tx: Option<TxHalf>,
    pub(super) next_rx: Option<RxHalf>,
    /// The sender's marker is due.
    pub(crate) must_mark: bool,
    /// What goes out with the next offer.
    pub(super) to_offer: Option<(OfferText, Vec<OwnedFd>, Reason)>,
    /// What came in with the last offer, and when.
    pub(super) offered: Option<(OfferText, Vec<OwnedFd>, Reason, Instant)>,
    /// It is time to open it.
    pub(super) must_open: bool,
    pub(super) old: Old,
    /// The transport before this one, while its memory is given back.
    pub(super) release: Option<Release>,
    /// It is not all given back yet.
    pub(super) is_releasing: bool,
    /// The control connection.
    pub(crate) wire: Wire,
    /// Between hosts: those of this epoch and the next.
    pub(super) sessions: Vec<Arc<Session>>,
    /// A thread looks for the peer.
    pub(crate) searching: bool,
    /// A connection broke, and the log says so.
    pub(crate) was_interrupted: bool,
    /// Since when a connection is missing, at the listening end.
    pub(super) missing_since: Option<Instant>,
    /// If the peer is on another host.
    pub(crate) abroad: Option<Abroad>,
    /// 0 if it is on another host or not to be seen.
    pub(crate) peer_pid: u32,
    pub(crate) moving: Moving,
    /// How often the listening end has moved so, the same at both ends.
    pub(crate) moves: u32,
    /// What the connecting end has to say once it has found the new process.
    pub(super) queued: Vec<Message>,
    pub(super) log: VecDeque<Event>,
    pub(super) subscribers: Vec<mpsc::Sender<Event>>,
    pub(crate) policy: Policy,
    /// What the peer's policy allows.
    pub(crate) peer_allows: Vec<Transport>,
    pub(crate) judge: Judge,
    /// A transport that the program, here or there, asked for and that is still to be tried.
    pub(crate) wished: Option<(Transport, Reason)>,
    /// Whether the program has dropped its sender, and its receiver.
    pub(crate) dropped: [bool; 2],
    /// The peer closed in order.
    pub(super) peer_said_bye: bool,
    /// The control thread must stop using the control connection, because another process takes it over.
    pub(crate) leaving: bool,
    /// The control thread has stopped using it.
    pub(crate) left: bool,
    /// This end has said goodbye, lost its peer, or is another process's: nothing is negotiated any more.
    pub(crate) over: bool,
}

impl State {
    /// The state of a new link.
    pub(super) fn new(parts: &mut Parts) -> State {
        State {
            switch: parts.switch.clone(),
            transport: parts.transport,
            pending: None,
            next_tx: None,
            next_rx: None,
            must_mark: false,
            to_offer: None,
            offered: None,
            must_open: false,
            old: Old::default(),
            release: None,
            is_releasing: false,
            wire: std::mem::replace(&mut parts.wire, Wire::none()),
            sessions: Vec::new(),
            searching: false,
            was_interrupted: false,
            missing_since: None,
            abroad: parts.abroad.take(),
            peer_pid: parts.peer_pid,
            moving: std::mem::replace(&mut parts.moving, Moving::No),
            moves: parts.moves,
            queued: Vec::new(),
            log: VecDeque::new(),
            subscribers: Vec::new(),
            policy: parts.policy.clone(),
            peer_allows: std::mem::take(&mut parts.peer_allows),
            judge: Judge::default(),
            wished: None,
            dropped: [false; 2],
            peer_said_bye: false,
            leaving: false,
            left: false,
            over: false,
        }
    }

    /// The last entry of the log.
    pub(crate) fn last_event(&self) -> Option<&EventKind> {
        self.log.back().map(|event| &event.what)
    }

    /// Whether no switch can begin, since the connection is another process's or will be.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.leaving || self.moving != Moving::No
    }

    /// Says something to the peer; the connecting end of a channel that is being moved says it to the new process.
    pub(crate) fn say(&mut self, message: Message) {
        if self.moving == Moving::Searching {
            self.queued.push(message);
        } else {
            self.wire.send(&message, Vec::new());
        }
    }

    /// Adds to the log and tells the subscribers.
    pub(super) fn log(&mut self, event: Event) {
        self.subscribers.retain(|subscriber| subscriber.send(event.clone()).is_ok());
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(event);
    }

    /// Whether the receiver has a transport to follow to.
    pub(crate) const fn has_next_rx(&self) -> bool {
        self.next_rx.is_some()
    }

    /// What this end allows.
    pub(crate) fn own_transports(&self) -> Vec<Transport> {
        match &self.abroad {
            Some(abroad) => self.policy.transports_between(abroad.transport),
            None => self.policy.transports(),
        }
    }

    /// Sessions without a connection.
    pub(crate) fn sessions_down(&self) -> Vec<Arc<Session>> {
        self.sessions.iter().filter(|session| session.is_down()).cloned().collect()
    }

    /// The session of an epoch.
    pub(crate) fn session(&self, epoch: u32) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| session.epoch() == Some(epoch))
    }

    /// The session of an epoch that is over.
    pub(crate) fn forget_session(&mut self, epoch: u32) {
        self.sessions.retain(|session| session.epoch() != Some(epoch));
    }

    /// What both ends allow.
    pub(crate) fn allowed(&self) -> Vec<Transport> {
        let ours = self.own_transports().into_iter();
        ours.filter(|transport| self.peer_allows.contains(transport)).collect()
    }
}
