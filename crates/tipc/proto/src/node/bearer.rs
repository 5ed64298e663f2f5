//! The node's bearers: its attachments to media.

use super::{Address, Node};
use crate::addr::{BearerId, MediaAddr, NodeId};
use crate::drops::DropReason;
use crate::limits::{
    BEARERS_MAX, DISCOVERY_FIRST, LINK_MTU_MIN, TOLERANCE_DEFAULT, TRIAL_TIME, WINDOW_MAX_ETHERNET,
    WINDOW_MAX_UDP,
};
use crate::monitor::Monitor;
use crate::time::Nanos;
use crate::wire::InterfaceName;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// Configuration of a bearer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerConfig {
    /// Name of the interface, shown to peers; must not be empty.
    pub name: InterfaceName,
    /// Our address on the medium, which peers send to.
    pub addr: MediaAddr,
    /// Largest TIPC packet that the medium carries, in bytes.
    pub mtu: usize,
    /// Largest TIPC packet that the medium carries whole, in bytes; by default `mtu`. Larger packets are divided, like
    /// UDP datagrams that travel as IP fragments. If too many divided packets are lost, links limit their packets to
    /// this size.
    pub whole_max: usize,
    /// Maximum send window of the bearer's links, in packets; `None` for the medium's default.
    pub window_max: Option<u16>,
    /// Silence after which a link fails.
    pub tolerance: Duration,
    /// Priority of the bearer's links, 1 to 31.
    pub priority: u8,
    /// Whether one frame can reach all stations. If false, the medium needs a copy for each station, and multicasts are
    /// sent only to the nodes that need them.
    pub broadcasts: bool,
    /// The stations whose frames are accepted; `None` for all. Frames whose source is not known are always accepted
    /// ([`Node::handle_frame`]).
    pub stations: Option<BTreeSet<MediaAddr>>,
}

impl BearerConfig {
    /// A bearer with the protocol's default values.
    pub fn new(name: &str, addr: MediaAddr, mtu: usize) -> Self {
        let name = InterfaceName::new(name);
        Self {
            name,
            addr,
            mtu,
            whole_max: mtu,
            window_max: None,
            tolerance: TOLERANCE_DEFAULT,
            priority: 10,
            broadcasts: true,
            stations: None,
        }
    }
}

/// Why a bearer cannot be enabled or disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BearerError {
    /// The node has the maximum number of bearers.
    TooMany,
    /// The MTU is below or above the allowed packet sizes.
    BadMtu,
    /// The address is not unicast, or the name is empty.
    BadName,
    /// Another bearer has the same address.
    AddressInUse,
    /// There is no bearer with that number.
    NoSuchBearer,
}

impl core::fmt::Display for BearerError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooMany => {
                write!(f, "a node can have at most {BEARERS_MAX} bearers; disable one first")
            }
            Self::BadMtu => {
                write!(f, "the MTU of the bearer must be between {LINK_MTU_MIN} and 65535 bytes")
            }
            Self::BadName => f.write_str("a bearer needs a name and a unicast address"),
            Self::AddressInUse => f.write_str("another bearer of this node has the same address"),
            Self::NoSuchBearer => f.write_str("no such bearer"),
        }
    }
}

impl core::error::Error for BearerError {}

#[derive(Clone, Debug)]
pub(super) struct Bearer {
    pub(super) cfg: BearerConfig,
    /// When to send the next discovery message.
    pub(super) discover_at: Nanos,
    pub(super) discover_interval: Duration,
    /// Stations removed by an operator: their discovery messages are ignored.
    pub(super) removed: BTreeSet<MediaAddr>,
    /// Decides which peers to probe on the medium.
    pub(super) monitor: Monitor,
}

impl Bearer {
    /// Fails if the bearer has a list of stations and this one is not in it.
    pub(super) fn check_listed(&self, source: &MediaAddr) -> Result<(), DropReason> {
        match &self.cfg.stations {
            Some(listed) if !listed.contains(source) => Err(if self.removed.contains(source) {
                DropReason::RemovedRemote
            } else {
                DropReason::UnlistedSource
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn window_max(&self) -> u16 {
        self.cfg.window_max.unwrap_or(match self.cfg.addr {
            MediaAddr::Ethernet(_) => WINDOW_MAX_ETHERNET,
            MediaAddr::Udp { .. } => WINDOW_MAX_UDP,
        })
    }
}

impl Node {
    /// Attaches the node to a medium. Discovery starts immediately. With the first bearer, the address trial starts,
    /// too, unless the configuration contains a fixed address.
    ///
    /// # Errors
    /// [`BearerError`] gives the reason.
    pub fn enable_bearer(
        &mut self,
        now: Nanos,
        mut cfg: BearerConfig,
    ) -> Result<BearerId, BearerError> {
        if !(LINK_MTU_MIN..=usize::from(u16::MAX)).contains(&cfg.mtu) {
            return Err(BearerError::BadMtu);
        }
        cfg.whole_max = cfg.whole_max.clamp(LINK_MTU_MIN, cfg.mtu);
        if !cfg.addr.is_unicast() || cfg.name.as_bytes().is_empty() {
            return Err(BearerError::BadName);
        }
        if self.bearers.iter().flatten().any(|b| b.cfg.addr == cfg.addr) {
            return Err(BearerError::AddressInUse);
        }
        let index = self.bearers.iter().position(Option::is_none).ok_or(BearerError::TooMany)?;
        let id = *self.id.get_or_insert_with(|| NodeId::from_media(&cfg.addr));
        self.bearers[index] = Some(Bearer {
            cfg,
            discover_at: now,
            discover_interval: DISCOVERY_FIRST,
            removed: BTreeSet::new(),
            monitor: Monitor::new(self.own(), self.monitor_threshold),
        });
        self.bound_broadcasts();
        if self.address == Address::None {
            match self.cfg.addr {
                Some(addr) => self.settle(addr),
                None => {
                    self.address = Address::Trial { candidate: id.addr(), until: now + TRIAL_TIME }
                }
            }
        }
        self.discover(now);
        Ok(BearerId(index as u8))
    }

    /// Detaches the node from a medium. Its links go down; their peers are notified if the caller still sends the frames that
    /// [`Node::poll_transmit`] returns for this bearer.
    ///
    /// # Errors
    /// [`BearerError::NoSuchBearer`].
    pub fn disable_bearer(&mut self, now: Nanos, bearer: BearerId) -> Result<(), BearerError> {
        let slot = self.bearers.get_mut(usize::from(bearer.0)).ok_or(BearerError::NoSuchBearer)?;
        slot.take().ok_or(BearerError::NoSuchBearer)?;
        self.bcast_copies.retain(|(b, _)| *b != bearer);
        self.bound_broadcasts();
        self.stop_links(now, bearer, None);
        Ok(())
    }

    /// Limits broadcast packets to the smallest packet size of all bearers and links.
    pub(super) fn bound_broadcasts(&mut self) {
        let bearers = self.bearers.iter().flatten().map(|b| b.cfg.mtu);
        let links = self.peers.values().flat_map(|peer| peer.links.iter().flatten());
        let mtu = bearers.chain(links.map(|over| over.link.mtu_offered())).min();
        self.bcast.set_mtu(mtu.unwrap_or(usize::from(u16::MAX)));
    }
}
