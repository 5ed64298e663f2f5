//! Limits of one node's programs, and what happens when they are exceeded.

use std::time::Duration;

use crossway_tipc_client::protocol::lane::LaneMemory;
use crossway_tipc_client::protocol::slot;

/// Limits of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Maximum number of programs. Further ones are refused, with the reason.
    pub clients: usize,
    /// Maximum number per user, except root and the user who runs the node.
    pub clients_per_user: usize,
    /// Maximum number of connections per process, which needs only one.
    pub clients_per_process: usize,
    /// Connections reserved for root and the user who runs the node: their orders are accepted even when no other program is admitted.
    pub operators: usize,
    /// Maximum number of sockets per program. Further ones are refused (EMFILE), as are connection requests to such a program.
    pub sockets_per_client: usize,
    /// Receive queue limit of a socket in bytes for messages of low importance; medium, high and critical may fill 2, 4 and 8 times as much. Beyond
    /// it, messages are returned with the overload error, and connections are throttled. A program may request less or up to this limit.
    pub receive_bytes: usize,
    /// How long data sent before a close or shutdown is kept while its receiver accepts none of it. The kernel never discards such data, so this is
    /// long; it limits what is kept for receivers that hang.
    pub linger: Duration,
    /// Number of messages after which a socket should request lanes; 0 for never.
    pub lane_after: u32,
    /// Maximum number of sockets with lanes. Further ones work without.
    pub lanes: usize,
    /// Size of each of the two rings of a socket with lanes in bytes, rounded up to what the longest message needs.
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
    /// Size requested for the ring of a direct lane: both ends work at the same time on messages of the largest size only if it holds some of them.
    pub(crate) const fn direct_bytes(&self) -> usize {
        4 * self.lane_bytes
    }

    /// Size of the largest file that the service creates, which is memory shared with a program, in bytes.
    pub(crate) fn largest_file_bytes(&self) -> usize {
        let slots = 8 * slot::WORDS * self.sockets_per_client;
        let lanes = if self.lanes == 0 || self.lane_after == 0 {
            0
        } else {
            let bytes = if self.direct { self.direct_bytes() } else { self.lane_bytes };
            LaneMemory::dimensions(bytes).memory_len()
        };
        slots.max(lanes)
    }
}

/// Maximum number of connection requests of one listener passed to its program and not yet accepted or refused. Further ones wait in the node.
pub(super) const OFFERS_MAX: usize = 8;

/// Maximum number of bytes taken from the node for one socket at a time.
pub(super) const OUT_BYTES: usize = 128 << 10;

/// Maximum number of bytes read from a stream at a time, and so processed in a turn: more than a program usually writes, so that everything it has
/// written is sent in the same call, wakes the other end once and is acknowledged once.
pub(super) const STREAM_READ_BYTES: usize = 128 << 10;

/// Assumed length of a program's messages until some have been read, in bytes.
pub(super) const MEAN_AT_FIRST: usize = 32 << 10;

/// Approximate size of a batch of messages in bytes. Messages in it that cannot be sent on wait in the node, whatever the window, and a program that
/// continues to send while a batch is read makes it larger than a descriptor.
pub(super) const BATCH_BYTES: usize = 256 << 10;

/// Maximum number of full batches read from a descriptor before others get their turn and the messages are sent: small messages share packets, and
/// large ones never fill a batch, because the descriptor holds too few of them.
pub(super) const BATCHES_PER_TURN: usize = 4;

/// Maximum number of messages taken from a lane in a turn: as many as from a descriptor.
pub(super) const MESSAGES_PER_TURN: usize = BATCHES_PER_TURN * crossway_sys::records::MOST;

/// Maximum number of turns when everything in a descriptor must be read, as before a request about its socket is answered. A descriptor holds less
/// than that.
pub(super) const TURNS_AT_ONCE: usize = 64;
