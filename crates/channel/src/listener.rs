//! The side that listens on a name.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::eventfd::EventFd;
use crossway_sys::{random, socket};

use crate::channel::{Channel, Ends, boot_id};
use crate::directory::{Directory, Entry};
use crate::error::Error;
use crate::hand_over::{self, Successor};
use crate::link::{Abroad, Link, Moving};
use crate::message::{Hello, Message, Outbox, VERSION, Welcome};
use crate::net::endpoint::{Acceptor, NotThere, Place};
use crate::net::wire::Wire;
use crate::net::{Network, Reader, Stream, Writer, write_now};
use crate::page::Page;
use crate::policy::Policy;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor::{self, Source};
use crate::transport::{Halves, Shape, Transport};

/// Time between looks for a process that takes over.
const LOOK: Duration = Duration::from_millis(2);
/// Channels that may wait for accept; further connectors are refused.
const WAITING: usize = 256;

/// The longest message between hosts, and the most that a sender keeps.
const LARGEST: usize = 1 << 30;

/// What the listener and the control thread share.
pub(crate) struct Core {
    pub(crate) name: String,
    /// A random number that no other listener has.
    pub(crate) id: u64,
    pub(crate) socket: OwnedFd,
    policy: Policy,
    directory: Directory,
    /// How other hosts reach it.
    pub(crate) network: Option<Arc<Network>>,
    waiting: Mutex<VecDeque<Channel>>,
    arrived: Condvar,
    bell: EventFd,
    closed: AtomicBool,
    /// Processes that ask to take over.
    successors: Mutex<Vec<Successor>>,
}

impl Core {
    /// Control thread: another process asks for this one's channels.
    pub(crate) fn successor(&self, successor: Successor) {
        let mut successors = self.successors();
        successors.push(successor);
        let _ = self.bell.signal();
        drop(successors);
        self.arrived.notify_all();
    }

    /// The processes that ask to take over and have not given up.
    fn successors(&self) -> MutexGuard<'_, Vec<Successor>> {
        let mut all = self.successors.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|successor| !successor.is_gone());
        all
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Control thread: makes a channel for a connector, which waits for the answer. `None` if it cannot be.
    pub(crate) fn welcome(
        &self,
        socket: OwnedFd,
        hello: Hello,
        fds: Vec<OwnedFd>,
    ) -> Option<Arc<Link>> {
        let mut outbox = Outbox::default();
        match self.try_welcome(&socket, hello, fds) {
            Ok((ends, welcome)) => {
                outbox.send(&socket, &Message::Welcome(welcome), Vec::new());
                self.admit(ends, Wire::unix(socket))
            }
            Err(why) => {
                outbox.send(&socket, &Message::Refused(why), Vec::new());
                None
            }
        }
    }

    /// Control thread: as [`Core::welcome`], for a connector on another host.
    pub(crate) fn welcome_from_abroad(
        &self,
        hello: Hello,
        mut writer: Writer,
        reader: Reader,
    ) -> Option<Arc<Link>> {
        if hello.name != self.name {
            write_now(&mut writer, &Message::OtherName(self.name.clone()));
            return None;
        }
        match self.try_welcome_from_abroad(hello, reader.stream()) {
            Ok((ends, welcome)) => {
                write_now(&mut writer, &Message::Welcome(welcome));
                self.admit(ends, Wire::net(writer, reader))
            }
            Err(why) => {
                write_now(&mut writer, &Message::Refused(why));
                None
            }
        }
    }

    /// A channel waits to be accepted.
    fn admit(&self, ends: Ends, wire: Wire) -> Option<Arc<Link>> {
        let channel = Channel::new(ends, wire).ok()?;
        let link = channel.link();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(channel);
        let _ = self.bell.signal();
        drop(waiting);
        self.arrived.notify_one();
        Some(link)
    }

    fn try_welcome_from_abroad(
        &self,
        hello: Hello,
        stream: &Stream,
    ) -> Result<(Ends, Welcome), String> {
        let transport = stream.transport();
        let ours = self.policy.transports_between(transport);
        self.check(&hello, &ours)?;
        let network = self.network.as_ref().ok_or("it listens on its host only")?;
        let Shape { max_message, capacity_bytes } = hello.shape;
        if max_message.max(capacity_bytes.unwrap_or(0)) > LARGEST {
            return Err(format!(
                "messages of {max_message} bytes in {capacity_bytes:?} bytes are wanted; between hosts neither may be more than {LARGEST}"
            ));
        }
        let (halves, _) = hello.shape.make(transport).map_err(|error| error.to_string())?;
        let (page, _) = Page::make().map_err(|error| error.to_string())?;
        let welcome =
            Welcome { read_nonce: 0, wrote_nonce: 0, boot_id: boot_id(), transports: ours };
        let peer = format!("{transport} {}", stream.peer());
        let network = Arc::clone(network);
        let abroad = Abroad { network, transport, peer, place: None };
        Ok((self.ends(hello, page, halves, transport, 0, Some(abroad)), welcome))
    }

    fn ends(
        &self,
        hello: Hello,
        page: Page,
        halves: Halves,
        transport: Transport,
        peer_pid: u32,
        abroad: Option<Abroad>,
    ) -> Ends {
        Ends {
            name: self.name.clone(),
            id: hello.id,
            switch: Switch::new(Role::Leader),
            marks: Marks::new(hello.marks),
            shape: hello.shape,
            peer_pid,
            directory: self.directory.clone(),
            page,
            halves,
            transport,
            policy: self.policy.clone(),
            peer_allows: hello.transports,
            sequences: (0, 0),
            held: VecDeque::new(),
            fin: false,
            abroad,
            network: self.network.clone(),
            listener: Some(self.id),
            moving: Moving::No,
            moves: 0,
        }
    }

    /// Whether a connector can be welcomed that wants what this end allows.
    fn check(&self, hello: &Hello, ours: &[Transport]) -> Result<(), String> {
        if hello.version != VERSION {
            return Err(format!(
                "it speaks version {VERSION} of the control protocol, the connector version {}",
                hello.version
            ));
        }
        if hello.name != self.name {
            return Err(format!("it listens on '{}'", self.name));
        }
        if self.is_closed() {
            return Err("it has stopped listening".to_owned());
        }
        let queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
        if queue >= WAITING {
            return Err(format!("{queue} channels wait to be accepted"));
        }
        if !ours.iter().any(|transport| hello.transports.contains(transport)) {
            let names =
                |all: &[_]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "it allows {}, the connector {}: nothing in common",
                names(ours),
                names(&hello.transports)
            ));
        }
        Ok(())
    }

    fn try_welcome(
        &self,
        socket: &OwnedFd,
        mut hello: Hello,
        mut fds: Vec<OwnedFd>,
    ) -> Result<(Ends, Welcome), String> {
        let ours = self.policy.transports();
        self.check(&hello, &ours)?;
        if fds.is_empty() {
            return Err("no shared page came with the greeting".to_owned());
        }
        let page = Page::open(fds.remove(0)).map_err(|error| error.to_string())?;
        let page = page.ok_or("what came with the greeting is no sealed page")?;
        let first = hello.first.transport;
        let offer = hello.first.take().offer(fds);
        let mut offer = offer.ok_or("descriptors of the offer are missing")?;
        let halves = hello.shape.open(first, &mut offer).map_err(|error| error.to_string())?;
        let wrote_nonce = page.write_nonce(true).map_err(|error| error.to_string())?;
        let welcome = Welcome {
            read_nonce: page.nonce(false),
            wrote_nonce,
            boot_id: boot_id(),
            transports: ours,
        };
        let peer_pid = socket::peer_credentials(socket).map_or(0, |peer| peer.pid);
        Ok((self.ends(hello, page, halves, first, peer_pid, None), welcome))
    }
}

/// Opens the places where other hosts find a name. One that another listener of the name on this host has is waited for; one that another
/// program has is left to it if there is a place besides.
fn places(
    directory: &Directory,
    name: &str,
    own: &Path,
    network: &Network,
) -> Result<Vec<(Place, Option<Acceptor>)>, Error> {
    let addresses = network.hosts.of(name);
    let (mut open, mut taken) = (Vec::new(), None);
    for place in addresses.iter().copied().map(Place::Tcp) {
        match place.open(name) {
            Ok(acceptor) => open.push((place, Some(acceptor))),
            Err(NotThere::Foreign) => {}
            Err(NotThere::Taken(error)) => match directory.connect_other(name, own)? {
                Some(_) => open.push((place, None)),
                None => taken = Some(error),
            },
            Err(NotThere::Failed(error)) => return Err(error.into()),
        }
    }
    if let Some(error) = taken.filter(|_| open.is_empty()) {
        return Err(error.into());
    }
    if open.is_empty() && !addresses.is_empty() {
        let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(Error::NotHere { name: name.to_owned(), addresses });
    }
    if let Some(backend) = &network.tipc {
        let place = Place::Tipc(backend.clone());
        match place.open(name) {
            Ok(acceptor) => open.push((place, Some(acceptor))),
            Err(NotThere::Failed(error) | NotThere::Taken(error)) => return Err(error.into()),
            Err(NotThere::Foreign) => {}
        }
    }
    Ok(open)
}

/// Listens on a name; connectors become channels without further ado, and wait here until they are accepted.
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
            Some(network) => places(directory, name, entry.path(), network)?,
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

    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.core.id
    }

    /// How other hosts reach it.
    pub(crate) fn network(&self) -> Option<&Arc<Network>> {
        self.core.network.as_ref()
    }

    /// Its socket in the directory.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.entry.path()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Takes the next channel, waiting for it until the deadline.
    ///
    /// # Errors
    /// [`Error::NobodyConnected`].
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
}

impl Listener {
    /// Whether a process asks to take this one's channels over ([`Options::take_over`](crate::Options::take_over)).
    pub fn is_asked_to_hand_over(&self) -> bool {
        let successors = self.core.successors();
        let waiting = self.core.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if successors.is_empty() && waiting.is_empty() {
            // One that has given up has rung it. A counter cannot fail to be cleared.
            let _ = self.core.bell.clear();
        }
        !successors.is_empty()
    }

    /// Hands channels to a process that asks for them, on this host or another, waiting for it until the deadline, and stops listening. Returns
    /// how many channels were handed over. The peers notice nothing but a pause; each message arrives exactly once, those included that this
    /// process had not received yet. Handles of the channels must be dropped: they would keep the peers from noticing the new process's death.
    /// A channel whose peer is gone is not handed over.
    ///
    /// # Errors
    /// Nobody asked until the deadline; everything is closed then. Or a peer cannot follow, since its program knows no way to other
    /// hosts: its channel is closed, and the others are handed over.
    pub fn hand_over(self, channels: Vec<Channel>, until: Deadline) -> Result<usize, Error> {
        let start = Instant::now();
        let successor = loop {
            if let Some(successor) = self.core.successors().pop() {
                break successor;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                let (name, waited) = (self.core.name.clone(), start.elapsed());
                return Err(Error::NobodyConnected { name, waited });
            }
            std::thread::sleep(LOOK);
        };
        hand_over::hand_over(successor, channels, until)
    }
}

impl AsFd for Listener {
    /// Polls readable while [`Listener::accept`] would not wait, or another process asks to take over.
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
