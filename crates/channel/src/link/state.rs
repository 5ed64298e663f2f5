//! The state of one end, protected by one lock.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use super::Parts;
use super::release::Release;
use crate::event::{Event, EventKind, Reason};
use crate::judge::Judge;
use crate::message::{Message, OfferText, Packet};
use crate::net::Network;
use crate::net::session::Session;
use crate::net::stream::Route;
use crate::net::wire::Wire;
use crate::policy::Policy;
use crate::protocol::Switch;
use crate::transport::{Halves, RxHalf, Transport, TxHalf};

/// Number of events that a log keeps.
const LOG: usize = 64;

/// A peer on another host.
#[derive(Clone)]
pub(crate) struct Abroad {
    /// The settings by which the peer is reached.
    pub(crate) network: Arc<Network>,
    pub(crate) transport: Transport,
    /// The peer's transport and address, as text.
    pub(crate) peer: String,
    /// The place where the connecting end found the listener; `None` at the listening end.
    pub(crate) place: Option<Route>,
}

/// The state of an end while its listening end moves to another process that cannot take over the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moving {
    /// No move is in progress.
    No,
    /// The old process has told the connecting end to leave; contains the answer once there is one.
    Leaving(Option<Result<(), String>>),
    /// The connecting end is looking for the new process.
    Searching,
    /// The new process has waited for the connecting end since this time.
    Awaiting(Instant),
}

/// The transport that a switch leads to.
pub(super) struct Pending {
    pub(super) transport: Transport,
    pub(super) why: Reason,
    pub(super) since: Instant,
    /// Both halves, until they are installed.
    pub(super) halves: Option<Halves>,
}

/// Old halves. The control thread drops them, because unmapping their memory takes time.
#[derive(Default)]
pub(super) struct Old {
    pub(super) tx: Vec<TxHalf>,
    pub(super) rx: Vec<RxHalf>,
}

/// The mutable state of one end.
pub(crate) struct State {
    pub(crate) switch: Switch,
    /// The transport of the settled epoch.
    pub(crate) transport: Transport,
    pub(super) pending: Option<Pending>,
    pub(super) next_tx: Option<TxHalf>,
    pub(super) next_rx: Option<RxHalf>,
    /// Whether the sender must send its marker.
    pub(crate) must_mark: bool,
    /// The contents of the next offer to the peer; `None` if there is none.
    pub(super) to_offer: Option<(OfferText, Vec<OwnedFd>, Reason)>,
    /// The peer's last offer, and when it arrived; `None` if there is none.
    pub(super) offered: Option<(OfferText, Vec<OwnedFd>, Reason, Instant)>,
    /// Whether the control thread must open the offered transport now.
    pub(super) must_open: bool,
    pub(super) old: Old,
    /// The previous transport, while its memory is being freed.
    pub(super) release: Option<Release>,
    /// Whether some of the previous transport's memory has not been freed yet.
    pub(super) is_releasing: bool,
    /// The control connection.
    pub(crate) wire: Wire,
    /// Between hosts: the sessions of this epoch and the next.
    pub(super) sessions: Vec<Arc<Session>>,
    /// Whether a thread is looking for the peer.
    pub(crate) searching: bool,
    /// Whether a connection broke and the log says so.
    pub(crate) was_interrupted: bool,
    /// When a connection was found missing, at the listening end; `None` while all are present.
    pub(super) missing_since: Option<Instant>,
    /// The peer's host and how it is reached; `None` if the peer is on this host.
    pub(crate) abroad: Option<Abroad>,
    /// Process id of the peer; 0 if it is on another host or in a PID namespace that is not visible here.
    pub(crate) peer_pid: u32,
    pub(crate) moving: Moving,
    /// How often the listening end has moved to a process that did not take over its connections; the same at both
    /// ends.
    pub(crate) moves: u32,
    /// Packets that the connecting end will send once it has found the new process.
    pub(super) queued: Vec<Message>,
    pub(super) log: VecDeque<Event>,
    pub(super) subscribers: Vec<mpsc::Sender<Event>>,
    pub(crate) policy: Policy,
    /// The transports that the peer's policy allows.
    pub(crate) peer_allows: Vec<Transport>,
    /// The CPU budget of the peer's policy; 1 if it has not sent one.
    pub(crate) peer_budget: f64,
    pub(crate) judge: Judge,
    /// A transport that the program at either end asked for and that has not been tried yet.
    pub(crate) wished: Option<(Transport, Reason)>,
    /// Whether the program has dropped its sender and its receiver, in this order.
    pub(crate) dropped: [bool; 2],
    /// Whether this end has announced that it closes the channel.
    pub(super) said_bye: bool,
    /// Whether the peer has announced that it closes the channel.
    pub(super) peer_said_bye: bool,
    /// Whether the control thread must stop using the control connection, because another process takes it over.
    pub(crate) leaving: bool,
    /// Whether the control thread has stopped using the control connection.
    pub(crate) left: bool,
    /// Whether nothing is negotiated any more, because this end has said goodbye, has lost its peer, or was handed to
    /// another process.
    pub(crate) over: bool,
}

impl State {
    /// Returns the state of a new link.
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
            peer_budget: parts.peer_budget,
            judge: Judge::default(),
            wished: None,
            dropped: [false; 2],
            said_bye: false,
            peer_said_bye: false,
            leaving: false,
            left: false,
            over: false,
        }
    }

    /// Follower: tells the leader, which chooses the transport for both ends, this end's policy.
    pub(crate) fn say_policy(&mut self) {
        let (transports, cpu_budget) = (self.own_transports(), self.policy.cpu_budget);
        self.say(Message::Policy { transports, cpu_budget });
    }

    /// Reads the next packet from the peer, and notes if it is goodbye.
    pub(crate) fn receive(&mut self) -> Packet {
        let packet = self.wire.receive();
        self.peer_said_bye |= matches!(packet, Packet::Message(Message::Bye, _));
        packet
    }

    /// Whether the peer has said goodbye. For a peer within this host that has ended, this reads its last packets: a
    /// transport may report the peer's end before the control thread has read them.
    pub(super) fn has_heard_goodbye(&mut self) -> bool {
        while !self.peer_said_bye && !self.wire.is_net() {
            let Packet::Message(..) = self.receive() else { break };
        }
        self.peer_said_bye
    }

    /// Returns the last entry of the log; `None` if the log is empty.
    pub(crate) fn last_event(&self) -> Option<&EventKind> {
        self.log.back().map(|event| &event.what)
    }

    /// Returns the reason, from the log, why the last switch to this transport failed.
    pub(crate) fn why_refused(&self, transport: Transport) -> String {
        let reason = self.log.iter().rev().find_map(|event| match &event.what {
            EventKind::Refused { to, because, .. } if *to == transport => Some(because.clone()),
            _ => None,
        });
        reason.unwrap_or_else(|| "the log no longer has the reason".to_owned())
    }

    /// Whether no switch can begin, because another process has the connection or will have it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.leaving || self.moving != Moving::No
    }

    /// Sends a packet to the peer. During a move, the connecting end keeps the packet for the new process.
    pub(crate) fn say(&mut self, message: Message) {
        if self.moving == Moving::Searching {
            self.queued.push(message);
        } else {
            self.wire.send(&message, Vec::new());
        }
    }

    /// Adds an event to the log and sends it to the subscribers.
    pub(super) fn log(&mut self, event: Event) {
        self.subscribers.retain(|subscriber| subscriber.send(event.clone()).is_ok());
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(event);
    }

    /// Whether the receiver has a new transport to continue on.
    pub(crate) const fn has_next_rx(&self) -> bool {
        self.next_rx.is_some()
    }

    /// Returns the transports that this end allows.
    pub(crate) fn own_transports(&self) -> Vec<Transport> {
        match &self.abroad {
            Some(abroad) => self.policy.transports_between(abroad.transport),
            None => self.policy.transports(),
        }
    }

    /// Returns the sessions without a connection.
    pub(crate) fn sessions_down(&self) -> Vec<Arc<Session>> {
        self.sessions.iter().filter(|session| session.is_down()).cloned().collect()
    }

    /// Returns the session of an epoch; `None` if it has none, or if it was forgotten.
    pub(crate) fn session(&self, epoch: u32) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| session.epoch() == Some(epoch))
    }

    /// Forgets the session of an epoch that is over.
    pub(crate) fn forget_session(&mut self, epoch: u32) {
        self.sessions.retain(|session| session.epoch() != Some(epoch));
    }

    /// Returns the transports that both ends allow.
    pub(crate) fn allowed(&self) -> Vec<Transport> {
        let ours = self.own_transports().into_iter();
        ours.filter(|transport| self.peer_allows.contains(transport)).collect()
    }
}
