//! io_uring: one request at a time, on buffers that are borrowed for as long as the kernel may touch them.
//!
//! A [`Ring`] never returns while its request is in flight: at a deadline the request is cancelled and its completion
//! awaited. So the buffer belongs to the caller again when the call returns, whatever the result, and the ring keeps no
//! descriptor open.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

use crate::OsError;
use crate::fallback::{Newer, does_without};
use crate::kernel;
use crate::pages::Pages;
use crate::patience::Patience;
use crate::spin;

/// Number of entries in the submission queue: enough for one request and its cancellation.
const ENTRIES: u32 = 4;

/// The user data of requests; cancellations have a different value.
const REQUEST: u64 = 1;
const CANCELLATION: u64 = 2;

/// How long the completion queue is polled between two reads of the clock.
const CLOCK_EVERY: Duration = Duration::from_nanos(1600);

/// How long the kernel may take to release the memory of rings that were closed, which it counts
/// against the limit of locked memory until then.
const RELEASE: Duration = Duration::from_millis(100);

/// How to wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleep in `io_uring_enter`: one system call submits and waits.
    Asleep(Patience),
    /// Poll the completion queue in a loop: one system call submits, none waits.
    Awake(Patience),
    /// Poll for this long, then sleep: one more system call waits.
    AwakeFirst(Duration, Patience),
}

impl Waiting {
    fn patience(self) -> Patience {
        match self {
            Waiting::Asleep(patience)
            | Waiting::Awake(patience)
            | Waiting::AwakeFirst(_, patience) => patience,
        }
    }
}

/// A submission and a completion queue, for one request at a time.
pub struct Ring {
    ring: IoUring,
    /// Whether the kernel has failed to accept a request. That request is then still in the submission queue, with its
    /// buffer's address, so nothing more is submitted.
    broken: bool,
    /// Whether RWF_NOWAIT is used for requests that must not wait; cleared once a file does not support it.
    nowait: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("fd", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a ring. Waits a moment if there is no memory, until that of closed rings is released.
    /// Errors: `EPERM` when `kernel.io_uring_disabled` or a seccomp filter forbids it, `ENOSYS` when
    /// the kernel does not support io_uring.
    pub fn new() -> Result<Self, OsError> {
        let ring = set_up(|| IoUring::new(ENTRIES))?;
        Ok(Ring { ring, broken: false, nowait: !does_without(Newer::PipeNowait) })
    }

    /// Reads from a pipe or file; returns the number of bytes, 0 at the end, or `None` when nothing arrived in time.
    ///
    /// A pipe should be O_NONBLOCK; this flag does not make requests end early. Without it, kernels before Linux 6.4 do
    /// not try the read themselves but hand it to a worker thread, so that a read that may not wait misses available
    /// data.
    #[inline]
    pub fn read(
        &mut self,
        fd: impl AsFd,
        buf: &mut [u8],
        waiting: Waiting,
    ) -> Result<Option<usize>, Errno> {
        let fd = fd.as_fd();
        self.perform_on_file(waiting, |flags| {
            opcode::Read::new(Fd(fd.as_raw_fd()), buf.as_mut_ptr(), most(buf.len()))
                .offset(u64::MAX)
                .rw_flags(flags)
                .build()
        })
    }

    /// Writes part or all of the bytes to a pipe or file; returns the number of bytes, or `None` when there was no room
    /// in time. A pipe should be O_NONBLOCK, as for [`Ring::read`].
    #[inline]
    pub fn write(
        &mut self,
        fd: impl AsFd,
        bytes: &[u8],
        waiting: Waiting,
    ) -> Result<Option<usize>, Errno> {
        let fd = fd.as_fd();
        self.perform_on_file(waiting, |flags| {
            opcode::Write::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), most(bytes.len()))
                .offset(u64::MAX)
                .rw_flags(flags)
                .build()
        })
    }

    /// Receives from a stream socket until `buf` is full (MSG_WAITALL) or the time limit has passed; returns the number
    /// of bytes, 0 at the end, or `None` when nothing arrived in time.
    #[inline]
    pub fn recv(
        &mut self,
        socket: impl AsFd,
        buf: &mut [u8],
        waiting: Waiting,
    ) -> Result<Option<usize>, Errno> {
        let fd = socket.as_fd();
        self.perform(waiting, |at_once| {
            opcode::Recv::new(Fd(fd.as_raw_fd()), buf.as_mut_ptr(), most(buf.len()))
                .flags(if at_once { libc::MSG_DONTWAIT } else { libc::MSG_WAITALL })
                .build()
        })
    }

    /// Sends on a stream socket until all of `bytes` is accepted (MSG_WAITALL) or the time limit has passed; returns
    /// the number of bytes sent, or `None` when there was no room in time. Never raises SIGPIPE.
    #[inline]
    pub fn send(
        &mut self,
        socket: impl AsFd,
        bytes: &[u8],
        waiting: Waiting,
    ) -> Result<Option<usize>, Errno> {
        let fd = socket.as_fd();
        self.perform(waiting, |at_once| {
            let wait = if at_once { libc::MSG_DONTWAIT } else { libc::MSG_WAITALL };
            opcode::Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), most(bytes.len()))
                .flags(wait | libc::MSG_NOSIGNAL)
                .build()
        })
    }

    /// Registers the memory from which [`Ring::write_registered`] writes. Errors: `ENOMEM` if that is more than may be
    /// locked.
    pub(crate) fn register(&self, memory: &Pages) -> Result<(), OsError> {
        let start = memory.address() as *mut libc::c_void;
        let range = [libc::iovec { iov_base: start, iov_len: memory.len() }];
        // SAFETY: the memory is mapped, and the kernel holds its pages until the ring is closed, even if it is unmapped
        // before.
        when_released(|| unsafe { self.ring.submitter().register_buffers(&range) }).map_err(|e| {
            OsError::new("io_uring_register", format!("{} bytes of memory", memory.len()), e)
        })
    }

    /// Writes the first `len` bytes of the registered memory, as [`Ring::write`] does.
    #[inline]
    pub(crate) fn write_registered(
        &mut self,
        fd: impl AsFd,
        memory: &Pages,
        len: usize,
        waiting: Waiting,
    ) -> Result<Option<usize>, Errno> {
        let bytes = memory.bytes(0..len);
        let fd = fd.as_fd();
        self.perform_on_file(waiting, |flags| {
            opcode::WriteFixed::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), most(len), 0)
                .offset(u64::MAX)
                .rw_flags(flags)
                .build()
        })
    }

    /// Performs a request on a file, which can carry flags (`RWF_*`); otherwise as [`Ring::perform`].
    #[inline]
    fn perform_on_file(
        &mut self,
        waiting: Waiting,
        mut build: impl FnMut(libc::c_int) -> Entry,
    ) -> Result<Option<usize>, Errno> {
        if waiting.patience() == Patience::Now {
            if self.nowait {
                match self.perform(waiting, |_| build(libc::RWF_NOWAIT)) {
                    Err(Errno::OPNOTSUPP) => self.nowait = false,
                    done => return done,
                }
            }
            // The kernel tries once, in the call that submits; then the request is cancelled.
            let over = Waiting::Asleep(Patience::Until(Instant::now()));
            return self.perform(over, |_| build(0));
        }
        self.perform(waiting, |_| build(0))
    }

    /// Performs the request that `build` creates. The argument of `build` says whether the request must not wait. The
    /// request may point to memory that the caller keeps valid during this call.
    #[inline]
    fn perform(
        &mut self,
        waiting: Waiting,
        mut build: impl FnMut(bool) -> Entry,
    ) -> Result<Option<usize>, Errno> {
        loop {
            let at_once = waiting.patience() == Patience::Now;
            match self.complete(build(at_once), waiting) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::AGAIN) if at_once => return Ok(None),
                Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {
                    if waiting.patience().is_over() {
                        return Ok(None);
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Submits one request and returns when it is complete, or cancelled because the time limit has passed.
    #[inline]
    fn complete(&mut self, request: Entry, waiting: Waiting) -> Result<usize, Errno> {
        if self.broken {
            return Err(Errno::BADFD);
        }
        // SAFETY: what the request points to is held by our caller until we return, and from here on we return only
        // after its completion, or marked as broken, when the kernel has not taken it and never will: there is no
        // other way out of this function, and nothing in it unwinds.
        let pushed = unsafe { self.ring.submission().push(&request.user_data(REQUEST)) };
        if pushed.is_err() {
            // Cannot happen: the queue is empty between calls.
            return Err(Errno::BUSY);
        }
        let patience = waiting.patience();
        let awake_until = match waiting {
            Waiting::AwakeFirst(budget, _) => Some(Instant::now() + budget),
            _ => None,
        };
        let mut awake = !matches!(waiting, Waiting::Asleep(_));
        let mut cancelled = false;
        let looks = spin::hints_in(CLOCK_EVERY);
        let mut left = looks;
        self.enter(
            usize::from(!awake),
            patience.left().filter(|_| !awake && patience != Patience::Now),
        )?;
        loop {
            if let Some(result) = self.reap() {
                return result;
            }
            left = left.saturating_sub(1);
            if awake && left > 0 {
                spin::hint();
                continue;
            }
            left = looks;
            // A request that must not wait ends by itself.
            if !cancelled && patience != Patience::Now && patience.is_over() {
                let cancel = opcode::AsyncCancel::new(REQUEST).build().user_data(CANCELLATION);
                // SAFETY: a cancellation points to nothing. The queue has room: the request was taken out of it.
                cancelled = unsafe { self.ring.submission().push(&cancel) }.is_ok();
                // The completion comes soon; sleep until then.
                awake = false;
            }
            if awake_until.is_some_and(|until| Instant::now() >= until) {
                awake = false;
            }
            if !awake {
                let limit = patience.left().filter(|_| !cancelled && patience != Patience::Now);
                self.enter(1, limit)?;
            }
        }
    }

    /// Submits the queued entries and waits for `want` completions, no longer than `limit`. After an error, the request
    /// has not been submitted and never will be.
    #[inline]
    fn enter(&mut self, want: usize, limit: Option<Duration>) -> Result<(), Errno> {
        let result = match limit {
            None => self.ring.submit_and_wait(want),
            Some(limit) => {
                let time = Timespec::from(limit);
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
        };
        let Err(error) = result else { return Ok(()) };
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
        match errno {
            // Not a failure; the caller checks for completions and enters again.
            Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY => Ok(()),
            _ if self.ring.submission().is_empty() => {
                // The request is in flight and must be waited for, even when polling.
                std::thread::yield_now();
                Ok(())
            }
            _ => {
                self.broken = true;
                Err(errno)
            }
        }
    }

    /// The request's completion, if it has arrived.
    #[inline]
    fn reap(&mut self) -> Option<Result<usize, Errno>> {
        self.ring
            .completion()
            // The result of a cancellation is ignored: the request's own completion has the outcome.
            .find(|entry: &cqueue::Entry| entry.user_data() == REQUEST)
            .map(|entry| {
                usize::try_from(entry.result())
                    .map_err(|_| Errno::from_raw_os_error(-entry.result()))
            })
    }
}

/// Makes a call that takes locked memory. Waits a moment if there is none, until that of closed rings is released.
pub(crate) fn when_released<T>(call: impl Fn() -> std::io::Result<T>) -> Result<T, std::io::Error> {
    let until = Instant::now() + RELEASE;
    loop {
        match call() {
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// Creates a ring by `build`, for [`Ring::new`], which says more.
pub(crate) fn set_up(build: impl Fn() -> std::io::Result<IoUring>) -> Result<IoUring, OsError> {
    let ring = when_released(build).map_err(|e| OsError::new("io_uring_setup", "", e))?;
    if !ring.params().is_feature_ext_arg() {
        return Err(OsError::new("io_uring_setup", "no IORING_FEAT_EXT_ARG", Errno::NOSYS));
    }
    Ok(ring)
}

/// Caps a length at the maximum of a request; the kernel transfers no more than this at a time anyway.
fn most(len: usize) -> u32 {
    len.min(0x7fff_f000) as u32
}

/// Why io_uring is unavailable and what to do about it, from the error of [`Ring::new`].
pub fn why_missing(error: &OsError) -> (String, &'static str) {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .ok()
        .and_then(|text| text.trim().parse::<u32>().ok())
        .unwrap_or(0);
    match disabled {
        2 => (
            "kernel.io_uring_disabled = 2 disables io_uring for all processes".to_owned(),
            "run as root: sysctl -w kernel.io_uring_disabled=0",
        ),
        1 if error.errno() == libc::EPERM => (
            "kernel.io_uring_disabled = 1 allows io_uring only to members of kernel.io_uring_group and processes with CAP_SYS_ADMIN"
                .to_owned(),
            "run as root: sysctl -w kernel.io_uring_disabled=0, or join the group",
        ),
        _ if error.errno() == libc::ENOSYS && kernel::is_at_least(5, 11) => (
            error.to_string(),
            "this kernel is new enough: use one that was built with CONFIG_IO_URING, or run this outside of the \
             container or sandbox that hides io_uring",
        ),
        _ if error.errno() == libc::ENOSYS => {
            (error.to_string(), "use Linux 5.11 or later with CONFIG_IO_URING")
        }
        _ if matches!(error.errno(), libc::EMFILE | libc::ENFILE) => {
            (error.to_string(), "close descriptors, or raise the limit of open files (ulimit -n)")
        }
        _ if error.errno() == libc::ENOMEM => {
            (error.to_string(), "free memory, or raise the limit of locked memory (ulimit -l)")
        }
        _ => (
            error.to_string(),
            "a seccomp filter forbids io_uring, as in many containers: run this outside of the container, or start the \
             container with --security-opt seccomp=unconfined",
        ),
    }
}

#[cfg(test)]
#[path = "uring_tests.rs"]
mod tests;
