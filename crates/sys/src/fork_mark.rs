//! Words that are 0 again in a child of fork: how a library notices a fork that nobody told it of.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::OsError;

/// How many words there are.
pub const WORDS: usize = 8;

/// Makes such words, all 0, for as long as the process lives. A child that shares the parent's memory (vfork) shares them, too; one that
/// has a copy of it finds zeros, however it was made.
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
    // SAFETY: a page is large enough, aligned, initialised by the kernel to 0, of which AtomicU32 is made, and never unmapped. The kernel
    // clears it in a new process only, before anything runs there.
    Ok(unsafe { &*start.cast() })
}

/// A number, never 0, that this process has in common with none of its parents; so what was noted by it in memory that a fork copied is known to be a
/// parent's. `None` where the system cannot tell a child from its parent.
#[inline]
pub fn process() -> Option<u32> {
    static MARK: LazyLock<Option<&'static [AtomicU32; WORDS]>> = LazyLock::new(|| words().ok());
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [mark, ..] = (*MARK)?;
    match mark.load(Ordering::Relaxed) {
        0 => {
            // The count goes on in a child where it was in its parent.
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
        // SAFETY: the child looks at its own number, and leaves without running anything of its parent's.
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
        // SAFETY: the child only loads, and leaves without running anything of its parent's.
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
