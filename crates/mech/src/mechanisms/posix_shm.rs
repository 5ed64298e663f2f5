//! `posix-shm`: a ring in named POSIX shared memory whose ends sleep on named POSIX semaphores (Enea's study, item E3).
//!
//! A message costs one copy in and one out and, while both ends run, no system call; an end that sleeps costs a `futex` call of the C
//! library at each side. The connector opens memory and semaphores by their names and removes the names at once, as POSIX lets it: what is open stays
//! usable and is freed with the last process that has it. Until then leases of the listener's hold them. Neither memory nor semaphores tell that
//! a peer died: a socket pair does, which is looked at between slices of sleep. The memory cannot be sealed, so that a peer that shrinks it kills
//! whoever reads it (`SIGBUS`); `shm-futex` has no such weakness.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::lifeline::Lifeline;
use crossway_sys::named_semaphore::{NamedSemaphore, file_of};
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

/// The mechanism.
pub struct PosixShm;

/// The semaphores, one for each end that may sleep; the numbers count them.
const SEMAPHORES: [&str; 4] = ["to-connector", "listener-room", "to-listener", "connector-room"];
const TO_CONNECTOR: usize = 0;
const LISTENER_ROOM: usize = 1;
const TO_LISTENER: usize = 2;
const CONNECTOR_ROOM: usize = 3;

/// Sleeps in `sem_clockwait`.
pub struct NamedBell {
    fences: Fences,
    lifeline: Arc<Lifeline>,
    named: Arc<Named>,
    own: usize,
    other: usize,
}

impl Bell for NamedBell {
    #[inline]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        self.fences.heavy()
    }

    fn sleep(&self, _own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        let slice = limit.map_or(SLICE, |limit| limit.min(SLICE));
        let named = |errno| OsError::new("sem_clockwait", SEMAPHORES[self.own], errno);
        self.named.semaphores[self.own].wait(slice).map_err(named)
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        let named = |errno| OsError::new("sem_post", SEMAPHORES[self.other], errno);
        self.named.semaphores[self.other].post().map_err(named)
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        self.lifeline.peer_gone()
    }
}

/// The sending end.
pub type PosixShmTx = RingTx<SharedRing, NamedBell>;
/// The receiving end.
pub type PosixShmRx = RingRx<SharedRing, NamedBell>;

/// What has names, open in this process.
struct Named {
    semaphores: [NamedSemaphore; 4],
    /// The listener's, until it closes; the names are gone long before as a rule.
    _leases: Vec<Lease>,
}

/// The name of one of the semaphores of a channel, without the slash.
fn semaphore_name(name: &str, nth: usize) -> String {
    format!("{name}-{}", SEMAPHORES[nth])
}

/// Makes something under a lease on its name; a stranger's thing of that name is left alone.
fn leased<T>(
    name: String,
    leases: &mut Vec<Lease>,
    make: impl FnOnce() -> Result<T, OsError>,
) -> Result<T, OsError> {
    let lease = lease::hold(Resource::PosixShm { name })?;
    match make() {
        Ok(made) => {
            leases.push(lease);
            Ok(made)
        }
        Err(error) => {
            if error.errno() == Errno::EXIST.raw_os_error() {
                lease.cancel();
            }
            Err(error)
        }
    }
}

/// All four, each by its number.
fn four<E>(
    mut one: impl FnMut(usize) -> Result<NamedSemaphore, E>,
) -> Result<[NamedSemaphore; 4], E> {
    Ok([one(0)?, one(1)?, one(2)?, one(3)?])
}

impl Mechanism for PosixShm {
    const ID: &'static str = "posix-shm";
    const ABOUT: &'static str = "ring in named POSIX shared memory, sleeping on named POSIX semaphores (shm_open, sem_open)";
    type Tx = PosixShmTx;
    type Rx = PosixShmRx;
    type Listener = Complete<PosixShmTx, PosixShmRx>;

    fn caps() -> Caps {
        ring_caps()
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            round_trip::<Self>(Wait::Block),
            "mount a tmpfs that this user can write to on /dev/shm, with room in it: mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let dimensions = dimensions(Self::ID, spec)?;
        let name = lease::fresh_name(Self::ID);
        let mut leases = Vec::new();
        let path = format!("/{name}");
        let memory = leased(path.clone(), &mut leases, || {
            shm::create_named(&path, dimensions.memory_len())
        })?;
        let mapping = Arc::new(shm::Mapping::of_pieces(&memory, &dimensions.pieces())?);
        let semaphores = four(|nth| {
            let name = semaphore_name(&name, nth);
            leased(file_of(&name), &mut leases, || NamedSemaphore::create(&name))
        })?;
        let (lifeline, peers) = Lifeline::pair()?;
        let (fences, offer) = Fences::offer(Offer::new());
        let offer = offer.with_word("name", name).with_fd("lifeline", peers);
        let channel = Channel {
            mapping,
            dimensions,
            fences,
            lifeline: Arc::new(lifeline),
            named: Arc::new(Named { semaphores, _leases: leases }),
            wait: spec.wait,
        };
        let ends = (
            channel.tx(Direction::FromListener, LISTENER_ROOM, TO_CONNECTOR),
            channel.rx(Direction::FromConnector, TO_LISTENER, CONNECTOR_ROOM),
        );
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let dimensions = dimensions(Self::ID, spec)?;
        let fences = Fences::join(Self::ID, offer)?;
        let name: String = offer.word(Self::ID, "name")?;
        let path = format!("/{name}");
        let memory = shm::open_named(&path, dimensions.memory_len())?;
        let mapping = Arc::new(shm::Mapping::of_pieces(&memory, &dimensions.pieces())?);
        let semaphores = four(|nth| NamedSemaphore::open(&semaphore_name(&name, nth)))?;
        // Both ends have everything open: nothing can stay behind any more.
        Resource::PosixShm { name: path }.remove();
        for nth in 0..SEMAPHORES.len() {
            Resource::PosixShm { name: file_of(&semaphore_name(&name, nth)) }.remove();
        }
        let channel = Channel {
            mapping,
            dimensions,
            fences,
            lifeline: Arc::new(Lifeline::from_fd(offer.take_fd(Self::ID, "lifeline")?)),
            named: Arc::new(Named { semaphores, _leases: Vec::new() }),
            wait: spec.wait,
        };
        Ok((
            channel.tx(Direction::FromConnector, CONNECTOR_ROOM, TO_LISTENER),
            channel.rx(Direction::FromListener, TO_CONNECTOR, LISTENER_ROOM),
        ))
    }
}

/// One process's view, from which its two halves are made.
struct Channel {
    mapping: Arc<shm::Mapping>,
    dimensions: Dimensions,
    fences: Fences,
    lifeline: Arc<Lifeline>,
    named: Arc<Named>,
    wait: Wait,
}

impl Channel {
    fn ring(&self, direction: Direction) -> SharedRing {
        SharedRing::new(Arc::clone(&self.mapping), self.dimensions, direction)
    }

    fn bell(&self, own: usize, other: usize) -> NamedBell {
        NamedBell {
            fences: self.fences,
            lifeline: Arc::clone(&self.lifeline),
            named: Arc::clone(&self.named),
            own,
            other,
        }
    }

    fn tx(&self, direction: Direction, own: usize, other: usize) -> PosixShmTx {
        RingTx::new(self.ring(direction), self.bell(own, other), self.wait)
    }

    fn rx(&self, direction: Direction, own: usize, other: usize) -> PosixShmRx {
        RingRx::new(self.ring(direction), self.bell(own, other), self.wait)
    }
}
