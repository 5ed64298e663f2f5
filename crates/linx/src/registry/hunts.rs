//! Pending hunts.

use std::collections::{BTreeSet, HashMap};

use super::{LinkId, Refused, Registry};
use crate::Spid;
use crate::limits::LONGEST_PATH;
use crate::wire::link::Message;
use crate::wire::local::{Event, Refusal};

/// The source of a hunt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hunter {
    /// A local endpoint, and its reference to the hunt.
    Endpoint(Spid, u32),
    /// A link's peer, and the number that the peer gave the hunt.
    Peer(LinkId, u64),
}

struct Hunt {
    hunter: Hunter,
    /// An endpoint other than the hunter, with which the hunt also ends; `None` if it ends only with the hunter.
    owner: Option<Spid>,
    /// The name of an endpoint on this node, or of a link.
    name: String,
    /// The path to hunt for at the other end of that link; `None` if `name` is the name of an endpoint.
    rest: Option<String>,
    /// The link over which the hunt was passed to the next node; `None` if it was not passed on.
    asked: Option<LinkId>,
}

/// All pending hunts.
#[derive(Default)]
pub(crate) struct Hunts {
    by_serial: HashMap<u64, Hunt>,
    /// The hunts for each name on this node.
    for_name: HashMap<String, BTreeSet<u64>>,
    /// The hunts that continue over a link with this name.
    by_link: HashMap<String, BTreeSet<u64>>,
    last: u64,
}

impl Hunts {
    fn index(&mut self, hunt: &Hunt) -> &mut HashMap<String, BTreeSet<u64>> {
        if hunt.rest.is_some() { &mut self.by_link } else { &mut self.for_name }
    }

    fn add(&mut self, hunt: Hunt) -> u64 {
        self.last += 1;
        let serial = self.last;
        self.index(&hunt).entry(hunt.name.clone()).or_default().insert(serial);
        self.by_serial.insert(serial, hunt);
        serial
    }

    fn remove(&mut self, serial: u64) -> Option<Hunt> {
        let hunt = self.by_serial.remove(&serial)?;
        let index = self.index(&hunt);
        if let Some(same) = index.get_mut(&hunt.name) {
            same.remove(&serial);
            if same.is_empty() {
                index.remove(&hunt.name);
            }
        }
        Some(hunt)
    }

    /// Returns the hunts that continue over a link with this name, passed on or not.
    pub(super) fn waiting_for_link(&self, link: &str) -> Vec<u64> {
        self.by_link.get(link).into_iter().flatten().copied().collect()
    }
}

impl Registry {
    /// Handles the hunt of a local endpoint for a name, or for a path of link names with a name at its end.
    pub(crate) fn handle_hunt(
        &mut self,
        endpoint: Spid,
        id: u32,
        path: &str,
        owner: Option<Spid>,
    ) -> Result<(), Refused> {
        if let Some(refused) = self.too_many_hunts(endpoint, id) {
            return Err(refused);
        }
        let owner = owner.filter(|owner| *owner != endpoint);
        if let Some(owner) = owner
            && self.table.get(owner).is_none()
        {
            // The owner has already ended, and the hunt with it.
            return Ok(());
        }
        let (name, rest) = split(path)?;
        let hunt = Hunt { hunter: Hunter::Endpoint(endpoint, id), owner, name, rest, asked: None };
        let serial = self.hunts.add(hunt);
        if let Some(entry) = self.table.get_mut(endpoint) {
            entry.hunts.insert(id, serial);
        }
        if let Some(owner) = owner.and_then(|owner| self.table.get_mut(owner)) {
            owner.owns.insert(serial);
        }
        self.pursue(serial);
        Ok(())
    }

    /// Handles the cancellation of a hunt.
    pub(crate) fn handle_cancel_hunt(&mut self, endpoint: Spid, id: u32) {
        let serial = self.table.get_mut(endpoint).and_then(|entry| entry.hunts.remove(&id));
        if let Some(serial) = serial {
            self.forget_hunt(serial);
        }
    }

    /// Handles a hunt by a link's peer for an endpoint that is reached through this node.
    pub(super) fn hunt_for_peer(&mut self, link: LinkId, id: u64, path: &str) {
        let Ok((name, rest)) = split(path) else { return };
        let hunt = Hunt { hunter: Hunter::Peer(link, id), owner: None, name, rest, asked: None };
        let serial = self.hunts.add(hunt);
        if let Some(link) = self.links.get_mut(&link) {
            link.queries.insert(id, serial);
        }
        self.pursue(serial);
    }

    /// Answers a hunt if its target is here, or passes it to the link where it continues.
    pub(super) fn pursue(&mut self, serial: u64) {
        let Some(hunt) = self.hunts.by_serial.get(&serial) else { return };
        match &hunt.rest {
            None => {
                let found = self.by_name.get(&hunt.name).and_then(|same| same.first().copied());
                if let Some(spid) = found {
                    self.answer(serial, spid);
                }
            }
            Some(rest) => {
                let Some(link) = self.links_by_name.get(&hunt.name).copied() else { return };
                let path = rest.clone();
                if let Some(hunt) = self.hunts.by_serial.get_mut(&serial) {
                    hunt.asked = Some(link);
                }
                self.say(link, Message::Query { id: serial, path });
            }
        }
    }

    /// Answers the hunts for a new name.
    pub(super) fn answer_hunts_for(&mut self, name: &str, spid: Spid) {
        let waiting: Vec<u64> =
            self.hunts.for_name.get(name).into_iter().flatten().copied().collect();
        for serial in waiting {
            self.answer(serial, spid);
        }
    }

    /// Handles the answer of a link's peer.
    pub(super) fn answer_from(&mut self, link: LinkId, serial: u64, spid: Spid) {
        let asked = self.hunts.by_serial.get(&serial).and_then(|hunt| hunt.asked);
        // An answer is accepted only for a hunt that was passed to this peer.
        if asked == Some(link) {
            self.answer(serial, spid);
        }
    }

    fn answer(&mut self, serial: u64, spid: Spid) {
        let Some(hunt) = self.forget_hunt(serial) else { return };
        match hunt {
            Hunter::Endpoint(endpoint, id) => {
                if let Some(entry) = self.table.get_mut(endpoint) {
                    entry.hunts.remove(&id);
                }
                self.tell(endpoint, Event::Found { id, spid });
            }
            Hunter::Peer(link, id) => {
                self.publish(link, spid);
                self.say(link, Message::Answer { id, spid });
            }
        }
    }

    /// Removes a hunt without answering it, and cancels it at the node that it was passed to. Returns the hunter; if
    /// that is an endpoint, the caller must remove the hunt from the endpoint's records.
    pub(super) fn forget_hunt(&mut self, serial: u64) -> Option<Hunter> {
        let hunt = self.hunts.remove(serial)?;
        if let Some(owner) = hunt.owner.and_then(|owner| self.table.get_mut(owner)) {
            owner.owns.remove(&serial);
        }
        if let Hunter::Peer(link, id) = hunt.hunter
            && let Some(link) = self.links.get_mut(&link)
        {
            link.queries.remove(&id);
        }
        if let Some(asked) = hunt.asked {
            self.say(asked, Message::Cancel { id: serial });
        }
        Some(hunt.hunter)
    }

    /// Ends a hunt that a link's peer has cancelled, or whose owner or link has ended.
    pub(super) fn cancel_hunt(&mut self, serial: u64) {
        if let Some(Hunter::Endpoint(endpoint, id)) = self.forget_hunt(serial)
            && let Some(entry) = self.table.get_mut(endpoint)
        {
            entry.hunts.remove(&id);
        }
    }

    /// Handles the loss of the link to which a hunt was passed: the hunt waits for the next link with that name.
    pub(super) fn unask(&mut self, link: LinkId, name: &str) {
        for serial in self.hunts.waiting_for_link(name) {
            if let Some(hunt) = self.hunts.by_serial.get_mut(&serial)
                && hunt.asked == Some(link)
            {
                hunt.asked = None;
            }
        }
    }
}

/// Splits a path into its first name, and the rest that is to be found beyond the link with that name.
fn split(path: &str) -> Result<(String, Option<String>), Refused> {
    let bad = |why: &str| (Refusal::Protocol, format!("'{path}' is not a valid hunt path: {why}"));
    if path.len() > LONGEST_PATH {
        return Err(bad(&format!("it has more than {LONGEST_PATH} bytes")));
    }
    if path.split('/').any(|name| super::check_name(name).is_err()) {
        return Err(bad(
            "write names of links, followed by the name of an endpoint, separated by '/'; no name may be empty or too \
             long",
        ));
    }
    Ok(match path.split_once('/') {
        Some((link, rest)) => (link.to_owned(), Some(rest.to_owned())),
        None => (path.to_owned(), None),
    })
}
