//! Passes keys and encrypted frames between the node and the [`Keyring`](crate::crypto::Keyring) that protects its frames.

use super::Node;
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crate::crypto::Distribution;
use crate::drops::DropReason;
use crate::time::Nanos;
use crate::wire::{KeyMessage, LinkFields, Packet};

/// Maximum number of received keys that the caller has not fetched. Further ones are dropped; their senders send them
/// again.
const KEYS_MAX: usize = 64;

impl Node {
    /// The identity of the peer with this address; `None` if there is none.
    pub fn id_of(&self, addr: NodeAddr) -> Option<NodeId> {
        self.peers.get(&addr).map(|peer| peer.id)
    }

    /// Handles a frame like [`Node::handle_frame`], which the keyring has decrypted. Only such frames may carry keys.
    pub fn handle_sealed(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        frame: &[u8],
    ) {
        self.sealed = true;
        self.handle_frame(now, bearer, source, frame);
        self.sealed = false;
    }

    /// Counts a frame that the keyring has refused, and reports it to the caller if an operator should know.
    pub fn refuse_frame(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        reason: DropReason,
    ) {
        self.drop_frame(now, bearer, source, (&[], reason));
    }

    /// Notes a key that a peer sent.
    pub(super) fn handle_key(&mut self, from: NodeAddr, message: &KeyMessage) {
        if !self.sealed || Some(message.dest) != self.addr() && message.dest != NodeAddr(0) {
            self.drops.count(DropReason::BadKeyMessage);
        } else if self.keys.len() < KEYS_MAX {
            self.keys.push_back((from, message.clone()));
        }
    }

    /// Removes and returns the oldest key that a peer sent, with the peer's address. Pass it to
    /// [`Keyring::take_key`](crate::crypto::Keyring::take_key).
    pub fn poll_key(&mut self) -> Option<(NodeAddr, KeyMessage)> {
        self.keys.pop_front()
    }

    /// Counts a key that the keyring has refused.
    pub fn refuse_key(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }

    /// Sends a key of this node to a peer. If its link has no room, it does not get the key, and will say that it lacks it.
    pub fn send_key(&mut self, distribution: &Distribution) {
        let Distribution { to, generation, mode, key } = distribution;
        let message =
            KeyMessage { dest: *to, generation: *generation, mode: *mode, key: key.clone() };
        let link = LinkFields { sender: self.own(), ..LinkFields::default() };
        let packet = Packet::encoded(|out| message.encode(&link, out));
        let _ = self.send_to(*to, packet);
    }
}
