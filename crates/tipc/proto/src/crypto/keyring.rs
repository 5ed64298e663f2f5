//! A node's keys and those of its peers: sets them, replaces them, sends them and lets them expire.

mod frames;

use super::KeyReport;
use super::key::{KeyMode, Loaded, SecretKey};
use super::own::{AttachError, Own, Rekeying};
use super::peer::{Delivery, Peer};
use super::suite::Suite;
use crate::addr::{NodeAddr, NodeId};
use crate::drops::DropReason;
use crate::limits::{KEY_DELIVERY_PAUSE, KEY_TICK, KEY_USER_SILENT, PEER_FORGET, REKEYING_DEFAULT};
use crate::time::{Nanos, earliest};
use crate::wire::KeyMessage;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::time::Duration;

/// How one copy of a frame is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As it is.
    Plain,
    /// Encrypted with the key in this slot.
    Sealed(u8),
}

/// All copies of a frame that are sent, none if it must not be sent.
pub type Ways = ArrayVec<Way, 4>;

/// Whose key is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOwner {
    /// The cluster: all nodes encrypt with it.
    Cluster,
    /// The cluster, as its master key.
    Master,
    /// One node: it encrypts with it, the others decrypt.
    Node(NodeId),
}

/// A key to be sent to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    /// The peer.
    pub to: NodeAddr,
    /// The key's generation.
    pub generation: u16,
    /// Whose frames the key protects.
    pub mode: KeyMode,
    /// The key.
    pub key: SecretKey,
}

/// A node's keys, and those of its peers.
///
/// The caller passes each frame that the node sends to [`Keyring::ways`] and [`Keyring::seal`], each frame that arrives to
/// [`Keyring::open`], key messages that the node receives to [`Keyring::take_key`], and sends what
/// [`Keyring::poll_distribution`] returns. It calls [`Keyring::handle_timeout`] at [`Keyring::poll_timeout`].
#[derive(Debug)]
pub struct Keyring<S: Suite> {
    suite: S,
    own: Own<S::Key>,
    peers: Vec<Peer<S::Key>>,
    by_id: BTreeMap<NodeId, usize>,
    by_addr: BTreeMap<NodeAddr, usize>,
    /// Whether plain frames are accepted and sent, to and from peers that have not encrypted anything yet.
    allows_plain: bool,
    /// When a plain frame was last accepted, or might have been.
    heard_plain: Option<Nanos>,
    outgoing: VecDeque<Distribution>,
    tick_at: Nanos,
}

impl<S: Suite> Keyring<S> {
    /// A keyring without keys: frames are neither encrypted nor decrypted.
    pub fn new(suite: S) -> Self {
        Self {
            suite,
            own: Own::new(),
            peers: Vec::new(),
            by_id: BTreeMap::new(),
            by_addr: BTreeMap::new(),
            allows_plain: false,
            heard_plain: None,
            outgoing: VecDeque::new(),
            tick_at: Nanos(0),
        }
    }

    /// Whether there are keys, so that frames are encrypted.
    pub fn is_keyed(&self) -> bool {
        self.own.is_keyed()
    }

    /// Whether frames of peers that have not encrypted anything yet are accepted, and are sent to them.
    pub const fn allows_plain(&self) -> bool {
        self.allows_plain
    }

    /// Sets whether plain frames are accepted from, and sent to, peers that have not encrypted anything yet.
    pub const fn allow_plain(&mut self, allow: bool) {
        self.allows_plain = allow;
    }

    /// Sets a key. `own_id` is the identity of this node, if it has one.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn set_key(
        &mut self,
        now: Nanos,
        own_id: Option<NodeId>,
        secret: SecretKey,
        owner: KeyOwner,
    ) -> Result<(), AttachError> {
        let (mode, is_master) = match owner {
            KeyOwner::Cluster => (KeyMode::Cluster, false),
            KeyOwner::Master => (KeyMode::Cluster, true),
            KeyOwner::Node(id) if Some(id) != own_id => {
                let key = Arc::new(Loaded::new(&self.suite, secret, KeyMode::Node));
                let peer = self.peer_with(id);
                peer.is_kept = true;
                peer.give(key);
                return Ok(());
            }
            KeyOwner::Node(_) => (KeyMode::Node, false),
        };
        let users = self.users(now, self.own.pending);
        self.own.attach(now, &mut self.suite, (secret, mode), is_master, users)?;
        if self.allows_plain && self.heard_plain.is_none() {
            self.heard_plain = Some(now);
        }
        if is_master {
            self.peers.iter_mut().for_each(Peer::forget_master);
            if self.own.rekey_at.is_none() {
                self.own.schedule(now, Rekeying::Every(REKEYING_DEFAULT));
            }
        } else {
            self.distribute(now, None);
        }
        Ok(())
    }

    /// Sets when this node replaces its key by a random one.
    pub fn set_rekeying(&mut self, now: Nanos, rekeying: Rekeying) {
        self.own.schedule(now, rekeying);
    }

    /// The interval at which this node replaces its key; `None` for never.
    pub const fn rekeying(&self) -> Option<Duration> {
        self.own.interval()
    }

    /// Removes all keys. From now on, frames are neither encrypted nor decrypted.
    pub fn flush(&mut self) {
        self.own.flush();
        self.peers.clear();
        self.by_id.clear();
        self.by_addr.clear();
        self.outgoing.clear();
    }

    /// Number of peers that can be heard and use the key in a slot.
    fn users(&self, now: Nanos, slot: u8) -> usize {
        let uses = |p: &&Peer<_>| p.announced == slot && p.is_heard(now, KEY_USER_SILENT);
        if slot == 0 { 0 } else { self.peers.iter().filter(uses).count() }
    }

    fn peer_with(&mut self, id: NodeId) -> &mut Peer<S::Key> {
        let next = self.peers.len();
        let index = *self.by_id.entry(id).or_insert(next);
        if index == next {
            self.peers.push(Peer::new(id));
        }
        &mut self.peers[index]
    }

    /// Queues this node's newest key for a peer or, with `None`, for all peers. Peers that have not encrypted anything lately
    /// get none, because what is sent to them may be plain.
    fn distribute(&mut self, now: Nanos, only: Option<NodeAddr>) {
        let Some((key, generation)) = self.own.newest() else { return };
        let (mode, key) = (key.mode, key.secret.clone());
        let peers = self.peers.iter().filter(|p| p.is_heard(now, KEY_USER_SILENT));
        for to in peers.filter_map(|p| p.addr).filter(|to| only.is_none_or(|only| only == *to)) {
            self.outgoing.push_back(Distribution { to, generation, mode, key: key.clone() });
        }
    }

    /// Removes and returns the next key that must be sent to peers.
    pub fn poll_distribution(&mut self) -> Option<Distribution> {
        self.outgoing.pop_front()
    }

    /// When [`Keyring::handle_timeout`] must be called next; `None` without keys.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let tick = self.is_keyed().then_some(self.tick_at);
        earliest(tick, self.own.rekey_at.filter(|_| self.is_keyed()))
    }

    /// Lets keys take effect, and forgets those that are no longer used.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if !self.is_keyed() {
            return;
        }
        self.tick_at = now + KEY_TICK;
        let users: [usize; 4] = core::array::from_fn(|slot| self.users(now, slot as u8));
        self.own.advance(now, |slot| users[usize::from(slot)]);
        if self.own.rekey(now, &mut self.suite, users[usize::from(self.own.pending)]) {
            self.distribute(now, None);
        }
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            peer.expire(now);
            match peer.delivery {
                Delivery::Due(at) if at <= now => {
                    peer.delivery = Delivery::Sent(now + KEY_DELIVERY_PAUSE);
                    let addr = peer.addr;
                    if addr.is_some() {
                        self.distribute(now, addr);
                    }
                }
                Delivery::Sent(until) if until <= now => peer.delivery = Delivery::None,
                _ => {}
            }
        }
        let forgotten = |p: &Peer<_>| !p.is_kept && !p.is_heard(now, PEER_FORGET);
        if self.peers.iter().any(forgotten) {
            self.peers.retain(|p| !forgotten(p));
            self.by_id = self.peers.iter().enumerate().map(|(n, p)| (p.id, n)).collect();
            let addrs = self.peers.iter().enumerate();
            self.by_addr = addrs.filter_map(|(n, p)| Some((p.addr?, n))).collect();
        }
    }

    /// Takes a key that a peer sent, in a message that was encrypted.
    ///
    /// # Errors
    /// Why the key is refused.
    pub fn take_key(&mut self, from: NodeAddr, message: &KeyMessage) -> Result<(), DropReason> {
        let index = *self.by_addr.get(&from).ok_or(DropReason::UnknownPeer)?;
        let peer = &mut self.peers[index];
        if !self.own.is_keyed() || peer.generation == Some(message.generation) && !peer.no_key {
            return Err(DropReason::BadKeyMessage);
        }
        peer.generation = Some(message.generation);
        let key = Loaded::new(&self.suite, message.key.clone(), message.mode);
        self.peers[index].give(Arc::new(key));
        Ok(())
    }

    /// This node's keys.
    pub fn own_keys(&self, now: Nanos) -> Vec<KeyReport> {
        self.own.reports(|slot| self.users(now, slot)).collect()
    }

    /// The peers' keys: the identity of each peer, which of this node's keys it uses (0 for none), and its keys.
    pub fn peer_keys(&self) -> impl Iterator<Item = (NodeId, u8, Vec<KeyReport>)> {
        self.peers.iter().map(|p| (p.id, p.announced, p.reports().collect()))
    }

    /// Whether no plain frame was accepted lately, so that all nodes in contact encrypt.
    pub fn all_encrypt(&self, now: Nanos) -> bool {
        self.heard_plain.is_none_or(|at| now.since(at) > KEY_USER_SILENT)
    }

    /// Number of times that this node changed to another key.
    pub const fn switches(&self) -> u64 {
        self.own.switches
    }
}
