//! Passes messages from programs' lanes to the node. They are copied from shared memory, and passed on before data that
//! is written to the descriptor later.
//!
//! A program puts data into its lane only when the node has received everything that was written to the descriptor
//! ([`slot::SENT`] equals [`slot::TAKEN`]). Whenever something is read from the descriptor, the contents of the lane at
//! that time are therefore older. If the lane is read and the descriptor is not, the lane's data is always next in
//! order.

use crossway_ring::RecvError;
use crossway_tipc_client::protocol::control::SocketKind;
use crossway_tipc_client::protocol::record::SEND_HEADER_LEN;
use crossway_tipc_client::protocol::{lane, slot};
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::held::Stalled;
use super::inbound::{Sent, destination, send_bytes, send_one};
use super::lanes::Lanes;
use super::limits::{MESSAGES_PER_TURN, STREAM_READ_BYTES};
use super::local::Local;
use super::token::Place;
use super::{Context, Service};

/// How much to take from a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// As much as one turn allows. While earlier messages are waiting, this means the same as [`Extent::Whole`] for a
    /// program that gets relief (see `held.rs`), and nothing for others.
    Turn,
    /// All that the lane held at the start; nothing while earlier messages are waiting.
    Present,
    /// All that the lane held at the start, even while earlier messages are waiting; what cannot be sent on is held.
    Whole,
}

/// Error: the program has written invalid data.
struct Misbehaved;

impl Service {
    /// Passes the contents of a socket's lane to the node.
    pub(super) fn take_lane(&mut self, cx: &mut Context<'_>, place: Place, extent: Extent) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let relieves = extent == Extent::Turn && local.wants_relief();
        if extent != Extent::Whole && !local.stalled.is_empty() && !relieves {
            return;
        }
        let extent = if relieves { Extent::Whole } else { extent };
        let Some(mut lanes) = local.lanes.take() else { return };
        let mut passage = Passage {
            now: cx.now,
            node: cx.node,
            local,
            lanes: &mut lanes,
            bytes: &mut self.gathered,
            extent,
            undelivered: &mut self.undelivered,
        };
        let outcome = match passage.local.kind {
            SocketKind::Stream => passage.take_bytes(),
            _ => passage.take_messages(),
        };
        match outcome {
            Ok(()) => {
                local.lanes = Some(lanes);
                if relieves {
                    local.stalled.note_relief();
                }
            }
            Err(Misbehaved) => {
                self.drop_lanes(cx.epoll, Some(lanes));
                self.hang_up(cx, place);
            }
        }
    }

    /// Empties the lanes that were busy, each as far as one turn allows.
    pub(super) fn take_hot(&mut self, cx: &mut Context<'_>) {
        let mut n = 0;
        while let Some(place) = self.hot.get(n).copied() {
            self.take_lane(cx, place, Extent::Turn);
            if self.sockets.get(place).is_some_and(|local| local.lanes.is_some()) {
                n += 1;
            } else {
                self.hot.swap_remove(n);
            }
        }
    }

    /// Prepares the service to sleep: asks the programs whose lanes were busy to wake it again. Returns true if one of
    /// these lanes has data.
    pub(crate) fn rest(&mut self) -> bool {
        let sockets = &mut self.sockets;
        let mut busy = false;
        self.hot.retain(|place| {
            let Some(local) = sockets.get_mut(*place) else { return false };
            let relief = local.wants_relief();
            let Some(lanes) = &mut local.lanes else { return false };
            // While something is waiting, nothing is taken; the lane is checked again when it has been sent.
            let takes = local.stalled.is_empty() || relief;
            let found = takes && !matches!(lanes.up.announce_sleep(), Ok(false));
            lanes.hot = found;
            busy |= found;
            found
        });
        busy
    }

    /// Records that `count` messages, or bytes of a stream, have been read from a socket's descriptor and passed on.
    /// Stops the socket's lane if some program does not count what it writes to the descriptor.
    pub(super) fn note_taken(&mut self, place: Place, count: u64) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.taken += count;
        let Some(lanes) = &local.lanes else { return };
        let Some(client) = self.clients.get(local.client) else { return };
        if client.load(local.slot, slot::SENT) < local.taken {
            // Some process does not count what it writes, so the lane could overtake its data.
            let stopped = lanes.memory.words();
            stopped.word(lane::STOPPED).store(1, std::sync::atomic::Ordering::Release);
        }
        client.store(local.slot, slot::TAKEN, local.taken);
    }
}

/// Moves a lane's records to the node.
struct Passage<'a> {
    now: Nanos,
    node: &'a mut Node,
    local: &'a mut Local,
    lanes: &'a mut Lanes,
    /// Buffer into which data is copied, so that shared memory is read only once.
    bytes: &'a mut Vec<u8>,
    extent: Extent,
    undelivered: &'a mut u64,
}

impl Passage<'_> {
    /// Appends the next record to the buffer. Returns false if there is none or it is longer than `room`.
    fn gather(&mut self, room: usize) -> Result<bool, Misbehaved> {
        let bytes = &mut *self.bytes;
        match self.lanes.up.try_recv_with(room, |record| bytes.extend_from_slice(record)) {
            Ok(()) => {
                self.lanes.taken += 1;
                Ok(true)
            }
            Err(
                RecvError::Empty
                | RecvError::PeerClosed
                | RecvError::TimedOut
                | RecvError::TooSmall { .. },
            ) => Ok(false),
            Err(RecvError::Damaged(_) | RecvError::Os(_)) => Err(Misbehaved),
        }
    }

    fn must_stop(&self) -> bool {
        self.extent != Extent::Whole && !self.local.stalled.is_empty()
    }

    fn take_messages(&mut self) -> Result<(), Misbehaved> {
        let limit = match self.extent {
            Extent::Turn => MESSAGES_PER_TURN,
            // The lane cannot hold more records at a time.
            Extent::Present | Extent::Whole => self.lanes.memory.ring_bytes() / SEND_HEADER_LEN,
        };
        for _ in 0..limit {
            self.bytes.clear();
            if self.must_stop() || !self.gather(usize::MAX)? {
                break;
            }
            let Some((address, payload)) = self.bytes.split_first_chunk::<SEND_HEADER_LEN>() else {
                return Err(Misbehaved);
            };
            let Some(dest) = destination(address) else { return Err(Misbehaved) };
            let outcome = if self.local.stalled.is_empty() {
                send_one(self.now, self.node, self.local, dest, payload, self.undelivered)
            } else {
                Sent::Stalled
            };
            match outcome {
                Sent::Done => {}
                Sent::Stalled => {
                    let payload = payload.to_vec();
                    self.local.stalled.push_back(Stalled { dest, payload, sent: 0 });
                }
                Sent::Nonsense => return Err(Misbehaved),
            }
        }
        Ok(())
    }

    /// Takes stream bytes; sends the contents of several small records as one.
    fn take_bytes(&mut self) -> Result<(), Misbehaved> {
        let mut left = match self.extent {
            Extent::Turn => STREAM_READ_BYTES,
            Extent::Present | Extent::Whole => self.lanes.memory.ring_bytes(),
        };
        while left > 0 && !self.must_stop() {
            self.bytes.clear();
            let before = self.lanes.taken;
            while self.lanes.taken - before < MESSAGES_PER_GATHERING
                && self.gather(STREAM_READ_BYTES - self.bytes.len())?
            {}
            // Empty records are invalid; counting them ensures that the loop ends.
            left = left.saturating_sub(self.bytes.len().max(1));
            if self.bytes.is_empty() {
                break;
            }
            send_bytes(self.now, self.node, self.local, self.bytes);
        }
        Ok(())
    }
}

/// Maximum number of stream records that are combined. A full ring holds about that many if they are a few bytes long.
const MESSAGES_PER_GATHERING: u64 = 16 << 10;
