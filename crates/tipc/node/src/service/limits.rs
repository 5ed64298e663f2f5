//! What one node's programs may take, and what happens beyond it.

use std::time::Duration;

use crossway_tipc_client::protocol::lane::LaneMemory;
use crossway_tipc_client::protocol::slot;

/// Bounds of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Programs. One more is turned away, by a word why.
    pub clients: usize,
    /// Those of one user, unless it is root or runs the node.
    pub clients_per_user: usize,
    /// Connections of one process, which needs one.
    pub clients_per_process: usize,
    /// Places beyond those of programs for root and who runs the node: their orders are taken when nobody else is let in.
    pub operators: usize,
    /// Sockets of one program. One more is refused (EMFILE); a request for a connection to such a program is refused too.
    pub sockets_per_client: usize,
    /// Octets that wait in the node for one socket, for messages of low importance; medium, high and critical may fill 2, 4 and 8 times
    /// as much. Beyond it messages are returned as overload, connections are held back. A program may ask for less or for up to this.
    pub receive_octets: usize,
    /// How long what a program sent before it closed or shut down is kept while its receiver takes none of it. A kernel's sockets lose nothing of it, so
    /// this is long; it bounds what is kept for receivers that hang.
    pub linger: Duration,
    /// Messages that a socket moves before its program asks for lanes; 0 for never.
    pub lane_after: u32,
    /// Sockets that may have lanes at a time. One more goes on without.
    pub lanes: usize,
    /// Octets of each of the two rings of a socket with lanes, rounded up to what the longest message needs.
    pub lane_octets: usize,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self {
            clients: 1_024,
            clients_per_user: 768,
            clients_per_process: 16,
            operators: 4,
            sockets_per_client: 4_096,
            receive_octets: 2 << 20,
            linger: Duration::from_secs(600),
            lane_after: 64,
            lanes: 256,
            lane_octets: 256 << 10,
        }
    }
}

impl ServiceLimits {
    /// Octets of the largest file that the service makes: memory that it shares with a program.
    pub(crate) fn largest_file_octets(&self) -> usize {
        let slots = 8 * slot::WORDS * self.sockets_per_client;
        let lanes = if self.lanes == 0 || self.lane_after == 0 {
            0
        } else {
            LaneMemory::dimensions(self.lane_octets).memory_len()
        };
        slots.max(lanes)
    }
}

/// Connection requests of one listener that are in its program's hands and neither taken nor refused. Further ones wait in the node.
pub(super) const OFFERS_MAX: usize = 8;

/// Octets that are taken out of the node for one socket at a time.
pub(super) const OUT_OCTETS: usize = 128 << 10;

/// Octets read from a stream at a time, and so handed on in a turn: more than a program usually writes, so that what it wrote meanwhile
/// leaves by the same call, wakes the other end once and is acknowledged once.
pub(super) const STREAM_READ_OCTETS: usize = 128 << 10;

/// Octets that a program's messages are taken to have until some were read.
pub(super) const MEAN_AT_FIRST: usize = 32 << 10;

/// Octets of a batch of messages, about. What the way does not take of one waits in the node, whatever the window, and a program that sends on while a batch is read
/// makes it longer than a descriptor.
pub(super) const BATCH_OCTETS: usize = 256 << 10;

/// Full batches of messages that are read from a descriptor before others get their turn and what was read leaves: small messages share
/// packets, and large ones never fill a batch, because the descriptor holds too few of them.
pub(super) const BATCHES_PER_TURN: usize = 4;

/// Messages that are taken out of a lane in a turn: as many as out of a descriptor.
pub(super) const MESSAGES_PER_TURN: usize = BATCHES_PER_TURN * crossway_sys::records::MOST;

/// Turns that are read from a descriptor where all is wanted that it holds, as before a request about its socket is answered. It holds less.
pub(super) const TURNS_AT_ONCE: usize = 64;
