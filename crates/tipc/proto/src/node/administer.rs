//! Settings that an operator can change while the node runs, and reports other than those on peers and links.

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

/// Report on a bearer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerReport {
    /// Number of the bearer.
    pub id: BearerId,
    /// Name of the bearer's interface.
    pub name: InterfaceName,
    /// This node's address on the medium.
    pub addr: MediaAddr,
    /// Largest packet, in bytes.
    pub mtu: usize,
    /// Default tolerance of the bearer's links: the silence after which they fail.
    pub tolerance: Duration,
    /// Default priority of the bearer's links.
    pub priority: u8,
    /// Default maximum send window of the bearer's links, in packets.
    pub window_max: u16,
    /// Whether one frame can reach all stations on the medium.
    pub broadcasts: bool,
    /// Addresses of the stations that an operator has removed from the bearer; their discovery messages are ignored.
    pub removed: Vec<MediaAddr>,
}

/// A number of messages and of their payload bytes, without headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Number of messages.
    pub messages: u64,
    /// Total length of the messages' payloads, in bytes.
    pub bytes: u64,
}

impl Traffic {
    pub(crate) const fn count(&mut self, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
    }
}

/// Why a setting is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingError {
    /// The link does not exist.
    NoSuchLink,
    /// The bearer does not exist.
    NoSuchBearer,
    /// The peer does not exist.
    NoSuchPeer,
    /// There is contact with the peer, so it cannot be removed.
    PeerUp,
    /// The tolerance is outside [`TOLERANCE_MIN`] to [`TOLERANCE_MAX`].
    Tolerance,
    /// The priority is outside 1 to [`PRIORITY_MAX`].
    Priority,
    /// The window is outside 1 to [`WINDOW_MAX_ETHERNET`].
    Window,
    /// The threshold exceeds [`MONITOR_THRESHOLD_MAX`].
    MonitorThreshold,
}

impl core::fmt::Display for SettingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchLink => f.write_str("no such link"),
            Self::NoSuchBearer => f.write_str("no such bearer"),
            Self::NoSuchPeer => f.write_str("no such node"),
            Self::PeerUp => f.write_str(
                "the node is up, and only a node that is down can be removed; first disable the bearer of its link, or \
                 remove the node's address from that bearer",
            ),
            Self::Tolerance => {
                let (least, most) = (TOLERANCE_MIN.as_millis(), TOLERANCE_MAX.as_millis());
                write!(f, "the tolerance must be between {least} and {most} ms")
            }
            Self::Priority => write!(f, "the priority must be between 1 and {PRIORITY_MAX}"),
            Self::Window => {
                write!(f, "the window must be between 1 and {WINDOW_MAX_ETHERNET} packets")
            }
            Self::MonitorThreshold => {
                write!(
                    f,
                    "the monitor's threshold must be between 0 and {MONITOR_THRESHOLD_MAX} nodes"
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
    /// The bearers, by number.
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

    /// The network ID of the cluster.
    pub const fn network(&self) -> NetworkId {
        self.cfg.network
    }

    /// The capabilities that this node announces.
    pub fn capabilities(&self) -> Capabilities {
        self.cfg.announced()
    }

    /// The node's own bindings, including that of the topology service and those that represent links.
    pub fn own_bindings(&self) -> Vec<Binding> {
        self.names.of_node(self.own()).map(|(_, binding)| binding).collect()
    }

    /// Data messages sent between sockets of this node since the node was created. No link counts them.
    pub const fn local_traffic(&self) -> Traffic {
        self.local_traffic
    }

    pub(super) fn count_local(&mut self, view: &View<'_>) {
        if let Some(User::Data(
            Importance::Low | Importance::Medium | Importance::High | Importance::Critical,
        )) = view.user()
        {
            self.local_traffic.count(view.data().len());
        }
    }

    /// Sets the defaults for future links of a bearer; existing links stay as they are.
    ///
    /// # Errors
    /// [`SettingError::NoSuchBearer`], [`SettingError::Tolerance`], [`SettingError::Priority`],
    /// [`SettingError::Window`].
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

    /// How multicasts of sockets that do not choose a method are sent.
    pub const fn multicasts(&self) -> MulticastPolicy {
        self.cfg.multicasts
    }

    /// Sets how further multicasts of sockets that do not choose a method are sent.
    pub const fn set_multicasts(&mut self, policy: MulticastPolicy) {
        self.cfg.multicasts = policy;
    }

    /// Resets the statistics of a link, except the number of times it came up.
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

    /// Resets the statistics of the broadcast link.
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

    /// Changes settings of a link. The peer adopts a new tolerance or priority; the window applies to this end only.
    ///
    /// # Errors
    /// [`SettingError::NoSuchLink`], [`SettingError::Tolerance`], [`SettingError::Priority`],
    /// [`SettingError::Window`].
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

    /// Takes down the links over a bearer to one station, notifies the peer, and ignores the station's discovery
    /// messages from now on. If the bearer has a list of stations, the station is removed from it.
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
        let at = slot.ok_or(BearerError::NoSuchBearer)?;
        at.removed.insert(station);
        if let Some(listed) = &mut at.cfg.stations {
            listed.remove(&station);
        }
        self.stop_links(now, bearer, Some(station));
        Ok(())
    }

    /// Returns the media address of the sender of a frame that arrived on a bearer. A discovery message contains the
    /// address; for any other frame, it is known from discovery. `None` if the sender is unknown.
    pub fn station_of(&self, bearer: BearerId, frame: &[u8]) -> Option<MediaAddr> {
        let view = View::parse(frame).ok()?;
        if view.user() == Some(User::LinkConfig) {
            return Discovery::decode(&view).ok().map(|m| m.media);
        }
        Some(self.peers.get(&view.prev_node())?.link(bearer)?.media)
    }

    /// Immediately sends a discovery request on a bearer to reach a newly added station. If the bearer has a list of
    /// stations, the station is added to it; if it had been removed, its discovery messages are no longer ignored.
    pub fn meet(&mut self, now: Nanos, bearer: BearerId, station: MediaAddr) {
        if let Some(Some(bearer)) = self.bearers.get_mut(usize::from(bearer.0)) {
            bearer.removed.remove(&station);
            if let Some(listed) = &mut bearer.cfg.stations {
                listed.insert(station);
            }
            (bearer.discover_at, bearer.discover_interval) = (now, DISCOVERY_FIRST);
        }
        self.discover(now);
    }
}
