//! The connections of programs, one for each endpoint, and of tools.

mod listings;
mod partners;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crossway_sys::epoll::Report as When;
use crossway_sys::socket::{self, Credentials};
use crossway_sys::{Errno, OsError, fdpass};
use slab::Slab;

use super::{Node, Token};
use crate::limits::{ATTACHES, CHANNELS, HUNTS, RECORD};
use crate::registry::Refused;
use crate::trace::record::Happened;
use crate::wire::local::{Event, Refusal, Request, VERSION};
use crate::{Error, Spid};
use listings::Listing;

/// Number of records of one program that are handled before the others have their turn.
const AT_A_TIME: usize = 64;

/// Maximum number of records that wait for a program to receive them. Each answers a pending request, and the number of
/// those is limited.
const OUTBOX: usize = 2 * (HUNTS + ATTACHES + CHANNELS);

/// A record with its descriptors.
struct Letter {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

struct Client {
    fd: OwnedFd,
    credentials: Credentials,
    /// The endpoint of the connection, once it is open.
    spid: Option<Spid>,
    outbox: VecDeque<Letter>,
    /// Whether it is in `unsent`.
    is_unsent: bool,
    /// The number of channels created so far, which is the next channel's number.
    channels: u32,
    /// The numbers of its channels by the endpoint at the other end.
    numbers: HashMap<Spid, u32>,
    /// The list that it waits for.
    listing: Option<u32>,
}

pub(super) struct Clients {
    all: Slab<Client>,
    by_spid: HashMap<Spid, usize>,
    /// Connections that may have data to read.
    readable: VecDeque<usize>,
    is_readable: HashSet<usize>,
    /// Connections with records to send, in the order in which they were added.
    unsent: Vec<usize>,
    listings: BTreeMap<u32, Listing>,
    last_listing: u32,
    /// The tool that traces the node.
    tracer: Option<usize>,
    /// Closed for a moment to reject a connection that cannot be served for lack of descriptors.
    reserve: Option<File>,
    record: Vec<u8>,
    /// Maximum number of connections per process.
    share: usize,
}

impl Clients {
    /// No process other than the node's own gets more than half of `descriptors`.
    pub(super) fn new(descriptors: u64) -> Result<Self, OsError> {
        Ok(Clients {
            all: Slab::new(),
            by_spid: HashMap::new(),
            readable: VecDeque::new(),
            is_readable: HashSet::new(),
            unsent: Vec::new(),
            listings: BTreeMap::new(),
            last_listing: 0,
            tracer: None,
            reserve: Some(reserve()?),
            record: vec![0; RECORD],
            share: usize::try_from(descriptors / 2).unwrap_or(usize::MAX),
        })
    }

    /// Whether a process has reached the maximum number of connections.
    fn has_its_share(&self, pid: u32) -> bool {
        let of_process = || self.all.iter().filter(|(_, c)| c.credentials.pid == pid).count();
        self.all.len() >= self.share && pid != std::process::id() && of_process() >= self.share
    }

    /// Whether the tool that traces the node is connected.
    pub(super) fn has_tracer(&self) -> bool {
        self.tracer.is_some()
    }

    /// Whether there is something to do without waiting.
    pub(super) fn has_work(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(super) fn next_instant(&self) -> Option<Instant> {
        self.listings.values().map(|listing| listing.until).min()
    }

    /// Called when the system reports a change of a connection.
    pub(super) fn changed(&mut self, index: usize, writable: bool) {
        if !self.all.contains(index) {
            return;
        }
        if self.is_readable.insert(index) {
            self.readable.push_back(index);
        }
        if writable && !self.all[index].outbox.is_empty() {
            self.make_unsent(index);
        }
    }

    fn make_unsent(&mut self, index: usize) {
        if !std::mem::replace(&mut self.all[index].is_unsent, true) {
            self.unsent.push(index);
        }
    }

    /// Sends an event to an endpoint's program, as soon as the program can receive it.
    pub(super) fn tell(&mut self, spid: Spid, event: &Event, fds: Vec<OwnedFd>) {
        if let Event::PeerGone { spid: gone } | Event::NoChannel { spid: gone } = event {
            self.forget_number(spid, *gone);
        }
        if let Some(index) = self.by_spid.get(&spid) {
            self.post(*index, event, fds);
        }
    }

    fn post(&mut self, index: usize, event: &Event, fds: Vec<OwnedFd>) {
        if let Some(client) = self.all.get_mut(index) {
            client.outbox.push_back(Letter { bytes: event.encode(), fds });
            self.make_unsent(index);
        }
    }

    fn refuse(&mut self, index: usize, (refusal, why): Refused) {
        self.post(index, &Event::Refused { refusal, why }, Vec::new());
    }

    /// Sends what programs have room for. Returns the endpoints of programs that have ended.
    pub(super) fn flush(&mut self) -> Vec<Spid> {
        let mut gone = Vec::new();
        for index in std::mem::take(&mut self.unsent) {
            let Some(client) = self.all.get_mut(index) else { continue };
            client.is_unsent = false;
            let lost = loop {
                let Some(letter) = client.outbox.front() else { break false };
                let fds: Vec<_> = letter.fds.iter().map(AsFd::as_fd).collect();
                match fdpass::try_send(&client.fd, &letter.bytes, &fds) {
                    Ok(_) => {
                        client.outbox.pop_front();
                    }
                    // Room is reported later. With too many descriptors in flight, it is retried when some were received.
                    Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => break false,
                    Err(Errno::TOOMANYREFS) => break false,
                    Err(_) => break true,
                }
            };
            if lost || client.outbox.len() > OUTBOX {
                gone.extend(self.drop_client(index));
            }
        }
        gone
    }

    /// Closes the connection of an endpoint's program.
    pub(super) fn expel(&mut self, spid: Spid) -> Option<Spid> {
        let index = *self.by_spid.get(&spid)?;
        self.drop_client(index)
    }

    fn drop_client(&mut self, index: usize) -> Option<Spid> {
        let client = self.all.try_remove(index)?;
        self.is_readable.remove(&index);
        self.readable.retain(|other| *other != index);
        self.unsent.retain(|other| *other != index);
        self.tracer.take_if(|tracer| *tracer == index);
        if let Some(listing) = client.listing {
            self.listings.remove(&listing);
        }
        let spid = client.spid?;
        self.by_spid.remove(&spid);
        for listing in self.listings.values_mut() {
            listing.waits_for.remove(&spid);
        }
        Some(spid)
    }

    /// Forgets the number of an endpoint's channel to another one, which no longer exists.
    fn forget_number(&mut self, spid: Spid, other: Spid) {
        if let Some(client) = self.by_spid.get(&spid).and_then(|index| self.all.get_mut(*index)) {
            client.numbers.remove(&other);
        }
    }

    /// The number for a new channel of an endpoint.
    fn number(&mut self, spid: Spid, other: Spid) -> u32 {
        let Some(client) = self.by_spid.get(&spid).and_then(|index| self.all.get_mut(*index))
        else {
            return 0;
        };
        client.channels += 1;
        client.numbers.insert(other, client.channels);
        client.channels
    }
}

fn reserve() -> Result<File, OsError> {
    File::open("/dev/null").map_err(|e| OsError::new("open", "/dev/null", e))
}

fn turn_away(fd: &OwnedFd, why: &str) {
    let refused = Event::Refused { refusal: Refusal::Limit, why: why.to_owned() };
    let _ = socket::send(fd, &refused.encode(), true);
}

impl Node {
    /// Accepts waiting connections.
    pub(super) fn admit(&mut self) -> Result<(), Error> {
        loop {
            match self.door.accept() {
                Ok(fd) => {
                    let Ok(credentials) = socket::peer_credentials(&fd) else { continue };
                    socket::set_nonblocking(&fd)?;
                    if self.clients.has_its_share(credentials.pid) {
                        turn_away(
                            &fd,
                            "this process has reached the node's limit of endpoints per process; raise the node's limit of descriptors (ulimit -n)",
                        );
                        continue;
                    }
                    let entry = self.clients.all.vacant_entry();
                    let index = entry.key();
                    self.epoll.add(&fd, Token::Client(index).number(), When::Changes)?;
                    entry.insert(Client {
                        fd,
                        credentials,
                        spid: None,
                        outbox: VecDeque::new(),
                        is_unsent: false,
                        channels: 0,
                        numbers: HashMap::new(),
                        listing: None,
                    });
                    self.clients.changed(index, false);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE) => self.turn_away_unheard()?,
                // The client has already disconnected.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => return Err(OsError::new("accept", "LINX node", errno).into()),
            }
        }
    }

    /// Rejects a connection that cannot be served for lack of descriptors.
    fn turn_away_unheard(&mut self) -> Result<(), Error> {
        self.clients.reserve = None;
        if let Ok(fd) = self.door.accept() {
            turn_away(
                &fd,
                "the node has no descriptor left for another endpoint; raise its limit (ulimit -n)",
            );
        }
        self.clients.reserve = Some(reserve()?);
        Ok(())
    }

    /// Handles the requests of programs, some of each.
    pub(super) fn serve_clients(&mut self) {
        for _ in 0..self.clients.readable.len() {
            let Some(index) = self.clients.readable.pop_front() else { break };
            self.clients.is_readable.remove(&index);
            let mut closed = false;
            let mut more = true;
            for _ in 0..AT_A_TIME {
                let Some(client) = self.clients.all.get(index) else { break };
                match socket::recv_message(&client.fd, &mut self.clients.record, true) {
                    Ok(len) if (1..=RECORD).contains(&len) => {
                        let request = Request::decode(&self.clients.record[..len]);
                        closed = !request.is_ok_and(|request| self.serve(index, request));
                    }
                    Err(Errno::AGAIN) => more = false,
                    // The end of the connection, or a faulty program.
                    _ => closed = true,
                }
                if closed || !more {
                    break;
                }
            }
            if closed {
                if let Some(spid) = self.clients.drop_client(index) {
                    self.close(spid);
                }
            } else if more {
                self.clients.changed(index, false);
            }
            self.work_off();
        }
        self.finish_listings();
    }

    /// Handles one request; returns false if no correct program would make it.
    fn serve(&mut self, index: usize, request: Request) -> bool {
        let client = &self.clients.all[index];
        let Some(own) = client.spid else { return self.serve_stranger(index, request) };
        self.tracing.request(own, &request);
        let answer: Result<(), Refused> = match request {
            Request::Hunt { id, owner, path } => {
                // A correct program has already checked for the errors that the registry would report.
                return self.registry.handle_hunt(own, id, &path, owner).is_ok();
            }
            Request::CancelHunt { id } => {
                self.registry.handle_cancel_hunt(own, id);
                Ok(())
            }
            Request::Attach { id, spid } => {
                return self.registry.handle_attach(own, id, spid).is_ok();
            }
            Request::Detach { id } => {
                self.registry.handle_detach(own, id);
                Ok(())
            }
            Request::Connect { spid, transport } => self.connect(index, own, spid, transport),
            Request::NoChannel { spid } => {
                self.no_channel(own, spid);
                Ok(())
            }
            Request::Vouch { from, to } => self.vouch(index, own, from, to),
            Request::Name { spid } => match self.registry.row(spid) {
                Some(row) => {
                    self.clients.post(index, &Event::NameIs(row), Vec::new());
                    Ok(())
                }
                None => Err(self.registry.refusal_of(spid)),
            },
            Request::Report { serial, report } => {
                if let Some(listing) = self.clients.listings.get_mut(&serial)
                    && listing.waits_for.remove(&own)
                {
                    listing.reports.insert(own, report);
                }
                Ok(())
            }
            Request::NewLink { id, token } => {
                self.registry.handle_new_link(own, id, token);
                Ok(())
            }
            Request::CancelNewLink { id } => {
                self.registry.handle_cancel_new_link(own, id);
                Ok(())
            }
            Request::Condition { spid } => {
                self.begin_listing(index, Some(spid));
                Ok(())
            }
            Request::JoinTrace => match self.tracing.invitation() {
                Ok((event, fds)) => {
                    self.clients.post(index, &event, fds);
                    Ok(())
                }
                Err(error) => Err((Refusal::Limit, format!("cannot join the trace: {error}"))),
            },
            Request::Open { .. } | Request::List { .. } | Request::StartTrace { .. } => {
                return false;
            }
        };
        if let Err(refused) = answer {
            self.clients.refuse(index, refused);
        }
        true
    }

    /// Serves a connection without an endpoint, which may open one or request the list.
    fn serve_stranger(&mut self, index: usize, request: Request) -> bool {
        let client = &self.clients.all[index];
        let Credentials { pid, uid: user, .. } = client.credentials;
        let version = match &request {
            Request::Open { version, .. }
            | Request::List { version }
            | Request::StartTrace { version, .. } => *version,
            _ => return false,
        };
        if version != VERSION {
            let why =
                format!("the program speaks version {version} of the protocol, the node {VERSION}");
            self.clients.refuse(index, (Refusal::Protocol, why));
            return true;
        }
        match request {
            Request::Open { name, .. } => self.open_for(index, &name, pid, user),
            Request::StartTrace { payload, .. } => {
                let Client { fd, credentials, .. } = &self.clients.all[index];
                let (fd, who) = (fd.try_clone(), *credentials);
                let started = fd
                    .map_err(|error| (Refusal::Limit, format!("cannot start a trace: {error}")))
                    .and_then(|fd| self.start_trace(&fd, who, payload));
                match started {
                    Ok(fds) => {
                        self.clients.tracer = Some(index);
                        self.clients.post(index, &Event::End, fds);
                    }
                    Err(refused) => self.clients.refuse(index, refused),
                }
            }
            _ => self.begin_listing(index, None),
        }
        true
    }

    fn open_for(&mut self, index: usize, name: &str, pid: u32, user: u32) {
        let memory = match self.tracing.memory() {
            Ok(memory) => memory,
            Err(error) => {
                let why = format!("the node cannot open another endpoint: {error}");
                return self.clients.refuse(index, (Refusal::Limit, why));
            }
        };
        match self.registry.handle_open(name, pid, user) {
            Ok(spid) => {
                self.clients.all[index].spid = Some(spid);
                self.clients.by_spid.insert(spid, index);
                self.clients.post(index, &Event::Opened { spid }, vec![memory]);
                self.tracing.opened_or_closed(Happened::Open, spid, name);
            }
            Err(refused) => self.clients.refuse(index, refused),
        }
    }
}
