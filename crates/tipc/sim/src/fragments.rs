//! Simulates a medium that, like IP, sends large frames as fragments, which the receiving host reassembles in limited
//! memory.

use core::time::Duration;
use std::collections::VecDeque;

use crossway_tipc_proto::time::Nanos;

/// How frames are divided into fragments, and how long and in how much memory hosts store the fragments of incomplete
/// frames.
#[derive(Clone, Copy, Debug)]
pub struct Fragmentation {
    /// Size of the largest frame that is carried whole, which is also the size of the largest fragment, in bytes.
    pub whole_max: usize,
    /// Size of each host's memory for the fragments of incomplete frames, in bytes. While this memory is full, all
    /// fragments are dropped. If it is 0, no fragments ever arrive.
    pub memory_bytes: usize,
    /// Memory that a fragment occupies, in bytes.
    pub fragment_bytes: usize,
    /// How long a host stores the fragments of an incomplete frame.
    pub kept: Duration,
}

impl Fragmentation {
    /// Linux's defaults, for devices with an MTU of 1,500 bytes.
    pub const LINUX: Self = Self {
        whole_max: 1_472,
        memory_bytes: 4 << 20,
        fragment_bytes: 2_304,
        kept: Duration::from_secs(30),
    };
}

/// The reassembly memory of a host.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// For each incomplete frame, the time when its fragments are dropped, and the number of bytes that they occupy.
    incomplete: VecDeque<(Nanos, usize)>,
    occupied: usize,
}

impl Memory {
    /// Returns whether a frame of this number of fragments arrives completely; some of them may have been lost.
    pub(crate) fn reassemble(
        &mut self,
        now: Nanos,
        rules: &Fragmentation,
        fragments: usize,
        lost: usize,
    ) -> bool {
        while let Some(&(until, bytes)) = self.incomplete.front()
            && until <= now
        {
            self.incomplete.pop_front();
            self.occupied -= bytes;
        }
        if self.occupied >= rules.memory_bytes || lost == fragments {
            return false;
        }
        if lost > 0 {
            let bytes = (fragments - lost) * rules.fragment_bytes;
            self.incomplete.push_back((now + rules.kept, bytes));
            self.occupied += bytes;
        }
        lost == 0
    }
}
