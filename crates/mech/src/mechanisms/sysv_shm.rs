//! `sysv-shm`: a ring in System V shared memory whose ends sleep on System V semaphores.
//!
//! The segments are removed as soon as the listener has attached them. Linux still lets the connector attach them by
//! id, and they are freed when the last end detaches, whatever kills it. Semaphores have no such feature: the end that
//! closes first removes them, or a lease does if the listener is killed.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::lifeline::Lifeline;
use crossway_sys::sysv::{Segment, Semaphores};
use crossway_sys::{Errno, OsError, shm};

use crate::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::channel::{dimensions, ring_caps};
use crate::self_test::round_trip;
use crate::{Caps, Mechanism, Offer, OpenError, Probe, Spec, Wait};
use crossway_ring::bell::SLICE;
use crossway_ring::region::{Dimensions, Direction, SharedRing};
use crossway_ring::sync::AtomicU32;
use crossway_ring::{Bell, RingRx, RingTx};

/// The `sysv-shm` mechanism.
pub struct SysvShm;

/// The semaphores of a channel, one for each end that may sleep.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
enum Nth {
    /// The connector has something to receive.
    ToConnector,
    /// The listener has room to send.
    ListenerRoom,
    /// The listener has something to receive.
    ToListener,
    /// The connector has room to send.
    ConnectorRoom,
}

const SEMAPHORES: u16 = 4;
/// Number of random keys to try until one is free.
const KEYS_TO_TRY: u32 = 16;

/// Removes the set when an end has dropped both its halves, since the channel is unusable then.
struct SharedSemaphores {
    set: Semaphores,
    _lease: Option<Lease>,
}

impl Drop for SharedSemaphores {
    fn drop(&mut self) {
        self.set.remove();
    }
}

/// Sleeps in `semtimedop`.
pub struct SemaphoreBell {
    fences: Fences,
    // Dropped before the semaphores, so that a peer that finds them removed finds that we have ended.
    lifeline: Arc<Lifeline>,
    semaphores: Arc<SharedSemaphores>,
    own: Nth,
    other: Nth,
}

impl SemaphoreBell {
    /// A removed set is an error only while the peer lives, because then another process removed it.
    fn judge(&self, call: &'static str, result: Result<(), Errno>) -> Result<(), OsError> {
        match result {
            Err(Errno::IDRM | Errno::INVAL) if self.lifeline.peer_gone()? => Ok(()),
            Err(errno) => {
                Err(OsError::new(call, format!("set {}", self.semaphores.set.id()), errno))
            }
            Ok(()) => Ok(()),
        }
    }
}

impl Bell for SemaphoreBell {
    #[inline]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        self.fences.heavy()
    }

    fn sleep(&self, _own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        let slice = limit.map_or(SLICE, |limit| limit.min(SLICE));
        self.judge("semtimedop", self.semaphores.set.wait(self.own as u16, slice))
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        self.judge("semop", self.semaphores.set.post(self.other as u16))
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        self.lifeline.peer_gone()
    }
}

/// The sending end.
pub type SysvShmTx = RingTx<SharedRing, SemaphoreBell>;
/// The receiving end.
pub type SysvShmRx = RingRx<SharedRing, SemaphoreBell>;

/// The segments of a channel: the control words, then one ring for each direction.
struct Segments([Segment; 3]);

const SEGMENT_WORDS: [&str; 3] = ["control-segment", "listener-segment", "connector-segment"];

impl Segments {
    fn lengths(dimensions: Dimensions) -> [usize; 3] {
        [shm::page_len(), dimensions.capacity, dimensions.capacity]
    }

    /// Creates and attaches the segments; none of them has a name afterwards.
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

    /// Attaches the segments as the rings need them: each ring twice in a row.
    fn attach(&self) -> Result<shm::Mapping, OsError> {
        let [control, listener, connector] = self.0;
        Segment::attach_in_a_row(&[control, listener, listener, connector, connector])
    }
}

/// Creates a kernel object under an unused key, with a lease on it.
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
        let dimensions = dimensions(Self::ID, spec)?;
        let (segments, mapping) = Segments::create(dimensions)?;
        let (set, lease) = with_fresh_key(
            |key| Resource::SysvSem { key },
            |key| Semaphores::create(key, SEMAPHORES),
        )?;
        let (lifeline, peers) = Lifeline::pair()?;
        let (fences, mut offer) = Fences::offer(Offer::new());
        for (word, segment) in SEGMENT_WORDS.into_iter().zip(&segments.0) {
            offer = offer.with_word(word, segment.id());
        }
        let offer = offer.with_word("semaphores", set.id()).with_fd("lifeline", peers);
        let channel = Channel {
            mapping: Arc::new(mapping),
            dimensions,
            fences,
            lifeline: Arc::new(lifeline),
            semaphores: Arc::new(SharedSemaphores { set, _lease: Some(lease) }),
            wait: spec.wait,
        };
        let ends = (
            channel.tx(Direction::FromListener, Nth::ListenerRoom, Nth::ToConnector),
            channel.rx(Direction::FromConnector, Nth::ToListener, Nth::ConnectorRoom),
        );
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let dimensions = dimensions(Self::ID, spec)?;
        let fences = Fences::join(Self::ID, offer)?;
        let set = Semaphores::from_id(offer.word(Self::ID, "semaphores")?);
        let (_, mapping) = Segments::open(dimensions, offer)?;
        let channel = Channel {
            mapping: Arc::new(mapping),
            dimensions,
            fences,
            lifeline: Arc::new(Lifeline::from_fd(offer.take_fd(Self::ID, "lifeline")?)),
            semaphores: Arc::new(SharedSemaphores { set, _lease: None }),
            wait: spec.wait,
        };
        Ok((
            channel.tx(Direction::FromConnector, Nth::ConnectorRoom, Nth::ToListener),
            channel.rx(Direction::FromListener, Nth::ToConnector, Nth::ListenerRoom),
        ))
    }
}

/// One process's view of the channel, from which its two halves are made.
struct Channel {
    mapping: Arc<shm::Mapping>,
    dimensions: Dimensions,
    fences: Fences,
    lifeline: Arc<Lifeline>,
    semaphores: Arc<SharedSemaphores>,
    wait: Wait,
}

impl Channel {
    fn ring(&self, direction: Direction) -> SharedRing {
        SharedRing::new(Arc::clone(&self.mapping), self.dimensions, direction)
    }

    fn bell(&self, own: Nth, other: Nth) -> SemaphoreBell {
        SemaphoreBell {
            fences: self.fences,
            lifeline: Arc::clone(&self.lifeline),
            semaphores: Arc::clone(&self.semaphores),
            own,
            other,
        }
    }

    fn tx(&self, direction: Direction, own: Nth, other: Nth) -> SysvShmTx {
        RingTx::new(self.ring(direction), self.bell(own, other), self.wait)
    }

    fn rx(&self, direction: Direction, own: Nth, other: Nth) -> SysvShmRx {
        RingRx::new(self.ring(direction), self.bell(own, other), self.wait)
    }
}
