//! The conditions on the simulated network: loss, duplication, delay, partitions and dead paths.

use core::time::Duration;

use crate::HostId;

/// What happens to frames. The network draws it at random for each frame and receiver.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Frames lost, in per mille.
    pub loss_per_mille: u32,
    /// Frames that arrive twice, in per mille.
    pub duplicate_per_mille: u32,
    /// Shortest time that a frame takes.
    pub delay_min: Duration,
    /// Longest time that a frame takes. If it differs from the shortest time, frames can overtake each other.
    pub delay_max: Duration,
    /// Group of each host. Only hosts of the same group can communicate; hosts beyond the end of the list are in group
    /// 0. If the list is empty, there is no partition.
    pub groups: Vec<u8>,
    /// Paths that carry no frames, in either direction: for each, the index of the plane and the two hosts.
    pub dead_paths: Vec<(usize, HostId, HostId)>,
}

impl Default for Conditions {
    /// The conditions of a good local network.
    fn default() -> Self {
        Self {
            loss_per_mille: 0,
            duplicate_per_mille: 0,
            delay_min: Duration::from_micros(50),
            delay_max: Duration::from_micros(50),
            groups: Vec::new(),
            dead_paths: Vec::new(),
        }
    }
}

impl Conditions {
    /// Whether no frame can pass between two hosts on this plane, because they are in different groups or the path
    /// between them is dead.
    pub(crate) fn is_cut(&self, plane: usize, a: HostId, b: HostId) -> bool {
        let group = |host: HostId| self.groups.get(host.0).copied().unwrap_or(0);
        let dead = |&(on, x, y): &(usize, HostId, HostId)| {
            on == plane && ((x, y) == (a, b) || (y, x) == (a, b))
        };
        group(a) != group(b) || self.dead_paths.iter().any(dead)
    }
}
