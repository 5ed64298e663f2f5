//! The ring monitor of each medium, as the node uses and shows it.

use super::Node;
use super::administer::SettingError;
use crate::addr::{BearerId, NodeAddr};
use crate::limits::MONITOR_THRESHOLD_MAX;
use crate::monitor::MonitoredReport;
use crate::time::Nanos;
use crate::wire::DomainRecord;
use alloc::vec::Vec;

/// The monitor of a bearer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MonitorReport {
    /// The bearer.
    pub bearer: BearerId,
    /// Counts the assignments of roles.
    pub table_generation: u32,
    /// Nodes on the medium, this one included.
    pub cluster_size: usize,
    /// Nodes watch each other along the ring; otherwise each watches all.
    pub active: bool,
    /// Nodes in this node's own domain.
    pub domain: usize,
}

impl Node {
    /// Nodes on a medium, this one included, up to which each watches all others; beyond it they watch each other along a ring.
    pub const fn monitor_threshold(&self) -> usize {
        self.monitor_threshold
    }

    /// Sets that number.
    ///
    /// # Errors
    /// [`SettingError::MonitorThreshold`].
    pub fn set_monitor_threshold(&mut self, nodes: usize) -> Result<(), SettingError> {
        if nodes > MONITOR_THRESHOLD_MAX {
            return Err(SettingError::MonitorThreshold);
        }
        self.monitor_threshold = nodes;
        for bearer in self.bearers.iter_mut().flatten() {
            bearer.monitor.threshold = nodes;
        }
        Ok(())
    }

    /// The monitors of all bearers.
    pub fn monitors(&self) -> impl Iterator<Item = MonitorReport> + '_ {
        (0..).zip(&self.bearers).filter_map(|(n, bearer)| {
            let monitor = &bearer.as_ref()?.monitor;
            Some(MonitorReport {
                bearer: BearerId(n),
                table_generation: monitor.table_generation(),
                cluster_size: monitor.cluster_size(),
                active: monitor.is_active(),
                domain: crate::monitor::domain_len(monitor.cluster_size()),
            })
        })
    }

    /// Who is watched how on a bearer: this node first, then the others in the order of the ring.
    pub fn monitored(&self, bearer: BearerId) -> Vec<MonitoredReport> {
        let bearer = self.bearers.get(usize::from(bearer.0)).and_then(Option::as_ref);
        bearer.map(|b| b.monitor.reports()).unwrap_or_default()
    }

    /// A peer tells of its domain.
    pub(super) fn handle_domain(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        from: NodeAddr,
        record: DomainRecord,
    ) {
        let Some(Some(on)) = self.bearers.get_mut(usize::from(bearer.0)) else { return };
        let lost = on.monitor.receive(from, record);
        self.suspect(now, bearer, &lost);
    }

    /// The link to a node is lost, and with it what the node watched.
    pub(super) fn monitor_lost(&mut self, now: Nanos, addr: NodeAddr, bearer: BearerId) {
        let Some(Some(on)) = self.bearers.get_mut(usize::from(bearer.0)) else { return };
        let orphans = on.monitor.peer_down(addr);
        self.suspect(now, bearer, &orphans);
    }

    fn suspect(&mut self, now: Nanos, bearer: BearerId, nodes: &[NodeAddr]) {
        for addr in nodes {
            if let Some(over) = self.peers.get_mut(addr).and_then(|p| p.link_mut(bearer)) {
                over.link.suspect(now);
                self.touch(*addr);
            }
        }
    }
}
