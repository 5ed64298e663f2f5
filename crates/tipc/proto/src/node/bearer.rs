//! The node's attachments to media.

use super::{Address, Node};
use crate::addr::{BearerId, MediaAddr, NodeId};
use crate::limits::{
    BEARERS_MAX, DISCOVERY_FIRST, LINK_MTU_MIN, TOLERANCE_DEFAULT, TRIAL_TIME, WINDOW_MAX_ETHERNET,
    WINDOW_MAX_UDP,
};
use crate::monitor::Monitor;
use crate::time::Nanos;
use crate::wire::InterfaceName;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// What a bearer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerConfig {
    /// Name of the interface, shown to peers; must not be empty.
    pub name: InterfaceName,
    /// Our address on the medium, to which peers send.
    pub addr: MediaAddr,
    /// Largest TIPC packet the medium carries, in octets.
    pub mtu: usize,
    /// Largest send window of its links, in packets; `None` for the medium's default.
    pub window_max: Option<u16>,
    /// Silence after which a link fails.
    pub tolerance: Duration,
    /// Priority of its links, 1 to 31.
    pub priority: u8,
    /// One frame can reach all stations. False for a medium that needs a copy for each, on which multicasts then go to the nodes that
    /// want them instead of to all.
    pub broadcasts: bool,
}

impl BearerConfig {
    /// A bearer with the protocol's defaults.
    pub fn new(name: &str, addr: MediaAddr, mtu: usize) -> Self {
        let name = InterfaceName::new(name);
        Self {
            name,
            addr,
            mtu,
            window_max: None,
            tolerance: TOLERANCE_DEFAULT,
            priority: 10,
            broadcasts: true,
        }
    }
}

/// Why a bearer cannot be enabled or disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BearerError {
    /// The node has its full number of bearers.
    TooMany,
    /// Its MTU is below the smallest or above the largest packet.
    BadMtu,
    /// Its address is a group's, or the name is empty.
    BadName,
    /// Another bearer has this address.
    AddressInUse,
    /// No bearer of that number.
    NoSuchBearer,
}

impl core::fmt::Display for BearerError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooMany => {
                write!(f, "a node has at most {BEARERS_MAX} bearers; disable one first")
            }
            Self::BadMtu => {
                write!(f, "the bearer's MTU must lie between {LINK_MTU_MIN} and 65535 octets")
            }
            Self::BadName => f.write_str("a bearer needs a name and the address of one station"),
            Self::AddressInUse => f.write_str("another bearer of this node has the same address"),
            Self::NoSuchBearer => f.write_str("there is no such bearer"),
        }
    }
}

impl core::error::Error for BearerError {}

#[derive(Clone, Debug)]
pub(super) struct Bearer {
    pub(super) cfg: BearerConfig,
    /// When the next discovery message goes out.
    pub(super) discover_at: Nanos,
    pub(super) discover_interval: Duration,
    /// Stations that an operator removed: their discovery is not heard.
    pub(super) removed: BTreeSet<MediaAddr>,
    /// Who watches whom on the medium.
    pub(super) monitor: Monitor,
}

impl Bearer {
    pub(super) fn window_max(&self) -> u16 {
        self.cfg.window_max.unwrap_or(match self.cfg.addr {
            MediaAddr::Ethernet(_) => WINDOW_MAX_ETHERNET,
            MediaAddr::Udp { .. } => WINDOW_MAX_UDP,
        })
    }
}

impl Node {
    /// Attaches the node to a medium. Discovery begins at once; with the first bearer also the trial of the address, unless the
    /// address is fixed.
    ///
    /// # Errors
    /// [`BearerError`] says why not.
    pub fn enable_bearer(
        &mut self,
        now: Nanos,
        cfg: BearerConfig,
    ) -> Result<BearerId, BearerError> {
        if !(LINK_MTU_MIN..=usize::from(u16::MAX)).contains(&cfg.mtu) {
            return Err(BearerError::BadMtu);
        }
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

    /// Detaches the node from a medium; its links go down, and their peers are told if the caller still sends what
    /// [`Node::poll_transmit`] gives for this bearer.
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

    fn bound_broadcasts(&mut self) {
        let mtu = self.bearers.iter().flatten().map(|b| b.cfg.mtu).min();
        self.bcast.set_mtu(mtu.unwrap_or(usize::from(u16::MAX)));
    }
}
