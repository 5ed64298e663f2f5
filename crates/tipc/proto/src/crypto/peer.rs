//! What a node knows of one peer's encryption: the keys with which the peer encrypts, and which of this node's keys it
//! has.

use super::header::Header;
use super::key::{KeyMode, Loaded};
use super::own::{MASTER, SLOTS};
use super::replay::Replay;
use super::{KeyReport, KeyState};
use crate::addr::{NodeAddr, NodeId};
use crate::limits::{KEY_PASSIVE, KEY_SILENT};
use crate::time::Nanos;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Maximum number of keys of a peer that it has not used yet.
const GIVEN_MAX: usize = 3;

/// A kernel that numbers its frames from 1 again is recognised by numbers below this one.
const KERNELS_FIRST: u64 = 65;

/// A key with which the peer has encrypted something.
#[derive(Debug)]
struct Slot<K> {
    loaded: Arc<Loaded<K>>,
    /// The frames received: those for this node, and others, which may be numbered separately.
    replay: [Replay; 2],
    /// When a genuine frame last used the key.
    used: Nanos,
    /// Until when the peer may number its frames from 1 again, as kernels do when they learn that this node has the key.
    restart_until: Option<Nanos>,
}

impl<K> Slot<K> {
    fn is_replay(&self, now: Nanos, header: &Header) -> bool {
        let is_restart = header.number < KERNELS_FIRST
            && (now.since(self.used) > KEY_PASSIVE
                || self.restart_until.is_some_and(|until| now <= until));
        !self.is_fresh(header) && !is_restart
    }

    fn is_fresh(&self, header: &Header) -> bool {
        self.replay[usize::from(header.destined)].is_fresh(header.number)
    }

    fn mark(&mut self, now: Nanos, header: &Header) {
        self.used = now;
        let is_fresh = self.is_fresh(header);
        let replay = &mut self.replay[usize::from(header.destined)];
        if !is_fresh {
            replay.forget_kernels();
            self.restart_until = None;
        }
        replay.mark(header.number);
    }
}

/// Where a key was found that fits a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the slot that the frame names.
    Slot,
    /// Among the keys that the peer had not used yet.
    Given(usize),
    /// In another slot, the active one.
    Active,
    /// Among this node's own keys.
    Own,
}

/// Delivery of this node's key to a peer that lacks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Delivery {
    #[default]
    None,
    /// To be sent at this time.
    Due(Nanos),
    /// Sent; not again before this time.
    Sent(Nanos),
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer<K> {
    pub(super) id: NodeId,
    pub(super) addr: Option<NodeAddr>,
    /// By the peer's number of the key. The first one, for the master key, is this node's own key.
    slots: [Option<Slot<K>>; SLOTS],
    /// The slot of the newest key that the peer uses; 0 for none.
    pub(super) active: u8,
    given: Vec<Arc<Loaded<K>>>,
    /// Generation of the last key received.
    pub(super) generation: Option<u16>,
    /// Whether the peer has a master key.
    pub(super) has_master: bool,
    /// Whether this node lacks the peer's key.
    pub(super) no_key: bool,
    /// Number of this node's key that the peer uses; 0 for none.
    pub(super) announced: u8,
    /// When a genuine encrypted frame last arrived.
    pub(super) heard: Option<Nanos>,
    /// Signature in the peer's last discovery message.
    signature: Option<u16>,
    pub(super) delivery: Delivery,
    /// Whether an operator has set a key for this peer, so that it must not be forgotten.
    pub(super) is_kept: bool,
}

impl<K> Peer<K> {
    pub(super) fn new(id: NodeId) -> Self {
        Self {
            id,
            addr: None,
            slots: [const { None }; SLOTS],
            active: 0,
            given: Vec::new(),
            generation: None,
            has_master: false,
            no_key: false,
            announced: 0,
            heard: None,
            signature: None,
            delivery: Delivery::None,
            is_kept: false,
        }
    }

    /// Whether a genuine encrypted frame arrived at most this long ago.
    pub(super) fn is_heard(&self, now: Nanos, within: core::time::Duration) -> bool {
        self.heard.is_some_and(|at| now.since(at) <= within)
    }

    /// Adds a key that the peer is going to use. The oldest such key goes if there are too many.
    pub(super) fn give(&mut self, key: Arc<Loaded<K>>) {
        self.no_key = false;
        let mut known = self.given.iter().chain(self.slots.iter().flatten().map(|s| &s.loaded));
        if known.any(|known| known.secret == key.secret) {
            return;
        }
        if self.given.len() == GIVEN_MAX {
            self.given.remove(0);
        }
        self.given.push(key);
    }

    /// Whether the peer's frame with this number of a key was received before.
    pub(super) fn is_replay(&self, now: Nanos, header: &Header) -> bool {
        let slot = self.slots[usize::from(header.key)].as_ref();
        slot.is_some_and(|slot| slot.is_replay(now, header))
    }

    /// Whether the key in the slot that the frame names has been silent for so long that the peer may use another one by
    /// now.
    pub(super) fn is_silent(&self, now: Nanos, slot: u8) -> bool {
        let slot = self.slots[usize::from(slot)].as_ref();
        slot.is_none_or(|s| now.since(s.used) >= KEY_SILENT)
    }

    /// The key in a slot.
    pub(super) fn key(&self, slot: u8) -> Option<&Arc<Loaded<K>>> {
        self.slots[usize::from(slot)].as_ref().map(|s| &s.loaded)
    }

    /// The keys that a frame may use which names this slot, and where they are. The key in the slot is first; others are
    /// tried only if that one does not fit or has been silent.
    pub(super) fn candidates(&self, slot: u8) -> impl Iterator<Item = (Place, &Arc<Loaded<K>>)> {
        let own = self.key(slot).map(|key| (Place::Slot, key));
        let given = self.given.iter().enumerate().rev().map(|(n, key)| (Place::Given(n), key));
        let active = (self.active != slot && self.active != MASTER).then(|| self.key(self.active));
        let active = active.flatten().map(|key| (Place::Active, key));
        own.into_iter().chain(given).chain(active)
    }

    /// Notes that a genuine frame used a key. A key that was not in the slot is moved there, and becomes the active one.
    pub(super) fn note(
        &mut self,
        now: Nanos,
        header: &Header,
        place: Place,
        loaded: Arc<Loaded<K>>,
    ) {
        let number = usize::from(header.key);
        if let Place::Given(n) = place {
            self.given.remove(n);
        }
        if place != Place::Slot {
            let moved = match place {
                Place::Active => self.slots[usize::from(self.active)].take(),
                _ => None,
            };
            let replay = moved.map_or_else(Default::default, |slot| slot.replay);
            self.slots[number] = Some(Slot { loaded, replay, used: now, restart_until: None });
        }
        // A key that works is not lacking, whatever forged frames said.
        self.no_key &= header.key == MASTER;
        if header.key != MASTER
            && header.key != self.active
            && (place != Place::Slot || self.is_silent(now, self.active))
        {
            self.active = header.key;
            if let Some(slot) = &mut self.slots[number] {
                slot.restart_until = Some(now + KEY_PASSIVE);
            }
        }
        if let Some(slot) = &mut self.slots[number] {
            slot.mark(now, header);
        }
    }

    /// Handles the signature of a discovery message. A different one means that the peer has restarted, and a kernel then
    /// numbers its frames from 1 again.
    pub(super) fn note_signature(&mut self, signature: u16) {
        if self.signature.replace(signature).is_some_and(|old| old != signature) {
            self.forget_numbers();
        }
    }

    /// Accepts a kernel's numbers from 1 again.
    pub(super) fn forget_numbers(&mut self) {
        for replay in self.slots.iter_mut().flatten().flat_map(|slot| &mut slot.replay) {
            replay.forget_kernels();
        }
    }

    /// Forgets the master key, which is another one from now on.
    pub(super) fn forget_master(&mut self) {
        self.slots[usize::from(MASTER)] = None;
    }

    /// Forgets keys that were replaced some time ago.
    pub(super) fn expire(&mut self, now: Nanos) {
        for (number, slot) in self.slots.iter_mut().enumerate().skip(1) {
            let old = slot.as_ref().is_some_and(|s| now.since(s.used) > KEY_PASSIVE);
            if old && number != usize::from(self.active) {
                *slot = None;
            }
        }
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = KeyReport> {
        let used = (1..SLOTS as u8).filter_map(|number| {
            let active = number == self.active;
            let state = if active { KeyState::Active } else { KeyState::Passive };
            self.key(number).map(|key| (Some(number), state, key))
        });
        let given = self.given.iter().map(|key| (None, KeyState::Pending, key));
        used.chain(given).map(|(number, state, key)| {
            let (mode, bits): (KeyMode, _) = (key.mode, key.secret.bits());
            KeyReport { number, state, mode, bits, users: 0 }
        })
    }
}
