//! `shm-futex`: a ring in shared memory whose ends sleep on a futex (mempipe in ipc-bench).

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::lifeline::Lifeline;
use crossway_sys::{OsError, futex};

use crate::building_blocks::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::channel::{Shared, probe, ring_caps};
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport, Wait};
use crossway_ring::bell::SLICE;
use crossway_ring::region::{Direction, SharedRing};
use crossway_ring::sync::AtomicU32;
use crossway_ring::{Bell, RingRx, RingTx};

/// The mechanism `shm-futex`. While both ends run, messages cost no system call. Sleeping and waking cost a futex(2)
/// call each.
pub struct ShmFutex;

/// A bell that sleeps on the end's own state word.
pub struct FutexBell {
    lifeline: Arc<Lifeline>,
    fences: Fences,
}

impl Bell for FutexBell {
    #[inline]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        self.fences.heavy()
    }

    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        let slice = limit.map_or(SLICE, |limit| limit.min(SLICE));
        futex::wait(own_state, crossway_ring::layout::ASLEEP, Some(slice))
    }

    fn ring(&self, other_state: &AtomicU32) -> Result<(), OsError> {
        futex::wake(other_state).map(drop)
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        self.lifeline.peer_gone()
    }
}

/// The sending half, which sleeps on a futex when the ring is full.
pub type ShmFutexTx = RingTx<SharedRing, FutexBell>;
/// The receiving half, which sleeps on a futex when the ring is empty.
pub type ShmFutexRx = RingRx<SharedRing, FutexBell>;

impl Mechanism for ShmFutex {
    const ID: &'static str = "shm-futex";
    const ABOUT: &'static str = "ring in shared memory, sleeping on a futex (ipc-bench's mempipe)";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Memory);
    type Tx = ShmFutexTx;
    type Rx = ShmFutexRx;
    type Listener = Complete<ShmFutexTx, ShmFutexRx>;

    fn caps() -> Caps {
        Caps { can_block: true, can_spin: true, ..ring_caps() }
    }

    fn probe() -> Probe {
        probe::<Self>(Wait::Block)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (shared, offer) = Shared::listen(Self::ID, spec)?;
        let (fences, offer) = Fences::offer(offer);
        let ends = ends(&shared, spec, fences, Direction::FromListener, Direction::FromConnector);
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let fences = Fences::join(Self::ID, offer)?;
        let shared = Shared::connect(Self::ID, spec, offer)?;
        Ok(ends(&shared, spec, fences, Direction::FromConnector, Direction::FromListener))
    }
}

fn ends(
    shared: &Shared,
    spec: &Spec,
    fences: Fences,
    out: Direction,
    into: Direction,
) -> (ShmFutexTx, ShmFutexRx) {
    let bell = || FutexBell { lifeline: Arc::clone(&shared.lifeline), fences };
    (
        RingTx::new(shared.ring(out), bell(), spec.wait),
        RingRx::new(shared.ring(into), bell(), spec.wait),
    )
}
