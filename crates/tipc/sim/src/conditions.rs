//! How hostile the network is.

use core::time::Duration;

use crate::HostId;

/// What happens to frames, drawn at random for each frame and receiver.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Frames lost, in per mille.
    pub loss_per_mille: u32,
    /// Frames that arrive twice, in per mille.
    pub duplicate_per_mille: u32,
    /// Shortest time that a frame takes.
    pub delay_min: Duration,
    /// Maximum delay; frames can overtake each other if it differs from the minimum.
    pub delay_max: Duration,
    /// Group of each host; only hosts of the same group can communicate, and hosts beyond the list
    /// are in group 0. Empty means no partition.
    pub groups: Vec<u8>,
    /// Paths that carry no frames: the plane and the two hosts, in both directions.
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
    /// Whether the two hosts are in different partitions or the path between them on this plane is
    /// dead.
    pub(crate) fn is_cut(&self, plane: usize, a: HostId, b: HostId) -> bool {
        let group = |host: HostId| self.groups.get(host.0).copied().unwrap_or(0);
        let dead = |&(on, x, y): &(usize, HostId, HostId)| {
            on == plane && ((x, y) == (a, b) || (y, x) == (a, b))
        };
        group(a) != group(b) || self.dead_paths.iter().any(dead)
    }
}
