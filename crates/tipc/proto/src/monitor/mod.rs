//! The overlapping ring monitor of one medium: who watches whom in a large cluster.
//!
//! All nodes stand in a ring, ordered by their addresses. Each watches those that follow it, its domain, about as many as the root of the
//! cluster's size, and tells everybody of them with its STATE messages. Behind the end of its own domain it also watches a head, whose
//! domain covers the next ones, then the next head, and so on once around. Whoever a head says it sees needs no probes from here; whom
//! a head no longer sees, or that lost its head, is probed at once and lost if it does not answer. So a node probes some two roots of the
//! cluster's size instead of all of it, and nobody is lost because another node says so.
//!
//! The rules of domains and heads are those of Linux's net/tipc/monitor.c, so that kernels and this node rely on each other. Different on
//! purpose: a member that its head does not see but this node does is watched from here, and no number of reports replaces a probe.

mod ring;

use crate::addr::NodeAddr;
use crate::limits::DOMAIN_MEMBERS_MAX;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::DomainRecord;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// Least time between two assignments of roles, unless somebody was lost: while a large cluster comes up, each change would cost one
/// look at all nodes.
const ROLES_KEPT: Duration = Duration::from_millis(50);

/// How a link is to be looked after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Watch {
    /// From here, as all links of a small cluster.
    #[default]
    Direct,
    /// By another node.
    Indirect,
    /// From here, and the peer does not have the record of this node's domain yet.
    Telling,
}

/// One node of the ring.
#[derive(Clone, Debug)]
struct Member {
    addr: NodeAddr,
    up: bool,
    /// What it said last of its domain.
    record: Option<Box<DomainRecord>>,
    /// Generation of its record that is acknowledged to it.
    heard: Option<Seq>,
    /// Generation of the own record that it has.
    acked: Option<Seq>,
    /// In the own domain.
    local: bool,
    head: bool,
    /// Not covered by a head that sees it.
    uncovered: bool,
}

impl Member {
    const fn new(addr: NodeAddr) -> Self {
        Self {
            addr,
            up: false,
            record: None,
            heard: None,
            acked: None,
            local: false,
            head: false,
            uncovered: true,
        }
    }

    const fn is_watched(&self) -> bool {
        self.local || self.head || self.uncovered
    }
}

/// The monitor of one medium.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    own: NodeAddr,
    /// Ascending by address, this node among them.
    ring: Vec<Member>,
    /// The own domain.
    domain: DomainRecord,
    /// Nodes up to which everybody watches everybody.
    pub(crate) threshold: usize,
    table_generation: u32,
    /// Roles no longer fit what is known, and whether that cannot wait.
    stale: Option<bool>,
    renewed: Nanos,
}

impl Monitor {
    pub(crate) fn new(own: NodeAddr, threshold: usize) -> Self {
        let mut own_place = Member::new(own);
        (own_place.up, own_place.head) = (true, true);
        // A peer that has heard nothing acknowledges 0.
        let domain = DomainRecord { generation: Seq(1), ..DomainRecord::default() };
        Self {
            own,
            ring: [own_place].into(),
            domain,
            threshold,
            table_generation: 0,
            stale: None,
            renewed: Nanos::default(),
        }
    }

    /// Nodes on the medium, this one included.
    pub(crate) fn cluster_size(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.cluster_size() > self.threshold
    }

    /// A link to a node came up.
    pub(crate) fn peer_up(&mut self, addr: NodeAddr) {
        let index = match self.place(addr) {
            Ok(index) => index,
            Err(index) => {
                self.ring.insert(index, Member::new(addr));
                index
            }
        };
        self.ring[index] = Member { up: true, ..Member::new(addr) };
        self.changed(false);
    }

    /// The link to a node is lost. Returns those that it watched: they may be gone with it.
    pub(crate) fn peer_down(&mut self, addr: NodeAddr) -> Vec<NodeAddr> {
        let Ok(index) = self.place(addr) else { return Vec::new() };
        // Whether or not it was a head by now: when neighbours go together, roles change with each that is lost.
        let orphans = if self.is_active() {
            let covered = self.applied(index);
            let members = (1..=covered).map(|n| &self.ring[(index + n) % self.ring.len()]);
            members.filter(|m| m.up && !m.local && m.addr != self.own).map(|m| m.addr).collect()
        } else {
            Vec::new()
        };
        self.ring[index] = Member::new(addr);
        self.changed(true);
        orphans
    }

    /// A node is forgotten.
    pub(crate) fn remove(&mut self, addr: NodeAddr) {
        if let Ok(index) = self.place(addr)
            && addr != self.own
        {
            self.ring.remove(index);
            self.changed(true);
        }
    }

    fn place(&self, addr: NodeAddr) -> Result<usize, usize> {
        self.ring.binary_search_by_key(&addr, |m| m.addr)
    }

    fn changed(&mut self, urgent: bool) {
        self.stale = Some(urgent || self.stale == Some(true));
        self.renew_domain();
    }

    /// Takes the record of a peer. Returns the nodes that it has just lost and this one still sees.
    pub(crate) fn receive(&mut self, from: NodeAddr, record: DomainRecord) -> Vec<NodeAddr> {
        let Ok(index) = self.place(from) else { return Vec::new() };
        let member = &mut self.ring[index];
        if from == self.own || !member.up {
            return Vec::new();
        }
        // The first one tells where the peer stands, later ones only how far it has come.
        if member.acked.is_none_or(|acked| record.acked.after(acked)) {
            member.acked = Some(record.acked);
        }
        if member.heard.is_some_and(|heard| !record.generation.after(heard)) {
            return Vec::new();
        }
        member.heard = Some(record.generation);
        let before = member.record.replace(Box::new(record));
        self.stale = Some(self.stale == Some(true));
        let Some(now) = self.ring[index].record.clone() else { return Vec::new() };
        let had = |addr: NodeAddr| {
            let before = before.as_deref()?;
            let place = before.members.iter().position(|m| *m == addr)?;
            Some(before.sees(place))
        };
        let lost = now.members.iter().enumerate().filter(|(n, addr)| {
            !now.sees(*n) && had(**addr) != Some(false) && self.ring_has_up(**addr)
        });
        let lost: Vec<_> = lost.map(|(_, addr)| *addr).collect();
        if !lost.is_empty() {
            self.stale = Some(true);
        }
        lost
    }

    /// Whether it is up here and not in the own domain, whose members are probed anyway.
    fn ring_has_up(&self, addr: NodeAddr) -> bool {
        let member = self.place(addr).map(|index| &self.ring[index]);
        addr != self.own && member.is_ok_and(|m| m.up && !m.local)
    }

    /// How the link to a node is to be looked after.
    pub(crate) fn watch(&mut self, now: Nanos, addr: NodeAddr) -> Watch {
        if !self.is_active() {
            return Watch::Direct;
        }
        if self.stale.is_some_and(|urgent| urgent || now.since(self.renewed) >= ROLES_KEPT) {
            self.assign_roles();
            (self.stale, self.renewed) = (None, now);
        }
        let Ok(index) = self.place(addr) else { return Watch::Direct };
        let member = &self.ring[index];
        if member.acked != Some(self.domain.generation) {
            Watch::Telling
        } else if member.is_watched() {
            Watch::Direct
        } else {
            Watch::Indirect
        }
    }

    /// The record for a peer: the whole domain until it has acknowledged it. `None` in a small cluster.
    pub(crate) fn record_for(&self, addr: NodeAddr) -> Option<DomainRecord> {
        if !self.is_active() {
            return None;
        }
        let member = &self.ring[self.place(addr).ok()?];
        let acked = member.heard.unwrap_or_default();
        if member.acked == Some(self.domain.generation) {
            let generation = self.domain.generation;
            return Some(DomainRecord { generation, acked, ..DomainRecord::default() });
        }
        Some(DomainRecord { acked, ..self.domain.clone() })
    }

    /// Octets held for the records of peers.
    pub(crate) fn octets(&self) -> usize {
        let records = self.ring.iter().filter(|m| m.record.is_some()).count();
        records * size_of::<DomainRecord>()
    }
}

/// How a node is watched, for an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitoredReport {
    /// The node; the first is this one itself.
    pub addr: NodeAddr,
    /// It is seen.
    pub up: bool,
    /// It is probed from here: in the own domain, a head, or covered by no head.
    pub direct: bool,
    /// Generation of its record; 0 without one.
    pub generation: u16,
    /// Which members of its domain it sees, as far as they follow it in the ring as this node knows it.
    pub applied: Vec<bool>,
    /// The rest of its domain, which does not apply here.
    pub unapplied: Vec<(NodeAddr, bool)>,
}

impl Monitor {
    pub(crate) const fn table_generation(&self) -> u32 {
        self.table_generation
    }

    /// All nodes, this one first, in the order of the ring.
    pub(crate) fn reports(&self) -> Vec<MonitoredReport> {
        let own = self.place(self.own).unwrap_or(0);
        let all = (0..self.ring.len()).map(|n| (own + n) % self.ring.len());
        let active = self.is_active();
        all.map(|index| {
            let member = &self.ring[index];
            let is_own = member.addr == self.own;
            let record = if is_own { Some(&self.domain) } else { member.record.as_deref() };
            let applied = if is_own || member.record.is_some() { self.applied(index) } else { 0 };
            let seen = |n: usize| record.is_some_and(|r| r.sees(n));
            let rest = record.iter().flat_map(|r| r.members.iter().enumerate().skip(applied));
            MonitoredReport {
                addr: member.addr,
                up: member.up,
                direct: !active || member.is_watched(),
                generation: record.map_or(0, |r| r.generation.0),
                applied: (0..applied).map(seen).collect(),
                unapplied: rest.map(|(n, addr)| (*addr, seen(n))).collect(),
            }
        })
        .collect()
    }
}

/// Members of the domain of each node in a cluster of this size.
pub(crate) fn domain_len(cluster: usize) -> usize {
    let root = (0..DOMAIN_MEMBERS_MAX).find(|n| n * n >= cluster);
    root.unwrap_or(DOMAIN_MEMBERS_MAX).saturating_sub(1)
}

#[cfg(test)]
mod tests;
