//! What the programs in the kernel add to a call, measured with a pipe.

use std::io::{self, Read, Write};
use std::time::Instant;

/// Pairs of calls in a batch: about a millisecond.
const PAIRS: u32 = 1000;
/// Batches, of which the fastest counts: the one that the machine disturbed least.
const BATCHES: usize = 15;

/// Nanoseconds that are added to each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Of an observed thread, a call that moves bytes.
    pub observed_ns: u64,
    /// Of any other thread on the machine, any call, as long as the recording lasts.
    pub others_ns: u64,
}

impl Cost {
    /// How it was measured, for the head of a recording.
    pub fn note(self) -> String {
        format!(
            "measured just before the recording with writes and reads of 64 bytes on a pipe within one thread; system \
             calls of all other processes take {} ns longer while it is recorded",
            self.others_ns
        )
    }
}

/// Time of a write or a read of 64 bytes on a pipe that never blocks, nanoseconds.
pub(super) fn pipe_call_ns() -> io::Result<u64> {
    let (mut reader, mut writer) = io::pipe()?;
    let mut bytes = [0_u8; 64];
    let mut fastest = u64::MAX;
    for _ in 0..BATCHES {
        let began = Instant::now();
        for _ in 0..PAIRS {
            writer.write_all(&bytes)?;
            reader.read_exact(&mut bytes)?;
        }
        let each = began.elapsed().as_nanos() / u128::from(2 * PAIRS);
        fastest = fastest.min(u64::try_from(each).unwrap_or(u64::MAX));
    }
    Ok(fastest)
}
