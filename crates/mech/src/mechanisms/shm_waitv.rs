//! `shm-waitv`: a ring in shared memory whose ends sleep on two futexes at once: the state by which
//! the other end wakes them, and a word that the kernel changes when the other end's process ends.
//!
//! With futex(2), an end that sleeps notices a death only when it wakes up to look, every 50 ms.
//! Here it sleeps on, and is woken at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossway_ring::bell::SLICE;
use crossway_ring::layout::ASLEEP;
use crossway_ring::region::{Direction, FreeFutex, FreeWords, SharedRing};
use crossway_ring::{Bell, RingRx, RingTx};
use crossway_sys::lifeline::Lifeline;
use crossway_sys::owned_word::{ENDED, Owner, Word};
use crossway_sys::{OsError, futex};

use crate::building_blocks::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::channel::{Shared, ring_caps};
use crate::self_test::round_trip;
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport, Wait};

/// The mechanism `shm-waitv`. While both ends run, messages cost no system call. Sleeping costs a
/// futex_waitv(2) call, waking a futex(2) call.
#[derive(Debug)]
pub struct ShmWaitv;

/// The free words of the listener's and of the connector's life.
const LISTENER: usize = 0;
const CONNECTOR: usize = 1;

/// The longest sleep. A peer that wrote nonsense into its word of life is noticed by its lifeline.
const BACKSTOP: Duration = Duration::from_secs(1);

/// A bell that sleeps on the end's own state word and on the word of the peer's life.
pub struct WaitvBell {
    // Dropped first, so that a peer that finds the word marked finds the end closed.
    lifeline: Arc<Lifeline>,
    fences: Fences,
    /// 0 until the peer has opened its end.
    life: FreeFutex,
    _owner: Arc<Owner>,
}

impl WaitvBell {
    fn is_marked(&self) -> bool {
        self.life.word().load(Ordering::Acquire) & ENDED != 0
    }
}

impl Bell for WaitvBell {
    #[inline]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        self.fences.heavy()
    }

    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        let life = self.life.word().load(Ordering::Acquire);
        if life & ENDED != 0 {
            return Ok(());
        }
        let longest = if life == 0 { SLICE } else { BACKSTOP };
        let limit = limit.map_or(longest, |limit| limit.min(longest));
        futex::wait_any([(own_state, ASLEEP), (self.life.word(), life)], Some(limit))?;
        if self.is_marked() {
            // The kernel has woken one half of this end; the other one may sleep, too.
            futex::wake_all(self.life.word())?;
        }
        Ok(())
    }

    fn ring(&self, other_state: &AtomicU32) -> Result<(), OsError> {
        futex::wake(other_state).map(drop)
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        Ok(self.is_marked() || self.lifeline.peer_gone()?)
    }
}

/// The sending half, which sleeps on two futexes when the ring is full.
pub type ShmWaitvTx = RingTx<SharedRing, WaitvBell>;
/// The receiving half, which sleeps on two futexes when the ring is empty.
pub type ShmWaitvRx = RingRx<SharedRing, WaitvBell>;

/// One call that does not sleep, because the word holds something else.
fn try_waitv() -> Result<(), OsError> {
    let word = AtomicU32::new(0);
    futex::wait_any([(&word, 1), (&word, 1)], None)
}

/// Makes the halves of an end, and this process the owner of the word of its life.
fn ends(
    shared: &Shared,
    spec: &Spec,
    fences: Fences,
    [out, into]: [Direction; 2],
    [ours, theirs]: [usize; 2],
) -> Result<(ShmWaitvTx, ShmWaitvRx), OpenError> {
    try_waitv()?;
    let word = |index| FreeFutex::new(FreeWords::new(Arc::clone(&shared.mapping)), index);
    let owner = Arc::new(Owner::of(word(ours))?);
    let bell = || WaitvBell {
        lifeline: Arc::clone(&shared.lifeline),
        fences,
        life: word(theirs),
        _owner: Arc::clone(&owner),
    };
    Ok((
        RingTx::new(shared.ring(out), bell(), spec.wait),
        RingRx::new(shared.ring(into), bell(), spec.wait),
    ))
}

impl Mechanism for ShmWaitv {
    const ID: &'static str = "shm-waitv";
    const ABOUT: &'static str = "ring in shared memory, sleeping on two futexes at once (futex_waitv): \
         a message, and the peer's death";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Memory);
    type Tx = ShmWaitvTx;
    type Rx = ShmWaitvRx;
    type Listener = Complete<ShmWaitvTx, ShmWaitvRx>;

    fn caps() -> Caps {
        ring_caps()
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            round_trip::<Self>(Wait::Block),
            "use Linux 5.16 or later with CONFIG_FUTEX, and allow futex_waitv and set_robust_list in \
             this process's seccomp profile (start a container with --security-opt \
             seccomp=unconfined)",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (shared, offer) = Shared::listen(Self::ID, spec)?;
        let (fences, offer) = Fences::offer(offer);
        let directions = [Direction::FromListener, Direction::FromConnector];
        let ends = ends(&shared, spec, fences, directions, [LISTENER, CONNECTOR])?;
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let fences = Fences::join(Self::ID, offer)?;
        let shared = Shared::connect(Self::ID, spec, offer)?;
        let directions = [Direction::FromConnector, Direction::FromListener];
        ends(&shared, spec, fences, directions, [CONNECTOR, LISTENER])
    }
}
