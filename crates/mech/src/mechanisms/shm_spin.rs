//! `shm-spin`: a ring in shared memory whose ends never sleep (mempipe_spin in ipc-bench). An end that waits occupies a
//! CPU.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::OsError;
use crossway_sys::lifeline::Lifeline;

use crate::building_blocks::complete::Complete;
use crate::ring::channel::{Shared, probe, ring_caps};
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport, Wait};
use crossway_ring::region::{Direction, SharedRing};
use crossway_ring::sync::AtomicU32;
use crossway_ring::{Bell, RingRx, RingTx};

/// The mechanism `shm-spin`. Messages cost no system call; an end that waits keeps its CPU busy.
pub struct ShmSpin;

/// A bell that wakes nobody, because neither end sleeps. It only detects the end of the peer.
pub struct NoBell(Arc<Lifeline>);

impl Bell for NoBell {
    #[inline]
    fn light_fence(&self) {}

    fn heavy_fence(&self) -> Result<(), OsError> {
        Ok(())
    }

    fn sleep(&self, _own_state: &AtomicU32, _limit: Option<Duration>) -> Result<(), OsError> {
        crossway_sys::spin::hint();
        Ok(())
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        Ok(())
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        self.0.peer_gone()
    }
}

/// The sending half, which spins when the ring is full.
pub type ShmSpinTx = RingTx<SharedRing, NoBell>;
/// The receiving half, which spins when the ring is empty.
pub type ShmSpinRx = RingRx<SharedRing, NoBell>;

impl Mechanism for ShmSpin {
    const ID: &'static str = "shm-spin";
    const ABOUT: &'static str = "ring in shared memory, spinning; each end occupies a CPU while it waits (ipc-bench's mempipe_spin)";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Memory);
    type Tx = ShmSpinTx;
    type Rx = ShmSpinRx;
    type Listener = Complete<ShmSpinTx, ShmSpinRx>;

    fn caps() -> Caps {
        Caps { can_block: false, can_spin: true, ..ring_caps() }
    }

    fn probe() -> Probe {
        probe::<Self>(Wait::Spin)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check_wait(spec)?;
        let (shared, offer) = Shared::listen(Self::ID, spec)?;
        let ends = ends(&shared, Direction::FromListener, Direction::FromConnector);
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        check_wait(spec)?;
        let shared = Shared::connect(Self::ID, spec, offer)?;
        Ok(ends(&shared, Direction::FromConnector, Direction::FromListener))
    }
}

fn check_wait(spec: &Spec) -> Result<(), OpenError> {
    if spec.wait != Wait::Spin {
        return Err(OpenError::Unsupported {
            mechanism: ShmSpin::ID,
            why: "it can only spin; use shm-futex for ends that sleep".into(),
        });
    }
    Ok(())
}

fn ends(shared: &Shared, out: Direction, into: Direction) -> (ShmSpinTx, ShmSpinRx) {
    let bell = || NoBell(Arc::clone(&shared.lifeline));
    (
        RingTx::new(shared.ring(out), bell(), Wait::Spin),
        RingRx::new(shared.ring(into), bell(), Wait::Spin),
    )
}
