//! Endpoints: what a program opens, sends from and receives at.

mod arrivals;
mod requests;
mod sending;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crossway_sys::clock::monotonic_ns;
use crossway_sys::epoll::{Epoll, Report as When};
use crossway_sys::eventfd::EventFd;
use crossway_sys::timerfd::TimerFd;

use crate::channel::{Assembly, Channel};
use crate::control::Control;
use crate::limits::{LOOK_AROUND, LOOK_BELOW};
use crate::mailbox::Mailbox;
use crate::wire::local::{Event, Request, VERSION};
use crate::{Error, Filter, Queue, Signal, Spid, Transport};

/// How an endpoint is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its queue's bounds.
    pub queue: Queue,
    /// By what it sends to other endpoints of the node; `None`: as the node says. Where both ends send, the first one's wish counts.
    pub transport: Option<Transport>,
}

const CONTROL: u64 = 0;
const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
/// Descriptors that one look reports.
const BATCH: usize = 64;

/// A channel and who is at its other end.
struct Way {
    channel: Channel,
    /// `None`: the node, which passes on what others send.
    peer: Option<Spid>,
    /// As whom the peer may send besides itself.
    vouched: HashSet<Spid>,
    /// It is in `hot`.
    is_hot: bool,
}

/// What others poll.
struct Pollable {
    /// Readable while something is queued here, where no descriptor shows it.
    wake: EventFd,
    is_awake: bool,
    timer: TimerFd,
    /// The instant to which the timer is set.
    timed_ns: Option<u64>,
}

/// An endpoint: a name under which others find it, a number that is its alone, a queue of signals.
///
/// One thread at a time uses it; a program opens as many as it has threads. Dropping it closes it: everyone attached is told.
pub struct Endpoint {
    control: Control,
    name: String,
    spid: Spid,
    transport: Option<Transport>,
    mailbox: Mailbox,
    assembly: Assembly,
    epoll: Epoll,
    ways: HashMap<u32, Way>,
    /// The channel to an endpoint.
    routes: HashMap<Spid, u32>,
    /// The route used last.
    last_route: Option<(Spid, u32)>,
    /// Channels to look into before sleeping: nothing will wake for what is in them.
    hot: VecDeque<u32>,
    /// Channels that hold back what they have taken.
    unsent: HashSet<u32>,
    /// As whom this endpoint may send to whom, besides itself.
    may_send_as: HashSet<(Spid, Spid)>,
    pollable: Option<Pollable>,
    /// Received signals since the last look around.
    since_look: u32,
    sent: u64,
    received: u64,
    node_gone: bool,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("spid", &self.spid)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Opens an endpoint on the node in a directory ([`default_dir`](crate::default_dir)). Others may have the same name.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NoNode`], [`Error::NotPermitted`], [`Error::Limit`].
    pub fn open(dir: &Path, name: &str) -> Result<Endpoint, Error> {
        Self::open_with(dir, name, &Options::default())
    }

    /// As [`Endpoint::open`], with other than the default options.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open_with(dir: &Path, name: &str, options: &Options) -> Result<Endpoint, Error> {
        crate::check_name(name)?;
        Self::on(Control::connect(dir)?, name, options)
    }

    /// Opens an endpoint on a connection to a node in a thread ([`NodeThread::connection`](crate::NodeThread::connection)).
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open_on(connection: OwnedFd, name: &str, options: &Options) -> Result<Endpoint, Error> {
        crate::check_name(name)?;
        Self::on(Control::on(connection), name, options)
    }

    fn on(mut control: Control, name: &str, options: &Options) -> Result<Endpoint, Error> {
        let said = control.say(&Request::Open { version: VERSION, name: name.to_owned() });
        // Whoever is turned away finds the reason behind a connection that is closed already.
        let spid = match said.and_then(|()| control.hear(false)).or_else(|_| control.hear(false))? {
            Some((Event::Opened { spid }, _)) => spid,
            Some((Event::Refused { refusal, why }, _)) => {
                return Err(requests::refused(refusal, why, None));
            }
            other => return Err(Error::Protocol(format!("{other:?}"))),
        };
        let epoll = Epoll::new(BATCH)?;
        epoll.add(&control, CONTROL, When::WhileReadable)?;
        Ok(Endpoint {
            control,
            name: name.to_owned(),
            spid,
            transport: options.transport,
            mailbox: Mailbox::new(options.queue),
            assembly: Assembly::default(),
            epoll,
            ways: HashMap::new(),
            routes: HashMap::new(),
            last_route: None,
            hot: VecDeque::new(),
            unsent: HashSet::new(),
            may_send_as: HashSet::new(),
            pollable: None,
            since_look: 0,
            sent: 0,
            received: 0,
            node_gone: false,
        })
    }

    /// Its number.
    pub fn spid(&self) -> Spid {
        self.spid
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A signal in a buffer that was freed before ([`Endpoint::free`]), if one is large enough.
    ///
    /// # Errors
    /// As [`Signal::new`].
    pub fn alloc(&mut self, number: u32, payload_len: usize) -> Result<Signal, Error> {
        let size = crate::signal::check(number, payload_len)?;
        let mut bytes = self.assembly.buffer(size);
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.resize(size, 0);
        Signal::from_bytes(bytes)
    }

    /// Keeps a signal's buffer for the next signals. Dropping a signal frees it as well.
    pub fn free(&mut self, signal: Signal) {
        self.assembly.give_back(signal.into_bytes());
    }

    /// Receives the first signal of the queue that the filter takes, waiting until the deadline for one; `None` waits for ever, and
    /// `Ok(None)` says that the deadline has passed.
    ///
    /// # Errors
    /// [`Error::QueueFull`] if none can come because the queue is full of others; [`Error::NodeGone`] when everything was received and the
    /// node is gone.
    #[inline]
    pub fn receive(
        &mut self,
        filter: &Filter<'_>,
        until: Option<Instant>,
    ) -> Result<Option<Signal>, Error> {
        let taken = self.receive_unannounced(filter, until);
        if self.pollable.is_some() {
            self.announce()?;
        }
        taken
    }

    #[inline]
    fn receive_unannounced(
        &mut self,
        filter: &Filter<'_>,
        until: Option<Instant>,
    ) -> Result<Option<Signal>, Error> {
        if self.since_look >= LOOK_AROUND && (1..LOOK_BELOW).contains(&self.mailbox.len()) {
            // What is queued is taken in the order of arrival, but something out of band may have come.
            self.look(Some(Instant::now()))?;
        }
        let mut nothing_left = false;
        loop {
            self.expire();
            if let Some(signal) = self.mailbox.take(filter) {
                self.since_look += 1;
                self.received += 1;
                return Ok(Some(signal));
            }
            if self.drain_hot(filter)? {
                continue;
            }
            if self.node_gone {
                if self.read_out_all() {
                    continue;
                }
                return Err(Error::NodeGone);
            }
            if nothing_left {
                return Ok(None);
            }
            if self.mailbox.is_full() {
                return Err(Error::QueueFull { signals: self.mailbox.len() });
            }
            if !self.unsent.is_empty() {
                self.flush_some()?;
            }
            let late = until.is_some_and(|until| until <= Instant::now());
            let found = self.sleep(filter, until)?;
            nothing_left = late && !found;
        }
    }

    /// Sleeps until something has come, a time-out or the deadline; tells whether something has come.
    fn sleep(&mut self, filter: &Filter<'_>, until: Option<Instant>) -> Result<bool, Error> {
        let timeout = self
            .mailbox
            .next_timeout_ns()
            .map(|at| Instant::now() + Duration::from_nanos(at.saturating_sub(monotonic_ns())));
        let mut until = match (until, timeout) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if !self.unsent.is_empty() {
            // What was taken goes out while this endpoint waits.
            let soon = Instant::now() + Duration::from_millis(1);
            until = Some(until.map_or(soon, |until| until.min(soon)));
        }
        self.look_for(filter, until)
    }

    /// Queues the signals of time-outs that are over.
    #[inline]
    fn expire(&mut self) {
        if self.mailbox.next_timeout_ns().is_some() {
            self.mailbox.expire(monotonic_ns(), self.spid);
        }
    }

    /// A descriptor that polls readable when something can be received; it may be so for nothing, too. Do not read from it, and do not close it. After
    /// it was ready, receive with a deadline that has passed until there is nothing.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        if self.pollable.is_none() {
            let pollable = Pollable {
                wake: EventFd::new()?,
                is_awake: false,
                timer: TimerFd::new()?,
                timed_ns: None,
            };
            self.epoll.add(&pollable.wake, WAKE, When::WhileReadable)?;
            self.epoll.add(&pollable.timer, TIMER, When::WhileReadable)?;
            self.pollable = Some(pollable);
            self.announce()?;
        }
        Ok(self.epoll.as_fd())
    }

    /// Makes the descriptor show what nothing else would.
    fn announce(&mut self) -> Result<(), Error> {
        let idle = self.mailbox.len() == 0 && self.arm_hot()?;
        let next_ns = self.mailbox.next_timeout_ns();
        let Some(pollable) = &mut self.pollable else { return Ok(()) };
        if pollable.is_awake == idle {
            if idle {
                pollable.wake.clear()?;
            } else {
                pollable.wake.signal()?;
            }
            pollable.is_awake = !idle;
        }
        if pollable.timed_ns != next_ns {
            let left = next_ns.map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            pollable.timer.set(left)?;
            pollable.timed_ns = next_ns;
        }
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // What was taken is sent on, for as long as somebody may reasonably take to receive it.
        let until = Instant::now() + Duration::from_secs(1);
        while !self.unsent.is_empty() && Instant::now() < until {
            if self.flush_some().is_err() {
                return;
            }
            if !self.unsent.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
