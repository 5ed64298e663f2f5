//! The ring monitor of each medium, as used and reported by the node.

use super::Node;
use super::administer::SettingError;
use crate::addr::{BearerId, NodeAddr};
use crate::limits::MONITOR_THRESHOLD_MAX;
use crate::monitor::MonitoredReport;
use crate::time::Nanos;
use crate::wire::DomainRecord;
use alloc::vec::Vec;

/// State of a bearer's monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MonitorReport {
    /// The bearer whose medium is monitored.
    pub bearer: BearerId,
    /// Number of times that this node has assigned the roles (domain and heads).
    pub table_generation: u32,
    /// Number of known nodes on the medium, up or not, including this one.
    pub cluster_size: usize,
    /// Whether nodes monitor each other along the ring. If not, each node monitors all others.
    pub active: bool,
    /// Number of nodes in this node's own domain.
    pub domain: usize,
}

impl Node {
    /// The threshold of the ring monitor. On a medium with at most this number of nodes, including this one, each node
    /// monitors all others; with more, nodes monitor each other along a ring.
    pub const fn monitor_threshold(&self) -> usize {
        self.monitor_threshold
    }

    /// Sets the threshold of the ring monitor.
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

    /// State of the monitors of all bearers.
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

    /// How each node on a bearer is monitored: this node first, then the others in ring order.
    pub fn monitored(&self, bearer: BearerId) -> Vec<MonitoredReport> {
        let bearer = self.bearers.get(usize::from(bearer.0)).and_then(Option::as_ref);
        bearer.map(|b| b.monitor.reports()).unwrap_or_default()
    }

    /// Handles a peer's domain record.
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

    /// Handles the loss of the link to a node. The nodes that it monitored for this node may have been lost with it, so
    /// their links are probed.
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
