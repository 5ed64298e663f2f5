//! Opens, verifies and closes the channels of a trial.

use std::collections::BTreeMap;
use std::path::Path;

use crossway_mech::Facts;

use super::{HeldOffer, STEP_LIMIT, TrialRun, unexpected};
use crate::contender::SHM_PREFIX;
use crate::control::{Answer, OfferText, Order, Task};
use crate::launcher::{CLOSE_LIMIT, HeldDescriptor, LaunchError};

impl TrialRun<'_> {
    /// Sends every role its task, relays the offers and opens the channels.
    pub(super) fn open(&mut self) -> Result<(Facts, Vec<String>), LaunchError> {
        self.group.phase("opening the channels");
        for role in self.all() {
            let task = Box::new(self.task(role));
            let contender = self.setting.contender.clone().map(Box::new);
            self.group.order(role, &Order::Begin { task, contender }, Vec::new())?;
        }
        let mut offers: Vec<Vec<HeldOffer>> = Vec::new();
        let mut warnings = Vec::new();
        for (answer, fds) in self.group.answers(&self.all(), STEP_LIMIT)? {
            let Answer::Offers { offers: texts, warnings: said } = answer else {
                return Err(unexpected(&answer));
            };
            warnings.extend(said.into_iter().filter(|w| !warnings.contains(w)).collect::<Vec<_>>());
            offers.push(split(texts, fds));
        }
        for role in self.all() {
            let links: Vec<_> =
                self.layout.links.iter().filter(|l| l.connector == role).copied().collect();
            if !links.is_empty() {
                let mut texts = Vec::new();
                let mut fds = Vec::new();
                for link in links {
                    let (text, taken) = hand_over(&mut offers[link.listener][link.offer]);
                    texts.push(text);
                    fds.extend(taken);
                }
                self.group.order(role, &Order::Connect { offers: texts }, fds)?;
            } else {
                self.group.order(role, &Order::Accept, Vec::new())?;
            }
        }
        let mut facts = Facts::new();
        if self.setting.contained {
            facts = offered(&offers);
        }
        drop(offers);
        for (answer, _) in self.group.answers(&self.all(), STEP_LIMIT)? {
            let Answer::Opened { facts: here } = answer else { return Err(unexpected(&answer)) };
            merge(&mut facts, here);
        }
        Ok((facts, warnings))
    }

    pub(super) fn task(&self, role: usize) -> Task {
        let role_spec = &self.layout.roles[role];
        Task {
            mechanism: self.setting.mechanism.to_owned(),
            inputs: self.setting.inputs.clone(),
            script: self.setting.replay.map(|replay| Box::new(replay.script.of_role(role))),
            part: role_spec.part,
            index: role_spec.index,
            cpu: role_spec.cpu,
            listeners: role_spec.listeners,
            peers: role_spec.peers,
            first_peer: role_spec.first_peer,
            ticker: Some(self.setting.ticker),
            working_set_bytes: self.setting.working_set_bytes,
            leases: self.group.leases(role).map(Path::to_owned),
            bind: self.setting.bind,
        }
    }

    /// Verifies each direction that the workload uses.
    pub(super) fn verify(&mut self) -> Result<(), LaunchError> {
        self.group.phase("verifying");
        // On one of several channels, the listening role may be the only one that sends.
        let several = self.setting.replay.is_some() && self.layout.links.len() > 1;
        let both_ways = self.setting.inputs.workload.facts().has_replies || several;
        for link in self.layout.links.clone() {
            // In every layout, the connecting role sends first.
            let (here, there) = (link.connector, link.listener);
            let sender = self.layout.roles[here].index;
            self.verify_one((there, link.channel_there), (here, link.channel_here), sender)?;
            if both_ways {
                let sender = self.layout.roles[there].index;
                self.verify_one((here, link.channel_here), (there, link.channel_there), sender)?;
            }
        }
        Ok(())
    }

    fn verify_one(
        &mut self,
        to: (usize, u16),
        from: (usize, u16),
        sender: u16,
    ) -> Result<(), LaunchError> {
        for ((role, channel), sends) in [(to, false), (from, true)] {
            self.group.order(role, &Order::Verify { channel, sends, sender }, Vec::new())?;
        }
        let mut seen = Vec::new();
        for (answer, _) in self.group.answers(&[to.0, from.0], STEP_LIMIT)? {
            let Answer::Verified { messages, crc } = answer else {
                return Err(unexpected(&answer));
            };
            seen.push((messages, crc));
        }
        if seen[0] != seen[1] {
            let why = "verification: the receiver's checksum differs from the sender's";
            return Err(LaunchError::Role(why.to_owned()));
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), LaunchError> {
        self.group.phase("closing");
        for role in self.all() {
            self.group.order(role, &Order::Close, Vec::new())?;
        }
        for (answer, _) in self.group.answers(&self.all(), CLOSE_LIMIT)? {
            let Answer::Closed = answer else { return Err(unexpected(&answer)) };
        }
        Ok(())
    }
}

/// Facts about how the ends find each other: `offered_NAME` is 1 for each named string in the offers, and
/// `offered_descriptors` is the number of descriptors.
fn offered(offers: &[Vec<HeldOffer>]) -> Facts {
    let mut facts = Facts::new();
    for (text, _) in offers.iter().flatten() {
        *facts.entry("offered_descriptors".to_owned()).or_default() += text.fds.len() as i64;
        for name in text.words.keys().filter(|name| *name != SHM_PREFIX) {
            facts.insert(format!("offered_{name}"), 1);
        }
    }
    facts
}

/// Distributes descriptors that arrived together among the offers that they belong to.
fn split(texts: Vec<OfferText>, fds: Vec<HeldDescriptor>) -> Vec<HeldOffer> {
    let mut fds = fds.into_iter();
    texts
        .into_iter()
        .map(|text| {
            let own = fds.by_ref().take(text.fds.len()).collect();
            (text, own)
        })
        .collect()
}

/// Copies an offer's strings, which can be passed on several times, and takes its descriptors, which can be passed on
/// only once.
fn hand_over(offer: &mut HeldOffer) -> HeldOffer {
    let fds = std::mem::take(&mut offer.1);
    let mut text = offer.0.clone();
    text.fds.truncate(fds.len());
    (text, fds)
}

/// Adds the values in `more`, reported by another end, to `facts`. A value that differs from the one in `facts` is
/// added under its name with the prefix `peer_`.
fn merge(facts: &mut BTreeMap<String, i64>, more: Facts) {
    for (name, value) in more {
        match facts.get(&name) {
            Some(&known) if known != value => {
                facts.insert(format!("peer_{name}"), value);
            }
            Some(_) => {}
            None => {
                facts.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_that_differ_are_both_kept() {
        let mut facts = Facts::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        merge(&mut facts, Facts::from([("a".to_owned(), 1), ("b".to_owned(), 3)]));
        assert_eq!(facts["b"], 2);
        assert_eq!(facts["peer_b"], 3);
        assert!(!facts.contains_key("peer_a"));
    }
}
