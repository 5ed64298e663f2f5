//! Encrypts and decrypts a node's frames, and decides which key each of them uses.

use super::{Keyring, Way, Ways};
use crate::addr::{NodeAddr, NodeId};
use crate::crypto::OVERHEAD;
use crate::crypto::header::{Header, Sender};
use crate::crypto::key::Loaded;
use crate::crypto::own::{MASTER, is_legacy};
use crate::crypto::peer::{Delivery, Peer, Place};
use crate::crypto::suite::{Suite, TAG_LEN};
use crate::drops::DropReason;
use crate::limits::{KEY_DELIVERY_STEP, KEY_USER_SILENT, PEERS_MAX};
use crate::node::Node;
use crate::time::Nanos;
use crate::wire::{User, View};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A key that fits a frame, and where it was found.
type Found<S> = (Place, Arc<Loaded<<S as Suite>::Key>>);

/// Type of the RESET message among those of a link.
const RESET: u32 = 1;

impl<S: Suite> Keyring<S> {
    /// How a frame of this node is sent. `dest` is the node that a frame of a link is for; `None` for discovery and for
    /// broadcasts.
    pub fn ways(&self, now: Nanos, dest: Option<NodeAddr>, frame: &[u8]) -> Ways {
        let mut ways = Ways::new();
        if !self.is_keyed() {
            ways.push(Way::Plain);
            return ways;
        }
        let Ok(view) = View::parse(frame) else { return ways };
        let peer = dest.and_then(|addr| self.by_addr.get(&addr)).map(|n| &self.peers[*n]);
        let is_discovery = view.user() == Some(User::LinkConfig);
        let is_setup = is_discovery || view.user() == Some(User::LinkProtocol);
        let mut sealed = true;
        // Keys are never sent in plain.
        if self.allows_plain && view.user() != Some(User::Crypto) {
            let knows = |p: &Peer<_>| p.is_heard(now, KEY_USER_SILENT);
            let plain = match dest {
                Some(_) => !peer.is_some_and(knows),
                None => is_discovery || !self.all_encrypt(now),
            };
            if plain {
                ways.push(Way::Plain);
            }
            // Encrypted copies tell the peer, and are its frames alone if it does not accept plain ones.
            sealed = !plain || dest.is_none() || is_setup;
        }
        if sealed {
            self.sealed_ways(now, peer, &view, &mut ways);
        }
        ways
    }

    fn sealed_ways(
        &self,
        now: Nanos,
        peer: Option<&Peer<S::Key>>,
        view: &View<'_>,
        ways: &mut Ways,
    ) {
        let own = &self.own;
        let is_discovery = view.user() == Some(User::LinkConfig);
        let is_link = view.user() == Some(User::LinkProtocol);
        if own.pending != 0 {
            let is_used = peer.is_some_and(|p| p.announced == own.pending);
            if is_used || !own.has_master() && own.active == 0 {
                ways.push(Way::Sealed(own.pending));
                return;
            }
            // Peers learn from these copies that there is a new key, and that they have it.
            if is_discovery || is_link {
                ways.push(Way::Sealed(own.pending));
            }
        }
        if own.has_master() {
            let is_vital = is_discovery
                || is_link && view.msg_type() == RESET
                || view.user() == Some(User::Crypto)
                || now < own.grace_until;
            let master = match peer {
                _ if own.active == 0 => true,
                Some(peer) => is_vital && peer.has_master && peer.announced == 0,
                None => is_vital,
            };
            if master {
                ways.push(Way::Sealed(MASTER));
            }
            let is_enough = own.active == 0 || peer.is_some() || !own.legacy;
            if master && is_enough {
                return;
            }
        }
        if own.active != 0 {
            ways.push(Way::Sealed(own.active));
        }
    }

    /// Encrypts a frame of this node with the key in a slot. Returns false if it must not be sent, because the key no
    /// longer exists or has no numbers left.
    pub fn seal(&mut self, slot: u8, dest: Option<NodeAddr>, frame: &mut Vec<u8>) -> bool {
        let peer = dest.and_then(|addr| self.by_addr.get(&addr)).map(|n| &self.peers[*n]);
        let Ok(view) = View::parse(frame) else { return false };
        let sender = if view.user() == Some(User::LinkConfig) {
            let mut id = [0; 16];
            id.copy_from_slice(view.data().get(..16).unwrap_or(&[0; 16]));
            Sender::Id(NodeId(id))
        } else {
            Sender::Addr(view.prev_node())
        };
        let is_state = view.user() == Some(User::LinkProtocol) && view.msg_type() == 0;
        let has_master = self.own.has_master();
        let Some((number, key)) = self.own.take_number(slot) else { return false };
        let header = Header {
            destined: peer.is_some(),
            key: slot,
            active: peer.map_or(0, |p| p.active),
            state: is_state.then(|| view.bit19()),
            has_master,
            no_key: peer.is_some_and(|p| p.no_key),
            number,
            sender,
        };
        let nonce = key.nonce(&header, dest);
        let start = header.encode();
        let len = frame.len();
        frame.reserve(OVERHEAD + start.len());
        frame.resize(len + start.len(), 0);
        frame.copy_within(..len, start.len());
        frame[..start.len()].copy_from_slice(&start);
        let tag = S::seal(key.key(), &nonce, &start, &mut frame[start.len()..]);
        frame.extend_from_slice(&tag);
        true
    }

    /// Decrypts a frame that `node` has received. Returns the frame, and whether it was encrypted.
    ///
    /// # Errors
    /// Why the frame must be dropped.
    pub fn open<'a>(
        &mut self,
        now: Nanos,
        node: &Node,
        packet: &'a mut [u8],
    ) -> Result<(&'a [u8], bool), DropReason> {
        if !Header::is_of(packet) {
            return self.accept_plain(now, packet).map(|()| (&*packet, false));
        }
        if !self.is_keyed() {
            return Err(DropReason::Encrypted);
        }
        let (header, start) = Header::decode(packet).ok_or(DropReason::Malformed)?;
        if packet.len() <= start + TAG_LEN {
            return Err(DropReason::Malformed);
        }
        let own = node.addr();
        let id = match header.sender {
            Sender::Id(id) => id,
            Sender::Addr(addr) => match self.by_addr.get(&addr) {
                Some(index) => self.peers[*index].id,
                None => node.id_of(addr).ok_or(DropReason::UnknownPeer)?,
            },
        };
        let index = self.by_id.get(&id).copied();
        let end = packet.len() - TAG_LEN;
        let (body, tag) = packet.split_at_mut(end);
        let (start, text) = body.split_at_mut(start);
        let tag: &[u8; TAG_LEN] = (&*tag).try_into().map_err(|_| DropReason::Malformed)?;
        let fits = |key: &Loaded<S::Key>, text: &mut [u8]| {
            S::open(key.key(), &key.nonce(&header, own), start, text, tag)
        };
        let (place, key) = match self.find_key(now, index, &header, |key| fits(key, text)) {
            Ok(found) => found,
            Err(reason) => {
                if let (DropReason::NoKey, Some(index)) = (reason, index) {
                    self.peers[index].no_key = true;
                }
                return Err(reason);
            }
        };
        let view = View::parse(text).map_err(|_| DropReason::Malformed)?;
        if !header.matches(&view) {
            return Err(DropReason::NotGenuine);
        }
        let index = match index {
            Some(index) => index,
            None if self.peers.len() < PEERS_MAX => {
                self.peer_with(id);
                self.peers.len() - 1
            }
            None => return Err(DropReason::TooManyPeers),
        };
        if let Sender::Addr(addr) = header.sender {
            self.peers[index].addr = Some(addr);
            self.by_addr.insert(addr, index);
        }
        self.note(now, index, &header, (place, key), (&view, own));
        Ok((text, true))
    }

    /// Checks whether a plain frame may be accepted.
    fn accept_plain(&mut self, now: Nanos, frame: &[u8]) -> Result<(), DropReason> {
        if !self.is_keyed() {
            return Ok(());
        }
        if !self.allows_plain {
            return Err(DropReason::Plain);
        }
        let view = View::parse(frame)?;
        let peer = if view.user() == Some(User::LinkConfig) {
            view.data().first_chunk::<16>().and_then(|id| self.by_id.get(&NodeId(*id)))
        } else {
            self.by_addr.get(&view.prev_node())
        };
        // Its frames arrive encrypted, too, so a plain one is a copy, or forged.
        if peer.is_some_and(|n| self.peers[*n].is_heard(now, KEY_USER_SILENT)) {
            return Err(DropReason::Duplicate);
        }
        self.heard_plain = Some(now);
        Ok(())
    }

    /// Finds the key with which a frame can be decrypted; `open` tries one.
    fn find_key(
        &self,
        now: Nanos,
        index: Option<usize>,
        header: &Header,
        mut open: impl FnMut(&Loaded<S::Key>) -> bool,
    ) -> Result<Found<S>, DropReason> {
        let peer = index.map(|n| &self.peers[n]);
        let is_replay = peer.is_some_and(|p| p.is_replay(now, header));
        let mut tried = false;
        if header.key == MASTER {
            let key = self.own.get(MASTER).ok_or(DropReason::NoKey)?;
            if is_replay {
                return Err(DropReason::Replayed);
            }
            return match open(key) {
                true if peer.is_some_and(|p| p.key(MASTER).is_some()) => {
                    Ok((Place::Slot, key.clone()))
                }
                true => Ok((Place::Own, key.clone())),
                false => Err(DropReason::NotGenuine),
            };
        }
        let in_slot = peer.and_then(|p| p.key(header.key));
        for (place, key) in peer.into_iter().flat_map(|p| p.candidates(header.key)) {
            if place == Place::Slot && is_replay {
                continue;
            }
            tried = true;
            if open(key) {
                return Ok((place, key.clone()));
            }
        }
        // A peer that has restarted, or changed its key, may use one of the cluster's keys in any slot.
        if in_slot.is_none() || peer.is_some_and(|p| p.is_silent(now, header.key)) || is_replay {
            for key in self.own.of_cluster() {
                if in_slot.is_some_and(|known| known.secret == key.secret) {
                    continue;
                }
                tried = true;
                if open(key) {
                    return Ok((Place::Own, key.clone()));
                }
            }
        }
        Err(match (is_replay, tried) {
            (true, _) => DropReason::Replayed,
            (false, true) => DropReason::NotGenuine,
            (false, false) => DropReason::NoKey,
        })
    }

    /// Learns from a genuine frame: which keys the peer uses, has and lacks.
    fn note(
        &mut self,
        now: Nanos,
        index: usize,
        header: &Header,
        (place, key): (Place, Arc<Loaded<S::Key>>),
        (view, own): (&View<'_>, Option<NodeAddr>),
    ) {
        let peer = &mut self.peers[index];
        peer.note(now, header, place, key);
        (peer.heard, peer.has_master) = (Some(now), header.has_master);
        self.own.legacy |= is_legacy(header);
        if view.user() == Some(User::LinkConfig) {
            peer.note_signature(view.bits(1, 0, 0xffff) as u16);
            let id = peer.id;
            self.locate(now, id, view);
            return;
        }
        // Only frames for this node say which of its keys the peer has.
        if !header.destined || own.is_none() || view.dest_node() != own {
            return;
        }
        if header.no_key {
            self.own.begin_grace(now);
            if self.own.has_session() && peer.delivery == Delivery::None {
                let mut random = [0];
                self.suite.fill(&mut random);
                let steps = u32::from(random[0] % 5) + 1;
                peer.delivery = Delivery::Due(now + KEY_DELIVERY_STEP * steps);
            }
        } else if matches!(peer.delivery, Delivery::Due(_)) {
            peer.delivery = Delivery::None;
        }
        if self.own.has_session() && peer.announced != header.active {
            peer.announced = header.active;
            self.own.users_changed = now;
        }
    }

    /// Notes the address that a node announces, unless a node that can be heard has it.
    fn locate(&mut self, now: Nanos, id: NodeId, view: &View<'_>) {
        let addr = view.prev_node();
        // In an address trial, the address is not the sender's yet.
        if view.msg_type() > 1 || addr == NodeAddr(0) {
            return;
        }
        let Some(&index) = self.by_id.get(&id) else { return };
        if let Some(&other) = self.by_addr.get(&addr)
            && other != index
        {
            if self.peers[other].is_heard(now, KEY_USER_SILENT) {
                return;
            }
            self.peers[other].addr = None;
        }
        if let Some(old) = self.peers[index].addr.replace(addr)
            && old != addr
        {
            self.by_addr.remove(&old);
        }
        self.by_addr.insert(addr, index);
    }
}
