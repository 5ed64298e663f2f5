//! Neighbour discovery and negotiation of the node's own address.

use super::peer::{Contact, PeerLink, is_legal_peer};
use super::{Address, Destination, Event, Node, REQUIRED, Transmit};
use crate::addr::{BearerId, NodeAddr, Scope, ServiceRange, SocketAddr};
use crate::bcast::BcastSender;
use crate::drops::DropReason;
use crate::limits::{
    DISCOVERY_ALONE_MAX, DISCOVERY_ANSWERS_MAX, DISCOVERY_FIRST, DISCOVERY_LINKED_MAX,
    TRIAL_INTERVAL, TRIAL_TIME,
};
use crate::link::{Link, LinkConfig};
use crate::monitor::Monitor;
use crate::name_table::Binding;
use crate::socket::SocketState;
use crate::time::{Nanos, earliest};
use crate::wire::{Discovery, DiscoveryKind};
use alloc::vec::Vec;

impl Node {
    /// Sends the discovery messages that are due, and ends the address trial if its time is over.
    pub(super) fn discover(&mut self, now: Nanos) {
        if let Address::Trial { candidate, until } = self.address
            && until <= now
        {
            self.settle(candidate);
            for bearer in self.bearers.iter_mut().flatten() {
                (bearer.discover_at, bearer.discover_interval) = (now, DISCOVERY_FIRST);
            }
        }
        let (kind, trial) = match self.address {
            Address::None => return,
            Address::Trial { .. } => (DiscoveryKind::Trial, true),
            Address::Own(_) => (DiscoveryKind::Request, false),
        };
        let longest = if self.linked > 0 { DISCOVERY_LINKED_MAX } else { DISCOVERY_ALONE_MAX };
        for index in 0..self.bearers.len() {
            let Some(bearer) = &mut self.bearers[index] else { continue };
            if bearer.discover_at > now {
                continue;
            }
            let interval =
                if trial { TRIAL_INTERVAL } else { bearer.discover_interval.min(longest) };
            bearer.discover_at = now + interval;
            if !trial {
                bearer.discover_interval = (interval * 2).min(longest);
            }
            self.send_discovery(BearerId(index as u8), Destination::Broadcast, kind, NodeAddr(0));
        }
    }

    /// When [`Node::discover`] must be called next.
    pub(super) fn discovery_timeout(&self) -> Option<Nanos> {
        let next = self.bearers.iter().flatten().map(|b| b.discover_at).min()?;
        match self.address {
            Address::Trial { until, .. } => earliest(Some(next), Some(until)),
            Address::None => None,
            Address::Own(_) => Some(next),
        }
    }

    /// Makes discovery messages frequent again, because the last neighbour was lost.
    pub(super) fn discover_afresh(&mut self, now: Nanos) {
        for bearer in self.bearers.iter_mut().flatten() {
            (bearer.discover_at, bearer.discover_interval) =
                (now + TRIAL_INTERVAL, DISCOVERY_FIRST);
        }
    }

    /// Sends the next request on a bearer soon: it answers all nodes that look for others, however many they are.
    fn hasten_discovery(&mut self, now: Nanos, bearer: BearerId) {
        if let Some(Some(bearer)) = self.bearers.get_mut(usize::from(bearer.0)) {
            bearer.discover_at = bearer.discover_at.min(now + DISCOVERY_ALONE_MAX);
        }
    }

    /// Adopts `addr` as the node's own address.
    pub(super) fn settle(&mut self, addr: NodeAddr) {
        self.address = Address::Own(addr);
        self.bcast = BcastSender::new(addr, self.cfg.network, 0);
        self.bound_broadcasts();
        for bearer in self.bearers.iter_mut().flatten() {
            bearer.monitor = Monitor::new(addr, self.monitor_threshold);
        }
        // Until now, the node's own bindings belonged to node 0.
        for old in self.names.remove_node(NodeAddr(0)) {
            let moved = Binding { socket: SocketAddr { node: addr, ..old.socket }, ..old };
            // The table held it a moment ago, so there is room for it.
            let _ = self.names.insert(moved);
        }
        // Likewise, connections within the node were between ports of node 0.
        for socket in self.sockets.values_mut() {
            if let Some(group) = &mut socket.group {
                group.settle(addr);
            }
            if let SocketState::Connected(c) = &mut socket.state
                && c.peer.node == NodeAddr(0)
            {
                c.peer.node = addr;
            }
        }
        let range = ServiceRange::single(0, addr.0);
        let socket = SocketAddr { node: addr, ..SocketAddr::default() };
        let state = Binding { range, socket, key: addr.0, scope: Scope::Cluster };
        if self.names.insert(state).is_ok() {
            self.announce(true, state);
        }
        self.events.push_back(Event::AddressSettled(addr));
    }

    fn send_discovery(
        &mut self,
        bearer: BearerId,
        dest: Destination,
        kind: DiscoveryKind,
        domain: NodeAddr,
    ) {
        let Some(Some(b)) = self.bearers.get(usize::from(bearer.0)) else { return };
        let (Some(id), media) = (self.id, b.cfg.addr) else { return };
        if self.answers.len() >= DISCOVERY_ANSWERS_MAX {
            return;
        }
        let sender = match self.address {
            Address::Own(addr) | Address::Trial { candidate: addr, .. } => addr,
            Address::None => return,
        };
        let mut bytes = Vec::new();
        Discovery {
            kind,
            capabilities: self.cfg.announced(),
            signature: self.signature,
            domain,
            sender,
            network: self.cfg.network,
            media,
            net_hash: self.net_hash,
            id,
        }
        .encode(&mut bytes);
        self.answers.push_back((Transmit { bearer, dest, peer: None }, bytes));
    }

    pub(super) fn handle_discovery(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        m: &Discovery,
    ) -> Result<(), DropReason> {
        let Some(Some(b)) = self.bearers.get(usize::from(bearer.0)) else {
            return Err(DropReason::NoBearer);
        };
        if m.network != self.cfg.network {
            return Err(DropReason::WrongNetwork);
        }
        if m.media == b.cfg.addr || Some(m.id) == self.id {
            return Err(DropReason::OwnEcho);
        }
        let same_medium = core::mem::discriminant(&m.media) == core::mem::discriminant(&b.cfg.addr);
        if !same_medium || !m.media.is_unicast() {
            return Err(DropReason::BadMediaAddress);
        }
        match m.kind {
            DiscoveryKind::Trial => {
                self.handle_trial(bearer, m);
                Ok(())
            }
            DiscoveryKind::TrialFail { suggested } => self.handle_trial_fail(now, m, suggested),
            DiscoveryKind::Request | DiscoveryKind::Response => {
                self.handle_neighbour(now, bearer, m)
            }
        }
    }

    /// Handles the address trial of another node: refuses the address if this node has or tries it, or a third node has
    /// it.
    fn handle_trial(&mut self, bearer: BearerId, m: &Discovery) {
        let ours = match self.address {
            Address::Own(addr) | Address::Trial { candidate: addr, .. } => addr,
            Address::None => return,
        };
        let taken = m.sender == ours || self.peers.get(&m.sender).is_some_and(|p| p.id != m.id);
        if !taken {
            return;
        }
        let suggested = self.roster.address_of(&m.id).unwrap_or_else(|| {
            let mut free = NodeAddr(m.sender.0 ^ self.rng.next_u32());
            while !is_legal_peer(free, ours) || self.peers.contains_key(&free) {
                free.0 = free.0.wrapping_add(1);
            }
            free
        });
        let dest = Destination::Unicast(m.media);
        self.send_discovery(bearer, dest, DiscoveryKind::TrialFail { suggested }, m.sender);
    }

    /// Handles the refusal of our trial address: adopts the suggested address and starts the trial again.
    fn handle_trial_fail(
        &mut self,
        now: Nanos,
        m: &Discovery,
        suggested: NodeAddr,
    ) -> Result<(), DropReason> {
        match &mut self.address {
            Address::Trial { candidate, until }
                if *candidate == m.domain && suggested != NodeAddr(0) =>
            {
                (*candidate, *until) = (suggested, now + TRIAL_TIME);
                Ok(())
            }
            _ => Err(DropReason::NotForUs),
        }
    }

    fn handle_neighbour(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        m: &Discovery,
    ) -> Result<(), DropReason> {
        // During the trial, discovery messages are not processed: there is no address yet to answer from.
        let Some(own) = self.addr() else { return Err(DropReason::NotForUs) };
        if m.domain != NodeAddr(0) && m.domain != own {
            return Err(DropReason::NotForUs);
        }
        if m.sender == own {
            self.events.push_back(duplicate(m));
            return Err(DropReason::DuplicateAddress);
        }
        if !is_legal_peer(m.sender, own) {
            return Err(DropReason::Malformed);
        }
        if !m.capabilities.has(REQUIRED) {
            let missing = REQUIRED.without(m.capabilities);
            self.events.push_back(Event::TooOld { peer: m.sender, missing });
            if self.peers.get(&m.sender).is_some_and(|p| !p.is_up()) {
                self.forget_peer(m.sender);
            }
            return Err(DropReason::PeerTooOld);
        }
        if self.linked >= self.cfg.limits.peers && !self.peers.contains_key(&m.sender) {
            return Err(DropReason::TooManyPeers);
        }
        self.drop_former_address(m)?;
        if !self.admit_neighbour(now, bearer, m)? {
            return Ok(());
        }
        if m.kind == DiscoveryKind::Request {
            let dest = Destination::Unicast(m.media);
            if self.may_greet(now, m.sender) {
                self.send_discovery(bearer, dest, DiscoveryKind::Response, m.sender);
            } else {
                self.hasten_discovery(now, bearer);
            }
        }
        Ok(())
    }

    /// Records the information in a neighbour's discovery message. Returns whether the caller must answer it if it is a
    /// request.
    fn admit_neighbour(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        m: &Discovery,
    ) -> Result<bool, DropReason> {
        let Some(peer) = self.peers.get_mut(&m.sender) else {
            self.add_peer(now, bearer, m);
            self.add_link(now, bearer, m)?;
            return Ok(true);
        };
        let same_life = peer.signature == m.signature && peer.id == m.id;
        match peer.link(bearer).map(|l| (l.media == m.media, l.link.is_up())) {
            Some((true, true)) => {
                (peer.signature, peer.announced) = (m.signature, m.capabilities);
                return Ok(false);
            }
            Some((false, true)) => {
                self.events.push_back(duplicate(m));
                return Err(DropReason::DuplicateAddress);
            }
            Some((true, false)) if same_life => return Ok(true),
            None if peer.is_full() => {
                // The peer has the maximum number of links; this bearer gets one only if another has been silent.
                let Some(idle) = peer.idle_link(now) else { return Ok(false) };
                if let Some(over) = peer.links[usize::from(idle.0)].take() {
                    self.roster.leave_station(m.sender, (idle, over.media));
                }
                if let Some(bearer) = self.bearers[usize::from(idle.0)].as_mut() {
                    bearer.monitor.remove(m.sender);
                }
            }
            Some((_, false)) | None => {}
        }
        if !peer.is_up() {
            // Only a new incarnation can assume an old contact; with the same one, a link may just be coming up
            // elsewhere.
            if !same_life {
                self.roster.identify(m.sender, &peer.id, m.id);
                (peer.id, peer.contact) = (m.id, Contact::Leaving);
            }
            peer.announced = m.capabilities;
            peer.adopt_capabilities(self.cfg.announced());
        } else if peer.id != m.id {
            self.events.push_back(duplicate(m));
            return Err(DropReason::DuplicateAddress);
        }
        // The peer has restarted while contact with its old incarnation still exists over another link: contact is
        // re-established when that is lost.
        (peer.signature, peer.announced) = (m.signature, m.capabilities);
        self.add_link(now, bearer, m)?;
        Ok(true)
    }

    /// Creates a link to the sender of a discovery message. It replaces any link on this bearer, which must not be up.
    fn add_link(&mut self, now: Nanos, bearer: BearerId, m: &Discovery) -> Result<(), DropReason> {
        let Some(Some(b)) = self.bearers.get(usize::from(bearer.0)) else {
            return Err(DropReason::NoBearer);
        };
        let cfg = LinkConfig {
            own: self.own(),
            peer: m.sender,
            bearer,
            interface: b.cfg.name.clone(),
            mtu: b.cfg.mtu,
            whole_max: b.cfg.whole_max,
            window_max: b.window_max(),
            tolerance: b.cfg.tolerance,
            priority: b.cfg.priority,
            common: self.cfg.announced().common(m.capabilities),
        };
        let mut link = Link::new(now, cfg, self.rng.next_u16());
        let Some(peer) = self.peers.get_mut(&m.sender) else {
            return Err(DropReason::UnknownPeer);
        };
        if peer.failover.is_some() {
            link.begin_failover(now);
        }
        let over = PeerLink { media: m.media, heard_at: now, link };
        let replaced = peer.links[usize::from(bearer.0)].replace(over);
        if peer.stranger.is_some() {
            self.roster.move_station(m.sender, (bearer, m.media), replaced.map(|old| old.media));
        }
        self.touch(m.sender);
        Ok(())
    }
}

/// The event for a discovery message whose address is already in use.
const fn duplicate(m: &Discovery) -> Event {
    Event::DuplicateAddress { addr: m.sender, id: m.id, media: m.media }
}
