//! `posix-shm`: a ring in named POSIX shared memory whose ends sleep on named POSIX semaphores (Enea's study, item E3).
//!
//! A message is copied once in and once out and, while both ends run, costs no system call. An end that sleeps costs a
//! `futex` call of the C library at each side. The connecting end opens memory and semaphores by their names and
//! removes the names immediately. POSIX allows this: objects that are open remain usable, and are freed with the last
//! process that has them open. Before that, the listening end's leases cover them. Neither memory nor semaphores reveal
//! that a peer died; a socket pair does, and is checked between periods of sleep. The memory cannot be sealed, so a
//! peer that shrinks it kills the process that reads it (`SIGBUS`); `shm-futex` does not have this weakness.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::lifeline::Lifeline;
use crossway_sys::named_semaphore::{NamedSemaphore, file_of};
use crossway_sys::{Errno, OsError, shm};

use crate::building_blocks::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::channel::{dimensions, ring_caps};
use crate::ring::semaphores::{Nth, SemaphoreChannel, SemaphoreRx, SemaphoreSet, SemaphoreTx};
use crate::self_test::round_trip;
use crate::{
    Caps, Carrier, Family, Mechanism, Meeting, Offer, OpenError, Probe, Spec, Transport, Wait,
};

/// The mechanism `posix-shm`: shm_open(3) for the rings, sem_open(3) for the semaphores.
pub struct PosixShm;

/// The named objects of a channel, opened by this process.
pub struct Named {
    semaphores: [NamedSemaphore; 4],
    /// The leases of the listening end. They last until it closes, although the names are usually removed long before.
    _leases: Vec<Lease>,
}

impl SemaphoreSet for Named {
    // These semaphores are never removed while they are open, so no error means that the peer has ended.
    fn wait(&self, nth: Nth, slice: Duration, _lifeline: &Lifeline) -> Result<(), OsError> {
        let named = |errno| OsError::new("sem_clockwait", purpose(nth), errno);
        self.semaphores[nth as usize].wait(slice).map_err(named)
    }

    fn post(&self, nth: Nth, _lifeline: &Lifeline) -> Result<(), OsError> {
        let named = |errno| OsError::new("sem_post", purpose(nth), errno);
        self.semaphores[nth as usize].post().map_err(named)
    }
}

/// The sending half, which sleeps on a named semaphore when the ring is full.
pub type PosixShmTx = SemaphoreTx<Named>;
/// The receiving half, which sleeps on a named semaphore when the ring is empty.
pub type PosixShmRx = SemaphoreRx<Named>;

/// The purpose of a semaphore, as part of its name.
const fn purpose(nth: Nth) -> &'static str {
    match nth {
        Nth::ToConnector => "to-connector",
        Nth::ListenerRoom => "listener-room",
        Nth::ToListener => "to-listener",
        Nth::ConnectorRoom => "connector-room",
    }
}

/// The name of one of the semaphores of a channel, without the slash.
fn semaphore_name(name: &str, nth: Nth) -> String {
    format!("{name}-{}", purpose(nth))
}

/// Creates an object with a lease on its name. An existing object of another program with that name is not touched.
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

/// All four semaphores, in the order of their numbers.
fn four<E>(
    mut one: impl FnMut(Nth) -> Result<NamedSemaphore, E>,
) -> Result<[NamedSemaphore; 4], E> {
    let [a, b, c, d] = Nth::ALL;
    Ok([one(a)?, one(b)?, one(c)?, one(d)?])
}

/// What helps against a failure, by the end of the text of an I/O error: if /dev/shm is full
/// (ENOSPC), or cannot be used for another reason.
fn remedy(why: &str) -> &'static str {
    if why.contains(&std::io::Error::from(Errno::NOSPC).to_string()) {
        "free some space in /dev/shm (`df /dev/shm` shows it): remove files that no process uses any more"
    } else {
        "mount on /dev/shm a tmpfs that this user can write to: mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
    }
}

impl Mechanism for PosixShm {
    const ID: &'static str = "posix-shm";
    const ABOUT: &'static str = "ring in named POSIX shared memory, sleeping on named POSIX semaphores (shm_open, sem_open)";
    const CARRIER: Carrier =
        Carrier::new(Family::SharedMemory, Transport::Memory).meeting(&[Meeting::DevShm]);
    type Tx = PosixShmTx;
    type Rx = PosixShmRx;
    type Listener = Complete<PosixShmTx, PosixShmRx>;

    fn caps() -> Caps {
        ring_caps()
    }

    fn probe() -> Probe {
        let tried = round_trip::<Self>(Wait::Block);
        let remedy = tried.as_ref().err().map_or("", |why| remedy(why));
        Probe::of_kernel(tried, remedy)
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
        let channel = SemaphoreChannel {
            mapping,
            dimensions,
            fences,
            lifeline: Arc::new(lifeline),
            semaphores: Arc::new(Named { semaphores, _leases: leases }),
            wait: spec.wait,
        };
        Ok((Complete::new(Self::ID, channel.listener()), offer))
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
        for nth in Nth::ALL {
            Resource::PosixShm { name: file_of(&semaphore_name(&name, nth)) }.remove();
        }
        let channel = SemaphoreChannel {
            mapping,
            dimensions,
            fences,
            lifeline: Arc::new(Lifeline::from_fd(offer.take_fd(Self::ID, "lifeline")?)),
            semaphores: Arc::new(Named { semaphores, _leases: Vec::new() }),
            wait: spec.wait,
        };
        Ok(channel.connector())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_system_needs_space_and_no_other_mount() {
        let why = |errno: Errno| OsError::new("fallocate", "/crossway", errno).to_string();
        assert!(remedy(&why(Errno::NOSPC)).starts_with("free some space in /dev/shm"));
        assert!(remedy(&why(Errno::ACCESS)).starts_with("mount on /dev/shm"));
    }
}
