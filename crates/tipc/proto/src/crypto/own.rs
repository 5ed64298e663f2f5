//! The keys with which a node encrypts what it sends.

use super::header::Header;
use super::key::{KeyMode, Loaded, SecretKey};
use super::replay::KERNELS_BELOW;
use super::suite::Suite;
use super::{KeyReport, KeyState};
use crate::limits::{KEY_GRACE, KEY_STABLE};
use crate::time::Nanos;
use alloc::sync::Arc;
use core::time::Duration;

/// The slot of the master key.
pub(super) const MASTER: u8 = 0;
/// Number of slots: one for the master key and three for others.
pub(super) const SLOTS: usize = 4;

/// The slot after this one, among those for other keys than the master key.
const fn next(slot: u8) -> u8 {
    slot % 3 + 1
}

/// Why a key cannot be set now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// Peers are changing to the key that was set before.
    Busy,
}

impl core::fmt::Display for AttachError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Busy => f.write_str(
                "the nodes still change to the key that was set before; try again in 10 s, or once `crossway tipc node \
                 get keys` shows no pending key with users",
            ),
        }
    }
}

impl core::error::Error for AttachError {}

/// When a node replaces its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rekeying {
    /// Each time this much time has passed.
    Every(Duration),
    /// Once, immediately.
    Now,
    /// Not.
    Never,
}

/// A key with the number of the next frame.
#[derive(Debug)]
struct Slot<K> {
    loaded: Arc<Loaded<K>>,
    generation: u16,
    /// Numbers begin at a random place, because a key that an operator sets is the same after a restart, and a number may
    /// never be used twice with the same key.
    number: u64,
}

/// The keys with which a node encrypts what it sends.
#[derive(Debug)]
pub(super) struct Own<K> {
    slots: [Option<Slot<K>>; SLOTS],
    /// The slot of the key in use; 0 for none.
    pub(super) active: u8,
    /// The slot of the newest key, until all peers use it; 0 for none.
    pub(super) pending: u8,
    generation: u16,
    /// When a peer last changed the key that it uses.
    pub(super) users_changed: Nanos,
    /// Until when the master key is used for all frames to peers that lack the active key.
    pub(super) grace_until: Nanos,
    /// Whether a peer has no master key.
    pub(super) legacy: bool,
    rekey_every: Option<Duration>,
    pub(super) rekey_at: Option<Nanos>,
    /// Number of times that a pending key became active.
    pub(super) switches: u64,
}

impl<K> Own<K> {
    pub(super) fn new() -> Self {
        Self {
            slots: [const { None }; SLOTS],
            active: 0,
            pending: 0,
            generation: 0,
            users_changed: Nanos(0),
            grace_until: Nanos(0),
            legacy: false,
            rekey_every: None,
            rekey_at: None,
            switches: 0,
        }
    }

    /// Whether there is any key, so that what is sent is encrypted.
    pub(super) fn is_keyed(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    pub(super) const fn has_master(&self) -> bool {
        self.slots[MASTER as usize].is_some()
    }

    /// Whether there is another key than the master key.
    pub(super) const fn has_session(&self) -> bool {
        self.active != 0 || self.pending != 0
    }

    /// The key in a slot.
    pub(super) fn get(&self, slot: u8) -> Option<&Arc<Loaded<K>>> {
        self.slots[usize::from(slot)].as_ref().map(|s| &s.loaded)
    }

    /// The newest key other than the master key, with its generation.
    pub(super) fn newest(&self) -> Option<(&Loaded<K>, u16)> {
        let slot = if self.pending != 0 { self.pending } else { self.active };
        let slot = if slot == 0 { None } else { self.slots[usize::from(slot)].as_ref() };
        slot.map(|s| (&*s.loaded, s.generation))
    }

    /// The keys of the cluster that a peer may use, too: the newest first.
    pub(super) fn of_cluster(&self) -> impl Iterator<Item = &Arc<Loaded<K>>> {
        let slots = [self.pending, self.active].into_iter().filter(|slot| *slot != 0);
        slots.filter_map(|slot| self.get(slot)).filter(|key| key.mode == KeyMode::Cluster)
    }

    /// Sets a key, the master key if `master` is set. `users` is the number of peers that use the pending key. Returns
    /// the slot.
    pub(super) fn attach<S: Suite<Key = K>>(
        &mut self,
        now: Nanos,
        suite: &mut S,
        (secret, mode): (SecretKey, KeyMode),
        master: bool,
        users: usize,
    ) -> Result<u8, AttachError> {
        let slot = if master {
            MASTER
        } else if self.pending == 0 {
            next(self.active)
        } else if users > 0 {
            return Err(AttachError::Busy);
        } else {
            self.pending
        };
        if self.generation == 0 {
            let mut random = [0; 2];
            suite.fill(&mut random);
            self.generation = u16::from_ne_bytes(random);
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        let mut random = [0; 8];
        suite.fill(&mut random);
        // Far above the numbers of a kernel, and as far below the last number.
        let number = (u64::from_ne_bytes(random) >> 1).max(KERNELS_BELOW);
        let loaded = Arc::new(Loaded::new(suite, secret, mode));
        self.slots[usize::from(slot)] = Some(Slot { loaded, generation: self.generation, number });
        if slot != MASTER {
            (self.pending, self.users_changed) = (slot, now);
        }
        Ok(slot)
    }

    /// Removes all keys.
    pub(super) fn flush(&mut self) {
        *self = Self { generation: self.generation, switches: self.switches, ..Self::new() };
    }

    /// Uses the pending key for everything, if all peers that can be heard have used it for long enough. `users` gives the
    /// number of peers that use a key. Returns whether it did.
    pub(super) fn advance(&mut self, now: Nanos, users: impl Fn(u8) -> usize) -> bool {
        let waits = self.pending == 0
            || users(self.pending) == 0
            || self.active != 0 && users(self.active) > 0
            || now < self.users_changed + KEY_STABLE;
        if !waits {
            if self.active != 0 {
                self.slots[usize::from(self.active)] = None;
            }
            (self.active, self.pending) = (self.pending, 0);
            self.switches += 1;
        }
        if now > self.grace_until {
            self.legacy = false;
        }
        !waits
    }

    /// Lets the master key protect frames to peers that lack the active key, for some time.
    pub(super) fn begin_grace(&mut self, now: Nanos) {
        self.grace_until = now + KEY_GRACE;
    }

    pub(super) fn schedule(&mut self, now: Nanos, rekeying: Rekeying) {
        match rekeying {
            Rekeying::Every(time) => {
                self.rekey_every = Some(time);
                self.rekey_at = Some(now + time);
            }
            Rekeying::Now => self.rekey_at = Some(now),
            Rekeying::Never => (self.rekey_every, self.rekey_at) = (None, None),
        }
    }

    /// The interval of rekeying; `None` for none.
    pub(super) const fn interval(&self) -> Option<Duration> {
        self.rekey_every
    }

    /// Replaces the key, if that is due, by a random one of the same length for this node alone. Returns whether there is
    /// a new key.
    pub(super) fn rekey<S: Suite<Key = K>>(
        &mut self,
        now: Nanos,
        suite: &mut S,
        users: usize,
    ) -> bool {
        if self.rekey_at.is_none_or(|at| now < at) {
            return false;
        }
        self.rekey_at = self.rekey_every.map(|every| now + every);
        if self.pending != 0 {
            return false;
        }
        let like = if self.active == 0 { MASTER } else { self.active };
        let Some(like) = self.get(like) else { return false };
        let key = like.secret.renewed(suite);
        self.attach(now, suite, (key, KeyMode::Node), false, users).is_ok()
    }

    /// Takes the next number of a key; `None` if it is used up, so that the key must not be used again.
    pub(super) fn take_number(&mut self, slot: u8) -> Option<(u64, Arc<Loaded<K>>)> {
        let slot = self.slots[usize::from(slot)].as_mut()?;
        let number = slot.number;
        slot.number = number.checked_add(1)?;
        Some((number, slot.loaded.clone()))
    }

    pub(super) fn reports(&self, users: impl Fn(u8) -> usize) -> impl Iterator<Item = KeyReport> {
        (0..SLOTS as u8).filter_map(move |number| {
            let key = self.get(number)?;
            let state = match number {
                MASTER => KeyState::Master,
                n if n == self.active => KeyState::Active,
                _ => KeyState::Pending,
            };
            let users = if number == MASTER { 0 } else { users(number) };
            let (mode, bits) = (key.mode, key.secret.bits());
            Some(KeyReport { number: Some(number), state, mode, bits, users })
        })
    }
}

/// Whether the peer that a header comes from says that it has no master key.
pub(super) const fn is_legacy(header: &Header) -> bool {
    !header.has_master
}
