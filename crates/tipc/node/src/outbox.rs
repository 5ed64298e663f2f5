//! Frames between the protocol and the media: collected, handed to the system many at a time, kept when a medium has no room.

use std::time::Duration;

use crossway_sys::Errno;
use crossway_sys::datagrams::Sent;
use crossway_sys::packet_ring::PacketRing;
use crossway_sys::records::MOST_SENT;
use crossway_tipc_proto::addr::BearerId;
use crossway_tipc_proto::node::{Node, Transmit};
use crossway_tipc_proto::time::Nanos;

use crate::bearer::{Bearer, Recipient};
use crate::guard::Guard;
use crate::tap::Tap;

/// Frames taken from the protocol before other work gets its turn.
const FRAMES_PER_TURN: usize = MOST_SENT;

/// A medium without room is asked again after so long: a few packets' time at 100 Mbit/s, much less than its queue holds.
const RETRY: Duration = Duration::from_micros(250);

/// A medium that takes nothing for so long loses what waits for it, so that the others get on. Less than the smallest tolerance.
const PATIENCE: Duration = Duration::from_millis(20);

/// What passed through a bearer since it was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that the system took; one that goes to several remotes counts for each.
    pub frames_sent: u64,
    /// Calls in which it took them.
    pub send_calls: u64,
    /// Messages of more than one frame, which it cut.
    pub runs_sent: u64,
    /// Calls in which it took nothing for want of room.
    pub refused_calls: u64,
    /// Frames lost because the system refused them, or had no room for long.
    pub frames_unsent: u64,
    /// Frames that came.
    pub frames_received: u64,
    /// Calls that brought them, or times that a ring was looked through.
    pub receive_calls: u64,
    /// Messages of more than one frame, which the system had joined.
    pub runs_received: u64,
}

/// A bearer that is enabled.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) id: BearerId,
    pub(crate) bearer: Bearer,
    /// Where its frames come, when that is a ring.
    pub(crate) ring: Option<PacketRing>,
    /// The device that the operator named.
    pub(crate) device: Option<String>,
    /// UDP port on which it receives a multicast group.
    pub(crate) group_port: Option<u16>,
    pub(crate) traffic: Traffic,
}

/// A frame and one place where it is to go.
#[derive(Debug)]
struct Message {
    /// Index of the bearer.
    bearer: usize,
    /// Index of the frame's octets.
    frame: usize,
    to: Recipient,
}

/// Frames that were taken from the protocol and have not all gone.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Buffers, used again for every batch.
    frames: Vec<Vec<u8>>,
    messages: Vec<Message>,
    /// Messages before this one have gone.
    next: usize,
    /// The protocol may have more than was taken.
    more: bool,
    /// No room: since when, and when to ask again.
    blocked: Option<(Nanos, Nanos)>,
}

impl Outbox {
    /// When [`Outbox::flush`] has something to do, if it has; the past for "at once".
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        match self.blocked {
            Some((_, again)) => Some(again),
            None => (self.more || self.next < self.messages.len()).then(Nanos::default),
        }
    }

    /// Sends what is due, as much as one turn allows and the media take.
    pub(crate) fn flush(
        &mut self,
        now: Nanos,
        node: &mut Node,
        guard: &mut impl Guard,
        bearers: &mut [Attached],
        taps: &mut Vec<Tap>,
    ) {
        if self.blocked.is_some_and(|(_, again)| now < again) {
            return;
        }
        let mut taken = 0;
        loop {
            self.send(now, bearers);
            if self.blocked.is_some() || taken >= FRAMES_PER_TURN {
                return;
            }
            taken += self.fill(now, node, guard, bearers, taps);
            if self.messages.is_empty() && !self.more {
                return;
            }
        }
    }

    /// A bearer was removed from its place: what waits for it is lost, the others move up.
    pub(crate) fn forget(&mut self, index: usize) {
        self.messages.drain(..self.next);
        self.next = 0;
        self.messages.retain(|m| m.bearer != index);
        self.messages.iter_mut().filter(|m| m.bearer > index).for_each(|m| m.bearer -= 1);
    }

    /// Takes a batch from the protocol; tells how many frames. What a medium has a place for goes there at once, and by one call.
    fn fill(
        &mut self,
        now: Nanos,
        node: &mut Node,
        guard: &mut impl Guard,
        bearers: &mut [Attached],
        taps: &mut Vec<Tap>,
    ) -> usize {
        self.messages.clear();
        self.next = 0;
        self.more = true;
        // The next buffer: one whose frame has found its place is used again. None overtakes another that has not.
        let (mut frame, mut direct) = (0, true);
        let mut taken = 0;
        while taken < FRAMES_PER_TURN {
            if frame == self.frames.len() {
                self.frames.push(Vec::new());
            }
            let Some(Transmit { bearer, dest }) = node.poll_transmit(now, &mut self.frames[frame])
            else {
                self.more = false;
                break;
            };
            taken += 1;
            // The protocol does not know a bearer that is gone for long.
            let Some(index) = bearers.iter().position(|b| b.id == bearer) else { continue };
            if !taps.is_empty() {
                let bearer = &bearers[index].bearer;
                taps.retain_mut(|tap| tap.show_sent(bearer, &dest, &self.frames[frame]));
            }
            if !guard.seal(&mut self.frames[frame]) {
                bearers[index].traffic.frames_unsent += 1;
                continue;
            }
            if direct && bearers[index].bearer.put(&dest, &self.frames[frame]) {
                continue;
            }
            direct &= !matches!(bearers[index].bearer, Bearer::Ethernet(_));
            let to = bearers[index].bearer.recipients(&dest);
            self.messages.extend(to.map(|to| Message { bearer: index, frame, to }));
            frame += 1;
        }
        self.launch(frame, bearers);
        taken
    }

    /// Sends what has found its place. What a device refuses goes like other frames, before them, in buffers from this one on.
    fn launch(&mut self, mut frame: usize, bearers: &mut [Attached]) {
        for (index, Attached { bearer, traffic, .. }) in bearers.iter_mut().enumerate() {
            let mut refused = Vec::new();
            let gone = bearer.launch(|to, octets| {
                if frame == self.frames.len() {
                    self.frames.push(Vec::new());
                }
                self.frames[frame].clear();
                self.frames[frame].extend_from_slice(octets);
                refused.push(Message { bearer: index, frame, to });
                frame += 1;
            });
            traffic.frames_sent += gone as u64;
            traffic.send_calls += u64::from(gone > 0);
            self.messages.splice(..0, refused);
        }
    }

    /// Hands the batch to the system, neighbours of one bearer in one call.
    fn send(&mut self, now: Nanos, bearers: &mut [Attached]) {
        while let Some(first) = self.messages.get(self.next) {
            let Attached { bearer, traffic, .. } = &mut bearers[first.bearer];
            let index = first.bearer;
            let run = self.messages[self.next..].iter().take_while(|m| m.bearer == index);
            match bearer.try_send(run.map(|m| (&m.to, &self.frames[m.frame][..]))) {
                Ok(Sent { datagrams, runs }) => {
                    traffic.frames_sent += datagrams as u64;
                    traffic.runs_sent += runs as u64;
                    traffic.send_calls += 1;
                    self.next += datagrams;
                    self.blocked = None;
                }
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    traffic.refused_calls += 1;
                    let since = self.blocked.map_or(now, |(since, _)| since);
                    if now.since(since) < PATIENCE {
                        self.blocked = Some((since, now + RETRY));
                        return;
                    }
                    let before = self.messages.len();
                    let mut place = 0;
                    let next = self.next;
                    self.messages.retain(|m| {
                        place += 1;
                        place <= next || m.bearer != index
                    });
                    traffic.frames_unsent += (before - self.messages.len()) as u64;
                    self.blocked = None;
                }
                // One that cannot be reached must not keep the others' frames; it is lost like any frame on a medium.
                Err(_) => {
                    traffic.frames_unsent += 1;
                    self.next += 1;
                }
            }
        }
    }
}
