//! Controls how the process's allocator treats freed memory, ends a program that a limit denies
//! memory with one error, and lets calls write into the spare capacity of a vector.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::mem::MaybeUninit;

use rustix::io::Errno;

/// Calls `read` with at most `most` bytes of a vector's spare capacity, and extends the vector by the number of bytes
/// that `read` reports to have written there.
#[inline]
pub(crate) fn append(
    buf: &mut Vec<u8>,
    most: usize,
    read: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let room = buf.spare_capacity_mut();
    let most = most.min(room.len());
    let got = read(&mut room[..most])?;
    assert!(got <= most, "a call wrote {got} bytes into room for {most}");
    // SAFETY: the callers are this crate's, and return how many bytes the kernel has written to the start of the room.
    unsafe { buf.set_len(buf.len() + got) };
    Ok(got)
}

/// Makes the allocator keep up to `bytes` of freed memory at the end of its heap, and grow the heap by `step` bytes at
/// a time. By default glibc returns whatever exceeds 128 KiB to the kernel. A process that repeatedly allocates and
/// frees buffers of 64 KiB then makes the kernel clear their pages again and again. Does nothing with another C
/// library.
pub fn keep_freed(bytes: u32, step: u32) {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_TRIM_THRESHOLD, bytes), (libc::M_TOP_PAD, step)] {
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        // SAFETY: the call changes two numbers of the allocator, under its own lock. It accepts every non-negative
        // value.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (bytes, step);
}

/// The system's allocator, for `#[global_allocator]` of a program. Where a limit of this process
/// (RLIMIT_DATA, RLIMIT_AS) denies it memory, it ends the process with one line that names the
/// limit. Without it, the program would abort.
#[derive(Debug)]
pub struct LimitedHeap {
    /// The name that begins the line.
    pub program: &'static str,
    /// The exit status.
    pub status: u8,
}

impl LimitedHeap {
    /// Returns what was allocated, unless that is nothing because of a limit.
    #[inline]
    fn checked(&self, memory: *mut u8, bytes: usize) -> *mut u8 {
        if memory.is_null() {
            self.end_if_limited(bytes);
        }
        memory
    }

    #[cold]
    fn end_if_limited(&self, bytes: usize) {
        let limits = [
            (libc::RLIMIT_DATA, "of data (RLIMIT_DATA)", "ulimit -d"),
            (libc::RLIMIT_AS, "of addresses (RLIMIT_AS)", "ulimit -v"),
        ];
        for (resource, of_what, command) in limits {
            let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
            // SAFETY: writes the limit only; if it fails, none is known.
            unsafe { libc::getrlimit(resource, &mut limit) };
            if limit.rlim_cur == libc::RLIM_INFINITY {
                continue;
            }
            // There is no memory for a text.
            let mut line = [0; 256];
            let mut rest = &mut line[..];
            let _ = writeln!(
                rest,
                "{}: {bytes} more bytes of memory exceed the limit {of_what}, {} KiB; raise it: {command} unlimited",
                self.program,
                limit.rlim_cur >> 10
            );
            let left = rest.len();
            let said = &line[..line.len() - left];
            // SAFETY: writes initialised bytes, and ends the process, without handlers that could
            // need memory.
            unsafe {
                libc::write(libc::STDERR_FILENO, said.as_ptr().cast(), said.len());
                libc::_exit(self.status.into());
            }
        }
    }
}

// SAFETY: all calls go to the system's allocator, whose results are returned unchanged.
unsafe impl GlobalAlloc for LimitedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method.
        self.checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method.
        self.checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method.
        self.checked(unsafe { System.realloc(memory, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of this method.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Minor page faults of this thread.
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn buffers_that_are_freed_and_taken_again_keep_their_pages() {
        keep_freed(16 << 20, 1 << 20);
        let rounds = |count: usize| {
            for n in 0..count {
                let buffers: [Vec<u8>; 8] = std::array::from_fn(|_| vec![n as u8 | 1; 100_000]);
                std::hint::black_box(&buffers);
            }
        };
        rounds(3);
        let before = page_faults();
        rounds(100);
        let faults = page_faults() - before;
        assert!(faults < 200, "{faults} faults for 800 buffers of 25 pages each");
    }
}
