//! The connections of programs (one for each endpoint) and of tools.

mod listings;
mod partners;
mod serve;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crossway_sys::socket::Credentials;
use crossway_sys::{Errno, OsError, fdpass};
use slab::Slab;

use crate::Spid;
use crate::limits::{ATTACHES, CHANNELS, HUNTS, RECORD};
use crate::registry::Refused;
use crate::wire::local::Event;
use listings::Listing;

/// Maximum number of records that wait for a program to receive them; a program with more is disconnected. Most records
/// answer a pending request, and the number of pending requests is limited.
const OUTBOX: usize = 2 * (HUNTS + ATTACHES + CHANNELS);

/// A record with its descriptors.
struct Letter {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

struct Client {
    fd: OwnedFd,
    credentials: Credentials,
    /// The endpoint of the connection; `None` until it is open.
    spid: Option<Spid>,
    outbox: VecDeque<Letter>,
    /// Whether this connection is in `unsent` of [`Clients`].
    is_unsent: bool,
    /// Number of channels created so far. It is also the number of the last channel.
    channels: u32,
    /// The numbers of the endpoint's channels, by the endpoint at the other end.
    numbers: HashMap<Spid, u32>,
    /// The serial number of the [`Listing`] that this connection waits for; `None` if it waits for none.
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
    /// The connection of the tool that traces the node; `None` if there is none.
    tracer: Option<usize>,
    /// A spare descriptor. It is closed for a moment to reject a connection that cannot be served for lack of
    /// descriptors.
    reserve: Option<File>,
    record: Vec<u8>,
    /// Maximum number of connections of a process other than the node's own.
    share: usize,
}

impl Clients {
    /// Creates the state without connections. A process other than the node's own gets at most `descriptors / 2`
    /// connections.
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

    /// Whether a process has reached the maximum number of connections; always false for the node's own process.
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

    /// Notes that the system reported a connection as ready: for reading, and with `writable` also for writing.
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

    /// Sends the waiting records, as far as programs have room for them. Disconnects programs that have ended or for
    /// which too many records wait, and returns their endpoints.
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
                    // Room is reported later. With too many descriptors in flight, it is retried when some were
                    // received.
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

    /// Closes the connection of an endpoint's program, and returns the endpoint; `None` if it has no connection.
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

    /// Forgets the number of the channel from `spid` to `other`, because the channel no longer exists.
    fn forget_number(&mut self, spid: Spid, other: Spid) {
        if let Some(client) = self.by_spid.get(&spid).and_then(|index| self.all.get_mut(*index)) {
            client.numbers.remove(&other);
        }
    }

    /// Assigns a number to the new channel from `spid` to `other`; 0 if `spid` has no connection.
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
