//! POSIX named semaphores (`sem_overview(7)`): a word in a file of `/dev/shm` on which the C library sleeps by futex.

use std::ffi::CString;
use std::ptr::NonNull;
use std::time::Duration;

use rustix::io::Errno;

use crate::OsError;
use crate::clock::{monotonic_ns, timespec};
use crate::error::last_errno;

unsafe extern "C" {
    /// `sem_timedwait` with a choice of clock; in the GNU C library since 2.30.
    fn sem_clockwait(
        semaphore: *mut libc::sem_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// An open semaphore. Its name exists until it is removed; processes that have it open can continue to use it.
#[derive(Debug)]
pub struct NamedSemaphore {
    semaphore: NonNull<libc::sem_t>,
}

// SAFETY: a semaphore belongs to the process, not to a thread.
unsafe impl Send for NamedSemaphore {}
// SAFETY: the C library's calls on it may be made from several threads at once.
unsafe impl Sync for NamedSemaphore {}

impl NamedSemaphore {
    /// Creates a semaphore of value 0 that only this user can open; `EEXIST` if the name is taken. The name must not
    /// contain a slash.
    ///
    /// # Errors
    /// [`OsError`] of `sem_open`.
    pub fn create(name: &str) -> Result<NamedSemaphore, OsError> {
        Self::call(name, libc::O_CREAT | libc::O_EXCL)
    }

    /// Opens the semaphore with this name.
    ///
    /// # Errors
    /// [`OsError`] of `sem_open`.
    pub fn open(name: &str) -> Result<NamedSemaphore, OsError> {
        Self::call(name, 0)
    }

    fn call(name: &str, flags: libc::c_int) -> Result<NamedSemaphore, OsError> {
        let failed = |errno| OsError::new("sem_open", name, errno);
        let path = CString::new(format!("/{name}")).map_err(|_| failed(Errno::INVAL))?;
        // SAFETY: the name is a C string for the length of the call; mode and value are read only with O_CREAT.
        let semaphore = unsafe { libc::sem_open(path.as_ptr(), flags, 0o600 as libc::mode_t, 0) };
        if semaphore == libc::SEM_FAILED {
            return Err(failed(last_errno()));
        }
        NonNull::new(semaphore)
            .map(|semaphore| NamedSemaphore { semaphore })
            .ok_or_else(|| failed(Errno::INVAL))
    }

    /// Increments the semaphore. If it is already at its maximum, that is not an error, because its waiters wake up
    /// anyway.
    ///
    /// # Errors
    /// The errno of `sem_post`.
    pub fn post(&self) -> Result<(), Errno> {
        // SAFETY: open as long as `self`.
        if unsafe { libc::sem_post(self.semaphore.as_ptr()) } == 0 {
            return Ok(());
        }
        match last_errno() {
            Errno::OVERFLOW => Ok(()),
            errno => Err(errno),
        }
    }

    /// Waits until the value is above zero, and decrements it. Also returns after `timeout` or when a signal arrives;
    /// the result does not tell these cases apart.
    ///
    /// # Errors
    /// The errno of `sem_clockwait`.
    pub fn wait(&self, timeout: Duration) -> Result<(), Errno> {
        let until = timespec(Duration::from_nanos(monotonic_ns()).saturating_add(timeout));
        // SAFETY: open as long as `self`; the instant is valid for the length of the call.
        let done = unsafe {
            sem_clockwait(self.semaphore.as_ptr(), libc::CLOCK_MONOTONIC, &raw const until)
        };
        if done == 0 {
            return Ok(());
        }
        match last_errno() {
            Errno::TIMEDOUT | Errno::INTR => Ok(()),
            errno => Err(errno),
        }
    }
}

impl Drop for NamedSemaphore {
    fn drop(&mut self) {
        // SAFETY: open, and not used afterwards.
        unsafe { libc::sem_close(self.semaphore.as_ptr()) };
    }
}

/// The name of the POSIX shared memory in which the C library stores the semaphore `name`. A [`lease`](crate::lease) on
/// that memory removes the semaphore, too.
pub fn file_of(name: &str) -> String {
    format!("/sem.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{self, Resource};

    #[test]
    fn a_post_ends_a_wait_and_a_removed_name_cannot_be_opened() {
        let name = lease::fresh_name("semaphore");
        let held = lease::hold(Resource::PosixShm { name: file_of(&name) }).unwrap();
        let ours = NamedSemaphore::create(&name).unwrap();
        assert_eq!(NamedSemaphore::create(&name).unwrap_err().errno(), Errno::EXIST.raw_os_error());
        let theirs = NamedSemaphore::open(&name).unwrap();
        held.release();
        assert!(NamedSemaphore::open(&name).is_err());
        let sleeper = std::thread::spawn(move || ours.wait(Duration::from_secs(60)));
        theirs.post().unwrap();
        sleeper.join().unwrap().unwrap();
        theirs.wait(Duration::from_millis(1)).unwrap();
    }
}
