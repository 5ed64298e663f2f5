//! A word in shared memory that the kernel changes when its owner ends, so that other processes can
//! sleep on it (futex(2)) until then.
//!
//! It is an entry of the kernel's list of robust futexes, which belongs to a thread; so a thread
//! that only sleeps owns the word for the process. The C library uses the lists of all other
//! threads.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::{OsError, futex};

/// The bit that is set in the word once its owner has ended (FUTEX_OWNER_DIED).
pub const ENDED: u32 = 0x4000_0000;

/// The bit that makes the kernel wake a sleeper when the owner ends (FUTEX_WAITERS).
const WAITERS: u32 = 0x8000_0000;

/// The stack of the sleeping thread, in bytes.
const STACK_LEN: usize = 64 << 10;

/// What holds the memory of a word.
pub trait Word: Send + 'static {
    /// The word, which must be 0 until it has an owner.
    fn word(&self) -> &AtomicU32;
}

/// The owner of a word: [`ENDED`] is set when this value is dropped, or when this process ends,
/// however it ends.
///
/// The kernel wakes a single sleeper then. Who finds [`ENDED`] must wake the others
/// ([`futex::wake_all`]).
#[derive(Debug)]
pub struct Owner {
    end: Option<mpsc::Sender<Infallible>>,
    keeper: Option<JoinHandle<()>>,
}

impl Owner {
    /// Makes this process the owner of a word, which is neither 0 nor has [`ENDED`] set from now
    /// on.
    ///
    /// # Errors
    /// The process may not have another thread, or a sandbox forbids set_robust_list(2).
    pub fn of(word: impl Word) -> Result<Owner, OsError> {
        let (started, start) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let keeper = std::thread::Builder::new()
            .name("crossway-owner".to_owned())
            .stack_size(STACK_LEN)
            .spawn(move || keep(word.word(), &started, &ended))
            .map_err(|error| OsError::new("clone", "thread that owns a word", error))?;
        let owner = Owner { end: Some(end), keeper: Some(keeper) };
        match start.recv() {
            Ok(outcome) => outcome.map(|()| owner),
            // The thread cannot have panicked.
            Err(_) => Err(OsError::new("set_robust_list", "", crate::Errno::CANCELED)),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// An entry of the list, and the list's own first word (struct robust_list).
#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// The list (struct robust_list_head).
#[repr(C)]
struct Head {
    list: Entry,
    /// The distance in bytes from an entry to its word.
    futex_offset: libc::c_long,
    list_op_pending: *const Entry,
}

/// Owns the word until `ended` is closed.
fn keep(
    word: &AtomicU32,
    started: &mpsc::Sender<Result<(), OsError>>,
    ended: &mpsc::Receiver<Infallible>,
) {
    let mut head = Head {
        list: Entry { next: std::ptr::null() },
        futex_offset: 0,
        list_op_pending: std::ptr::null(),
    };
    let head_at = &raw mut head;
    // SAFETY: the field of a value on this stack.
    let list_at = unsafe { &raw const (*head_at).list };
    let entry = Entry { next: list_at };
    let distance = word.as_ptr().addr().wrapping_sub((&raw const entry).addr());
    // SAFETY: as above; nothing else refers to the value.
    unsafe {
        (*head_at).list.next = &raw const entry;
        (*head_at).futex_offset = distance.cast_signed() as libc::c_long;
    }
    if let Err(error) = set_list(head_at) {
        let _ = started.send(Err(error));
        return;
    }
    word.store(WAITERS | rustix::thread::gettid().as_raw_pid().unsigned_abs(), Ordering::Release);
    let _ = started.send(Ok(()));
    let _ = ended.recv();
    word.fetch_or(ENDED, Ordering::Release);
    let _ = futex::wake_all(word);
    // From here on, the kernel must not look at this stack and at the word any more. It does only
    // if the process ends now, when the word has been marked; it cannot refuse what it took before.
    let _ = set_list(std::ptr::null_mut());
}

/// Replaces this thread's list of robust futexes.
fn set_list(head: *mut Head) -> Result<(), OsError> {
    // SAFETY: the kernel only reads the list, when this thread ends, and changes its words if they
    // hold the thread's id. The caller keeps list and words until it has replaced them.
    let outcome = unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<Head>()) };
    if outcome == 0 { Ok(()) } else { Err(OsError::last("set_robust_list", "")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::shm::{self, Mapping};

    struct First(Arc<Mapping>);

    impl Word for First {
        fn word(&self) -> &AtomicU32 {
            // SAFETY: the start of a mapping that lives as long as `self`, used as an atomic only.
            unsafe { AtomicU32::from_ptr(self.0.start().as_ptr().cast()) }
        }
    }

    fn word() -> Arc<Mapping> {
        let memory = shm::create_sealed("crossway-test", shm::page_len()).unwrap();
        Arc::new(Mapping::of_pieces(&memory, &[(0, shm::page_len())]).unwrap())
    }

    #[test]
    fn an_owner_that_is_dropped_has_ended() {
        let mapping = word();
        let owner = Owner::of(First(mapping.clone())).unwrap();
        let first = First(mapping);
        let held = first.word().load(Ordering::Acquire);
        assert!(held != 0 && held & ENDED == 0, "{held:#x}");
        let sleeper = std::thread::spawn(move || {
            while first.word().load(Ordering::Acquire) & ENDED == 0 {
                futex::wait(first.word(), held, None).unwrap();
            }
        });
        drop(owner);
        sleeper.join().unwrap();
    }

    /// The kernel's own notice: the process that owns the word is killed.
    #[test]
    fn an_owner_that_is_killed_has_ended() {
        let mapping = word();
        let first = First(mapping.clone());
        // SAFETY: the child makes system calls and a thread, and ends without running anything of
        // its parent's.
        match unsafe { libc::fork() } {
            0 => {
                let _owner = Owner::of(First(mapping));
                loop {
                    std::thread::park();
                }
            }
            child => {
                assert!(child > 0);
                while first.word().load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                let held = first.word().load(Ordering::Acquire);
                // SAFETY: a child of our own, not waited for yet.
                assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
                let mut naps = 0;
                while first.word().load(Ordering::Acquire) & ENDED == 0 {
                    futex::wait(first.word(), held, Some(Duration::from_secs(30))).unwrap();
                    naps += 1;
                    assert!(naps < 4, "the kernel does not mark the word");
                }
                // SAFETY: as above.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
        }
    }
}
