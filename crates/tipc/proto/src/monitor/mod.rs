//! The overlapping ring monitor of one medium: in a large cluster, it decides which links a node probes itself.
//!
//! All nodes form a ring, ordered by address. Each node monitors its domain: the nodes that follow it in the ring,
//! about as many as the square root of the cluster's size. It reports their states to all other nodes in its STATE
//! messages. Each node also monitors heads. Its first head is the first node after its own domain that is up; the
//! domain of that head covers the next nodes. The next head is the first node after that domain that is up, and so on
//! around the ring. This node does not probe the nodes that a head reports as up. If a head reports a node as lost, or
//! is itself lost, this node immediately probes the nodes concerned and considers a node lost if it does not answer. A
//! node therefore probes about twice the square root of the cluster's size instead of all nodes, and no node is
//! considered lost only because another one reports it.
//!
//! The rules for domains and heads are those of Linux's net/tipc/monitor.c, so that kernels and this node can rely on
//! each other. There are two deliberate differences. If a head reports a node as down that is up for this node, this
//! node monitors it. And however many nodes report a node as lost, it is probed before it is considered lost.

mod ring;

use crate::addr::NodeAddr;
use crate::limits::DOMAIN_MEMBERS_MAX;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::DomainRecord;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// Minimum time between two assignments of roles, unless a node was lost. Each assignment costs a pass over all nodes,
/// and while a large cluster comes up, nodes change all the time.
const ROLES_KEPT: Duration = Duration::from_millis(50);

/// How a link is monitored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Watch {
    /// Monitored by this node, like all links of a small cluster.
    #[default]
    Direct,
    /// Monitored by another node.
    Indirect,
    /// Monitored by this node, because the peer has not yet acknowledged this node's domain record.
    Telling,
}

/// One node of the ring.
#[derive(Clone, Debug)]
struct Member {
    addr: NodeAddr,
    up: bool,
    /// The last domain record received from this member.
    record: Option<Box<DomainRecord>>,
    /// Generation of the last record received from this member.
    heard: Option<Seq>,
    /// Generation of our own record that this member has acknowledged.
    acked: Option<Seq>,
    /// Whether this member is in our own domain.
    local: bool,
    head: bool,
    /// Whether no role applies to this member: it is up, but its head does not report it as up, or no roles have been
    /// assigned since the member was added or lost.
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
    /// The nodes on the medium in ascending order of address, including this one.
    ring: Vec<Member>,
    /// This node's domain.
    domain: DomainRecord,
    /// Largest number of nodes on the medium, including this one, for which each node monitors all others.
    pub(crate) threshold: usize,
    table_generation: u32,
    /// Whether the roles must be reassigned immediately (true) or soon (false); `None` while they are up to date.
    stale: Option<bool>,
    renewed: Nanos,
}

impl Monitor {
    pub(crate) fn new(own: NodeAddr, threshold: usize) -> Self {
        let mut own_place = Member::new(own);
        (own_place.up, own_place.head) = (true, true);
        // A peer that has received no record acknowledges 0.
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

    /// Number of nodes known on the medium, up or not, including this one.
    pub(crate) fn cluster_size(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.cluster_size() > self.threshold
    }

    /// Records that a link to a node came up.
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

    /// Records that the link to a node is lost. Returns the nodes that the lost node monitored for this one: they may
    /// have been lost with it.
    pub(crate) fn peer_down(&mut self, addr: NodeAddr) -> Vec<NodeAddr> {
        let Ok(index) = self.place(addr) else { return Vec::new() };
        // Whether or not it is a head at this moment: when neighbours fail together, roles change with each loss.
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

    /// Removes a node that has been forgotten.
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

    /// Handles a peer's domain record. Returns the nodes that the record newly reports as lost and that are still up
    /// for this node.
    pub(crate) fn receive(&mut self, from: NodeAddr, record: DomainRecord) -> Vec<NodeAddr> {
        let Ok(index) = self.place(from) else { return Vec::new() };
        let member = &mut self.ring[index];
        if from == self.own || !member.up {
            return Vec::new();
        }
        // The first record gives the peer's state; later ones may only advance it.
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

    /// Whether the node with this address is in the ring and this node considers it up. False for this node and for
    /// members of its domain, because those are probed anyway.
    fn ring_has_up(&self, addr: NodeAddr) -> bool {
        let member = self.place(addr).map(|index| &self.ring[index]);
        addr != self.own && member.is_ok_and(|m| m.up && !m.local)
    }

    /// How the link to a node is to be monitored.
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

    /// The record to send to a peer: the whole domain until the peer has acknowledged it, after that only the
    /// generation numbers. `None` if the peer is not in the ring, or the ring monitor is not active, as in a small
    /// cluster.
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

    /// Number of bytes that the records of peers occupy.
    pub(crate) fn held_bytes(&self) -> usize {
        let records = self.ring.iter().filter(|m| m.record.is_some()).count();
        records * size_of::<DomainRecord>()
    }
}

/// Report for an operator on how a node is monitored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitoredReport {
    /// The node; the first report is about this node itself.
    pub addr: NodeAddr,
    /// Whether the node is up.
    pub up: bool,
    /// Whether this node probes that node itself: because the ring monitor is not active, or because that node is in
    /// this node's domain, is a head, or is covered by no head.
    pub direct: bool,
    /// Generation of the node's last domain record; 0 if it has sent none.
    pub generation: u16,
    /// The states (true: up) of those leading members of the node's domain record that agree with this node's ring: the
    /// same nodes, in the same order, follow the node there.
    pub applied: Vec<bool>,
    /// The remaining members of the node's domain record, each with its state (true: up).
    pub unapplied: Vec<(NodeAddr, bool)>,
}

impl Monitor {
    pub(crate) const fn table_generation(&self) -> u32 {
        self.table_generation
    }

    /// Reports on all nodes in ring order, this node first.
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

/// Number of members of each node's domain in a cluster of this size.
pub(crate) fn domain_len(cluster: usize) -> usize {
    let root = (0..DOMAIN_MEMBERS_MAX).find(|n| n * n >= cluster);
    root.unwrap_or(DOMAIN_MEMBERS_MAX).saturating_sub(1)
}

#[cfg(test)]
mod tests;
