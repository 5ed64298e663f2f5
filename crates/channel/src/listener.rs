//! The side that listens on a name.

mod places;
mod welcome;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::eventfd::EventFd;
use crossway_sys::random;

use crate::channel::Channel;
use crate::directory::{Directory, Entry};
use crate::error::Error;
use crate::hand_over::{self, Successor};
use crate::net::Network;
use crate::policy::Policy;
use crate::reactor::{self, Source};

/// Time between checks for a process that wants to take over.
const LOOK: Duration = Duration::from_millis(2);

/// The state that the listener and the control thread share.
pub(crate) struct Core {
    pub(crate) name: String,
    /// A random number that identifies this listener.
    pub(crate) id: u64,
    pub(crate) socket: OwnedFd,
    policy: Policy,
    directory: Directory,
    /// The settings by which other hosts reach this listener; `None` if they cannot.
    pub(crate) network: Option<Arc<Network>>,
    waiting: Mutex<VecDeque<Channel>>,
    arrived: Condvar,
    bell: EventFd,
    closed: AtomicBool,
    /// Connections on which other processes ask to take over.
    successors: Mutex<Vec<Successor>>,
}

impl Core {
    /// Control thread: adds a process that asks for this one's channels.
    pub(crate) fn successor(&self, successor: Successor) {
        let mut successors = self.successors();
        successors.push(successor);
        let _ = self.bell.signal();
        drop(successors);
        self.arrived.notify_all();
    }

    /// Returns the processes that ask to take over and have not given up.
    fn successors(&self) -> MutexGuard<'_, Vec<Successor>> {
        let mut all = self.successors.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|successor| !successor.is_gone());
        all
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// Listens on a name. Connectors are answered in the background; their channels wait until they are accepted.
pub struct Listener {
    core: Arc<Core>,
    entry: Entry,
}

impl Listener {
    pub(crate) fn new(
        directory: &Directory,
        name: &str,
        policy: Policy,
        network: Option<Arc<Network>>,
    ) -> Result<Self, Error> {
        policy.check(network.is_some())?;
        let (socket, entry) = directory.listen(name)?;
        let places = match &network {
            Some(network) => places::open(directory, name, entry.path(), network)?,
            None => Vec::new(),
        };
        let core = Arc::new(Core {
            name: name.to_owned(),
            id: random::unguessable()?,
            socket,
            policy,
            directory: directory.clone(),
            network,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            bell: EventFd::new()?,
            closed: AtomicBool::new(false),
            successors: Mutex::default(),
        });
        reactor::add(Source::Listener(Arc::clone(&core)))?;
        for (place, acceptor) in places {
            reactor::add(Source::Place(Arc::clone(&core), place, acceptor))?;
        }
        Ok(Listener { core, entry })
    }

    /// Returns the random id of this listener.
    pub(crate) fn id(&self) -> u64 {
        self.core.id
    }

    /// Returns the settings by which other hosts reach this listener; `None` if they cannot.
    pub(crate) fn network(&self) -> Option<&Arc<Network>> {
        self.core.network.as_ref()
    }

    /// Returns the path of the listener's socket in the directory.
    pub(crate) fn path(&self) -> &Path {
        self.entry.path()
    }

    /// Returns the name on which this listener listens.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Accepts the next channel, waiting for one until the deadline.
    ///
    /// # Errors
    /// [`Error::NobodyConnected`] if none arrives before the deadline.
    pub fn accept(&self, until: Deadline) -> Result<Channel, Error> {
        let start = Instant::now();
        let mut waiting = self.core.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(channel) = waiting.pop_front() {
                if waiting.is_empty() {
                    self.core.bell.clear()?;
                }
                return Ok(channel);
            }
            let Some(until) = until else {
                waiting = self.core.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (name, waited) = (self.core.name.clone(), start.elapsed());
                return Err(Error::NobodyConnected { name, waited });
            }
            let woken = self.core.arrived.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether another process asks to take over this one's channels
    /// ([`Options::take_over`](crate::Options::take_over)).
    pub fn is_asked_to_hand_over(&self) -> bool {
        let successors = self.core.successors();
        let waiting = self.core.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if successors.is_empty() && waiting.is_empty() {
            // A process that asked and then gave up has signalled the eventfd. Clearing an eventfd cannot fail.
            let _ = self.core.bell.clear();
        }
        !successors.is_empty()
    }

    /// Hands channels to a process that asks for them, on this host or another, and stops listening. Waits for such a
    /// process until the deadline. Returns the number of channels handed over.
    ///
    /// The peers only notice a pause: each message arrives exactly once, including those that this process has not
    /// received yet. Drop all handles of the channels first; otherwise they would keep the peers from noticing if the
    /// new process dies. A channel whose peer has ended is not handed over.
    ///
    /// # Errors
    /// [`Error::NobodyTookOver`] if no process asks before the deadline; everything is then closed.
    /// [`Error::CannotFollow`] if a peer cannot follow because its program has no network settings to reach other
    /// hosts: its channel is closed, but the others have been handed over. After any other error, the channels that
    /// were not yet handed over are closed.
    pub fn hand_over(self, channels: Vec<Channel>, until: Deadline) -> Result<usize, Error> {
        let start = Instant::now();
        let successor = loop {
            if let Some(successor) = self.core.successors().pop() {
                break successor;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                let (name, waited) = (self.core.name.clone(), start.elapsed());
                return Err(Error::NobodyTookOver { name, waited });
            }
            std::thread::sleep(LOOK);
        };
        hand_over::hand_over(successor, channels, until)
    }
}

impl AsFd for Listener {
    /// Returns a descriptor that polls readable while [`Listener::accept`] would not wait, or another process asks to
    /// take over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.bell.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.core.closed.store(true, Ordering::Release);
        // Channels that nobody will accept are closed.
        drop(std::mem::take(
            &mut *self.core.waiting.lock().unwrap_or_else(PoisonError::into_inner),
        ));
        reactor::wake();
    }
}
