//! A channel, and how a program connects to a name.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_ring::biased::biased;
use crossway_sys::epoll::Epoll;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{OsError, socket};

use crate::directory::Directory;
use crate::error::{Error, RecvError};
use crate::event::{Event, Happening, Reason};
use crate::hand_over;
use crate::link::{Abroad, Link, Parts, flag};
use crate::listener::Listener;
use crate::message::{self, Hello, Message, OfferText, Outbox, Packet, Welcome};
use crate::net::Network;
use crate::net::connect::connect;
use crate::net::wire::Wire;
use crate::page::Page;
use crate::policy::Policy;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor::{self, Source};
use crate::receiver::{Receiver, RxState};
use crate::sender::{Sender, TxState};
use crate::status::Status;
use crate::transport::{Halves, Shape, Transport};

/// Time between looks for a listener that is not there yet, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How a channel is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest message in bytes. The connecting end decides.
    pub max_message: usize,
    /// Bytes of a ring in each direction; `None` for one that suits `max_message`. The connecting end decides.
    pub capacity_bytes: Option<usize>,
    /// What the channel may use.
    pub policy: Policy,
    /// Where the names of this host are.
    pub directory: Directory,
    /// How other hosts are reached; `None`: as the environment says ([`Network::of_environment`]).
    pub network: Option<Network>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_message: 64 << 10,
            capacity_bytes: None,
            policy: Policy::default(),
            directory: Directory::of_user(),
            network: None,
        }
    }
}

impl Options {
    /// Listens on a name.
    ///
    /// # Errors
    /// The name is none, the directory cannot be written to, or the policy allows no transport.
    pub fn listen(self, name: &str) -> Result<Listener, Error> {
        let network = self.network_for(name)?;
        Listener::new(&self.directory, name, self.policy, network)
    }

    /// How other hosts are reached, if a name can be there.
    fn network_for(&self, name: &str) -> Result<Option<Arc<Network>>, Error> {
        let network = match &self.network {
            Some(network) => network.clone(),
            None => Network::of_environment()?,
        };
        if !network.reaches(name) {
            return Ok(None);
        }
        if !network.is_protected_by_choice() {
            return Err(Error::Unprotected { name: name.to_owned() });
        }
        Ok(Some(Arc::new(network)))
    }

    /// Listens on a name, and takes over the channels of a process that does and hands them over ([`Listener::hand_over`]). From the moment of the
    /// call new connectors come here.
    ///
    /// # Errors
    /// As [`Options::listen`]; [`Error::NobodyListens`] when nobody has handed anything over until the deadline.
    pub fn take_over(self, name: &str, until: Deadline) -> Result<(Listener, Vec<Channel>), Error> {
        let listener = self.clone().listen(name)?;
        let channels = hand_over::take_over(&self, name, &listener, until)?;
        Ok((listener, channels))
    }

    /// Connects to a listener of a name, on this host if there is one, else on another; waits for one until the deadline.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn connect(self, name: &str, until: Deadline) -> Result<Channel, Error> {
        let network = self.network_for(name)?;
        self.policy.check(network.is_some())?;
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let start = Instant::now();
        let mut pause = FIRST_LOOK;
        loop {
            // Several listeners of a name get their connectors in turn.
            let turn =
                TURN.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() as usize);
            if let Some(channel) = self.connect_here(name, turn, until)? {
                return Ok(channel);
            }
            let mut elsewhere = String::new();
            if let Some(network) = &network {
                match connect(&self, network, name, turn, until)? {
                    Ok(channel) => return Ok(channel),
                    Err(tried) if tried.is_empty() => {}
                    Err(tried) => elsewhere = format!("; {tried}"),
                }
                // The search took time.
                if let Some(channel) = self.connect_here(name, turn, until)? {
                    return Ok(channel);
                }
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::NobodyListens {
                    name: name.to_owned(),
                    directory: self.directory.path().to_owned(),
                    elsewhere,
                    waited: start.elapsed(),
                });
            }
            std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
            pause = (2 * pause).min(LAST_LOOK);
        }
    }

    /// Connects to a listener of this host; `None` if there is none.
    fn connect_here(
        &self,
        name: &str,
        turn: usize,
        until: Deadline,
    ) -> Result<Option<Channel>, Error> {
        match self.directory.connect(name, turn)? {
            Some(socket) => self.greet(name, socket, until),
            None => Ok(None),
        }
    }

    /// Greets a listener; `None` if it went away before it answered.
    fn greet(
        &self,
        name: &str,
        socket: OwnedFd,
        until: Deadline,
    ) -> Result<Option<Channel>, Error> {
        let shape = Shape { max_message: self.max_message, capacity_bytes: self.capacity_bytes };
        let (transport, made) = shape.first(self.policy.pollable);
        let (halves, offer) = made?;
        let (first, mut fds) = OfferText::new(transport, offer);
        let (page, page_fd) = Page::make()?;
        fds.insert(0, page_fd);
        let wrote = page.write_nonce(false)?;
        let hello = Hello::new(name, shape, self.policy.transports(), first)?;
        let (id, marks) = (hello.id, hello.marks);
        Outbox::default().send(&socket, &Message::Hello(Box::new(hello)), fds);
        let welcome = match answer(name, &socket, until)? {
            Some(welcome) => welcome,
            None => return Ok(None),
        };
        let no_proof = |why: &str| Error::NotLocal { name: name.to_owned(), why: why.to_owned() };
        if welcome.boot_id != boot_id() {
            return Err(no_proof("it runs on another kernel (boot id)"));
        }
        if welcome.read_nonce != wrote {
            return Err(no_proof("it did not read what this process wrote to the shared page"));
        }
        if welcome.wrote_nonce != page.nonce(true) {
            return Err(no_proof("what it wrote to the shared page does not arrive"));
        }
        let ends = Ends {
            name: name.to_owned(),
            id,
            switch: Switch::new(Role::Follower),
            marks: Marks::new(marks),
            shape,
            peer_pid: socket::peer_credentials(&socket).map_or(0, |peer| peer.pid),
            directory: self.directory.clone(),
            page,
            halves,
            transport,
            policy: self.policy.clone(),
            peer_allows: welcome.transports,
            sequences: (0, 0),
            held: VecDeque::new(),
            fin: false,
            abroad: None,
        };
        let channel = Channel::new(ends, Wire::unix(socket))?;
        reactor::add(Source::Link(channel.link()))?;
        Ok(Some(channel))
    }
}

/// Waits for the listener's answer; `None` if it is gone.
fn answer(name: &str, socket: &OwnedFd, until: Deadline) -> Result<Option<Welcome>, Error> {
    let no_answer = |why: &str| Error::NoAnswer { name: name.to_owned(), why: why.to_owned() };
    let came = wait_ready(socket, Interest::Readable, until)
        .map_err(|e| OsError::new("poll", "control connection", e))?;
    if !came {
        return Err(no_answer("not until the deadline; its process may be stopped"));
    }
    match message::receive(socket, true) {
        Packet::Message(Message::Welcome(welcome), _) => Ok(Some(welcome)),
        Packet::Message(Message::Refused(why), _) => {
            Err(Error::Refused { name: name.to_owned(), why })
        }
        Packet::Message(..) => Err(no_answer("it says something else than a greeting")),
        Packet::Nonsense(why) => Err(no_answer(&why)),
        Packet::Nothing | Packet::End | Packet::Broken => Ok(None),
    }
}

/// The kernel's name for this run of it.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// What an end of a channel is made of.
pub(crate) struct Ends {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) switch: Switch,
    pub(crate) marks: Marks,
    pub(crate) shape: Shape,
    pub(crate) peer_pid: u32,
    pub(crate) directory: Directory,
    pub(crate) page: Page,
    pub(crate) halves: Halves,
    pub(crate) transport: Transport,
    pub(crate) policy: Policy,
    pub(crate) peer_allows: Vec<Transport>,
    /// Messages sent and received before.
    pub(crate) sequences: (u64, u64),
    /// Messages that were received before and not given to the program.
    pub(crate) held: VecDeque<Vec<u8>>,
    /// The peer sends no more.
    pub(crate) fin: bool,
    /// If the peer is on another host.
    pub(crate) abroad: Option<Abroad>,
}

/// One end of a channel: whole messages, in order, both ways, each exactly once while both ends live.
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

impl Channel {
    pub(crate) fn new(ends: Ends, wire: Wire) -> Result<Channel, Error> {
        let (tx, rx) = ends.halves;
        let session = tx.session().cloned();
        let (poll, poll_fd) = if ends.policy.pollable {
            let poll = Epoll::new(1)?;
            let fd = poll.as_fd().try_clone_to_owned();
            (Some(poll), Some(fd.map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "epoll", e))?))
        } else {
            (None, None)
        };
        let max = ends.shape.max_message;
        let mut rx =
            RxState::new(rx, ends.sequences.1, max, poll).map_err(|error| match error {
                RecvError::Os(error) => Error::Os(error),
                other => Error::Policy(other.to_string()),
            })?;
        let holds = !ends.held.is_empty();
        (rx.held, rx.fin) = (ends.held, ends.fin);
        let (tx_owner, tx_visitor) = biased(TxState::new(tx, ends.sequences.0));
        let (rx_owner, rx_visitor) = biased(rx);
        let on = ends.transport;
        let link = Link::new(Parts {
            name: ends.name,
            id: ends.id,
            switch: ends.switch,
            marks: ends.marks,
            shape: ends.shape,
            peer_pid: ends.peer_pid,
            directory: ends.directory,
            wire,
            abroad: ends.abroad,
            session,
            page: ends.page,
            tx: tx_visitor,
            rx: rx_visitor,
            transport: on,
            policy: ends.policy,
            peer_allows: ends.peer_allows,
        });
        if holds {
            link.rx.raise(flag::HELD);
        }
        link.log(&mut link.lock(), Happening::Connected { on });
        Ok(Channel {
            sender: Sender::new(tx_owner, Arc::clone(&link)),
            receiver: Receiver::new(rx_owner, link, poll_fd),
        })
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        self.receiver.link()
    }

    /// What steers and watches the channel, for any thread.
    pub fn handle(&self) -> Handle {
        Handle(self.link())
    }

    /// The sending half.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The receiving half.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Both halves, for two threads.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

/// Steers and watches a channel.
#[derive(Clone)]
pub struct Handle(Arc<Link>);

/// A switch that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It was not over until the deadline; it goes on.
    #[error("the switch to {to} was not over until the deadline")]
    TimedOut {
        /// Where it leads.
        to: Transport,
    },
    /// One of the ends could not open the transport; the channel stays where it was.
    #[error("the channel stays where it was, {to} did not open: {why}")]
    Refused {
        /// Where it should have led.
        to: Transport,
        /// The last words of the log.
        why: String,
    },
    /// The channel is closed, or its peer is gone.
    #[error("the channel is closed")]
    Closed,
}

impl Handle {
    /// The channel's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The channel's number, the same at both ends.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The transport in use; while a switch goes on, the old one.
    pub fn transport(&self) -> Transport {
        self.0.lock().transport
    }

    /// Switches so far, refused ones included.
    pub fn epoch(&self) -> u32 {
        self.0.lock().switch.epoch()
    }

    /// Whether this end has closed or lost its peer.
    pub fn is_over(&self) -> bool {
        self.0.lock().over
    }

    /// Asks for a transport. The switch begins as soon as no other goes on; the log tells of its end. Unless it is pinned, the policy
    /// may leave it again.
    pub fn ask_for(&self, transport: Transport) {
        self.0.wish(transport);
    }

    /// Switches, and waits until both directions are on the new transport. For that, both programs must receive or be elsewhere: one that
    /// sends without receiving blocks a switch as it blocks its peer.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn switch_to(&self, to: Transport, until: Deadline) -> Result<(), SwitchError> {
        let link = &self.0;
        let (mut epoch, mut asked) = (self.epoch(), false);
        loop {
            if self.is_settled_on(to) {
                return Ok(());
            }
            if link.role == Role::Leader && !asked {
                let begun = link.start(to, Reason::Asked);
                let begun = begun.map_err(|e| SwitchError::Refused { to, why: e.to_string() })?;
                asked = begun;
            } else if !asked {
                link.wish(to);
                asked = true;
            }
            let state = link.lock();
            if asked && state.switch.is_settled() && state.switch.epoch() != epoch {
                if state.transport == to {
                    return Ok(());
                }
                if link.role == Role::Leader {
                    let why = "see the log".to_owned();
                    return Err(SwitchError::Refused { to, why });
                }
                epoch = state.switch.epoch();
            }
            if state.over {
                return Err(SwitchError::Closed);
            }
            if !asked && state.switch.is_settled() {
                // The switch that was in the way has just ended.
                epoch = state.switch.epoch();
                continue;
            }
            if !link.wait(state, until).1 {
                return Err(SwitchError::TimedOut { to });
            }
        }
    }

    fn is_settled_on(&self, transport: Transport) -> bool {
        let state = self.0.lock();
        state.switch.is_settled() && state.transport == transport
    }

    /// Replaces the policy; the channel leaves at once what it may not use any more. [`Policy::pollable`] stays as it was.
    pub fn set_policy(&self, policy: Policy) {
        let mut state = self.0.lock();
        let pollable = state.policy.pollable;
        state.policy = Policy { pollable, ..policy };
        if self.0.role == Role::Follower {
            let transports = state.own_transports();
            state.wire.send(&Message::Policy { transports }, Vec::new());
        }
        drop(state);
        self.0.call_policy();
    }

    /// Subscribes to what happens from now on.
    pub fn events(&self) -> mpsc::Receiver<Event> {
        self.0.events()
    }

    /// What has happened, the oldest first; the last 64 entries.
    pub fn log(&self) -> Vec<Event> {
        self.0.log_so_far()
    }

    /// The channel from outside.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

/// What the channels of all listeners in a directory do, as their processes tell; one that does not answer within `limit` is left out.
pub fn status(
    directory: &Directory,
    name: Option<&str>,
    limit: Duration,
) -> Result<Vec<Status>, Error> {
    let mut all = Vec::new();
    for (_, socket) in directory.connect_all(name)? {
        if let Some(Message::Status(status)) = ask(&socket, &Message::AskStatus, limit) {
            all.extend(status);
        }
    }
    // A process that listens on a name twice tells of each channel twice.
    all.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    all.dedup_by_key(|status| status.id);
    Ok(all)
}

/// Asks the channels of a name to use a transport; returns how many were asked.
pub fn ask_for(
    directory: &Directory,
    name: &str,
    transport: Transport,
    limit: Duration,
) -> Result<usize, Error> {
    let question = Message::AskSwitch { name: name.to_owned(), transport };
    let mut asked = 0;
    for (_, socket) in directory.connect_all(Some(name))? {
        if let Some(Message::Asked(count)) = ask(&socket, &question, limit) {
            asked += count;
        }
    }
    Ok(asked)
}

fn ask(socket: &OwnedFd, question: &Message, limit: Duration) -> Option<Message> {
    Outbox::default().send(socket, question, Vec::new());
    let came = wait_ready(socket, Interest::Readable, Some(Instant::now() + limit));
    match (came, message::receive(socket, true)) {
        (Ok(true), Packet::Message(message, _)) => Some(message),
        _ => None,
    }
}
