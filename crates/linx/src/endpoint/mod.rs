//! Endpoints, which a program opens to send and receive signals.

mod arrivals;
#[cfg(test)]
mod by_reference;
mod channels;
mod descriptor;
mod likely;
mod requests;
mod sending;
mod trace;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crossway_sys::clock::monotonic_ns;
use crossway_sys::epoll::{Epoll, Trigger};

use crate::channel::{Assembly, Channel};
use crate::control::Control;
use crate::limits::{LOOK_AROUND, LOOK_AT_LAST, LOOK_BELOW};
use crate::mailbox::Mailbox;
use crate::signal::HEADROOM;
use crate::trace::tap::{Follower, Watch};
use crate::wire::local::{Event, Request, VERSION};
use crate::{Error, Filter, Queue, Signal, Spid, Traffic, Transport};
use descriptor::Pollable;
use likely::Likely;
pub(crate) use requests::refused;

/// The options for opening an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The limits of the endpoint's queue.
    pub queue: Queue,
    /// The transport for signals to other endpoints of the node; `None` for the node's default. If both ends send, the
    /// one that sends first chooses.
    pub transport: Option<Transport>,
}

const CONTROL: u64 = 0;
const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
/// Maximum number of descriptors that one check handles.
const BATCH: usize = 64;

/// A channel to another endpoint or to the node.
struct Way {
    channel: Channel,
    /// `None` if the peer is the node, which relays signals of other nodes.
    peer: Option<Spid>,
    /// The endpoints in whose name the peer may also send.
    vouched: HashSet<Spid>,
    /// Whether the channel is in `hot`.
    is_hot: bool,
}

/// An endpoint: a name by which others find it, a unique number, and a queue of signals.
///
/// Only one thread at a time can use it; a program opens one for each of its threads. Dropping an endpoint closes it,
/// and every endpoint that is attached to it is notified.
pub struct Endpoint {
    control: Control,
    name: String,
    spid: Spid,
    transport: Option<Transport>,
    mailbox: Mailbox,
    assembly: Assembly,
    epoll: Epoll,
    ways: HashMap<u32, Way>,
    /// The number of the channel to each endpoint.
    routes: HashMap<Spid, u32>,
    /// Endpoints that could not receive their end of a channel. The next send to each of them reports that.
    lost: HashSet<Spid>,
    /// The other end of a channel whose descriptors did not arrive here. The next receive reports the loss.
    starved: Option<Spid>,
    /// The route that was used last.
    last_route: Option<(Spid, u32)>,
    /// Channels that must be checked before sleeping, because signals in them will not wake this endpoint.
    hot: VecDeque<u32>,
    likely: Likely,
    /// Channels that have accepted bytes but not sent them yet.
    unsent: HashSet<u32>,
    /// Pairs of a sender and a receiver: this endpoint may send to the receiver in the sender's name.
    may_send_as: HashSet<(Spid, Spid)>,
    pollable: Option<Pollable>,
    trace: Follower,
    /// Number of signals received since the last check for new ones.
    since_look: u32,
    traffic: Traffic,
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
    /// Opens an endpoint on the node in a directory ([`default_dir`](crate::default_dir)). Names need not be unique.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NoNode`], [`Error::NotPermitted`], [`Error::Limit`].
    pub fn open(dir: &Path, name: &str) -> Result<Endpoint, Error> {
        Self::open_with(dir, name, &Options::default())
    }

    /// Like [`Endpoint::open`], with options.
    ///
    /// # Errors
    /// Those of [`Endpoint::open`].
    pub fn open_with(dir: &Path, name: &str, options: &Options) -> Result<Endpoint, Error> {
        crate::check_name(name)?;
        Self::on(Control::connect(dir)?, name, options)
    }

    /// Opens an endpoint on a connection to a node in a thread
    /// ([`NodeThread::connection`](crate::NodeThread::connection)).
    ///
    /// # Errors
    /// Those of [`Endpoint::open`].
    pub fn open_on(connection: OwnedFd, name: &str, options: &Options) -> Result<Endpoint, Error> {
        crate::check_name(name)?;
        Self::on(Control::on(connection), name, options)
    }

    fn on(mut control: Control, name: &str, options: &Options) -> Result<Endpoint, Error> {
        let said = control.say(&Request::Open { version: VERSION, name: name.to_owned() });
        // If the node rejects the connection, the reason can still be read from the closed connection.
        let heard = said.and_then(|()| control.hear(false)).or_else(|_| control.hear(false))?;
        let (spid, mut fds) = match heard {
            Some((Event::Opened { spid }, fds)) => (spid, fds),
            Some((Event::Refused { refusal, why }, _)) => {
                return Err(requests::refused(refusal, why, None));
            }
            other => return Err(Error::Protocol(format!("{other:?}"))),
        };
        let memory = fds.pop().ok_or_else(|| {
            let why =
                "this process has no descriptors left for an endpoint; raise its limit (ulimit -n)";
            Error::Limit(why.to_owned())
        })?;
        let trace = Follower::new(Watch::of(memory)?);
        let epoll = Epoll::new(BATCH)?;
        epoll.add(&control, CONTROL, Trigger::WhileReadable)?;
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
            lost: HashSet::new(),
            starved: None,
            last_route: None,
            hot: VecDeque::new(),
            likely: Likely::default(),
            unsent: HashSet::new(),
            may_send_as: HashSet::new(),
            pollable: None,
            trace,
            since_look: 0,
            traffic: Traffic::default(),
            node_gone: false,
        })
    }

    /// Returns the number by which other endpoints of the node address this one; it is never given to another endpoint.
    pub fn spid(&self) -> Spid {
        self.spid
    }

    /// Returns the name with which the endpoint was opened, by which other endpoints hunt for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Allocates a signal in a buffer that was freed before ([`Endpoint::free`]), if one is large enough. Its payload
    /// is whatever earlier signals have left there, while the payload of a signal from [`Signal::new`] consists of
    /// zeros.
    ///
    /// Sending it costs less than sending other signals: its buffer has room for the header that is sent with it.
    ///
    /// # Errors
    /// Those of [`Signal::new`].
    pub fn alloc(&mut self, number: u32, payload_len: usize) -> Result<Signal, Error> {
        let size = crate::signal::check(number, payload_len)?;
        let buffer = self.assembly.filled(HEADROOM + size);
        Ok(Signal::with_headroom(number, buffer))
    }

    /// Like [`Endpoint::alloc`], with number and payload in the layout of C programs.
    ///
    /// # Errors
    /// Those of [`Signal::from_bytes`].
    pub fn alloc_copy(&mut self, bytes: &[u8]) -> Result<Signal, Error> {
        let (number, payload) =
            bytes.split_first_chunk().ok_or(Error::BadSize { size: bytes.len() })?;
        let mut signal = self.alloc(u32::from_ne_bytes(*number), payload.len())?;
        signal.payload_mut().copy_from_slice(payload);
        Ok(signal)
    }

    /// Allocates a signal for one receiver, in memory that both share if they use [`Transport::Shm`] and belong to the
    /// same user. When it is sent to that receiver, or back from it, it is passed by reference and never copied. When
    /// it is sent to another endpoint, it is copied like any signal. Its payload is whatever earlier signals between
    /// the two have left there.
    ///
    /// Without shared memory, or if all of it is in use ([`limits::POOL`](crate::limits::POOL)), the signal is like one
    /// of [`Endpoint::alloc`]; [`Signal::is_shared`] tells which it is. The receiver's program can still change the
    /// memory after it has passed the signal back or freed it, so use this only between programs that trust each other.
    ///
    /// # Errors
    /// Those of [`Signal::new`], and those of [`Endpoint::send`] for a receiver that does not exist.
    pub fn alloc_for(
        &mut self,
        number: u32,
        payload_len: usize,
        to: Spid,
    ) -> Result<Signal, Error> {
        let size = crate::signal::check(number, payload_len)?;
        if to != self.spid {
            let way = self.route(to)?;
            if let Some(block) = self.ways.get(&way).and_then(|way| way.channel.block(size)) {
                return Ok(Signal::in_block(number, block, size));
            }
        }
        self.alloc(number, payload_len)
    }

    /// Frees a signal and keeps its buffer for further signals. Dropping a signal also frees it, but its buffer is not
    /// kept.
    pub fn free(&mut self, signal: Signal) {
        if let Some(buffer) = signal.into_buffer() {
            self.assembly.give_back(buffer);
        }
    }

    /// Receives the first signal in the queue that the filter accepts, waiting for one until the deadline, or as long
    /// as necessary if there is none. `Ok(None)` means that the deadline has passed.
    ///
    /// # Errors
    /// [`Error::QueueFull`] if none can arrive because the queue is full of others; [`Error::Limit`], once, if this
    /// process had no descriptors left for another endpoint's channel; [`Error::NodeGone`] when everything was received
    /// and the node has ended.
    #[inline]
    pub fn receive(
        &mut self,
        filter: &Filter<'_>,
        until: Option<Instant>,
    ) -> Result<Option<Signal>, Error> {
        let taken = self.receive_unannounced(filter, until);
        if let Ok(Some(signal)) = &taken {
            self.trace_received(signal);
        }
        self.show()?;
        taken
    }

    #[inline]
    fn receive_unannounced(
        &mut self,
        filter: &Filter<'_>,
        until: Option<Instant>,
    ) -> Result<Option<Signal>, Error> {
        let due = match self.mailbox.len() {
            0 => LOOK_AT_LAST,
            // Queued signals are taken in the order of arrival, but a signal out of band may have arrived.
            1..LOOK_BELOW => LOOK_AROUND,
            _ => u32::MAX,
        };
        if self.since_look >= due {
            self.look(Some(Instant::now()))?;
        }
        let mut nothing_left = false;
        loop {
            self.expire();
            if let Some(signal) = self.mailbox.take(filter) {
                self.since_look += 1;
                self.traffic.count_received(signal.is_remote(), signal.size());
                return Ok(Some(signal));
            }
            if self.drain_hot(filter)? {
                continue;
            }
            self.check_starved()?;
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

    /// Sleeps until something arrives, a time-out expires or the deadline passes; returns whether something arrived.
    fn sleep(&mut self, filter: &Filter<'_>, until: Option<Instant>) -> Result<bool, Error> {
        if self.read_likely() {
            return Ok(true);
        }
        let timeout = self
            .mailbox
            .next_timeout_ns()
            .map(|at| Instant::now() + Duration::from_nanos(at.saturating_sub(monotonic_ns())));
        let mut until = match (until, timeout) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if !self.unsent.is_empty() {
            // Signals that were taken are sent while this endpoint waits.
            let soon = Instant::now() + Duration::from_millis(1);
            until = Some(until.map_or(soon, |until| until.min(soon)));
        }
        self.look_for(filter, until)
    }

    /// Queues the signals of expired time-outs.
    #[inline]
    fn expire(&mut self) {
        if self.mailbox.next_timeout_ns().is_some() {
            self.mailbox.expire(monotonic_ns(), self.spid);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Signals that were taken are still sent, within the time that a receiver may reasonably need.
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
