//! Messages from programs by their lanes: copied out of shared memory and handed to the node, ahead of what the descriptor brought later.
//!
//! A program puts into its lane only while the node has everything that was written to the descriptor ([`slot::SENT`] equals [`slot::TAKEN`]), so what is
//! in the lane when something was read from the descriptor is older than that. What is read from the lane alone is always next.

use crossway_ring::RecvError;
use crossway_sys::epoll::Epoll;
use crossway_tipc_client::protocol::control::Kind;
use crossway_tipc_client::protocol::record::SEND_HEADER_LEN;
use crossway_tipc_client::protocol::{lane, slot};
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::Service;
use super::held::Stalled;
use super::inbound::{Sent, destination, send_octets, send_one};
use super::lanes::Lanes;
use super::limits::{MESSAGES_PER_TURN, STREAM_READ_OCTETS};
use super::local::Local;
use super::token::Place;

/// How much is taken out of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// What one turn allows, unless something waits already.
    Turn,
    /// What was there when it began, unless something waits already.
    Present,
    /// What was there when it began; what the way does not take waits.
    Whole,
}

/// The program wrote what no program of good will writes.
struct Misbehaved;

impl Service {
    /// Hands what is in a socket's lane to the node.
    pub(super) fn take_lane(
        &mut self,
        now: Nanos,
        node: &mut Node,
        epoll: &Epoll,
        place: Place,
        extent: Extent,
    ) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let relieves = extent == Extent::Turn && local.wants_relief();
        if extent != Extent::Whole && !local.stalled.is_empty() && !relieves {
            return;
        }
        let extent = if relieves { Extent::Whole } else { extent };
        let Some(mut lanes) = local.lanes.take() else { return };
        let mut passage = Passage {
            now,
            node,
            local,
            lanes: &mut lanes,
            octets: &mut self.gathered,
            extent,
            undelivered: &mut self.undelivered,
        };
        let outcome = match passage.local.kind {
            Kind::Stream => passage.take_octets(),
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
                self.drop_lanes(epoll, Some(lanes));
                self.hang_up(now, node, epoll, place);
            }
        }
    }

    /// Looks into the lanes that were busy, each for a turn.
    pub(super) fn take_hot(&mut self, now: Nanos, node: &mut Node, epoll: &Epoll) {
        let mut n = 0;
        while let Some(place) = self.hot.get(n).copied() {
            self.take_lane(now, node, epoll, place, Extent::Turn);
            if self.sockets.get(place).is_some_and(|local| local.lanes.is_some()) {
                n += 1;
            } else {
                self.hot.swap_remove(n);
            }
        }
    }

    /// Has the lanes that were busy ring from now on, before the service sleeps. True when there is something in one of them.
    pub(crate) fn rest(&mut self) -> bool {
        let sockets = &mut self.sockets;
        let mut busy = false;
        self.hot.retain(|place| {
            let Some(local) = sockets.get_mut(*place) else { return false };
            let relief = local.wants_relief();
            let Some(lanes) = &mut local.lanes else { return false };
            // While something waits nothing is taken; when it has gone the lane is looked at again.
            let takes = local.stalled.is_empty() || relief;
            let found = takes && !matches!(lanes.up.announce_sleep(), Ok(false));
            lanes.hot = found;
            busy |= found;
            found
        });
        busy
    }

    /// Takes note of what was read from a socket's descriptor and handed on.
    pub(super) fn note_taken(&mut self, place: Place, count: u64) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.taken += count;
        let Some(lanes) = &local.lanes else { return };
        let Some(client) = self.clients.get(local.client) else { return };
        if client.load(local.slot, slot::SENT) < local.taken {
            // Somebody does not count what he writes, and the lane would overtake it.
            let stopped = lanes.memory.words();
            stopped.word(lane::STOPPED).store(1, std::sync::atomic::Ordering::Release);
        }
        client.store(local.slot, slot::TAKEN, local.taken);
    }
}

/// The way of a lane's records into the node.
struct Passage<'a> {
    now: Nanos,
    node: &'a mut Node,
    local: &'a mut Local,
    lanes: &'a mut Lanes,
    /// Where they are copied to: what is shared is not looked at twice.
    octets: &'a mut Vec<u8>,
    extent: Extent,
    undelivered: &'a mut u64,
}

impl Passage<'_> {
    /// Copies the next record behind what was gathered, if there is one that fits.
    fn gather(&mut self, room: usize) -> Result<bool, Misbehaved> {
        let octets = &mut *self.octets;
        match self.lanes.up.try_recv_with(room, |record| octets.extend_from_slice(record)) {
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
            // More records are not there at once.
            Extent::Present | Extent::Whole => self.lanes.memory.ring_octets() / SEND_HEADER_LEN,
        };
        for _ in 0..limit {
            self.octets.clear();
            if self.must_stop() || !self.gather(usize::MAX)? {
                break;
            }
            let Some((address, payload)) = self.octets.split_first_chunk::<SEND_HEADER_LEN>()
            else {
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

    /// Small writes are sent as one.
    fn take_octets(&mut self) -> Result<(), Misbehaved> {
        let mut left = match self.extent {
            Extent::Turn => STREAM_READ_OCTETS,
            Extent::Present | Extent::Whole => self.lanes.memory.ring_octets(),
        };
        while left > 0 && !self.must_stop() {
            self.octets.clear();
            let before = self.lanes.taken;
            while self.lanes.taken - before < MESSAGES_PER_GATHERING
                && self.gather(STREAM_READ_OCTETS - self.octets.len())?
            {}
            // Empty records are nonsense, and not to be waited for the end of.
            left = left.saturating_sub(self.octets.len().max(1));
            if self.octets.is_empty() {
                break;
            }
            send_octets(self.now, self.node, self.local, self.octets);
        }
        Ok(())
    }
}

/// Records of a stream that become one: as many as a full ring has of a few octets each.
const MESSAGES_PER_GATHERING: u64 = 16 << 10;
