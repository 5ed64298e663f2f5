//! How the process's allocator treats memory that was freed, and how calls write behind what a vector has.

use std::mem::MaybeUninit;

use rustix::io::Errno;

/// Has `read` write into at most `most` bytes of the room behind a vector's contents, and adds as many as it says to them.
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

/// Has the allocator keep up to so many octets that were freed at the end of its heap, and take from the kernel as much at a time as
/// `step` says. By default glibc gives back whatever exceeds 128 KiB, so that a process that takes and frees buffers of half that size has
/// the kernel clear their pages again and again. Does nothing with another C library.
pub fn keep_freed(octets: u32, step: u32) {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_TRIM_THRESHOLD, octets), (libc::M_TOP_PAD, step)] {
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        // SAFETY: the call changes two numbers of the allocator's, under its own lock. It refuses nothing that is not negative.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (octets, step);
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Of this thread.
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
