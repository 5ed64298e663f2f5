//! Receives frames from bearers and passes them to the node.

use crossway_sys::records::MOST;
use crossway_sys::{Errno, socket};
use crossway_tipc_proto::addr::BearerId;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::{Runner, now};
use crate::bearer::Bearer;
use crate::guard::Guard;
use crate::outbox::Attached;
use crate::tap::Tap;

/// Number of batches of frames received from one bearer before the others and the timers get their turn.
const BATCHES_PER_TURN: usize = 2;

/// The same as a number of frames, for media that do not deliver them in batches.
const FRAMES_PER_TURN: usize = BATCHES_PER_TURN * MOST;

impl<G: Guard> Runner<G> {
    /// Receives frames from a bearer, as many as one turn allows.
    pub(super) fn receive(&mut self, id: BearerId) {
        let Some(Attached { id, bearer, ring, traffic, .. }) =
            self.bearers.iter_mut().find(|b| b.id == id)
        else {
            return;
        };
        let mut passage = Passage {
            node: &mut self.node,
            guard: &mut self.guard,
            taps: &mut self.taps,
            not_genuine: &mut self.not_genuine,
            bearer,
            id: *id,
        };
        if let Some(ring) = ring {
            let at = now();
            let mut count = 0;
            while count < FRAMES_PER_TURN
                && let Some(mut frame) = ring.take()
            {
                passage.take(at, frame.bytes());
                count += 1;
            }
            traffic.frames_received += count as u64;
            traffic.receive_calls += 1;
            if count == 0 {
                // A device that went down polls readable until its error has been read; a kernel's node is notified by its device
                // too.
                let is_down = |fd| matches!(socket::take_error(fd), Ok(Some(Errno::NETDOWN)));
                if bearer.fds().any(is_down) {
                    let id = *id;
                    self.node.medium_lost(now(), id);
                }
            }
            return;
        }
        let fds = passage.bearer.fds();
        for fd in fds {
            let mut frames = 0;
            for _ in 0..BATCHES_PER_TURN {
                // EAGAIN ends the turn; other errors concern frames sent earlier (an unreachable remote) and are no reason to stop.
                let Ok(count) = self.inbox.receive(fd) else { break };
                let at = now();
                traffic.receive_calls += 1;
                for n in 0..count {
                    // Packets never exceed the largest datagram.
                    let Some(packets) = self.inbox.segments_mut(n) else { continue };
                    let before = frames;
                    for packet in packets {
                        passage.take(at, packet);
                        frames += 1;
                    }
                    traffic.runs_received += u64::from(frames - before > 1);
                }
                // A run may contain many frames.
                if count < MOST || frames >= FRAMES_PER_TURN {
                    break;
                }
            }
            traffic.frames_received += frames as u64;
        }
    }
}

/// Passes a bearer's frames to the node.
struct Passage<'a, G> {
    node: &'a mut Node,
    guard: &'a mut G,
    taps: &'a mut Vec<Tap>,
    not_genuine: &'a mut u64,
    bearer: &'a Bearer,
    id: BearerId,
}

impl<G: Guard> Passage<'_, G> {
    fn take(&mut self, at: Nanos, packet: &mut [u8]) {
        let Some(frame) = self.guard.open(packet) else {
            *self.not_genuine += 1;
            return;
        };
        if !self.taps.is_empty() {
            let from = self.node.station_of(self.id, frame);
            self.taps.retain_mut(|tap| tap.show_received(self.bearer, from.as_ref(), frame));
        }
        self.node.handle_frame(at, self.id, frame);
    }
}
