//! System V shared memory and semaphores (`shmget(2)`, `shmop(2)`, `semget(2)`, `semop(2)`). Message queues are in
//! [`crate::sysv_queue`].

use std::time::Duration;

use rustix::io::Errno;

use crate::OsError;
use crate::clock::timespec;
use crate::error::last_errno;
use crate::shm::{Mapping, page_len};

/// A segment is attached at multiples of this number of bytes (SHMLBA): a page, or four on ARM with 32 bits, where some
/// processors find bytes in their caches by the lowest bits of the address.
pub fn granule() -> usize {
    if cfg!(target_arch = "arm") { 4 * page_len() } else { page_len() }
}

/// A shared-memory segment, identified by its id. It exists until it has been removed and every process has detached
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    id: i32,
    len: usize,
}

impl Segment {
    /// Creates a zeroed segment of `len` bytes that only this user can attach; `EEXIST` if the key is taken.
    pub fn create(key: i32, len: usize) -> Result<Segment, OsError> {
        // SAFETY: touches no memory of this process.
        let id = unsafe { libc::shmget(key, len, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
        if id < 0 {
            return Err(OsError::last("shmget", format!("{len} bytes, key {key:#x}")));
        }
        Ok(Segment { id, len })
    }

    /// The segment with this id, which must be `len` bytes long. Linux allows attaching a removed segment by its id
    /// while any process still has it attached.
    pub fn open(id: i32, len: usize) -> Result<Segment, OsError> {
        let object = || format!("segment {id}");
        // SAFETY: all-zero is a valid value of the plain struct that the kernel fills.
        let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: `status` is valid for the kernel's write.
        if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) } < 0 {
            return Err(OsError::last("shmctl(IPC_STAT)", object()));
        }
        // A longer one would be attached over what lies beyond the range that is reserved for `len` bytes.
        if status.shm_segsz != len {
            let why = format!("it has {} bytes instead of {len}", status.shm_segsz);
            return Err(OsError::new("shmctl(IPC_STAT)", object(), std::io::Error::other(why)));
        }
        Ok(Segment { id, len })
    }

    /// The id that another process needs to open the segment.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Attaches segments one after the other and faults them in. Their lengths must be multiples of [`granule`]; a
    /// segment may appear several times.
    pub fn attach_in_a_row(segments: &[Segment]) -> Result<Mapping, OsError> {
        let len = segments.iter().map(|s| s.len).sum();
        let mapping = Mapping::reserve_aligned(len, 0, granule())?;
        let mut at = mapping.start().as_ptr();
        for segment in segments {
            // SAFETY: the target lies within the range just reserved, which nothing else uses; `open` and `create`
            // checked the segment's length, which cannot change.
            unsafe {
                let got = libc::shmat(segment.id, at.cast(), libc::SHM_REMAP);
                if got as isize == -1 {
                    return Err(OsError::last("shmat", format!("segment {}", segment.id)));
                }
                at = at.add(segment.len);
            }
        }
        mapping.populate();
        Ok(mapping)
    }
}

/// A set of semaphores, identified by its id. It exists until it is removed, which wakes all waiters.
#[derive(Debug)]
pub struct Semaphores {
    id: i32,
}

impl Semaphores {
    /// Creates `count` semaphores of value zero for this user only; `EEXIST` if the key is taken.
    pub fn create(key: i32, count: u16) -> Result<Semaphores, OsError> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: touches no memory of this process.
        let id = unsafe { libc::semget(key, count.into(), flags) };
        if id < 0 {
            return Err(OsError::last("semget", format!("{count} semaphores, key {key:#x}")));
        }
        Ok(Semaphores { id })
    }

    /// The set with this id.
    pub fn from_id(id: i32) -> Semaphores {
        Semaphores { id }
    }

    /// The id that another process needs to open the set.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Increments the `nth` semaphore. If it is already at its maximum, that is not an error, because its waiters wake
    /// up anyway. `EIDRM` or `EINVAL`: the set was removed.
    pub fn post(&self, nth: u16) -> Result<(), Errno> {
        let mut op = libc::sembuf { sem_num: nth, sem_op: 1, sem_flg: 0 };
        // SAFETY: one operation, valid for the length of the call.
        if unsafe { libc::semop(self.id, &raw mut op, 1) } == 0 {
            return Ok(());
        }
        match last_errno() {
            Errno::RANGE => Ok(()),
            errno => Err(errno),
        }
    }

    /// Sleeps until the `nth` semaphore is above zero and decrements it. Also returns, with the same result, after
    /// `timeout` or when a signal arrives. `EIDRM` or `EINVAL`: the set was removed.
    pub fn wait(&self, nth: u16, timeout: Duration) -> Result<(), Errno> {
        let mut op = libc::sembuf { sem_num: nth, sem_op: -1, sem_flg: 0 };
        let timeout = timespec(timeout);
        // SAFETY: one operation and a timeout, both valid for the length of the call.
        let done = unsafe {
            libc::syscall(libc::SYS_semtimedop, self.id, &raw mut op, 1usize, &raw const timeout)
        };
        if done == 0 {
            return Ok(());
        }
        match last_errno() {
            Errno::AGAIN | Errno::INTR => Ok(()),
            errno => Err(errno),
        }
    }

    /// Removes the set if it still exists. Errors are ignored.
    pub fn remove(&self) {
        // SAFETY: IPC_RMID reads no fourth argument and touches no memory of this process.
        unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::lease::{self, Resource};

    #[test]
    fn a_removed_segment_can_be_attached_while_another_holds_it() {
        let key = lease::fresh_key();
        let held = lease::hold(Resource::SysvShm { key }).unwrap();
        let len = 2 * granule();
        let segment = Segment::create(key, len).unwrap();
        let a = Segment::attach_in_a_row(&[segment, segment]).unwrap();
        held.release();
        let again = Segment::open(segment.id(), len).unwrap();
        assert!(Segment::open(segment.id(), len + 1).is_err());
        let b = Segment::attach_in_a_row(&[again]).unwrap();
        // SAFETY: in range, and nothing else has the segment.
        unsafe {
            a.start().as_ptr().add(len + 3).write(5);
            assert_eq!(a.start().as_ptr().add(3).read(), 5);
            assert_eq!(b.start().as_ptr().add(3).read(), 5);
        }
        drop((a, b));
        // A child that another test forks at this moment inherits the attachment and keeps it until it executes a
        // program.
        let deadline = Instant::now() + Duration::from_secs(20);
        while Segment::open(segment.id(), len).is_ok() {
            assert!(Instant::now() < deadline, "the segment stays behind");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn semaphores_count_and_removal_ends_a_wait() {
        let key = lease::fresh_key();
        let _held = lease::hold(Resource::SysvSem { key }).unwrap();
        let set = Semaphores::create(key, 2).unwrap();
        set.post(1).unwrap();
        set.wait(1, Duration::from_secs(20)).unwrap();
        set.wait(0, Duration::from_millis(1)).unwrap();
        let id = set.id();
        let sleeper = std::thread::spawn(move || {
            let set = Semaphores::from_id(id);
            loop {
                if let Err(errno) = set.wait(0, Duration::from_secs(20)) {
                    return errno;
                }
            }
        });
        set.remove();
        assert!(matches!(sleeper.join().unwrap(), Errno::IDRM | Errno::INVAL));
    }
}
