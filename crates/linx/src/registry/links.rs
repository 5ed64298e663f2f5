//! The endpoints of other nodes that are published on this node, and the endpoints of this node that other nodes know.

use std::collections::{BTreeSet, HashMap};

use super::{EntryKind, Output, Refused, Registry};
use crate::Spid;
use crate::limits::{HUNTS, LONGEST_PATH};
use crate::spid::Standing;
use crate::wire::link::Message;
use crate::wire::local::Event;

/// The id of a link while the link is up; ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u64);

/// A link that is up.
pub(crate) struct Link {
    pub(crate) name: String,
    /// The link's own number as an endpoint.
    pub(crate) spid: Spid,
    /// Maps the peer's number of each of its endpoints to the endpoint that represents it on this node.
    pub(super) remotes: HashMap<Spid, Spid>,
    /// Maps the number that the peer gave each of its hunts to the number of the hunt in this registry.
    pub(super) queries: HashMap<u64, u64>,
    /// The endpoints of this node that the peer knows.
    pub(super) published: BTreeSet<Spid>,
}

/// The destination of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To an endpoint of this node.
    Local,
    /// To the peer of a link, which knows the receiver by this number.
    Link(LinkId, Spid),
    /// The receiver has ended, or is a link, which receives no signals.
    Gone,
    /// No endpoint ever had that number.
    Unknown,
}

impl Registry {
    pub(super) fn say(&mut self, link: LinkId, message: Message) {
        if self.links.contains_key(&link) {
            self.outputs.push_back(Output::Link(link, message));
        }
    }

    /// Announces an endpoint to the peer of a link, once.
    pub(super) fn publish(&mut self, link: LinkId, spid: Spid) {
        let Some(entry) = self.table.get_mut(spid) else { return };
        let Some(known) = self.links.get_mut(&link) else { return };
        if known.published.insert(spid) {
            entry.published_on.push(link);
            let name = entry.name.clone();
            self.say(link, Message::Publish { spid, name });
        }
    }

    /// Returns the link with this id; `None` if it is not up.
    pub(crate) fn link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(&link)
    }

    /// Handles a new link. No other link with that name may be up.
    pub(crate) fn handle_link_up(&mut self, link: LinkId, name: &str) -> Result<Spid, Refused> {
        let spid = self.insert_named(name, EntryKind::Link { link })?;
        let state = Link {
            name: name.to_owned(),
            spid,
            remotes: HashMap::new(),
            queries: HashMap::new(),
            published: BTreeSet::new(),
        };
        self.links.insert(link, state);
        self.links_by_name.insert(name.to_owned(), link);
        self.link_serial += 1;
        self.answer_hunts_for(name, spid);
        for serial in self.hunts.waiting_for_link(name) {
            self.pursue(serial);
        }
        for (endpoint, id) in std::mem::take(&mut self.link_waiters) {
            self.tell_of_link(endpoint, id, link);
        }
        Ok(spid)
    }

    fn tell_of_link(&mut self, endpoint: Spid, id: u32, link: LinkId) {
        let Some(name) = self.links.get(&link).map(|link| link.name.clone()) else { return };
        if let Some(entry) = self.table.get_mut(endpoint) {
            entry.new_links.remove(&id);
        }
        self.tell(endpoint, Event::LinkUp { id, token: link.0, name });
    }

    /// Handles the loss of a link: everything beyond it has ended.
    pub(crate) fn handle_link_down(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        if self.links_by_name.get(&link.name) == Some(&id) {
            self.links_by_name.remove(&link.name);
        }
        for spid in &link.published {
            if let Some(entry) = self.table.get_mut(*spid) {
                entry.published_on.retain(|on| *on != id);
            }
        }
        for serial in link.queries.into_values() {
            self.cancel_hunt(serial);
        }
        self.unask(id, &link.name);
        let mut remotes: Vec<Spid> = link.remotes.into_values().collect();
        // In an order that does not depend on hashing, so that a run can be reproduced.
        remotes.sort_unstable();
        for spid in remotes {
            self.end(spid);
        }
        self.end(link.spid);
    }

    /// Handles a request for the next link that comes up after the token's link, or for any link if the token is 0.
    pub(crate) fn handle_new_link(&mut self, endpoint: Spid, id: u32, token: u64) {
        let next = self.links.keys().copied().find(|link| link.0 > token);
        match next {
            Some(link) => self.tell_of_link(endpoint, id, link),
            None => {
                if let Some(entry) = self.table.get_mut(endpoint) {
                    entry.new_links.insert(id, token);
                    self.link_waiters.insert((endpoint, id));
                }
            }
        }
    }

    /// Handles the cancellation of a request for a new link.
    pub(crate) fn handle_cancel_new_link(&mut self, endpoint: Spid, id: u32) {
        if let Some(entry) = self.table.get_mut(endpoint) {
            entry.new_links.remove(&id);
        }
        self.link_waiters.remove(&(endpoint, id));
    }

    /// Handles a message from the peer of a link, unless it is a signal or credit, which the caller handles. Returns
    /// false if no correct peer would send the message.
    #[must_use]
    pub(crate) fn handle_message(&mut self, link: LinkId, message: Message) -> bool {
        let Some(state) = self.links.get(&link) else { return true };
        match message {
            Message::Query { id, path } => {
                if state.queries.len() >= HUNTS || state.queries.contains_key(&id) {
                    return false;
                }
                self.hunt_for_peer(link, id, &path);
            }
            Message::Cancel { id } => {
                if let Some(serial) = state.queries.get(&id).copied() {
                    self.cancel_hunt(serial);
                }
            }
            Message::Publish { spid, name } => {
                let full = format!("{}/{name}", state.name);
                if state.remotes.contains_key(&spid) || full.len() > 2 * LONGEST_PATH {
                    return false;
                }
                let Some(own) = self.insert(full, EntryKind::Remote { link, spid }) else {
                    return false;
                };
                if let Some(state) = self.links.get_mut(&link) {
                    state.remotes.insert(spid, own);
                }
            }
            Message::Unpublish { spid } => {
                if let Some(own) = state.remotes.get(&spid).copied() {
                    self.end(own);
                }
            }
            Message::Answer { id, spid } => {
                if let Some(own) = state.remotes.get(&spid).copied() {
                    self.answer_from(link, id, own);
                }
            }
            Message::Data { .. } | Message::Credit { .. } => return false,
        }
        true
    }

    /// Returns where a signal from one endpoint to another must be sent. If that is a link, the sender is published to
    /// the link's peer.
    pub(crate) fn route(&mut self, from: Spid, to: Spid) -> Route {
        match self.table.get(to).map(|entry| entry.kind) {
            Some(EntryKind::Local { .. }) => Route::Local,
            Some(EntryKind::Remote { link, spid }) => {
                self.publish(link, from);
                Route::Link(link, spid)
            }
            // Links do not receive signals; LINX drops them, too.
            Some(EntryKind::Link { .. }) => Route::Gone,
            None if self.table.standing(to) == Standing::Dead => Route::Gone,
            None => Route::Unknown,
        }
    }

    /// Returns the endpoint of this node that represents the peer's endpoint `spid`; `None` if that is not published
    /// here.
    pub(crate) fn remote(&self, link: LinkId, spid: Spid) -> Option<Spid> {
        self.links.get(&link)?.remotes.get(&spid).copied()
    }
}
