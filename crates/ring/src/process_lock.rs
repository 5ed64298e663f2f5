//! A lock in shared memory for threads of several processes, any of which may be killed while it holds the lock.
//!
//! A robust mutex of the C library would keep each process's pointers in the shared memory, where another process could
//! change them. Here each process has a number, and claims the byte at that offset in the memory's file
//! ([`crossway_sys::record_lock`]). The lock word contains the number of the holder. A process that waits for a long
//! time asks the kernel whether the holder's claim still exists, and takes over the lock if it does not.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossway_sys::spin::Attempts;
use crossway_sys::{Errno, OsError, fork_mark, futex, record_lock};

/// Flag of the lock word: at least one thread sleeps until the lock is free.
const WAITERS: u32 = 1 << 31;

/// How long to try before sleeping: the lock is held for the time of a few copies.
const HELD_BRIEFLY: Duration = Duration::from_nanos(2500);

/// How often a waiting thread checks whether the holder is alive.
const GLANCE: Duration = Duration::from_millis(5);

/// The words of a lock, in the shared memory.
pub trait LockWords {
    /// The holder's number, or 0 if the lock is free.
    fn holder(&self) -> &AtomicU32;
    /// How many numbers have been assigned so far.
    fn numbers(&self) -> &AtomicU32;
}

/// A process's view of a lock.
#[derive(Debug)]
pub struct ProcessLock<W: LockWords> {
    words: W,
    /// The memory's file, which carries the claims.
    file: OwnedFd,
    /// This process's number in the low 32 bits, and in the high 32 bits a mark of the process
    /// ([`crossway_sys::fork_mark`]). By the mark a forked child notices that the number is its parent's and that it
    /// needs its own.
    member: AtomicU64,
}

/// A lock held by the caller; dropping this value releases it.
pub struct Held<'a> {
    word: &'a AtomicU32,
    /// Whether the previous holder died while it held the lock.
    pub orphaned: bool,
}

fn errno_of(error: &OsError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

impl<W: LockWords> ProcessLock<W> {
    /// Joins the lock whose words are in the memory of this file. The process must not close another descriptor of the
    /// file while it uses the lock.
    ///
    /// # Errors
    /// The errno if the system grants no claim on the file (ENOLCK), or cannot mark forked children.
    pub fn join(words: W, file: OwnedFd) -> Result<Self, Errno> {
        let lock = Self { words, file, member: AtomicU64::new(0) };
        lock.member()?;
        Ok(lock)
    }

    /// Claims this process's number again, after a descriptor of the file was closed.
    ///
    /// # Errors
    /// As [`ProcessLock::join`].
    pub fn claim_again(&self) -> Result<(), Errno> {
        record_lock::claim(&self.file, self.member()?.into())
    }

    /// The shared words of the lock.
    pub const fn words(&self) -> &W {
        &self.words
    }

    /// Whether no other process has joined the lock so far.
    #[inline]
    pub fn is_alone(&self) -> bool {
        // The first number, 0, is not assigned to a process.
        self.words.numbers().load(Ordering::Relaxed) == 2
    }

    /// This process's number.
    #[inline]
    fn member(&self) -> Result<u32, Errno> {
        let mark = fork_mark::process().ok_or(Errno::NOSYS)?;
        let member = self.member.load(Ordering::Relaxed);
        if (member >> 32) as u32 == mark { Ok(member as u32) } else { self.enrol(mark, member) }
    }

    #[cold]
    fn enrol(&self, mark: u32, seen: u64) -> Result<u32, Errno> {
        let number = loop {
            let number = self.words.numbers().fetch_add(1, Ordering::Relaxed) % WAITERS;
            if number != 0 {
                break number;
            }
        };
        record_lock::claim(&self.file, number.into())?;
        let fresh = u64::from(mark) << 32 | u64::from(number);
        // One of several threads wins: a process must know its own number, since it cannot see its own claims.
        match self.member.compare_exchange(seen, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(number),
            Err(other) => Ok(other as u32),
        }
    }

    /// Waits for the lock and takes it.
    ///
    /// # Errors
    /// The errno if a forked child cannot join (ENOLCK), or the system does not permit sleeping.
    #[inline]
    pub fn hold(&self) -> Result<Held<'_>, Errno> {
        let me = self.member()?;
        let word = self.words.holder();
        match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Held { word, orphaned: false }),
            Err(_) => self.wait(me),
        }
    }

    #[cold]
    fn wait(&self, me: u32) -> Result<Held<'_>, Errno> {
        let word = self.words.holder();
        let mut attempts = Attempts::lasting(HELD_BRIEFLY);
        loop {
            if word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok(Held { word, orphaned: false });
            }
            if !attempts.go_on() {
                break;
            }
        }
        loop {
            // There may be other sleepers, so a thread that takes the lock after sleeping keeps the flag set.
            let seen = word.load(Ordering::Relaxed);
            let then = if seen == 0 { me | WAITERS } else { seen | WAITERS };
            if seen != then
                && word.compare_exchange(seen, then, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            if seen == 0 {
                return Ok(Held { word, orphaned: false });
            }
            futex::wait(word, then, Some(GLANCE)).map_err(|error| errno_of(&error))?;
            let holder = then & !WAITERS;
            if word.load(Ordering::Relaxed) == then
                && holder != me
                && !record_lock::is_claimed(&self.file, holder.into())?
                && word
                    .compare_exchange(then, me | WAITERS, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Ok(Held { word, orphaned: true });
            }
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.word.swap(0, Ordering::Release) & WAITERS != 0 {
            // A sleeper that is not woken checks again by itself later.
            let _ = futex::wake(self.word);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, mpsc};

    use crossway_sys::shm::{self, Mapping};

    use super::*;
    use crate::receiver::Receiver;
    use crate::shared_rx::ReceiverWords;

    /// The environment variable that passes the path of the memory's file to this program when it runs as another
    /// holder.
    const VARIABLE: &str = "CROSSWAY_TEST_LOCK";
    const WATCHDOG: Duration = Duration::from_secs(30);
    /// A pause that is long enough for a waiting thread to check several times whether the holder is alive.
    const WHILE: Duration = Duration::from_millis(40);
    /// The value that the holder writes before it releases the lock.
    const DONE: u32 = 7;

    type Lock = ProcessLock<Receiver>;

    fn lock(file: OwnedFd) -> Arc<Lock> {
        let mapping = Arc::new(Mapping::new(&file, shm::page_len()).unwrap());
        Arc::new(Lock::join(Receiver::at(mapping, 0), file).unwrap())
    }

    fn new_lock() -> Arc<Lock> {
        lock(shm::create_sealed("crossway-test", shm::page_len()).unwrap())
    }

    /// Starts another process that holds the lock, and releases it when it reads a line.
    fn holder(of: &Lock) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "process_lock::tests::as_another_process_this_one_holds",
                "--exact",
                "--nocapture",
            ])
            .env(VARIABLE, format!("/proc/{}/fd/{}", std::process::id(), of.file.as_raw_fd()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.ends_with("holds")), "it ended");
        child
    }

    #[test]
    fn as_another_process_this_one_holds() {
        let Ok(path) = std::env::var(VARIABLE) else { return };
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let lock = lock(file.into());
        let held = lock.hold().unwrap();
        println!("holds");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        lock.words().bell().store(DONE, Ordering::Relaxed);
        drop(held);
    }

    /// Starts a thread that waits for the lock and reports whether the holder had died, and what the last holder had
    /// written.
    fn waiter(lock: &Arc<Lock>) -> mpsc::Receiver<(bool, u32)> {
        let (lock, (told, outcome)) = (lock.clone(), mpsc::channel());
        std::thread::spawn(move || {
            let held = lock.hold().unwrap();
            told.send((held.orphaned, lock.words().bell().load(Ordering::Relaxed))).unwrap();
        });
        outcome
    }

    #[test]
    fn the_lock_of_a_killed_holder_is_taken_over_and_reported_once() {
        let lock = new_lock();
        let mut child = holder(&lock);
        let waiting = waiter(&lock);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(waiting.recv_timeout(WATCHDOG), Ok((true, 0)));
        assert_eq!(waiter(&lock).recv_timeout(WATCHDOG), Ok((false, 0)));
    }

    #[test]
    fn a_holder_that_lives_is_waited_for_in_whichever_process_it_is() {
        let lock = new_lock();
        let mut child = holder(&lock);
        let waiting = waiter(&lock);
        std::thread::sleep(WHILE);
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(waiting.recv_timeout(WATCHDOG), Ok((false, DONE)));
        assert!(child.wait().unwrap().success());

        lock.words().bell().store(0, Ordering::Relaxed);
        let held = lock.hold().unwrap();
        let waiting = waiter(&lock);
        std::thread::sleep(WHILE);
        lock.words().bell().store(DONE, Ordering::Relaxed);
        drop(held);
        assert_eq!(waiting.recv_timeout(WATCHDOG), Ok((false, DONE)));
    }
}
