//! What an operator may change while the node runs, and what there is to see besides peers and links.

use super::{MulticastPolicy, Node, bearer::BearerError, peer::Contact};
use crate::addr::{BearerId, Importance, MediaAddr, NetworkId, NodeAddr};
use crate::limits::{
    DISCOVERY_FIRST, MONITOR_THRESHOLD_MAX, PRIORITY_MAX, TOLERANCE_MAX, TOLERANCE_MIN,
    WINDOW_MAX_ETHERNET,
};
use crate::link::LinkSettings;
use crate::name_table::Binding;
use crate::time::Nanos;
use crate::wire::{Capabilities, Discovery, InterfaceName, User, View};
use alloc::vec::Vec;
use core::time::Duration;

/// A bearer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerReport {
    /// Its number.
    pub id: BearerId,
    /// Name of its interface.
    pub name: InterfaceName,
    /// This node's address on the medium.
    pub addr: MediaAddr,
    /// Largest packet, in octets.
    pub mtu: usize,
    /// Silence after which its links fail, unless they are set otherwise.
    pub tolerance: Duration,
    /// Priority of its links.
    pub priority: u8,
    /// Largest send window of its links, in packets.
    pub window_max: u16,
    /// One frame reaches all stations.
    pub broadcasts: bool,
    /// Stations that were removed, whose discovery is not heard.
    pub removed: Vec<MediaAddr>,
}

/// Messages and their octets, headers not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Octets of their payloads.
    pub octets: u64,
}

impl Traffic {
    pub(crate) const fn count(&mut self, octets: usize) {
        self.messages += 1;
        self.octets += octets as u64;
    }
}

/// Why a setting is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingError {
    /// There is no such link.
    NoSuchLink,
    /// There is no such bearer.
    NoSuchBearer,
    /// There is no such peer.
    NoSuchPeer,
    /// There is contact with the peer.
    PeerUp,
    /// Outside [`TOLERANCE_MIN`] to [`TOLERANCE_MAX`].
    Tolerance,
    /// Outside 1 to [`PRIORITY_MAX`].
    Priority,
    /// Outside 1 to [`WINDOW_MAX_ETHERNET`].
    Window,
    /// Beyond [`MONITOR_THRESHOLD_MAX`].
    MonitorThreshold,
}

impl core::fmt::Display for SettingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchLink => f.write_str("there is no such link"),
            Self::NoSuchBearer => f.write_str("there is no such bearer"),
            Self::NoSuchPeer => f.write_str("there is no such node"),
            Self::PeerUp => f.write_str("there is contact with it, and only a node that is down can be removed; disable the bearer or remove its remote first"),
            Self::Tolerance => {
                let (least, most) = (TOLERANCE_MIN.as_millis(), TOLERANCE_MAX.as_millis());
                write!(f, "a tolerance lies between {least} and {most} ms")
            }
            Self::Priority => write!(f, "a priority lies between 1 and {PRIORITY_MAX}"),
            Self::Window => {
                write!(f, "a window lies between 1 and {WINDOW_MAX_ETHERNET} packets")
            }
            Self::MonitorThreshold => {
                write!(
                    f,
                    "the monitor's threshold lies between 0 and {MONITOR_THRESHOLD_MAX} nodes"
                )
            }
        }
    }
}

impl core::error::Error for SettingError {}

fn check(settings: LinkSettings) -> Result<(), SettingError> {
    if settings.tolerance.is_some_and(|t| !(TOLERANCE_MIN..=TOLERANCE_MAX).contains(&t)) {
        return Err(SettingError::Tolerance);
    }
    if settings.priority.is_some_and(|p| !(1..=PRIORITY_MAX).contains(&p)) {
        return Err(SettingError::Priority);
    }
    if settings.window_max.is_some_and(|w| !(1..=WINDOW_MAX_ETHERNET).contains(&w)) {
        return Err(SettingError::Window);
    }
    Ok(())
}

impl Node {
    /// The bearers by number.
    pub fn bearers(&self) -> impl Iterator<Item = BearerReport> + '_ {
        (0..).zip(&self.bearers).filter_map(|(n, bearer)| {
            let bearer = bearer.as_ref()?;
            let cfg = &bearer.cfg;
            Some(BearerReport {
                id: BearerId(n),
                name: cfg.name.clone(),
                addr: cfg.addr,
                mtu: cfg.mtu,
                tolerance: cfg.tolerance,
                priority: cfg.priority,
                window_max: bearer.window_max(),
                broadcasts: cfg.broadcasts,
                removed: bearer.removed.iter().copied().collect(),
            })
        })
    }

    /// The cluster.
    pub const fn network(&self) -> NetworkId {
        self.cfg.network
    }

    /// What this node announces.
    pub fn capabilities(&self) -> Capabilities {
        self.cfg.announced()
    }

    /// The node's own bindings, the topology service's and those of links included.
    pub fn own_bindings(&self) -> Vec<Binding> {
        self.names.of_node(self.own()).map(|(_, binding)| binding).collect()
    }

    /// Data messages between sockets of this node since it began, which no link counts.
    pub const fn local_traffic(&self) -> Traffic {
        self.local_traffic
    }

    pub(super) fn count_local(&mut self, message: &[u8]) {
        if let Ok(view) = View::parse(message)
            && let Some(User::Data(
                Importance::Low | Importance::Medium | Importance::High | Importance::Critical,
            )) = view.user()
        {
            self.local_traffic.count(view.data().len());
        }
    }

    /// Sets what future links of a bearer begin with; links that are there stay as they are.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn set_bearer(
        &mut self,
        bearer: BearerId,
        settings: LinkSettings,
    ) -> Result<(), SettingError> {
        check(settings)?;
        let bearer = self.bearers.get_mut(usize::from(bearer.0)).and_then(Option::as_mut);
        let cfg = &mut bearer.ok_or(SettingError::NoSuchBearer)?.cfg;
        cfg.tolerance = settings.tolerance.unwrap_or(cfg.tolerance);
        cfg.priority = settings.priority.unwrap_or(cfg.priority);
        cfg.window_max = settings.window_max.or(cfg.window_max);
        Ok(())
    }

    /// How multicasts travel whose sockets leave it to the node.
    pub const fn multicasts(&self) -> MulticastPolicy {
        self.cfg.multicasts
    }

    /// Has later multicasts travel so.
    pub const fn set_multicasts(&mut self, policy: MulticastPolicy) {
        self.cfg.multicasts = policy;
    }

    /// Begins the counters of a link anew; how often it came up is kept.
    ///
    /// # Errors
    /// [`SettingError::NoSuchLink`].
    pub fn reset_statistics(
        &mut self,
        peer: NodeAddr,
        bearer: BearerId,
    ) -> Result<(), SettingError> {
        let over = self.peers.get_mut(&peer).and_then(|p| p.link_mut(bearer));
        over.ok_or(SettingError::NoSuchLink)?.link.reset_statistics();
        Ok(())
    }

    /// Begins the counters of the broadcast link anew.
    pub fn reset_broadcast_statistics(&mut self) {
        self.bcast.stats = Default::default();
    }

    /// Forgets a node that is down; discovery may find it again.
    ///
    /// # Errors
    /// [`SettingError::NoSuchPeer`], [`SettingError::PeerUp`].
    pub fn remove_peer(&mut self, addr: NodeAddr) -> Result<(), SettingError> {
        let peer = self.peers.get(&addr).ok_or(SettingError::NoSuchPeer)?;
        if peer.contact == Contact::Up {
            return Err(SettingError::PeerUp);
        }
        self.forget_peer(addr);
        Ok(())
    }

    /// Sets a link, and through it the peer's end.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn set_link(
        &mut self,
        now: Nanos,
        peer: NodeAddr,
        bearer: BearerId,
        settings: LinkSettings,
    ) -> Result<(), SettingError> {
        check(settings)?;
        let over = self.peers.get_mut(&peer).and_then(|p| p.link_mut(bearer));
        over.ok_or(SettingError::NoSuchLink)?.link.set(now, settings);
        self.touch(peer);
        Ok(())
    }

    /// Ends the links over a bearer to one station, whose peer is told, and does not hear its discovery any more.
    ///
    /// # Errors
    /// [`BearerError::NoSuchBearer`].
    pub fn part_from(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        station: MediaAddr,
    ) -> Result<(), BearerError> {
        let slot = self.bearers.get_mut(usize::from(bearer.0)).and_then(Option::as_mut);
        slot.ok_or(BearerError::NoSuchBearer)?.removed.insert(station);
        self.stop_links(now, bearer, Some(station));
        Ok(())
    }

    pub(super) fn is_removed(&self, bearer: BearerId, station: &MediaAddr) -> bool {
        let bearer = self.bearers.get(usize::from(bearer.0)).and_then(Option::as_ref);
        bearer.is_some_and(|b| b.removed.contains(station))
    }

    /// Where a frame that came on a bearer was sent from, as far as its sender is known or says so itself.
    pub fn station_of(&self, bearer: BearerId, frame: &[u8]) -> Option<MediaAddr> {
        let view = View::parse(frame).ok()?;
        if view.user() == Some(User::LinkConfig) {
            return Discovery::decode(&view).ok().map(|m| m.media);
        }
        Some(self.peers.get(&view.prev_node())?.link(bearer)?.media)
    }

    /// Looks around on a bearer at once, for a station that it reaches only now, and hears it if it was removed.
    pub fn meet(&mut self, now: Nanos, bearer: BearerId, station: MediaAddr) {
        if let Some(Some(bearer)) = self.bearers.get_mut(usize::from(bearer.0)) {
            bearer.removed.remove(&station);
            (bearer.discover_at, bearer.discover_interval) = (now, DISCOVERY_FIRST);
        }
        self.discover(now);
    }
}
