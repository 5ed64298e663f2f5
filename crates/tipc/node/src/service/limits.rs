//! The limits that a node sets for its programs, and what happens when they are exceeded.

use std::time::Duration;

use crossway_tipc_client::protocol::lane::LaneMemory;
use crossway_tipc_client::protocol::slot;
use crossway_tipc_proto::limits::{BINDINGS_PER_NODE_MAX, SOCKETS_MAX};

/// Limits of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Maximum number of programs. Further ones are refused, with the reason.
    pub clients: usize,
    /// Maximum number of programs per user. It does not apply to root and the user who runs the node.
    pub clients_per_user: usize,
    /// Maximum number of connections per process; a process needs only one.
    pub clients_per_process: usize,
    /// Number of connections reserved for root and the user who runs the node: their orders are accepted even when no
    /// other program is admitted.
    pub operators: usize,
    /// Maximum number of sockets per program. Opening more fails with EMFILE, and connection requests to a program with
    /// that many are refused.
    pub sockets_per_client: usize,
    /// Maximum number of sockets of all programs; further ones are refused by the node.
    pub sockets: usize,
    /// Maximum number of sockets of a user's programs; by default three quarters of those for which the node and this
    /// process have room. It does not apply to root and the user who runs the node, for whom an eighth is reserved.
    pub sockets_per_user: Option<usize>,
    /// Maximum number of bindings of all programs; further ones are refused by the node. An eighth of them is reserved
    /// for root, the user who runs the node, and the node itself.
    pub bindings: usize,
    /// Maximum number of bindings of a user's programs, group memberships included; by default three quarters of all. It
    /// does not apply to root and the user who runs the node.
    pub bindings_per_user: Option<usize>,
    /// Limit of a socket's receive queue in bytes for messages of low importance; messages of medium, high and critical
    /// importance may fill 2, 4 and 8 times as much. If the limit is exceeded, messages are returned with the overload
    /// error, and connections are throttled. A program may set a lower limit.
    pub receive_bytes: usize,
    /// How long data that was sent before a close or shutdown is kept while its receiver accepts none of it. The kernel
    /// never discards such data. This limit should therefore be long; it bounds what is kept for receivers that hang.
    pub linger: Duration,
    /// Number of messages after which a socket should request lanes; 0 for never.
    pub lane_after: u32,
    /// Maximum number of sockets with lanes. Further sockets work without lanes.
    pub lanes: usize,
    /// Size in bytes of each of the two rings of a socket with lanes, rounded up to what the longest message needs.
    pub lane_bytes: usize,
    /// Whether two programs of this node that are connected to each other get direct lanes.
    pub direct: bool,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self {
            clients: 1_024,
            clients_per_user: 768,
            clients_per_process: 16,
            operators: 4,
            sockets_per_client: 4_096,
            sockets: SOCKETS_MAX,
            sockets_per_user: None,
            bindings: BINDINGS_PER_NODE_MAX,
            bindings_per_user: None,
            receive_bytes: 2 << 20,
            linger: Duration::from_secs(600),
            lane_after: 64,
            lanes: 256,
            lane_bytes: 256 << 10,
            direct: true,
        }
    }
}

impl ServiceLimits {
    /// Size in bytes requested for the ring of a direct lane. `write_len` is the length of the sender's writes in
    /// bytes, as far as it is known. The ring must hold many writes, otherwise the two ends wait for each other.
    pub(crate) fn direct_bytes(&self, write_len: usize) -> usize {
        let least = 4 * self.lane_bytes;
        if write_len < LONG_WRITE {
            least
        } else {
            least.max(LONG_RING_MAX.min(16 * self.lane_bytes))
        }
    }

    /// Size in bytes of the largest file that the service creates; its files are the memory that it shares with
    /// programs.
    pub(crate) fn largest_file_bytes(&self) -> usize {
        let slots = 8 * slot::WORDS * self.sockets_per_client;
        let lanes = if self.lanes == 0 || self.lane_after == 0 {
            0
        } else {
            let bytes = if self.direct { self.direct_bytes(usize::MAX) } else { self.lane_bytes };
            LaneMemory::dimensions(bytes).memory_len()
        };
        slots.max(lanes)
    }
}

/// Length in bytes from which a program's writes are long, so that its direct lane gets a larger ring.
const LONG_WRITE: usize = 8 << 10;

/// Maximum size in bytes of the ring of a direct lane for long writes. The ring is larger only if four times the size
/// of a socket's own ring exceeds this limit.
const LONG_RING_MAX: usize = 4 << 20;

/// Maximum number of connection requests to one listening socket that its program has been offered and has not yet
/// accepted or refused. Further ones wait in the node.
pub(super) const OFFERS_MAX: usize = 8;

/// Maximum number of bytes taken from the node for one socket at a time.
pub(super) const OUT_BYTES: usize = 128 << 10;

/// Maximum number of bytes read from a stream at a time, and so processed in a turn. This is more than a program
/// usually writes, so that everything it has written is sent in one call, wakes the other end once and is acknowledged
/// once.
pub(super) const STREAM_READ_BYTES: usize = 128 << 10;

/// Assumed length of a program's messages in bytes before any have been read.
pub(super) const MEAN_AT_FIRST: usize = 32 << 10;

/// Approximate size in bytes of a batch of messages. Messages of a batch that cannot be sent on wait in the service,
/// whatever the size of the send window. If a program continues to send while a batch is read, the batch becomes larger
/// than a descriptor's capacity.
pub(super) const BATCH_BYTES: usize = 256 << 10;

/// Maximum number of full batches read from a descriptor before others get their turn and the messages are sent: small
/// messages share packets, and large ones never fill a batch, because the descriptor holds too few of them.
pub(super) const BATCHES_PER_TURN: usize = 4;

/// Maximum number of messages taken from a lane in a turn, the same as from a descriptor.
pub(super) const MESSAGES_PER_TURN: usize = BATCHES_PER_TURN * crossway_sys::records::MOST;

/// Maximum number of turns when everything in a descriptor must be read, for example before a request about its socket
/// is answered. A descriptor holds less than that many turns can read.
pub(super) const TURNS_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_lane_for_long_writes_is_larger() {
        let bytes = |lane_bytes, write_len| {
            ServiceLimits { lane_bytes, ..ServiceLimits::default() }.direct_bytes(write_len)
        };
        assert_eq!(bytes(256 << 10, 64), 1 << 20);
        assert_eq!(bytes(256 << 10, 64 << 10), 4 << 20);
        assert_eq!(bytes(64 << 10, 64 << 10), 1 << 20);
        assert_eq!(bytes(16 << 20, 64 << 10), 64 << 20);
    }
}
