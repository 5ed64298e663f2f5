//! The ends of a channel of two rings that sleep on semaphores. Each half of each end has a semaphore on which it
//! sleeps.

use std::sync::Arc;
use std::time::Duration;

use crossway_ring::bell::SLICE;
use crossway_ring::region::{Dimensions, Direction, SharedRing};
use crossway_ring::sync::AtomicU32;
use crossway_ring::{Bell, RingRx, RingTx};
use crossway_sys::OsError;
use crossway_sys::lifeline::Lifeline;
use crossway_sys::shm::Mapping;

use super::asymmetry::Fences;
use crate::Wait;

/// The semaphores of a channel, each named after the event for which a half of an end sleeps on it.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub enum Nth {
    /// The connector has something to receive.
    ToConnector,
    /// The listener has room to send.
    ListenerRoom,
    /// The listener has something to receive.
    ToListener,
    /// The connector has room to send.
    ConnectorRoom,
}

impl Nth {
    /// All semaphores, in the order of their numbers.
    pub const ALL: [Nth; 4] =
        [Nth::ToConnector, Nth::ListenerRoom, Nth::ToListener, Nth::ConnectorRoom];
}

/// The semaphores of a channel, open in this process.
pub trait SemaphoreSet: Send + Sync + 'static {
    /// Sleeps until a semaphore is above zero, at most for `slice`, and decrements it. May return earlier.
    ///
    /// # Errors
    /// The call failed for a reason other than the end of the peer, which `lifeline` watches.
    fn wait(&self, nth: Nth, slice: Duration, lifeline: &Lifeline) -> Result<(), OsError>;

    /// Increments a semaphore.
    ///
    /// # Errors
    /// Those of [`SemaphoreSet::wait`].
    fn post(&self, nth: Nth, lifeline: &Lifeline) -> Result<(), OsError>;
}

/// A bell that sleeps on one semaphore and wakes the peer by another one.
pub struct SemaphoreBell<S> {
    fences: Fences,
    // Dropped before the semaphores, so that a peer that finds them removed finds that we have ended.
    lifeline: Arc<Lifeline>,
    semaphores: Arc<S>,
    own: Nth,
    other: Nth,
}

impl<S: SemaphoreSet> Bell for SemaphoreBell<S> {
    #[inline]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        self.fences.heavy()
    }

    fn sleep(&self, _own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        let slice = limit.map_or(SLICE, |limit| limit.min(SLICE));
        self.semaphores.wait(self.own, slice, &self.lifeline)
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        self.semaphores.post(self.other, &self.lifeline)
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        self.lifeline.peer_gone()
    }
}

/// The sending half of a ring whose ends sleep on semaphores of the set `S`.
pub type SemaphoreTx<S> = RingTx<SharedRing, SemaphoreBell<S>>;
/// The receiving half of a ring whose ends sleep on semaphores of the set `S`.
pub type SemaphoreRx<S> = RingRx<SharedRing, SemaphoreBell<S>>;

/// One process's view of the channel, from which its two halves are made.
pub struct SemaphoreChannel<S> {
    /// The memory with both rings.
    pub mapping: Arc<Mapping>,
    /// The sizes of the rings.
    pub dimensions: Dimensions,
    /// The fences that both ends agreed on.
    pub fences: Fences,
    /// Detects the end of the peer.
    pub lifeline: Arc<Lifeline>,
    /// The four semaphores on which halves sleep, numbered by [`Nth`].
    pub semaphores: Arc<S>,
    /// How both halves wait.
    pub wait: Wait,
}

impl<S: SemaphoreSet> SemaphoreChannel<S> {
    /// Makes the halves of the listening end.
    pub fn listener(&self) -> (SemaphoreTx<S>, SemaphoreRx<S>) {
        (
            self.tx(Direction::FromListener, Nth::ListenerRoom, Nth::ToConnector),
            self.rx(Direction::FromConnector, Nth::ToListener, Nth::ConnectorRoom),
        )
    }

    /// Makes the halves of the connecting end.
    pub fn connector(&self) -> (SemaphoreTx<S>, SemaphoreRx<S>) {
        (
            self.tx(Direction::FromConnector, Nth::ConnectorRoom, Nth::ToListener),
            self.rx(Direction::FromListener, Nth::ToConnector, Nth::ListenerRoom),
        )
    }

    fn tx(&self, direction: Direction, own: Nth, other: Nth) -> SemaphoreTx<S> {
        RingTx::new(self.ring(direction), self.bell(own, other), self.wait)
    }

    fn rx(&self, direction: Direction, own: Nth, other: Nth) -> SemaphoreRx<S> {
        RingRx::new(self.ring(direction), self.bell(own, other), self.wait)
    }

    fn ring(&self, direction: Direction) -> SharedRing {
        SharedRing::new(Arc::clone(&self.mapping), self.dimensions, direction)
    }

    fn bell(&self, own: Nth, other: Nth) -> SemaphoreBell<S> {
        SemaphoreBell {
            fences: self.fences,
            lifeline: Arc::clone(&self.lifeline),
            semaphores: Arc::clone(&self.semaphores),
            own,
            other,
        }
    }
}
