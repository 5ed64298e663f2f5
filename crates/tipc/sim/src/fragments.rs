//! A medium like IP, which sends large frames as fragments that the receiving host reassembles in limited memory.

use core::time::Duration;
use std::collections::VecDeque;

use crossway_tipc_proto::time::Nanos;

/// How frames are divided, and what hosts keep of incomplete ones.
#[derive(Clone, Copy, Debug)]
pub struct Fragmentation {
    /// Largest frame that is carried whole, and largest fragment, in bytes.
    pub whole_max: usize,
    /// Memory of each host for the fragments of incomplete frames, in bytes. While it is full, every fragment is
    /// dropped; 0 means that every fragment is always dropped.
    pub memory_bytes: usize,
    /// Memory that a fragment occupies, in bytes.
    pub fragment_bytes: usize,
    /// How long the fragments of an incomplete frame are kept.
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
    /// For each incomplete frame, when its fragments are dropped and how many bytes they occupy.
    incomplete: VecDeque<(Nanos, usize)>,
    occupied: usize,
}

impl Memory {
    /// Whether a frame of this many fragments, some of which were lost, is complete.
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
