//! Options for listening on a name and connecting to one.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{OsError, socket};

use crate::channel::{Channel, Ends};
use crate::directory::Directory;
use crate::error::Error;
use crate::hand_over;
use crate::link::Moving;
use crate::listener::Listener;
use crate::message::{self, Hello, Message, OfferText, Outbox, Packet, Welcome};
use crate::net::Network;
use crate::net::connect::connect;
use crate::net::datagrams::MAX_LOSSY_MESSAGE;
use crate::net::wire::Wire;
use crate::page::Page;
use crate::policy::Policy;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor::{self, Source};
use crate::transport::Shape;
use crossway_sys::kernel::boot_id;

/// Time between the first two searches for a listener that does not exist yet. It doubles each time, up to
/// [`LAST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// The settings with which a channel is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest message in bytes. The setting of the connecting end applies.
    pub max_message: usize,
    /// Size in bytes of a ring or, between hosts, of the buffer of unacknowledged messages, in each direction; `None`
    /// for a size that suits `max_message`. The setting of the connecting end applies.
    pub capacity_bytes: Option<usize>,
    /// Which transports the channel may use, and how it chooses among them.
    pub policy: Policy,
    /// The directory in which names of this host are looked up.
    pub directory: Directory,
    /// How other hosts are reached; `None` to read this from the environment ([`Network::of_environment`]).
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

/// The result of [`Options::take_over`].
pub struct TakenOver {
    /// The listener for new connectors.
    pub listener: Listener,
    /// The channels that were handed over. They now belong to this process alone.
    pub channels: Vec<Channel>,
    /// Why further channels may be lost: the other process died, failed, or did not finish before the deadline. `None`
    /// if it has handed over all of its channels.
    pub incomplete: Option<Error>,
}

impl Options {
    /// Listens on a name.
    ///
    /// # Errors
    /// The name is invalid, the directory cannot be used, or the policy allows no transport. [`Error::Network`],
    /// [`Error::Unprotected`] or [`Error::NotHere`] if the settings for other hosts are invalid, lack a key, or list
    /// only addresses of other hosts for this name.
    pub fn listen(self, name: &str) -> Result<Listener, Error> {
        let network = self.network_for(name)?;
        Listener::new(&self.directory, name, self.policy, network)
    }

    /// Returns the settings for reaching other hosts; `None` if the name cannot be on another host.
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

    /// Listens on a name, and takes over the channels of the process that listens on it now and is willing to hand them
    /// over ([`Listener::hand_over`]). New connectors reach this process from the time of the call.
    ///
    /// # Errors
    /// Those of [`Options::listen`]; [`Error::NobodyListens`] if no process listens on the name before the deadline;
    /// [`Error::HandOver`] if the listening process dies, or has handed over nothing before the deadline. After the
    /// first channel, the error is in [`TakenOver::incomplete`] instead.
    pub fn take_over(self, name: &str, until: Deadline) -> Result<TakenOver, Error> {
        let listener = self.clone().listen(name)?;
        let (channels, incomplete) = hand_over::take_over(&self, name, &listener, until)?;
        Ok(TakenOver { listener, channels, incomplete })
    }

    /// Connects to the listener of a name, on this host if there is one, otherwise on another host; waits for a
    /// listener until the deadline.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn connect(self, name: &str, until: Deadline) -> Result<Channel, Error> {
        let network = self.network_for(name)?;
        self.policy.check(network.is_some())?;
        if self.policy.lossy && network.is_some() && self.max_message > MAX_LOSSY_MESSAGE {
            return Err(Error::Policy(format!(
                "where loss is allowed, max_message can be at most {MAX_LOSSY_MESSAGE} bytes, but it is {}",
                self.max_message
            )));
        }
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let way = network.as_ref();
        let start = Instant::now();
        let mut pause = FIRST_LOOK;
        loop {
            // Several listeners of a name get their connectors in turn.
            let turn =
                TURN.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() as usize);
            if let Some(channel) = self.connect_here(name, turn, way, until)? {
                return Ok(channel);
            }
            let mut elsewhere = String::new();
            if let Some(network) = way {
                match connect(&self, network, name, turn, until)? {
                    Ok(channel) => return Ok(channel),
                    Err(tried) if tried.is_empty() => {}
                    Err(tried) => elsewhere = format!("; {tried}"),
                }
                // The search took time.
                if let Some(channel) = self.connect_here(name, turn, way, until)? {
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

    /// Connects to a listener on this host; `None` if there is none, or if it ended before it answered.
    fn connect_here(
        &self,
        name: &str,
        turn: usize,
        network: Option<&Arc<Network>>,
        until: Deadline,
    ) -> Result<Option<Channel>, Error> {
        match self.directory.connect(name, turn)? {
            Some(socket) => self.greet(name, socket, network, until),
            None => Ok(None),
        }
    }

    /// Greets a listener and waits for its answer; `None` if the listener ended before it answered.
    fn greet(
        &self,
        name: &str,
        socket: OwnedFd,
        network: Option<&Arc<Network>>,
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
            return Err(no_proof("it runs on another kernel (its boot id differs)"));
        }
        if welcome.read_nonce != wrote {
            return Err(no_proof("it did not read what this process wrote to the shared page"));
        }
        if welcome.wrote_nonce != page.nonce(true) {
            return Err(no_proof(
                "this process did not read what the listener wrote to the shared page",
            ));
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
            peer_budget: 1.0,
            sequences: (0, 0),
            held: VecDeque::new(),
            fin: false,
            abroad: None,
            network: network.cloned(),
            listener: None,
            moving: Moving::No,
            moves: 0,
        };
        let channel = Channel::new(ends, Wire::unix(socket))?;
        if self.policy.cpu_budget < 1.0 {
            channel.link().lock().say_policy();
        }
        reactor::add(Source::Link(channel.link()))?;
        Ok(Some(channel))
    }
}

/// Waits for the listener's answer; `None` if the listener has ended.
fn answer(name: &str, socket: &OwnedFd, until: Deadline) -> Result<Option<Welcome>, Error> {
    let no_answer = |why: &str| Error::NoAnswer { name: name.to_owned(), why: why.to_owned() };
    let came = wait_ready(socket, Interest::Readable, until)
        .map_err(|e| OsError::new("poll", "control connection", e))?;
    if !came {
        return Err(no_answer(
            "none came before the deadline; the listener's process may be stopped",
        ));
    }
    match message::receive(socket, true) {
        Packet::Message(Message::Welcome(welcome), _) => Ok(Some(welcome)),
        Packet::Message(Message::Refused(why), _) => {
            Err(Error::Refused { name: name.to_owned(), why })
        }
        Packet::Message(..) => Err(no_answer("the answer is not a greeting")),
        Packet::Nonsense(why) => Err(no_answer(&why)),
        Packet::Nothing | Packet::End | Packet::Broken => Ok(None),
    }
}
