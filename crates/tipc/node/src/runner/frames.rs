//! Receives frames from bearers and passes them to the node.

use crossway_sys::epoll::Trigger;
use crossway_sys::records::MOST;
use crossway_sys::{Errno, OsError, socket};
use crossway_tipc_proto::addr::{BearerId, MediaAddr};
use crossway_tipc_proto::crypto::Keyring;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::time::Nanos;

use super::{Runner, now};
use crate::bearer::Bearer;
use crate::cipher::Gcm;
use crate::outbox::Attached;
use crate::service::Token;
use crate::tap::Tap;

/// Number of batches of frames received from one bearer before other bearers and the timers get their turn.
const BATCHES_PER_TURN: usize = 2;

/// The same limit in frames, for media that do not deliver frames in batches.
const FRAMES_PER_TURN: usize = BATCHES_PER_TURN * MOST;

impl Runner {
    /// Decides for each bearer whether arriving frames wake the loop. They do not while the bearer's pace sets the time
    /// at which frames are fetched.
    pub(super) fn hold_bearers(&mut self) -> Result<(), OsError> {
        for Attached { id, bearer, pace, held, .. } in &mut self.bearers {
            let hold = pace.next().is_some();
            if std::mem::replace(held, hold) != hold {
                let trigger = if hold { Trigger::Errors } else { Trigger::WhileReadable };
                let token = Token::Bearer(id.0.into()).encode();
                bearer.fds().try_for_each(|fd| self.epoll.change(fd, token, trigger))?;
            }
        }
        Ok(())
    }

    /// The earliest time at which frames must be fetched from a bearer that does not wake the loop; `None` if all wake
    /// it.
    pub(super) fn next_fetch(&self) -> Option<Nanos> {
        self.bearers.iter().filter_map(|b| b.pace.next()).min()
    }

    /// Fetches the frames of bearers that do not wake the loop, if the time for that has come.
    pub(super) fn fetch_held(&mut self, at: Nanos) {
        for n in 0..self.bearers.len() {
            if self.bearers[n].pace.next().is_some_and(|due| due <= at) {
                self.receive(self.bearers[n].id);
            }
        }
    }

    /// Receives frames from a bearer, as many as one turn allows.
    pub(super) fn receive(&mut self, id: BearerId) {
        let Some(Attached { id, bearer, ring, traffic, pace, .. }) =
            self.bearers.iter_mut().find(|b| b.id == id)
        else {
            return;
        };
        let mut passage = Passage {
            node: &mut self.node,
            keyring: &mut self.keyring,
            taps: &mut self.taps,
            bearer,
            id: *id,
        };
        if let Some(ring) = ring {
            let at = now();
            let (mut count, mut bytes) = (0, 0);
            while count < FRAMES_PER_TURN
                && let Some(mut frame) = ring.take()
            {
                bytes += frame.bytes().len();
                passage.take(at, None, frame.bytes());
                count += 1;
            }
            pace.fetched(at, count, bytes, count == FRAMES_PER_TURN);
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
        let (mut all, mut bytes) = (0, 0);
        let (fetched, mut more) = (now(), false);
        for fd in fds {
            let mut frames = 0;
            for _ in 0..BATCHES_PER_TURN {
                // EAGAIN ends the turn; other errors concern frames sent earlier (an unreachable remote) and are no reason to stop.
                let Ok(count) = self.inbox.receive(fd) else { break };
                let at = now();
                traffic.receive_calls += 1;
                for n in 0..count {
                    let source = self.inbox.source(n);
                    let source = source.map(|s| MediaAddr::Udp { ip: s.ip(), port: s.port() });
                    // Packets never exceed the largest datagram.
                    let Some(packets) = self.inbox.segments_mut(n) else { continue };
                    let before = frames;
                    for packet in packets {
                        bytes += packet.len();
                        passage.take(at, source, packet);
                        frames += 1;
                    }
                    traffic.runs_received += u64::from(frames - before > 1);
                }
                if count < MOST {
                    break;
                }
                // A run may contain many frames.
                if frames >= FRAMES_PER_TURN {
                    more = true;
                    break;
                }
            }
            all += frames;
        }
        pace.fetched(fetched, all, bytes, more);
        traffic.frames_received += all as u64;
    }
}

/// Passes a bearer's frames to the node.
struct Passage<'a> {
    node: &'a mut Node,
    keyring: &'a mut Keyring<Gcm>,
    taps: &'a mut Vec<Tap>,
    bearer: &'a Bearer,
    id: BearerId,
}

impl Passage<'_> {
    /// Passes on a packet; `source` is where it came from, if the medium says so.
    fn take(&mut self, at: Nanos, source: Option<MediaAddr>, packet: &mut [u8]) {
        let (frame, sealed) = match self.keyring.open(at, self.node, packet) {
            Ok(opened) => opened,
            Err(reason) => {
                self.node.refuse_frame(at, self.id, source, reason);
                return;
            }
        };
        if !self.taps.is_empty() {
            let from = source.or_else(|| self.node.station_of(self.id, frame));
            self.taps.retain_mut(|tap| tap.show_received(self.bearer, from.as_ref(), frame));
        }
        if !sealed {
            self.node.handle_frame(at, self.id, source, frame);
            return;
        }
        self.node.handle_sealed(at, self.id, source, frame);
        while let Some((from, key)) = self.node.poll_key() {
            if let Err(reason) = self.keyring.take_key(from, &key) {
                self.node.refuse_key(reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use crossway_tipc_proto::node::Config;

    use super::*;
    use crate::runner::Pace;

    /// Tests a runner whose only bearer is held, so that its frames do not wake the loop. Nothing would end a turn's
    /// wait, so each turn has a time limit of zero.
    #[test]
    fn frames_of_a_held_bearer_wake_no_turn_before_they_are_due_and_later_ones_do() {
        let remote = UdpSocket::bind("127.0.0.1:0").unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let spec = format!("udp:{free},{}", remote.local_addr().unwrap());
        let mut runner = Runner::new(Config::default()).unwrap();
        let id = runner.enable(&spec.parse().unwrap(), "udp").unwrap();
        let fetches = |runner: &mut Runner| {
            remote.send_to(&[0; 100], free).unwrap();
            runner.turn(Duration::ZERO).unwrap();
            let traffic = runner.traffic(id).unwrap();
            (traffic.receive_calls, traffic.frames_received)
        };
        assert_eq!(fetches(&mut runner), (1, 1));
        runner.bearers[0].pace = Pace::held_until(now() + Duration::from_secs(3600));
        for _ in 0..3 {
            assert_eq!(fetches(&mut runner), (1, 1), "not due");
        }
        runner.bearers[0].pace = Pace::held_until(now());
        assert_eq!(fetches(&mut runner), (2, 5), "due, without being woken");
        assert_eq!(
            fetches(&mut runner),
            (3, 6),
            "short frames are not held, and wake the loop again"
        );
    }
}
