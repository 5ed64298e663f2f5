//! What the halves of one end, the control thread and the handles share: the state of the switch and the control connection.

mod attend;
mod markers;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::Instant;

use crossway_mech::{Deadline, OpenError};
use crossway_ring::biased::Visitor;

use crate::directory::Directory;
use crate::event::{Event, Happening, Reason};
use crate::fault;
use crate::message::{Message, OfferText};
use crate::net::Network;
use crate::net::session::Session;
use crate::net::wire::Wire;
use crate::page::Page;
use crate::policy::{Judge, Policy};
use crate::protocol::{Action, Marks, Role, Signal, Switch};
use crate::reactor;
use crate::receiver::RxState;
use crate::sender::TxState;
use crate::status::Status;
use crate::transport::{Halves, RxHalf, Shape, Transport, TxHalf};

/// Flags that are raised for a half's owner.
pub(crate) mod flag {
    /// Sender: put the marker on the old transport.
    pub(crate) const MOVE: u32 = 1;
    /// Note on which CPU you run.
    pub(crate) const NOTE: u32 = 2;
    /// Sender: the peer is gone, or its program has dropped its receiver.
    pub(crate) const DEAF: u32 = 4;
    /// Give way while you wait: a switch away from spinning is under way.
    pub(crate) const RELAX: u32 = 8;
    /// Receiver: a message waits beside the transport.
    pub(crate) const HELD: u32 = 16;
}

/// Entries that a log keeps.
const LOG: usize = 64;

/// Messages and bytes of one half, for whoever watches.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Count {
    pub(crate) msgs: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Count {
    #[inline]
    pub(crate) fn publish(&self, msgs: u64, bytes: u64) {
        self.msgs.store(msgs, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> (u64, u64) {
        (self.msgs.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The transport that a switch leads to.
struct Pending {
    transport: Transport,
    why: Reason,
    since: Instant,
    /// Until they are installed.
    halves: Option<Halves>,
}

/// Old halves, to be dropped by the control thread: that unmaps memory, which takes time.
#[derive(Default)]
struct Old {
    tx: Vec<TxHalf>,
    rx: Vec<RxHalf>,
}

/// The state of one end.
pub(crate) struct State {
    pub(crate) switch: Switch,
    /// That of the settled epoch.
    pub(crate) transport: Transport,
    pending: Option<Pending>,
    next_tx: Option<TxHalf>,
    next_rx: Option<RxHalf>,
    /// The sender's marker is due.
    pub(crate) must_mark: bool,
    /// What goes out with the next offer.
    to_offer: Option<(OfferText, Vec<OwnedFd>, Reason)>,
    /// What came in with the last offer, and when.
    offered: Option<(OfferText, Vec<OwnedFd>, Reason, Instant)>,
    /// It is time to open it.
    must_open: bool,
    old: Old,
    /// The control connection.
    pub(crate) wire: Wire,
    /// Between hosts: those of this epoch and the next.
    sessions: Vec<Arc<Session>>,
    /// A thread looks for the peer.
    pub(crate) searching: bool,
    /// A connection broke, and the log says so.
    pub(crate) was_interrupted: bool,
    /// Since when a connection is missing, at the listening end.
    missing_since: Option<Instant>,
    /// The transport between the two hosts.
    between: Option<Transport>,
    log: VecDeque<Event>,
    subscribers: Vec<mpsc::Sender<Event>>,
    pub(crate) policy: Policy,
    /// What the peer's policy allows.
    pub(crate) peer_allows: Vec<Transport>,
    pub(crate) judge: Judge,
    /// A transport that the program, here or there, asked for and that is still to be tried.
    pub(crate) wished: Option<(Transport, Reason)>,
    /// The program has dropped its sender, its receiver.
    pub(crate) dropped: [bool; 2],
    /// The peer closed in order.
    peer_said_bye: bool,
    /// The control thread must leave the control connection to another process, and whether it has.
    pub(crate) leaving: bool,
    pub(crate) left: bool,
    /// This end has said goodbye, lost its peer, or is another process's: nothing is negotiated any more.
    pub(crate) over: bool,
}

impl State {
    /// Whether the receiver has a transport to follow to.
    pub(crate) const fn has_next_rx(&self) -> bool {
        self.next_rx.is_some()
    }

    /// What this end allows.
    pub(crate) fn own_transports(&self) -> Vec<Transport> {
        match self.between {
            Some(transport) => self.policy.transports_between(transport),
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

/// One end of a channel.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) role: Role,
    pub(crate) marks: Marks,
    pub(crate) shape: Shape,
    pub(crate) peer_pid: u32,
    directory: Directory,
    /// If the peer is on another host.
    pub(crate) abroad: Option<Abroad>,
    me: Weak<Link>,
    pub(crate) page: Page,
    pub(crate) tx: Visitor<TxState>,
    pub(crate) rx: Visitor<RxState>,
    pub(crate) sent: Count,
    pub(crate) received: Count,
    state: Mutex<State>,
    /// Something in the state has changed: a transport was installed, a switch has ended, the peer is gone.
    changed: Condvar,
    /// The control thread should look at this link.
    called: AtomicBool,
    /// The policy should, too, before its time.
    hurry: AtomicBool,
}

/// A peer on another host.
pub(crate) struct Abroad {
    /// How it is reached.
    pub(crate) network: Arc<Network>,
    pub(crate) transport: Transport,
    /// Where it is, in words.
    pub(crate) peer: String,
}

/// What a new link needs.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) switch: Switch,
    pub(crate) marks: Marks,
    pub(crate) shape: Shape,
    pub(crate) peer_pid: u32,
    pub(crate) directory: Directory,
    pub(crate) wire: Wire,
    pub(crate) abroad: Option<Abroad>,
    /// The session of the first epoch, between hosts.
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) page: Page,
    pub(crate) tx: Visitor<TxState>,
    pub(crate) rx: Visitor<RxState>,
    pub(crate) transport: Transport,
    pub(crate) policy: Policy,
    pub(crate) peer_allows: Vec<Transport>,
}

impl Link {
    pub(crate) fn new(parts: Parts) -> Arc<Link> {
        let state = State {
            switch: parts.switch,
            transport: parts.transport,
            pending: None,
            next_tx: None,
            next_rx: None,
            must_mark: false,
            to_offer: None,
            offered: None,
            must_open: false,
            old: Old::default(),
            wire: parts.wire,
            sessions: Vec::new(),
            searching: false,
            was_interrupted: false,
            missing_since: None,
            between: parts.abroad.as_ref().map(|abroad| abroad.transport),
            log: VecDeque::new(),
            subscribers: Vec::new(),
            policy: parts.policy,
            peer_allows: parts.peer_allows,
            judge: Judge::default(),
            wished: None,
            dropped: [false; 2],
            peer_said_bye: false,
            leaving: false,
            left: false,
            over: false,
        };
        let link = Arc::new_cyclic(|me| Link {
            me: Weak::clone(me),
            abroad: parts.abroad,
            name: parts.name,
            id: parts.id,
            role: state.switch.role(),
            marks: parts.marks,
            shape: parts.shape,
            peer_pid: parts.peer_pid,
            directory: parts.directory,
            page: parts.page,
            tx: parts.tx,
            rx: parts.rx,
            sent: Count::default(),
            received: Count::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            called: AtomicBool::new(true),
            hurry: AtomicBool::new(false),
        });
        if let Some(session) = parts.session {
            let mut state = link.lock();
            let epoch = state.switch.epoch();
            link.take_session(&mut state, &session, epoch);
        }
        link
    }

    /// If a transport that is made is a session between hosts, that becomes this channel's in the next epoch.
    fn take_session_of(&self, state: &mut State, tx: &TxHalf) {
        if let Some(session) = tx.session().filter(|session| session.epoch().is_none()) {
            let epoch = state.switch.epoch().wrapping_add(1);
            self.take_session(state, session, epoch);
        }
    }

    /// A session between hosts becomes this channel's in an epoch.
    fn take_session(&self, state: &mut State, session: &Arc<Session>, epoch: u32) {
        session.belongs_to(Weak::clone(&self.me), epoch);
        state.sessions.push(Arc::clone(session));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until something in the state has changed, or the deadline; false if that has passed.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        until: Deadline,
    ) -> (MutexGuard<'a, State>, bool) {
        let Some(until) = until else {
            let state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            return (state, true);
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (state, false);
        }
        let woken = self.changed.wait_timeout(state, left);
        (woken.unwrap_or_else(PoisonError::into_inner).0, true)
    }

    /// Adds to the log and tells the subscribers.
    pub(crate) fn log(&self, state: &mut State, what: Happening) {
        let event = Event::now(&self.name, self.id, what);
        state.subscribers.retain(|subscriber| subscriber.send(event.clone()).is_ok());
        if state.log.len() == LOG {
            state.log.pop_front();
        }
        state.log.push_back(event);
    }

    /// Does what the switch protocol says, in order.
    pub(crate) fn carry_out(&self, state: &mut State) {
        while let Some(action) = state.switch.poll_action() {
            match action {
                Action::Send(signal) => {
                    let (offer, fds, why) = match signal {
                        Signal::Offer(_) => state.to_offer.take().map_or_else(
                            || (None, Vec::new(), None),
                            |(text, fds, why)| (Some(text), fds, Some(why)),
                        ),
                        _ => (None, Vec::new(), None),
                    };
                    let message = Message::Signal { signal, offer, why };
                    state.wire.send(&message, fds);
                    fault::point(&format!("{signal:?}"));
                }
                Action::Open(_) => state.must_open = true,
                Action::Install(_) => {
                    let halves = state.pending.as_mut().and_then(|p| p.halves.take());
                    let (tx, rx) = halves.expect("made before it is installed");
                    self.take_session_of(state, &tx);
                    (state.next_tx, state.next_rx) = (Some(tx), Some(rx));
                }
                Action::MoveTx(_) => {
                    state.must_mark = true;
                    self.tx.raise(flag::MOVE);
                }
                Action::Discard(epoch) => {
                    state.forget_session(epoch);
                    if let Some(pending) = state.pending.take() {
                        let (from, to) = (state.transport, pending.transport);
                        let because = "the peer cannot open it".to_owned();
                        self.log(state, Happening::Refused { from, to, because });
                    }
                    self.relax(false);
                }
                Action::Settled(_) => {
                    let pending = state.pending.take().expect("a switch ends that has begun");
                    let from = std::mem::replace(&mut state.transport, pending.transport);
                    let epoch = state.switch.epoch();
                    state.sessions.retain(|session| session.epoch() >= Some(epoch));
                    let took_us =
                        pending.since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
                    let (to, why) = (pending.transport, pending.why);
                    self.log(state, Happening::Switched { from, to, why, took_us });
                    state.judge.switched(Instant::now());
                    if state.wished.is_some() {
                        self.hurry.store(true, Ordering::Release);
                    }
                    self.relax(false);
                    fault::point("Settled");
                }
            }
        }
        // Blocked halves look again, and the control thread opens, moves idle halves and drops old ones.
        self.changed.notify_all();
        self.call();
    }

    /// Asks the control thread to look at this link.
    pub(crate) fn call(&self) {
        self.called.store(true, Ordering::Release);
        reactor::wake();
    }

    /// Asks the policy for a judgement now.
    pub(crate) fn call_policy(&self) {
        self.hurry.store(true, Ordering::Release);
        self.call();
    }

    /// Control thread: whether the policy was asked for one.
    pub(crate) fn is_in_a_hurry(&self) -> bool {
        self.hurry.swap(false, Ordering::AcqRel)
    }

    /// Control thread: whether it was asked to.
    pub(crate) fn was_called(&self) -> bool {
        self.called.swap(false, Ordering::AcqRel)
    }

    /// Leader: begins a switch. False if one is going on, or this is not the leader.
    ///
    /// # Errors
    /// The transport cannot be made.
    pub(crate) fn start(&self, to: Transport, why: Reason) -> Result<bool, OpenError> {
        {
            let state = self.lock();
            if self.role != Role::Leader || !state.switch.is_settled() || state.over {
                return Ok(false);
            }
        }
        self.check_carries(to)?;
        let (halves, offer) = self.shape.make(to)?;
        fault::point("Made");
        let mut state = self.lock();
        if state.over || state.switch.offer().is_err() {
            return Ok(false);
        }
        // The peer may connect before it is heard that it is ready.
        self.take_session_of(&mut state, &halves.0);
        let (text, fds) = OfferText::new(to, offer);
        state.to_offer = Some((text, fds, why.clone()));
        if state.transport.spins() && why.is_urgent() {
            self.relax(true);
        }
        state.pending =
            Some(Pending { transport: to, why, since: Instant::now(), halves: Some(halves) });
        self.carry_out(&mut state);
        Ok(true)
    }

    /// Whether a transport leads from this end to the other.
    pub(crate) fn check_carries(&self, transport: Transport) -> Result<(), OpenError> {
        let why = match &self.abroad {
            _ if transport == Transport::Parked => return Ok(()),
            None if Transport::LOCAL.contains(&transport) => return Ok(()),
            Some(abroad) if abroad.transport == transport => return Ok(()),
            Some(abroad) => format!("the peer is on another host, at {}", abroad.peer),
            None => "both ends are on one host".to_owned(),
        };
        Err(OpenError::Unsupported { mechanism: transport.id(), why })
    }

    /// The program, here or there, wants a transport.
    pub(crate) fn wish(&self, transport: Transport) {
        let mut state = self.lock();
        if self.role == Role::Leader {
            state.wished = Some((transport, Reason::Asked));
            drop(state);
            self.call_policy();
        } else {
            let wish = Message::Wish { transport, why: Reason::Asked };
            state.wire.send(&wish, Vec::new());
        }
    }

    fn relax(&self, on: bool) {
        if on {
            self.tx.raise(flag::RELAX);
            self.rx.raise(flag::RELAX);
        } else {
            self.tx.lower(flag::RELAX);
            self.rx.lower(flag::RELAX);
        }
    }

    /// What the peer said. An error ends the channel.
    pub(crate) fn handle(&self, message: Message, fds: Vec<OwnedFd>) -> Result<(), String> {
        let mut state = self.lock();
        if state.over {
            return Ok(());
        }
        match message {
            Message::Signal { signal, offer, why } => {
                if let (Signal::Offer(_), Some(offer)) = (signal, offer) {
                    let why = why.unwrap_or(Reason::Asked);
                    if state.transport.spins() && why.is_urgent() {
                        self.relax(true);
                    }
                    state.offered = Some((offer, fds, why, Instant::now()));
                }
                state.switch.handle_signal(signal).map_err(|violation| violation.to_string())?;
                self.carry_out(&mut state);
            }
            Message::Wish { transport, why } if self.role == Role::Leader => {
                state.wished = Some((transport, why));
                self.call_policy();
            }
            Message::Policy { transports } => {
                state.peer_allows = transports;
                self.call_policy();
            }
            Message::Received { epoch, items } => {
                // One of an epoch that is over says nothing new.
                if let Some(session) = state.session(epoch)
                    && !session.acknowledged(items)
                {
                    return Err(format!("it acknowledges {items} items, which were not sent"));
                }
                self.call();
            }
            Message::Broken { epoch, connection } => {
                if let Some(session) = state.session(epoch)
                    && session.connections() == connection
                {
                    session.disconnect();
                    self.call();
                }
            }
            Message::Deaf => self.tx.raise(flag::DEAF),
            Message::Bye => state.peer_said_bye = true,
            other => return Err(format!("{other:?} in an open channel")),
        }
        Ok(())
    }

    /// The control connection is closed.
    pub(crate) fn lost(&self, violation: Option<String>) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        state.over = true;
        state.switch.end();
        state.must_mark = false;
        state.sessions.iter().for_each(|session| session.end());
        self.tx.raise(flag::DEAF);
        let what = match violation {
            Some(why) => Happening::Violated(why),
            None if state.peer_said_bye => Happening::PeerClosed,
            None => Happening::PeerDied,
        };
        let died = what == Happening::PeerDied;
        self.log(&mut state, what);
        drop(state);
        self.changed.notify_all();
        if died {
            // A killed listener leaves its name.
            self.directory.sweep(&self.name);
        }
    }

    pub(crate) fn status(&self) -> Status {
        let (sent_msgs, sent_bytes) = self.sent.read();
        let (received_msgs, received_bytes) = self.received.read();
        let state = self.lock();
        Status {
            name: self.name.clone(),
            id: self.id,
            pid: std::process::id(),
            peer_pid: self.peer_pid,
            peer_host: self.abroad.as_ref().map(|abroad| abroad.peer.clone()),
            transport: state.transport,
            switching_to: state.pending.as_ref().map(|pending| pending.transport),
            epoch: state.switch.epoch(),
            sent_msgs,
            sent_bytes,
            received_msgs,
            received_bytes,
            log: state.log.iter().rev().take(8).rev().cloned().collect(),
        }
    }

    pub(crate) fn events(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel();
        self.lock().subscribers.push(sender);
        receiver
    }

    pub(crate) fn log_so_far(&self) -> Vec<Event> {
        self.lock().log.iter().cloned().collect()
    }
}
