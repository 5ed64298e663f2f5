//! Memory words that the kernel sets to 0 in the child of a fork. A library uses them to detect forks made by other
//! code in the process.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::OsError;

/// The number of words that [`words`] returns.
pub const WORDS: usize = 8;

/// Allocates the words, all 0, for the lifetime of the process. A child that shares the parent's memory (vfork) shares
/// them; one with a copy of the memory finds zeros, whichever call created it.
///
/// # Errors
/// [`OsError`] of mmap or madvise (MADV_WIPEONFORK, since Linux 4.14).
pub fn words() -> Result<&'static [AtomicU32; WORDS], OsError> {
    let len = crate::shm::page_len();
    // SAFETY: new anonymous memory at a place of the kernel's choice.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .map_err(|e| OsError::new("mmap", "", e))?;
    // SAFETY: exactly the memory mapped above, to which nothing refers yet.
    if let Err(errno) = unsafe { rustix::mm::madvise(start, len, Advice::LinuxWipeOnFork) } {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(start, len) };
        return Err(OsError::new("madvise(MADV_WIPEONFORK)", "", errno));
    }
    // SAFETY: the page is large enough, aligned, initialised by the kernel to 0, which is a valid AtomicU32, and never
    // unmapped. The kernel clears it only in a new process, before anything runs there.
    Ok(unsafe { &*start.cast() })
}

/// A number, never 0, that differs from the number of every ancestor process. A process that finds another number on
/// data in its memory knows that the data was copied from its parent by a fork. `None` where the system cannot
/// distinguish a child from its parent.
#[inline]
pub fn process() -> Option<u32> {
    static MARK: LazyLock<Option<&'static [AtomicU32; WORDS]>> = LazyLock::new(|| words().ok());
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [mark, ..] = (*MARK)?;
    match mark.load(Ordering::Relaxed) {
        0 => {
            // A child continues its parent's count.
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            match mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => Some(new),
                Err(other) => Some(other),
            }
        }
        process => Some(process),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_a_number_of_its_own() {
        let mine = process().unwrap();
        assert_eq!(process(), Some(mine));
        // SAFETY: the child compares its own number and exits without running any of its parent's code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let same = process() == Some(mine) || process() != process();
            // SAFETY: ends this process.
            unsafe { libc::_exit(same.into()) };
        }
        let mut status = -1;
        // SAFETY: status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_finds_zeros() {
        let words = words().unwrap();
        words[3].store(7, Ordering::Relaxed);
        // SAFETY: the child only loads, and exits without running any of its parent's code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = words[3].load(Ordering::Relaxed);
            // SAFETY: ends this process.
            unsafe { libc::_exit(found.cast_signed()) };
        }
        let mut status = -1;
        // SAFETY: status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(words[3].load(Ordering::Relaxed), 7);
    }
}
