//! A page of memory that both ends share. It proves that the ends share memory, and each end records there on which CPU
//! it runs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crossway_ring::region::FreeWords;
use crossway_ring::sync::Ordering;
use crossway_sys::shm::{self, Mapping};
use crossway_sys::{OsError, random};

use crate::protocol::Role;

/// Indices of the 64-bit slots with the random numbers of the connector and of the listener.
const NONCES: [usize; 2] = [0, 1];
/// Index of the first slot of the leader and of the follower.
const FIRST: [usize; 2] = [16, 48];
/// Offsets within an end's slots, for its sender and for its receiver. The slot at `CPU` contains the number of the
/// half's CPU plus one, or 0 before the first record; the slot at `NOTED` contains the number of records.
const CPU: [usize; 2] = [0, 8];
const NOTED: [usize; 2] = [1, 9];

/// One of the halves of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Sender,
    Receiver,
}

/// The shared page.
#[derive(Clone)]
pub(crate) struct Page {
    words: FreeWords,
    /// The page's descriptor, kept for a process that takes this end over.
    fd: Arc<OwnedFd>,
}

/// The CPU on which a half last recorded that it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its CPU.
    pub(crate) cpu: u32,
    /// Number of records so far; if it has increased, the record is new.
    pub(crate) notes: u64,
}

impl Page {
    /// Creates a page; also returns a descriptor of it for the peer.
    pub(crate) fn make() -> Result<(Page, OwnedFd), OsError> {
        let fd = shm::create_sealed("crossway-channel", shm::page_len())?;
        let ours = fd.try_clone().map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "page", e))?;
        Ok((Page::map(ours)?, fd))
    }

    /// Maps the peer's page. `None` if the descriptor is not a sealed page of memory.
    pub(crate) fn open(fd: OwnedFd) -> Result<Option<Page>, OsError> {
        if !shm::is_sealed(fd.as_fd(), shm::page_len())? {
            return Ok(None);
        }
        Page::map(fd).map(Some)
    }

    fn map(fd: OwnedFd) -> Result<Page, OsError> {
        let words = FreeWords::new(Arc::new(Mapping::new(&fd, shm::page_len())?));
        Ok(Page { words, fd: Arc::new(fd) })
    }

    /// Returns the page's descriptor.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Writes a random number that the other end must read from the page, and returns it. `by_listener` says which end
    /// writes.
    pub(crate) fn write_nonce(&self, by_listener: bool) -> Result<u64, OsError> {
        let nonce = random::unguessable()?;
        self.words.word(NONCES[usize::from(by_listener)]).store(nonce, Ordering::Release);
        Ok(nonce)
    }

    /// Reads the random number of the listener if `of_listener` is true, else that of the connector.
    pub(crate) fn nonce(&self, of_listener: bool) -> u64 {
        self.words.word(NONCES[usize::from(of_listener)]).load(Ordering::Acquire)
    }

    /// Records on which CPU a half runs.
    pub(crate) fn note_cpu(&self, role: Role, half: Half, cpu: u32) {
        let first = FIRST[role as usize];
        self.words.word(first + CPU[half as usize]).store(u64::from(cpu) + 1, Ordering::Relaxed);
        self.words.word(first + NOTED[half as usize]).fetch_add(1, Ordering::Release);
    }

    /// Returns where a half last ran; `None` if it has not recorded that yet.
    pub(crate) fn seen(&self, role: Role, half: Half) -> Option<Seen> {
        let first = FIRST[role as usize];
        let notes = self.words.word(first + NOTED[half as usize]).load(Ordering::Acquire);
        let cpu = self.words.word(first + CPU[half as usize]).load(Ordering::Relaxed);
        Some(Seen { cpu: u32::try_from(cpu.checked_sub(1)?).ok()?, notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_writes_the_other_reads() {
        let (ours, fd) = Page::make().unwrap();
        let theirs = Page::open(fd).unwrap().unwrap();
        for by_listener in [false, true] {
            let nonce = ours.write_nonce(by_listener).unwrap();
            assert_eq!(theirs.nonce(by_listener), nonce);
        }
        assert_eq!(theirs.seen(Role::Leader, Half::Receiver), None);
        ours.note_cpu(Role::Leader, Half::Receiver, 0);
        let seen = theirs.seen(Role::Leader, Half::Receiver);
        assert_eq!(seen, Some(Seen { cpu: 0, notes: 1 }));
        assert_eq!(theirs.seen(Role::Follower, Half::Receiver), None);
    }

    #[test]
    fn memory_that_could_be_cut_short_is_not_a_page() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(shm::page_len() as u64).unwrap();
        assert!(Page::open(file.into()).unwrap().is_none());
    }
}
