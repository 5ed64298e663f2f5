//! `shm-futex`: a ring in shared memory whose ends sleep on a futex (mempipe in ipc-bench); and the
//! same ring in memory of other kinds.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::lifeline::Lifeline;
use crossway_sys::{OsError, futex};

use crate::building_blocks::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::backing::Backing;
use crate::ring::channel::{Shared, probe, ring_caps};
use crate::self_test::round_trip;
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport, Wait};
use crossway_ring::bell::SLICE;
use crossway_ring::region::{Direction, SharedRing};
use crossway_ring::sync::AtomicU32;
use crossway_ring::{Bell, RingRx, RingTx};

/// The mechanism `shm-futex`. While both ends run, messages cost no system call. Sleeping and
/// waking cost a futex(2) call each.
pub type ShmFutex = FutexRing<InPages>;

/// The mechanism `shm-huge`: as [`ShmFutex`], with the rings in huge pages (MFD_HUGETLB), so that a
/// large ring needs few entries of the processor's address cache. A ring has one huge page at least,
/// so with small messages it is larger than one of `shm-futex`; with the same capacity, only the
/// pages differ.
pub type ShmHuge = FutexRing<InHugePages>;

/// The mechanism `shm-secret`: as [`ShmFutex`], with the rings in memory that the kernel has taken
/// out of its own mappings (memfd_secret(2)): no other process, not even one of root, can read it
/// through the kernel. The state by which the ends wake each other is elsewhere, because futex(2)
/// refuses secret memory.
pub type ShmSecret = FutexRing<InSecret>;

/// A ring whose ends sleep on a futex, in memory of the kind `M`.
pub struct FutexRing<M>(std::marker::PhantomData<fn() -> M>);

/// What distinguishes the kinds of memory.
pub trait Memory: 'static {
    /// The mechanism's id.
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// The kind of memory.
    const BACKING: Backing;
}

/// The memory of [`ShmFutex`].
#[derive(Debug)]
pub struct InPages;

impl Memory for InPages {
    const NAME: &'static str = "shm-futex";
    const SUMMARY: &'static str =
        "ring in shared memory, sleeping on a futex (ipc-bench's mempipe)";
    const BACKING: Backing = Backing::Pages;
}

/// The memory of [`ShmHuge`].
#[derive(Debug)]
pub struct InHugePages;

impl Memory for InHugePages {
    const NAME: &'static str = "shm-huge";
    const SUMMARY: &'static str = "ring in huge pages (MFD_HUGETLB), sleeping on a futex";
    const BACKING: Backing = Backing::Huge;
}

/// The memory of [`ShmSecret`].
#[derive(Debug)]
pub struct InSecret;

impl Memory for InSecret {
    const NAME: &'static str = "shm-secret";
    const SUMMARY: &'static str = "ring in memory that the kernel does not map for itself (memfd_secret), sleeping on a futex";
    const BACKING: Backing = Backing::Secret;
}

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

impl<M: Memory> Mechanism for FutexRing<M> {
    const ID: &'static str = M::NAME;
    const ABOUT: &'static str = M::SUMMARY;
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Memory);
    type Tx = ShmFutexTx;
    type Rx = ShmFutexRx;
    type Listener = Complete<ShmFutexTx, ShmFutexRx>;

    fn caps() -> Caps {
        Caps { can_block: true, can_spin: true, ..ring_caps() }
    }

    fn probe() -> Probe {
        let Some(remedy) = M::BACKING.remedy() else { return probe::<Self>(Wait::Block) };
        let tried = round_trip::<Self>(Wait::Block).map_err(|error| {
            // The remedy that an error names is for its one channel.
            let why = error.split_once("; ").map_or(error.as_str(), |(why, _)| why);
            why.trim_start_matches(&format!("{}: ", Self::ID)).to_owned()
        });
        Probe::of_kernel(tried, remedy)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (shared, offer) = Shared::listen_in(Self::ID, spec, M::BACKING)?;
        let (fences, offer) = Fences::offer(offer);
        let ends = ends(&shared, spec, fences, Direction::FromListener, Direction::FromConnector);
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let fences = Fences::join(Self::ID, offer)?;
        let shared = Shared::connect_in(Self::ID, spec, offer, M::BACKING)?;
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
