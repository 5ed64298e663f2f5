//! The state that the halves of one end, the control thread and the handles share, such as the state of a switch and
//! the control connection.

mod attend;
mod lossy;
mod markers;
mod moving;
mod peer;
mod release;
mod state;
mod steer;
mod wakes;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak, mpsc};
use std::time::Instant;

use crossway_mech::Deadline;
use crossway_ring::biased::Visitor;
use crossway_sys::affinity;

use crate::directory::Directory;
use crate::event::{Event, EventKind};
use crate::net::Network;
use crate::net::session::Session;
use crate::net::wire::Wire;
use crate::page::{Half, Page};
use crate::policy::Policy;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor;
use crate::receiver::RxState;
use crate::sender::TxState;
use crate::status::Status;
use crate::transport::{Shape, Transport, TxHalf};

pub(crate) use lossy::Proof;
pub(crate) use state::{Abroad, Moving, State};
pub(crate) use wakes::{Tally, Wakes};

/// Flags that other threads raise for the owner of a half.
pub(crate) mod flag {
    /// Sender: send the marker on the old transport.
    pub(crate) const MOVE: u32 = 1;
    /// Both: record the CPU on which the half runs, and how often receivers were woken.
    pub(crate) const NOTE: u32 = 2;
    /// Sender: the peer has ended, or its program has dropped its receiver.
    pub(crate) const DEAF: u32 = 4;
    /// Both: sleep between attempts while waiting, because a switch away from spinning is in progress.
    pub(crate) const RELAX: u32 = 8;
    /// Receiver: a message is held outside the transport.
    pub(crate) const HELD: u32 = 16;
}

/// The numbers of messages and bytes that one half has sent or received, for observers.
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

/// The shared state of one end of a channel.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) role: Role,
    pub(crate) marks: Marks,
    pub(crate) shape: Shape,
    pub(crate) directory: Directory,
    /// The settings for reaching other hosts, if there are any.
    pub(crate) network: Option<Arc<Network>>,
    /// The id of the listener; `None` at the connecting end.
    pub(crate) listener: Option<u64>,
    me: Weak<Link>,
    /// The shared page; replaced when the listening end moves.
    page: RwLock<Page>,
    pub(crate) tx: Visitor<TxState>,
    pub(crate) rx: Visitor<RxState>,
    pub(crate) sent: Count,
    /// Received messages and bytes. The number of messages includes those that were lost, where loss is allowed.
    pub(crate) received: Count,
    pub(crate) lost: AtomicU64,
    /// Messages and wake-ups that the halves have reported since the policy last took them.
    wakes: Mutex<Wakes>,
    state: Mutex<State>,
    /// Notified when something in the state has changed: a transport was installed, a switch has ended, or the peer has
    /// ended.
    changed: Condvar,
    /// Set to make the control thread attend to this link.
    called: AtomicBool,
    /// Set to make the policy judge before its next regular check.
    hurry: AtomicBool,
}

/// The parts from which a new link is built.
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
    pub(crate) network: Option<Arc<Network>>,
    pub(crate) listener: Option<u64>,
    pub(crate) moving: Moving,
    pub(crate) moves: u32,
    /// The session of the first epoch; `None` within a host.
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) page: Page,
    pub(crate) tx: Visitor<TxState>,
    pub(crate) rx: Visitor<RxState>,
    pub(crate) transport: Transport,
    pub(crate) policy: Policy,
    pub(crate) peer_allows: Vec<Transport>,
    pub(crate) peer_budget: f64,
}

impl Link {
    pub(crate) fn new(mut parts: Parts) -> Arc<Link> {
        let state = State::new(&mut parts);
        let link = Arc::new_cyclic(|me| Link {
            me: Weak::clone(me),
            network: parts.network,
            listener: parts.listener,
            name: parts.name,
            id: parts.id,
            role: state.switch.role(),
            marks: parts.marks,
            shape: parts.shape,
            directory: parts.directory,
            page: RwLock::new(parts.page),
            tx: parts.tx,
            rx: parts.rx,
            sent: Count::default(),
            received: Count::default(),
            lost: AtomicU64::new(0),
            wakes: Mutex::default(),
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

    /// If a new transport is a session between hosts, makes it this channel's session of the next epoch.
    fn take_session_of(&self, state: &mut State, tx: &TxHalf) {
        if let Some(session) = tx.session().filter(|session| session.epoch().is_none()) {
            let epoch = state.switch.epoch().wrapping_add(1);
            self.take_session(state, session, epoch);
        }
    }

    /// Makes a session between hosts this channel's session of an epoch.
    fn take_session(&self, state: &mut State, session: &Arc<Session>, epoch: u32) {
        session.belongs_to(Weak::clone(&self.me), epoch);
        state.sessions.push(Arc::clone(session));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until something in the state has changed or the deadline passes. Returns false, without sleeping, if the
    /// deadline has passed already.
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

    /// Adds an event to the log and sends it to the subscribers.
    pub(crate) fn log(&self, state: &mut State, what: EventKind) {
        state.log(Event::now(&self.name, self.id, what));
    }

    /// Returns the page that both ends share within a host.
    pub(crate) fn page(&self) -> Page {
        self.page.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records on the shared page on which CPU a half of this end runs.
    pub(crate) fn note_cpu(&self, half: Half) {
        let page = self.page.read().unwrap_or_else(PoisonError::into_inner);
        page.note_cpu(self.role, half, affinity::current());
    }

    /// Asks the control thread to attend to this link.
    pub(crate) fn call(&self) {
        self.called.store(true, Ordering::Release);
        reactor::wake();
    }

    /// Asks the policy to judge now.
    pub(crate) fn call_policy(&self) {
        self.hurry.store(true, Ordering::Release);
        self.call();
    }

    /// Control thread: whether the policy was asked to judge now. Clears the request.
    pub(crate) fn is_in_a_hurry(&self) -> bool {
        self.hurry.swap(false, Ordering::AcqRel)
    }

    /// Control thread: whether it was asked to attend to this link. Clears the request.
    pub(crate) fn was_called(&self) -> bool {
        self.called.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn status(&self) -> Status {
        let (sent_msgs, sent_bytes) = self.sent.read();
        let lost_msgs = self.lost.load(Ordering::Relaxed);
        let (passed_msgs, received_bytes) = self.received.read();
        let state = self.lock();
        Status {
            name: self.name.clone(),
            id: self.id,
            pid: std::process::id(),
            peer_pid: state.peer_pid,
            peer_host: state.abroad.as_ref().map(|abroad| abroad.peer.clone()),
            transport: state.transport,
            switching_to: state.pending.as_ref().map(|pending| pending.transport),
            epoch: state.switch.epoch(),
            sent_msgs,
            sent_bytes,
            received_msgs: passed_msgs.saturating_sub(lost_msgs),
            received_bytes,
            lost_msgs,
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
