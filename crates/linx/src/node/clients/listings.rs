//! Reports of endpoints about themselves, for lists and for single requests.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::Spid;
use crate::node::{Node, REPORT_WITHIN};
use crate::wire::local::{Event, Report};

/// A request for reports from endpoints.
pub(super) struct Listing {
    pub(super) client: usize,
    /// The endpoint that was asked about; `None` for all.
    pub(super) of: Option<Spid>,
    pub(super) waits_for: HashSet<Spid>,
    pub(super) reports: HashMap<Spid, Report>,
    pub(super) until: Instant,
}

impl Node {
    /// Asks the endpoint `of` (or all endpoints, if `None`) for a report, for the connection at `index`. Does nothing
    /// if that connection already waits for reports.
    pub(super) fn begin_listing(&mut self, index: usize, of: Option<Spid>) {
        if self.clients.all[index].listing.is_some() {
            return;
        }
        self.clients.last_listing = self.clients.last_listing.wrapping_add(1);
        let serial = self.clients.last_listing;
        let own = |spid: &Spid| self.clients.by_spid.contains_key(spid);
        let waits_for: HashSet<Spid> = match of {
            Some(spid) => of.into_iter().filter(|_| own(&spid)).collect(),
            None => self.clients.by_spid.keys().copied().collect(),
        };
        for spid in &waits_for {
            self.clients.tell(*spid, &Event::Ask { serial }, Vec::new());
        }
        self.clients.all[index].listing = Some(serial);
        let until = Instant::now() + REPORT_WITHIN;
        let listing = Listing { client: index, of, waits_for, reports: HashMap::new(), until };
        self.clients.listings.insert(serial, listing);
    }

    /// Answers the requests for which all reports have arrived or the time limit has passed.
    pub(super) fn finish_listings(&mut self) {
        let now = Instant::now();
        let done: Vec<u32> = self
            .clients
            .listings
            .iter()
            .filter(|(_, listing)| listing.waits_for.is_empty() || listing.until <= now)
            .map(|(serial, _)| *serial)
            .collect();
        for serial in done {
            let Some(mut listing) = self.clients.listings.remove(&serial) else { continue };
            let spids: Vec<Spid> = match listing.of {
                Some(spid) => vec![spid],
                None => self.registry.spids().collect(),
            };
            for spid in spids {
                if let Some(row) = self.registry.row(spid) {
                    let report = listing.reports.remove(&spid);
                    self.clients.post(listing.client, &Event::Row { row, report }, Vec::new());
                } else if listing.of.is_some() {
                    let refused = self.registry.refusal_of(spid);
                    self.clients.refuse(listing.client, refused);
                }
            }
            if listing.of.is_none() {
                self.clients.post(listing.client, &Event::End, Vec::new());
            }
            if let Some(client) = self.clients.all.get_mut(listing.client) {
                client.listing = None;
            }
        }
    }
}
