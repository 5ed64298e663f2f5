//! The control thread, one per process. It reads control connections, opens offered transports, moves halves that are
//! in no call at the moment, and makes the policy check each channel. It touches no message of a channel that stays on
//! one transport, and sleeps while nothing happens.

mod incoming;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossway_sys::OsError;
use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::eventfd::EventFd;
use crossway_sys::socket;

use crate::hand_over::Successor;
use crate::link::{Link, Proof};
use crate::listener::Core;
use crate::message::{self, Message, Packet};
use crate::net::Incoming;
use crate::net::endpoint::{Acceptor, Place};
use crate::watch::Watch;

/// Maximum number of descriptors reported by one call of epoll_wait.
const BATCH: usize = 64;
/// A connection is closed if it has not sent its request after this time.
const GREETING: Duration = Duration::from_secs(5);
/// Number of connections from other hosts that may be open without having sent their request; further ones are closed.
const INCOMING: usize = 256;
/// Time between attempts to listen at a place that another process occupies, or while there is no tipcd.
const REOPEN: Duration = Duration::from_millis(100);
/// Pause before pending work that could not be done immediately is tried again. The pause doubles each time, up to
/// [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_micros(200);
/// Longest pause before pending work is tried again.
const LAST_RETRY: Duration = Duration::from_millis(16);

/// The epoll token of the eventfd that wakes the control thread.
const BELL: u64 = 0;

struct Shared {
    bell: EventFd,
    arrivals: Mutex<Vec<Source>>,
}

static SHARED: OnceLock<Result<Shared, String>> = OnceLock::new();

/// Something for the control thread to watch.
pub(crate) enum Source {
    /// A channel's control connection.
    Link(Arc<Link>),
    /// A listening socket.
    Listener(Arc<Core>),
    /// An exchange of greetings in datagrams, for a transport that is being opened.
    Proof(Proof),
    /// A place at which other hosts find a listener. Without a socket, it is opened as soon as that is possible.
    Place(Arc<Core>, Place, Option<Acceptor>),
}

/// Wakes the control thread, so that it attends to the links that have requested it.
pub(crate) fn wake() {
    if let Some(Ok(shared)) = SHARED.get() {
        // Writing to an eventfd cannot fail here.
        let _ = shared.bell.signal();
    }
}

/// Hands something to the control thread. The first call starts the thread.
pub(crate) fn add(source: Source) -> Result<(), OsError> {
    let shared = SHARED.get_or_init(|| start().map_err(|error| error.to_string()));
    let shared = shared.as_ref().map_err(|why| {
        OsError::new("start", "the control thread", std::io::Error::other(why.clone()))
    })?;
    shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    shared.bell.signal()
}

fn start() -> Result<Shared, OsError> {
    let bell = EventFd::new()?;
    let epoll = Epoll::new(BATCH)?;
    epoll.add(&bell, BELL, Trigger::WhileReadable)?;
    std::thread::Builder::new()
        .name("crossway-channel".to_owned())
        .spawn(move || Reactor { epoll, entries: HashMap::new(), next: BELL + 1 }.run())
        .map_err(|error| OsError::new("clone", "the control thread", error))?;
    Ok(Shared { bell, arrivals: Mutex::default() })
}

enum Entry {
    Link {
        link: Arc<Link>,
        watch: Box<Watch>,
        retry: Option<(Instant, Duration)>,
        /// Number of the control connection that is watched.
        connection: u64,
    },
    Listener(Arc<Core>),
    Guest {
        socket: OwnedFd,
        core: Arc<Core>,
        until: Instant,
    },
    Place {
        core: Arc<Core>,
        place: Place,
        acceptor: Option<Acceptor>,
        retry: Instant,
    },
    Proof(Proof),
    /// A connection from another host that has not sent its request.
    Incoming {
        incoming: Box<Incoming>,
        core: Arc<Core>,
        until: Instant,
    },
}

impl Entry {
    /// Returns the id of the listener that must keep its places open because the peer may look for this channel there
    /// again; `None` if no listener must.
    fn awaits(&self) -> Option<u64> {
        let Entry::Link { link, .. } = self else { return None };
        let state = link.lock();
        let comes_back = state.abroad.is_some() || state.is_elsewhere();
        link.listener.filter(|_| comes_back && !state.over)
    }
}

struct Reactor {
    epoll: Epoll,
    entries: HashMap<u64, Entry>,
    next: u64,
}

impl Reactor {
    fn run(mut self) {
        let shared = loop {
            match SHARED.get() {
                Some(Ok(shared)) => break shared,
                Some(Err(_)) => return,
                None => std::thread::yield_now(),
            }
        };
        let mut until = None;
        loop {
            let ready: Vec<(u64, bool)> = match self.epoll.wait(until) {
                Ok(ready) => ready.map(|r| (r.token, r.readable)).collect(),
                // Only a broken descriptor table makes this fail; do not burn a CPU over it.
                Err(_) => {
                    std::thread::sleep(LAST_RETRY);
                    Vec::new()
                }
            };
            for (token, readable) in ready {
                if token == BELL {
                    let _ = shared.bell.clear();
                } else if readable {
                    self.read(token);
                }
            }
            let mut arrivals = shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            let arrived = std::mem::take(&mut *arrivals);
            drop(arrivals);
            for source in arrived {
                self.adopt(source);
            }
            until = self.attend();
        }
    }

    fn adopt(&mut self, source: Source) {
        let entry = match source {
            Source::Link(link) => {
                let watch = Box::new(Watch::new(Instant::now()));
                Entry::Link { watch, link, retry: None, connection: 0 }
            }
            Source::Listener(core) => Entry::Listener(core),
            Source::Proof(proof) => Entry::Proof(proof),
            Source::Place(core, place, acceptor) => {
                Entry::Place { core, place, acceptor, retry: Instant::now() }
            }
        };
        self.insert(entry);
    }

    fn insert(&mut self, entry: Entry) {
        let fd = match &entry {
            // The descriptors of its connections are added by `attend`.
            Entry::Link { .. } => None,
            Entry::Listener(core) => Some(core.socket.as_fd()),
            Entry::Guest { socket, .. } => Some(socket.as_fd()),
            Entry::Proof(proof) => Some(proof.socket()),
            Entry::Place { acceptor, .. } => acceptor.as_ref().map(AsFd::as_fd),
            Entry::Incoming { incoming, .. } => Some(incoming.stream().as_fd()),
        };
        // If the kernel cannot watch another descriptor, the entry is dropped, which closes its connection.
        if fd.is_none_or(|fd| self.epoll.add(fd, self.next, Trigger::WhileReadable).is_ok()) {
            self.entries.insert(self.next, entry);
            self.next += 1;
        }
    }

    fn remove(&mut self, token: u64) -> Option<Entry> {
        let entry = self.entries.remove(&token)?;
        let _ = match &entry {
            Entry::Link { link, .. } => match link.lock().wire.watched() {
                Some((fd, _)) => self.epoll.remove(fd),
                None => Ok(()),
            },
            Entry::Listener(core) => self.epoll.remove(&core.socket),
            Entry::Guest { socket, .. } => self.epoll.remove(socket),
            Entry::Proof(proof) => self.epoll.remove(proof.socket()),
            Entry::Place { acceptor, .. } => {
                acceptor.as_ref().map_or(Ok(()), |acceptor| self.epoll.remove(acceptor))
            }
            Entry::Incoming { incoming, .. } => self.epoll.remove(incoming.stream()),
        };
        Some(entry)
    }

    fn read(&mut self, token: u64) {
        match self.entries.get_mut(&token) {
            Some(Entry::Link { link, .. }) => {
                let link = Arc::clone(link);
                if !link.read_packets()
                    && let Some((fd, _)) = link.lock().wire.watched()
                {
                    // The link stays, because its program still uses it, but no more packets will arrive.
                    let _ = self.epoll.remove(fd);
                }
                // An offer may have to be opened, or a marker sent.
                link.call();
            }
            Some(Entry::Listener(core)) => {
                let core = Arc::clone(core);
                while let Ok(socket) = socket::try_accept(&core.socket) {
                    let until = Instant::now() + GREETING;
                    self.insert(Entry::Guest { socket, core: Arc::clone(&core), until });
                }
            }
            Some(Entry::Guest { .. }) => self.greet(token),
            Some(Entry::Proof(proof)) => proof.hear(),
            Some(Entry::Place { .. }) => self.accept(token),
            Some(Entry::Incoming { .. }) => self.hear(token),
            None => {}
        }
    }

    /// Reads the request on a connection from this host, and carries it out.
    fn greet(&mut self, token: u64) {
        let Some(Entry::Guest { socket, core, .. }) = self.remove(token) else { return };
        let Packet::Message(first, fds) = message::receive(&socket, true) else { return };
        let reply = match first {
            Message::Hello(hello) => match core.welcome(socket, *hello, fds) {
                Some(link) => return self.adopt(Source::Link(link)),
                None => return,
            },
            Message::AskStatus => {
                Message::Status(self.links(&core.name).map(|link| link.status()).collect())
            }
            Message::TakeOver(_) => return core.successor(Successor::Near(socket)),
            Message::Rejoin(rejoin) => match self.awaiting(&core, rejoin.id) {
                Some(link) => return link.rejoin_near(rejoin, socket, fds),
                None => Message::NotHere(core.id),
            },
            Message::AskSwitch { name, transport } => {
                let links = self.links(&name);
                Message::Asked(links.map(|link| link.wish(transport)).count())
            }
            _ => return,
        };
        message::Outbox::default().send(&socket, &reply, Vec::new());
    }

    fn links<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<Link>> {
        self.entries.values().filter_map(move |entry| match entry {
            Entry::Link { link, .. } if link.name == name => Some(link),
            _ => None,
        })
    }

    /// Does the work that is due; returns when to call this again, or `None` if there is nothing to do before the next
    /// event.
    fn attend(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let mut soonest = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        let (mut done, mut fresh) = (Vec::new(), Vec::new());
        // While a channel with another host is open, its peer may return to the place where it found the listener.
        let awaited: Vec<u64> = self.entries.values().filter_map(Entry::awaits).collect();
        for (token, entry) in &mut self.entries {
            match entry {
                Entry::Link { link, watch, retry, connection } => {
                    let watched = |fd| self.epoll.add(fd, *token, Trigger::WhileReadable).is_ok();
                    if let Some((fd, new)) = link.lock().wire.watched()
                        && new != *connection
                        && watched(fd)
                    {
                        *connection = new;
                        fresh.push(*token);
                    }
                    let called = link.was_called();
                    if called {
                        *retry = None;
                    }
                    if called || retry.is_some_and(|(at, _)| at <= now) {
                        let pause = retry.map_or(FIRST_RETRY, |(_, d)| (2 * d).min(LAST_RETRY));
                        *retry = link.attend().then(|| (now + pause, pause));
                    }
                    if let Some(at) = link.release(now) {
                        soonest(at);
                    }
                    if let Some(tick) = watch.look(link, now) {
                        soonest(tick);
                    }
                    if let Some((at, _)) = retry {
                        soonest(*at);
                    }
                    if link.is_done() {
                        done.push(*token);
                    }
                }
                Entry::Guest { until, .. } if *until <= now => done.push(*token),
                Entry::Guest { until, .. } => soonest(*until),
                Entry::Listener(core) if core.is_closed() => done.push(*token),
                Entry::Listener(_) => {}
                Entry::Proof(proof) => match proof.attend(now) {
                    Some(at) => soonest(at),
                    None => done.push(*token),
                },
                Entry::Incoming { until, .. } if *until <= now => done.push(*token),
                Entry::Incoming { until, .. } => soonest(*until),
                Entry::Place { core, .. } if core.is_closed() && !awaited.contains(&core.id) => {
                    done.push(*token);
                }
                Entry::Place { core, place, acceptor, retry } if acceptor.is_none() => {
                    if *retry <= now {
                        *retry = now + REOPEN;
                        if let Ok(new) = place.open(&core.name)
                            && self.epoll.add(&new, *token, Trigger::WhileReadable).is_ok()
                        {
                            *acceptor = Some(new);
                            continue;
                        }
                    }
                    soonest(*retry);
                }
                Entry::Place { .. } => {}
            }
        }
        for token in fresh {
            // Packets that arrived together with the greeting are in memory already, so the descriptor may not poll
            // readable.
            self.read(token);
            next = Some(now);
        }
        for token in done {
            if let Some(Entry::Link { link, .. }) = self.remove(token) {
                link.removed();
            }
        }
        next
    }
}
