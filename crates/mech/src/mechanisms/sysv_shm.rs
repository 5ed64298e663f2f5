//! `sysv-shm`: a ring in System V shared memory whose ends sleep on System V semaphores.
//!
//! The segments are removed as soon as the listening end has attached them. Linux still allows the connecting end to
//! attach them by ID, and frees them when the last end has detached, even if it was killed. Semaphores have no such
//! feature: the end that closes first removes them, or a lease does if the listening end is killed.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::lifeline::Lifeline;
use crossway_sys::sysv::{self, Segment, Semaphores};
use crossway_sys::{Errno, OsError, shm};

use crate::building_blocks::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::channel::{dimensions, ring_caps};
use crate::ring::semaphores::{Nth, SemaphoreChannel, SemaphoreRx, SemaphoreSet, SemaphoreTx};
use crate::self_test::round_trip;
use crate::{
    Caps, Carrier, Family, Mechanism, Meeting, Offer, OpenError, Probe, Spec, Transport, Wait,
};
use crossway_ring::region::Dimensions;

/// The mechanism `sysv-shm`: shmget(2) for the rings, semget(2) for the semaphores. While both ends run, messages cost
/// no system call.
pub struct SysvShm;

/// Number of random keys to try until one is free.
const KEYS_TO_TRY: u32 = 16;

/// The semaphores of a channel. They are removed when an end has dropped both its halves, because the channel is
/// unusable then.
pub struct SharedSemaphores {
    set: Semaphores,
    _lease: Option<Lease>,
}

impl Drop for SharedSemaphores {
    fn drop(&mut self) {
        self.set.remove();
    }
}

impl SharedSemaphores {
    /// Decides what an error of a semaphore call means. If the semaphores were removed, that is an error only while the
    /// peer lives, because then another process removed them.
    fn judge(
        &self,
        call: &'static str,
        result: Result<(), Errno>,
        lifeline: &Lifeline,
    ) -> Result<(), OsError> {
        match result {
            Err(Errno::IDRM | Errno::INVAL) if lifeline.peer_gone()? => Ok(()),
            Err(errno) => Err(OsError::new(call, format!("set {}", self.set.id()), errno)),
            Ok(()) => Ok(()),
        }
    }
}

impl SemaphoreSet for SharedSemaphores {
    fn wait(&self, nth: Nth, slice: Duration, lifeline: &Lifeline) -> Result<(), OsError> {
        self.judge("semtimedop", self.set.wait(nth as u16, slice), lifeline)
    }

    fn post(&self, nth: Nth, lifeline: &Lifeline) -> Result<(), OsError> {
        self.judge("semop", self.set.post(nth as u16), lifeline)
    }
}

/// The sending half, which sleeps on a System V semaphore when the ring is full.
pub type SysvShmTx = SemaphoreTx<SharedSemaphores>;
/// The receiving half, which sleeps on a System V semaphore when the ring is empty.
pub type SysvShmRx = SemaphoreRx<SharedSemaphores>;

/// The segments of a channel: one for the control words, then one ring for each direction.
struct Segments([Segment; 3]);

const SEGMENT_WORDS: [&str; 3] = ["control-segment", "listener-segment", "connector-segment"];

impl Segments {
    /// The control words take the last bytes of their segment.
    fn lengths(dimensions: Dimensions) -> [usize; 3] {
        [sysv::granule(), dimensions.capacity, dimensions.capacity]
    }

    /// Creates and attaches the segments, and removes their keys; they exist until the last process has detached them.
    fn create(dimensions: Dimensions) -> Result<(Segments, shm::Mapping), OpenError> {
        let mut leases = Vec::new();
        let mut make = |len| {
            let (segment, lease) =
                with_fresh_key(|key| Resource::SysvShm { key }, |key| Segment::create(key, len))?;
            leases.push(lease);
            Ok::<_, OsError>(segment)
        };
        let [control, listener, connector] = Self::lengths(dimensions);
        let segments = Segments([make(control)?, make(listener)?, make(connector)?]);
        let mapping = segments.attach()?;
        Ok((segments, mapping))
    }

    fn open(dimensions: Dimensions, offer: &Offer) -> Result<(Segments, shm::Mapping), OpenError> {
        let mut segments = Vec::new();
        for (word, len) in SEGMENT_WORDS.into_iter().zip(Self::lengths(dimensions)) {
            segments.push(Segment::open(offer.word(SysvShm::ID, word)?, len)?);
        }
        let segments = Segments([segments[0], segments[1], segments[2]]);
        let mapping = segments.attach()?;
        Ok((segments, mapping))
    }

    /// Attaches the segments as the rings need them, with each ring mapped twice in a row.
    fn attach(&self) -> Result<shm::Mapping, OsError> {
        let [control, listener, connector] = self.0;
        let all = Segment::attach_in_a_row(&[control, listener, listener, connector, connector])?;
        let unused = sysv::granule() - Dimensions::control_len();
        let len = all.len() - unused;
        Ok(all.part(unused, len))
    }
}

/// Creates a kernel object with a key that is not in use, and a lease on it.
fn with_fresh_key<T>(
    resource: impl Fn(i32) -> Resource,
    make: impl Fn(i32) -> Result<T, OsError>,
) -> Result<(T, Lease), OsError> {
    let mut tries = 0;
    loop {
        let key = lease::fresh_key();
        let lease = lease::hold(resource(key))?;
        match make(key) {
            Ok(made) => return Ok((made, lease)),
            Err(error) => {
                lease.cancel();
                tries += 1;
                if error.errno() != Errno::EXIST.raw_os_error() || tries == KEYS_TO_TRY {
                    return Err(error);
                }
            }
        }
    }
}

impl Mechanism for SysvShm {
    const ID: &'static str = "sysv-shm";
    const ABOUT: &'static str = "ring in System V shared memory, sleeping on System V semaphores";
    const CARRIER: Carrier =
        Carrier::new(Family::SharedMemory, Transport::Memory).meeting(&[Meeting::Ipc]);
    type Tx = SysvShmTx;
    type Rx = SysvShmRx;
    type Listener = Complete<SysvShmTx, SysvShmRx>;

    fn caps() -> Caps {
        ring_caps()
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            round_trip::<Self>(Wait::Block),
            "raise kernel.shmmni, kernel.shmall and kernel.sem, remove stale objects (ipcs, ipcrm), or use a kernel with \
             CONFIG_SYSVIPC",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let dimensions = dimensions(Self::ID, spec)?.in_pages_of(sysv::granule());
        let (segments, mapping) = Segments::create(dimensions)?;
        let (set, lease) = with_fresh_key(
            |key| Resource::SysvSem { key },
            |key| Semaphores::create(key, Nth::ALL.len() as u16),
        )?;
        let (lifeline, peers) = Lifeline::pair()?;
        let (fences, mut offer) = Fences::offer(Offer::new());
        for (word, segment) in SEGMENT_WORDS.into_iter().zip(&segments.0) {
            offer = offer.with_word(word, segment.id());
        }
        let offer = offer.with_word("semaphores", set.id()).with_fd("lifeline", peers);
        let channel = SemaphoreChannel {
            mapping: Arc::new(mapping),
            dimensions,
            fences,
            lifeline: Arc::new(lifeline),
            semaphores: Arc::new(SharedSemaphores { set, _lease: Some(lease) }),
            wait: spec.wait,
        };
        Ok((Complete::new(Self::ID, channel.listener()), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let dimensions = dimensions(Self::ID, spec)?.in_pages_of(sysv::granule());
        let fences = Fences::join(Self::ID, offer)?;
        let set = Semaphores::from_id(offer.word(Self::ID, "semaphores")?);
        let (_, mapping) = Segments::open(dimensions, offer)?;
        let channel = SemaphoreChannel {
            mapping: Arc::new(mapping),
            dimensions,
            fences,
            lifeline: Arc::new(Lifeline::from_fd(offer.take_fd(Self::ID, "lifeline")?)),
            semaphores: Arc::new(SharedSemaphores { set, _lease: None }),
            wait: spec.wait,
        };
        Ok(channel.connector())
    }
}
