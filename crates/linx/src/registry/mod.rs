//! The state of a node: endpoints, hunts, attaches, and the endpoints that other nodes have published here. No I/O, no
//! clock.
//!
//! The owner calls a `handle_*` function for every event and then takes the resulting actions from
//! [`Registry::poll_output`].

mod hunts;
mod links;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::limits::{ATTACHES, CHANNELS, HUNTS, LONGEST_NAME, PROCESS_CHANNELS};
use crate::spid::{SpidTable, Standing, Widths};
use crate::wire::link::Message;
use crate::wire::local::{Event, Refusal, Row};
use crate::{Error, Spid};

pub(crate) use hunts::Hunts;
pub(crate) use links::{Link, LinkId, Route};

/// An action that the owner of the registry must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send an event to a local endpoint.
    Event(Spid, Event),
    /// Send a message to the peer of a link.
    Link(LinkId, Message),
}

/// The kind of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Opened by a program on this node.
    Local { pid: u32, user: u32 },
    /// Published by another node, with its number there.
    Remote { link: LinkId, spid: Spid },
    /// A link that is up.
    Link { link: LinkId },
}

/// An endpoint.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: EntryKind,
    /// The endpoints attached to this one, with their references.
    attached_by: BTreeSet<(Spid, u32)>,
    /// The endpoints that this one is attached to, by the references of the attaches.
    attaches: HashMap<u32, Spid>,
    /// The pending hunts of this endpoint. Maps the endpoint's reference of each hunt to the registry's number of the
    /// hunt.
    hunts: HashMap<u32, u64>,
    /// Pending hunts that end when this endpoint ends, whichever endpoint started them.
    owns: BTreeSet<u64>,
    /// Links whose peers know this endpoint.
    published_on: Vec<LinkId>,
    /// Endpoints to which this one has a channel.
    partners: BTreeSet<Spid>,
    /// Pending requests for a new link. Maps the reference of each request to the token of the last link that this
    /// endpoint knows.
    new_links: BTreeMap<u32, u64>,
}

/// The kind of a refusal, and its explanation.
pub(crate) type Refused = (Refusal, String);

/// The state of the node.
pub(crate) struct Registry {
    table: SpidTable<Entry>,
    by_name: HashMap<String, BTreeSet<Spid>>,
    hunts: Hunts,
    links: BTreeMap<LinkId, Link>,
    links_by_name: HashMap<String, LinkId>,
    /// Number of links that have come up so far.
    link_serial: u64,
    /// Endpoints that wait for a new link, with the references of their requests.
    link_waiters: BTreeSet<(Spid, u32)>,
    outputs: VecDeque<Output>,
}

/// Checks whether an endpoint or a link can have this name.
///
/// # Errors
/// [`Error::BadName`] if the name is not allowed.
pub fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('/') || name.contains('\0') {
        return Err(Error::BadName { name: name.to_owned() });
    }
    Ok(())
}

impl Registry {
    pub(crate) fn new(widths: Widths) -> Self {
        Registry {
            table: SpidTable::new(widths),
            by_name: HashMap::new(),
            hunts: Hunts::default(),
            links: BTreeMap::new(),
            links_by_name: HashMap::new(),
            link_serial: 0,
            link_waiters: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Returns the next action; `None` if there is none.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn tell(&mut self, spid: Spid, event: Event) {
        self.outputs.push_back(Output::Event(spid, event));
    }

    pub(crate) fn get(&self, spid: Spid) -> Option<&Entry> {
        self.table.get(spid)
    }

    pub(crate) fn standing(&self, spid: Spid) -> Standing {
        self.table.standing(spid)
    }

    /// Returns the reason why a call that refers to this number fails.
    pub(crate) fn refusal_of(&self, spid: Spid) -> Refused {
        match self.table.standing(spid) {
            Standing::Unknown => (Refusal::Unknown, String::new()),
            Standing::Alive | Standing::Dead => (Refusal::Gone, String::new()),
        }
    }

    fn insert(&mut self, name: String, kind: EntryKind) -> Option<Spid> {
        let entry = Entry {
            name,
            kind,
            attached_by: BTreeSet::new(),
            attaches: HashMap::new(),
            hunts: HashMap::new(),
            owns: BTreeSet::new(),
            published_on: Vec::new(),
            partners: BTreeSet::new(),
            new_links: BTreeMap::new(),
        };
        self.table.insert(entry)
    }

    /// Adds an entry that can be found on this node by its name.
    fn insert_named(&mut self, name: &str, kind: EntryKind) -> Result<Spid, Refused> {
        let spid = self.insert(name.to_owned(), kind).ok_or_else(|| {
            let why = "this node has used up all endpoint numbers; restart it".to_owned();
            (Refusal::Limit, why)
        })?;
        self.by_name.entry(name.to_owned()).or_default().insert(spid);
        Ok(spid)
    }

    /// Handles the opening of an endpoint by a program.
    pub(crate) fn handle_open(&mut self, name: &str, pid: u32, user: u32) -> Result<Spid, Refused> {
        check_name(name).map_err(|error| (Refusal::Protocol, error.to_string()))?;
        let spid = self.insert_named(name, EntryKind::Local { pid, user })?;
        self.answer_hunts_for(name, spid);
        Ok(spid)
    }

    /// Handles the close of a local endpoint, or the death of its program.
    pub(crate) fn handle_close(&mut self, spid: Spid) {
        self.end(spid);
    }

    /// Removes an endpoint, and notifies all endpoints and nodes concerned.
    fn end(&mut self, spid: Spid) {
        let Some(entry) = self.table.remove(spid) else { return };
        if !matches!(entry.kind, EntryKind::Remote { .. })
            && let Some(same_name) = self.by_name.get_mut(&entry.name)
        {
            same_name.remove(&spid);
            if same_name.is_empty() {
                self.by_name.remove(&entry.name);
            }
        }
        for partner in entry.partners {
            if let Some(other) = self.table.get_mut(partner) {
                other.partners.remove(&spid);
                if matches!(other.kind, EntryKind::Local { .. }) {
                    self.tell(partner, Event::PeerGone { spid });
                }
            }
        }
        for (watcher, id) in entry.attached_by {
            if let Some(other) = self.table.get_mut(watcher) {
                other.attaches.remove(&id);
                self.tell(watcher, Event::Gone { id, spid });
            }
        }
        for (id, target) in entry.attaches {
            if let Some(target) = self.table.get_mut(target) {
                target.attached_by.remove(&(spid, id));
            }
        }
        for (_, serial) in entry.hunts {
            self.forget_hunt(serial);
        }
        for serial in entry.owns {
            self.cancel_hunt(serial);
        }
        for id in entry.new_links.into_keys() {
            self.link_waiters.remove(&(spid, id));
        }
        for link in entry.published_on {
            if let Some(link) = self.links.get_mut(&link) {
                link.published.remove(&spid);
            }
            self.outputs.push_back(Output::Link(link, Message::Unpublish { spid }));
        }
        if let EntryKind::Remote { link, spid: there } = entry.kind
            && let Some(link) = self.links.get_mut(&link)
        {
            link.remotes.remove(&there);
        }
    }

    /// Handles an attach to the endpoint `to`; it is answered immediately if that has already ended.
    pub(crate) fn handle_attach(
        &mut self,
        endpoint: Spid,
        id: u32,
        to: Spid,
    ) -> Result<(), Refused> {
        let Some(watcher) = self.table.get_mut(endpoint) else { return Ok(()) };
        if watcher.attaches.len() >= ATTACHES || watcher.attaches.contains_key(&id) {
            let why = format!(
                "this endpoint has reached the limit of {ATTACHES} attaches; detach some first"
            );
            return Err((Refusal::Limit, why));
        }
        if let Some(target) = self.table.get_mut(to) {
            target.attached_by.insert((endpoint, id));
            if let Some(watcher) = self.table.get_mut(endpoint) {
                watcher.attaches.insert(id, to);
            }
            return Ok(());
        }
        self.tell(endpoint, Event::Gone { id, spid: to });
        Ok(())
    }

    /// Handles a detach.
    pub(crate) fn handle_detach(&mut self, endpoint: Spid, id: u32) {
        let target = self.table.get_mut(endpoint).and_then(|entry| entry.attaches.remove(&id));
        if let Some(target) = target.and_then(|target| self.table.get_mut(target)) {
            target.attached_by.remove(&(endpoint, id));
        }
    }

    /// Handles a request for a channel between two endpoints; returns false if they already have one.
    pub(crate) fn handle_connect(&mut self, endpoint: Spid, to: Spid) -> Result<bool, Refused> {
        let has = |table: &SpidTable<Entry>, spid| table.get(spid).map(|e| e.partners.len());
        let Some(theirs) = has(&self.table, to) else { return Err(self.refusal_of(to)) };
        if self.table.get(endpoint).is_some_and(|entry| entry.partners.contains(&to)) {
            return Ok(false);
        }
        for (count, spid) in [(has(&self.table, endpoint).unwrap_or(0), endpoint), (theirs, to)] {
            // A remote endpoint or link has no descriptors of its own.
            let local =
                matches!(self.table.get(spid).map(|e| e.kind), Some(EntryKind::Local { .. }));
            if local && count >= CHANNELS {
                let why = format!(
                    "endpoint {spid} has reached the limit of {CHANNELS} channels per endpoint"
                );
                return Err((Refusal::Limit, why));
            }
        }
        if theirs >= PROCESS_CHANNELS && self.channels_of_process(to, endpoint) >= PROCESS_CHANNELS
        {
            let why = format!(
                "this process has reached the limit of {PROCESS_CHANNELS} channels to {to}, an endpoint of another process"
            );
            return Err((Refusal::Limit, why));
        }
        for (spid, other) in [(endpoint, to), (to, endpoint)] {
            if let Some(entry) = self.table.get_mut(spid) {
                entry.partners.insert(other);
            }
        }
        Ok(true)
    }

    /// Returns the number of channels that the process of `endpoint` has to `to`, an endpoint of another process; 0 if
    /// both belong to one process.
    fn channels_of_process(&self, to: Spid, endpoint: Spid) -> usize {
        let process = |spid| match self.table.get(spid).map(|entry| entry.kind) {
            Some(EntryKind::Local { pid, .. }) => Some(pid),
            _ => None,
        };
        let own = process(endpoint);
        let Some(target) = self.table.get(to).filter(|_| own.is_some() && own != process(to))
        else {
            return 0;
        };
        target.partners.iter().filter(|partner| process(**partner) == own).count()
    }

    /// Handles the failure to create a channel after a request was accepted.
    pub(crate) fn handle_connect_failed(&mut self, endpoint: Spid, to: Spid) {
        for (spid, other) in [(endpoint, to), (to, endpoint)] {
            if let Some(entry) = self.table.get_mut(spid) {
                entry.partners.remove(&other);
            }
        }
    }

    /// Handles a report that an endpoint could not receive its end of a channel to another endpoint of this node;
    /// returns false if they have no channel.
    pub(crate) fn handle_no_channel(&mut self, endpoint: Spid, other: Spid) -> bool {
        let local =
            |spid| matches!(self.table.get(spid).map(|e| e.kind), Some(EntryKind::Local { .. }));
        let had =
            local(other) && self.table.get(endpoint).is_some_and(|e| e.partners.contains(&other));
        if had {
            self.handle_connect_failed(endpoint, other);
        }
        had
    }

    /// Checks that `endpoint` may use `from` as the sender of a signal to `to`: both `endpoint` and `from` must belong
    /// to the same user, and `from` and `to` must exist.
    pub(crate) fn may_send_as(&self, endpoint: Spid, from: Spid, to: Spid) -> Result<(), Refused> {
        let user = |spid| match self.table.get(spid).map(|entry| entry.kind) {
            Some(EntryKind::Local { user, .. }) => Some(user),
            _ => None,
        };
        if self.table.get(from).is_none() {
            return Err(self.refusal_of(from));
        }
        if self.table.get(to).is_none() {
            return Err(self.refusal_of(to));
        }
        if user(endpoint).is_some() && user(endpoint) == user(from) {
            return Ok(());
        }
        let why = format!(
            "endpoint {from} belongs to another user or node, so nothing can be sent in its name"
        );
        Err((Refusal::NotPermitted, why))
    }

    /// Returns information about an endpoint; `None` if it does not exist.
    pub(crate) fn row(&self, spid: Spid) -> Option<Row> {
        let entry = self.table.get(spid)?;
        let (kind, pid, user) = match entry.kind {
            EntryKind::Local { pid, user } => (0, pid, user),
            EntryKind::Remote { .. } => (1, 0, 0),
            EntryKind::Link { .. } => (2, 0, 0),
        };
        Some(Row {
            spid,
            name: entry.name.clone(),
            kind,
            pid,
            user,
            attached_from: entry.attached_by.len() as u32,
            attached_to: entry.attaches.len() as u32,
            hunts: entry.hunts.len() as u32,
            channels: entry.partners.len() as u32,
        })
    }

    /// Returns the numbers of all endpoints, including remote ones and links.
    pub(crate) fn spids(&self) -> impl Iterator<Item = Spid> {
        self.table.iter().map(|(spid, _)| spid)
    }

    fn too_many_hunts(&self, endpoint: Spid, id: u32) -> Option<Refused> {
        let entry = self.table.get(endpoint)?;
        (entry.hunts.len() >= HUNTS || entry.hunts.contains_key(&id)).then(|| {
            let why = format!(
                "this endpoint has reached the limit of {HUNTS} pending hunts; cancel some first"
            );
            (Refusal::Limit, why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_takes_all_channels_of_an_endpoint_of_another_one() {
        let mut registry = Registry::new(Widths::FULL);
        let mut open = |pid| registry.handle_open("x", pid, 0).unwrap();
        let (target, honest) = (open(1), open(3));
        let flood: Vec<Spid> = (0..=PROCESS_CHANNELS).map(|_| open(2)).collect();
        let (last, first) = flood.split_last().unwrap();
        for spid in first {
            assert!(registry.handle_connect(*spid, target).unwrap());
        }
        assert!(matches!(registry.handle_connect(*last, target), Err((Refusal::Limit, _))));
        assert!(registry.handle_connect(honest, target).unwrap());
        // Its own channels are not limited like this.
        assert!(registry.handle_connect(*last, first[0]).unwrap());
        registry.handle_close(first[0]);
        assert!(registry.handle_connect(*last, target).unwrap(), "there is room again");
    }
}
