//! Measures the throughput of one copy and of two copies between two cores when the payload is really written and read.
//!
//! The sender copies messages from a working set larger than its private caches into a ring; the receiver adds up every
//! word of them, in the ring (one copy) or after copying them out (two copies). The sum is checked. Messages are
//! published whole, small ones several at a time, as a streaming ring would do.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Apart, Patience, on_two_cpus};
use crate::OsError;
use crate::clock::monotonic_ns;

/// How many times the payload is copied on its way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// One copy: into the ring, where the receiver reads the payload.
    One,
    /// Two copies: into the ring and out of it; the receiver reads its own copy.
    Two,
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug)]
pub struct CopyPlan {
    /// How many times the payload is copied.
    pub copies: Copies,
    /// Size of a message in bytes: at least 64, rounded down to a multiple of 64.
    pub message_bytes: usize,
    /// Capacity of the ring in bytes: rounded down to whole messages, at least two.
    pub ring_bytes: usize,
    /// Messages are published when this many bytes are ready: at least one message, at most half of the ring.
    pub hand_over_bytes: usize,
    /// Size in bytes of the memory that the sender sends from; it should be larger than its private caches.
    pub working_set_bytes: usize,
    /// Number of messages after the warm-up, which has a tenth as many.
    pub messages: usize,
}

/// Memory aligned to pages. Each page is written to, so that it is resident before the clock starts.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: Pages is plain memory; the ring's protocol defines who may touch which part when.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(bytes: usize) -> Pages {
        let layout =
            Layout::from_size_align(bytes.max(1), 4096).expect("sizes are far below isize::MAX");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        for page in (0..bytes).step_by(4096) {
            // SAFETY: inside the allocation. Written to, because zeroed pages may not be allocated before.
            unsafe { start.as_ptr().add(page).write_volatile(1) };
        }
        Pages { start, layout }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

struct Ring {
    written: Apart<AtomicU64>,
    read: Apart<AtomicU64>,
    slots: u64,
    message_bytes: usize,
    memory: Pages,
}

impl Ring {
    fn slot(&self, message: u64) -> *mut u8 {
        let at = (message % self.slots) as usize * self.message_bytes;
        // SAFETY: `at` is one of `slots` messages of the allocation.
        unsafe { self.memory.start.as_ptr().add(at) }
    }
}

/// Adds up the 64-bit words of memory whose size is a multiple of 64 bytes.
#[inline(always)]
fn add_up(words: &[[u64; 8]]) -> u64 {
    let mut sums = [0u64; 8];
    for line in words {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_up_avx2(words: &[[u64; 8]]) -> u64 {
    add_up(words)
}

/// Returns the variant of [`add_up`] that uses the widest available registers: the limit should be that of the machine,
/// not of the compiler's baseline.
fn adder() -> fn(&[[u64; 8]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return |words| unsafe { add_up_avx2(words) };
    }
    |words| add_up(words)
}

/// The 64-byte lines that start at `start`.
///
/// # Safety
/// `start` is aligned to 8, `bytes` is a multiple of 64, and this memory is readable and not written while the slice
/// lives.
unsafe fn lines<'a>(start: *const u8, bytes: usize) -> &'a [[u64; 8]] {
    // SAFETY: guaranteed by the caller; every bit pattern is a u64.
    unsafe { std::slice::from_raw_parts(start.cast(), bytes / 64) }
}

/// The duration of a run, measured by the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyTime {
    /// Time from the end of the warm-up until the last message was read, nanoseconds.
    pub wall_ns: u64,
    /// Number of messages received in that time.
    pub messages: u64,
}

/// Runs the plan once.
///
/// # Errors
/// A CPU cannot be used, something else occupied one of them for seconds, or the payload was corrupted.
#[inline(never)]
pub fn copy_run(cpus: (u32, u32), plan: &CopyPlan) -> Result<CopyTime, OsError> {
    let size = plan.message_bytes.max(64) / 64 * 64;
    let slots = (plan.ring_bytes / size).max(2) as u64;
    let ring = Ring {
        written: Apart::default(),
        read: Apart::default(),
        slots,
        message_bytes: size,
        memory: Pages::new(slots as usize * size),
    };
    let sources = (plan.working_set_bytes / size).max(1);
    let mut working_set = vec![[0u64; 8]; sources * size / 64];
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    for line in &mut working_set {
        for w in line {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *w = word;
        }
    }
    let sums: Vec<u64> = working_set.chunks_exact(size / 64).map(add_up).collect();
    let warm_up = (plan.messages / 10) as u64;
    let total = warm_up + plan.messages as u64;
    let expected = (0..total).fold(0u64, |s, m| s.wrapping_add(sums[m as usize % sources]));
    // At most half of the ring, otherwise the two sides would take turns instead of working at the same time.
    let batch = (plan.hand_over_bytes / size).clamp(1, (slots as usize / 2).max(1)) as u64;

    let send = |patience: &Patience| {
        let from = working_set.as_ptr().cast::<u8>();
        let mut source = 0;
        let mut free_until = slots;
        for message in 0..total {
            if message == free_until {
                ring.written.0.store(message, Ordering::Release);
                let mut read = 0;
                if !patience.spin_until(|| {
                    read = ring.read.0.load(Ordering::Acquire);
                    read + slots > message
                }) {
                    return None;
                }
                free_until = read + slots;
            }
            // SAFETY: `source` is one of `sources` messages of the working set; the slot is free until it is
            // published, and the two do not overlap.
            unsafe { copy(from.add(source * size), ring.slot(message), size) };
            source += 1;
            if source == sources {
                source = 0;
            }
            if (message + 1) % batch == 0 {
                ring.written.0.store(message + 1, Ordering::Release);
            }
        }
        ring.written.0.store(total, Ordering::Release);
        Some(())
    };
    let receive = |patience: &Patience| {
        let add_up = adder();
        let mut own = vec![[0u64; 8]; size / 64];
        let (mut sum, mut message, mut start) = (0u64, 0u64, monotonic_ns());
        let mut warmed_at = None;
        while message < total {
            let mut written = 0;
            if !patience.spin_until(|| {
                written = ring.written.0.load(Ordering::Acquire);
                written > message
            }) {
                return None;
            }
            while message < written {
                // SAFETY: the message was published and is not overwritten until `read` passes it.
                let shared = unsafe { lines(ring.slot(message), size) };
                sum = sum.wrapping_add(match plan.copies {
                    Copies::One => add_up(shared),
                    Copies::Two => {
                        // SAFETY: both are `size` bytes, and `own` is not shared.
                        unsafe { copy(shared.as_ptr().cast(), own.as_mut_ptr().cast(), size) };
                        add_up(std::hint::black_box(&own))
                    }
                });
                message += 1;
                if message.is_multiple_of(batch) {
                    ring.read.0.store(message, Ordering::Release);
                }
            }
            ring.read.0.store(message, Ordering::Release);
            if warmed_at.is_none() && message >= warm_up && message < total {
                warmed_at = Some(message);
                start = monotonic_ns();
            }
        }
        let time = CopyTime {
            wall_ns: (monotonic_ns() - start).max(1),
            messages: total - warmed_at.unwrap_or(0),
        };
        Some((time, sum))
    };
    let ((), (time, sum)) = on_two_cpus(cpus, send, receive)?;
    if sum != expected {
        let why = std::io::Error::other("the receiver's checksum differs from the sender's");
        return Err(OsError::new(
            "copy between",
            format!("cpu {} and cpu {}", cpus.0, cpus.1),
            why,
        ));
    }
    Ok(time)
}

/// Copies `bytes` bytes; if these are 64, 128 or 256, without a function call.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match bytes {
            64 => std::ptr::copy_nonoverlapping(from, to, 64),
            128 => std::ptr::copy_nonoverlapping(from, to, 128),
            256 => std::ptr::copy_nonoverlapping(from, to, 256),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every run compares the receiver's sum with the sender's: a lost, duplicated or torn message is an error.
    #[test]
    fn every_byte_arrives_once_for_all_layouts() {
        let allowed = crate::affinity::allowed().expect("affinity");
        let [a, b, ..] = allowed[..] else {
            eprintln!(
                "SKIP copies: one CPU only; widen the affinity, or use a machine with more CPUs"
            );
            return;
        };
        for copies in [Copies::One, Copies::Two] {
            for (message_bytes, ring_bytes, hand_over_bytes) in [
                (64, 4096, 64),
                (64, 4096, 1024),
                (64, 128, 4096),
                (448, 4096, 1000),
                (65536, 65536, 0),
            ] {
                let plan = CopyPlan {
                    copies,
                    message_bytes,
                    ring_bytes,
                    hand_over_bytes,
                    working_set_bytes: 1 << 18,
                    messages: 999,
                };
                let time = copy_run((a, b), &plan).expect("the sums agree");
                assert!(
                    time.wall_ns > 0 && (1..=1098).contains(&time.messages),
                    "{plan:?} {time:?}"
                );
            }
        }
    }

    #[test]
    fn both_adders_agree() {
        let lines: Vec<[u64; 8]> =
            (0..100u64).map(|i| [i.wrapping_mul(0xdead_beef_cafe_f00d); 8]).collect();
        assert_eq!(adder()(&lines), add_up(&lines));
        assert_eq!(add_up(&[]), 0);
    }
}
