//! Controls how the process's allocator treats freed memory, and lets calls write into the spare capacity of a vector.

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
