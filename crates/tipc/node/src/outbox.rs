//! Queues frames between the protocol and the media. Passes them to the system many at a time, and keeps them while a
//! medium has no room.

use std::time::Duration;

use crossway_sys::Errno;
use crossway_sys::datagrams::Sent;
use crossway_sys::packet_ring::PacketRing;
use crossway_sys::records::MOST_SENT;
use crossway_tipc_proto::addr::BearerId;
use crossway_tipc_proto::crypto::{Keyring, Way};
use crossway_tipc_proto::node::{Node, Transmit};
use crossway_tipc_proto::time::Nanos;

use crate::bearer::{Bearer, Recipient};
use crate::cipher::Gcm;
use crate::runner::Pace;
use crate::tap::Tap;

/// Number of frames taken from the protocol before other work gets its turn.
const FRAMES_PER_TURN: usize = MOST_SENT;

/// Interval after which a medium without room is tried again. A few packets take this time at 100 Mbit/s; the medium's
/// queue holds many more.
const RETRY: Duration = Duration::from_micros(250);

/// Time after which the queued frames of a medium that accepts nothing are dropped, so that the other media are not
/// delayed. It is less than the smallest tolerance of a link.
const PATIENCE: Duration = Duration::from_millis(20);

/// Traffic statistics of a bearer since it was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that the system accepted; a frame to several remotes counts once for each.
    pub frames_sent: u64,
    /// System calls that sent these frames.
    pub send_calls: u64,
    /// Messages of more than one frame, which the system split.
    pub runs_sent: u64,
    /// System calls in which nothing was accepted because there was no room.
    pub refused_calls: u64,
    /// Frames that were lost because the system refused them or had no room for too long.
    pub frames_unsent: u64,
    /// Frames received from the medium.
    pub frames_received: u64,
    /// System calls that received these frames or, for a bearer with a ring, the number of times that the ring was
    /// checked.
    pub receive_calls: u64,
    /// Messages of more than one frame, which the system had joined.
    pub runs_received: u64,
}

/// An enabled bearer.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) id: BearerId,
    pub(crate) bearer: Bearer,
    /// The ring through which the bearer receives frames, if it has one.
    pub(crate) ring: Option<PacketRing>,
    /// The device specified by the operator.
    pub(crate) device: Option<String>,
    pub(crate) traffic: Traffic,
    /// Decides when the bearer's frames are fetched.
    pub(crate) pace: Pace,
    /// Whether arriving frames do not wake the event loop, because `pace` sets the time at which they are fetched.
    pub(crate) held: bool,
    /// Whether its packets leave room for encryption.
    pub(crate) leaves_room: bool,
}

/// A frame and one of its destinations.
#[derive(Debug)]
struct Message {
    /// Index of the bearer.
    bearer: usize,
    /// Index of the buffer that holds the frame.
    frame: usize,
    to: Recipient,
}

/// Frames that were taken from the protocol and have not all been sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Buffers of the frames, reused for every batch.
    frames: Vec<Vec<u8>>,
    messages: Vec<Message>,
    /// All messages before this index have been sent.
    next: usize,
    /// Whether the protocol may have more frames.
    more: bool,
    /// Set if a medium has no room: since when it has had none, and when to try again.
    blocked: Option<(Nanos, Nanos)>,
}

impl Outbox {
    /// The time at which [`Outbox::flush`] must be called; a time in the past means immediately, `None` that there is
    /// nothing to send.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        match self.blocked {
            Some((_, again)) => Some(again),
            None => (self.more || self.next < self.messages.len()).then(Nanos::default),
        }
    }

    /// Sends pending frames, as many as one turn allows and the media accept.
    pub(crate) fn flush(
        &mut self,
        now: Nanos,
        node: &mut Node,
        keyring: &mut Keyring<Gcm>,
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
            taken += self.fill(now, node, keyring, bearers, taps);
            if self.messages.is_empty() && !self.more {
                return;
            }
        }
    }

    /// Forgets the bearer with this index: its queued frames are dropped, and the indices after it decrease by one.
    pub(crate) fn forget(&mut self, index: usize) {
        self.messages.drain(..self.next);
        self.next = 0;
        self.messages.retain(|m| m.bearer != index);
        self.messages.iter_mut().filter(|m| m.bearer > index).for_each(|m| m.bearer -= 1);
    }

    /// Takes a batch of frames from the protocol and returns their number. If a medium has a ring with room, frames are
    /// written there directly, and sent in one call.
    fn fill(
        &mut self,
        now: Nanos,
        node: &mut Node,
        keyring: &mut Keyring<Gcm>,
        bearers: &mut [Attached],
        taps: &mut Vec<Tap>,
    ) -> usize {
        self.messages.clear();
        self.next = 0;
        self.more = true;
        // The next buffer: reused if its frame was written to a ring. No frame overtakes one that was not.
        let (mut frame, mut direct) = (0, true);
        let mut taken = 0;
        while taken < FRAMES_PER_TURN {
            if frame == self.frames.len() {
                self.frames.push(Vec::new());
            }
            let Some(Transmit { bearer, dest, peer }) =
                node.poll_transmit(now, &mut self.frames[frame])
            else {
                self.more = false;
                break;
            };
            taken += 1;
            // The protocol no longer knows a bearer that was removed long ago.
            let Some(index) = bearers.iter().position(|b| b.id == bearer) else { continue };
            let Attached { bearer, traffic, pace, .. } = &mut bearers[index];
            if !taps.is_empty() {
                taps.retain_mut(|tap| tap.show_sent(bearer, &dest, &self.frames[frame]));
            }
            pace.sent(self.frames[frame].len());
            let ways = keyring.ways(now, peer, &self.frames[frame]);
            traffic.frames_unsent += u64::from(ways.is_empty());
            for (n, way) in ways.iter().enumerate() {
                let is_last = n + 1 == ways.len();
                if !is_last {
                    self.copy_to_next(frame);
                }
                let is_ready = match way {
                    Way::Plain => true,
                    Way::Sealed(slot) => keyring.seal(*slot, peer, &mut self.frames[frame]),
                };
                traffic.frames_unsent += u64::from(!is_ready);
                if !is_ready || direct && bearer.put(&dest, &self.frames[frame]) {
                    if !is_last {
                        self.frames.swap(frame, frame + 1);
                    }
                    continue;
                }
                direct &= !matches!(bearer, Bearer::Ethernet(_));
                let to = bearer.recipients(&dest);
                self.messages.extend(to.map(|to| Message { bearer: index, frame, to }));
                frame += 1;
            }
        }
        self.launch(frame, bearers);
        taken
    }

    /// Copies a frame to the buffer after its own.
    fn copy_to_next(&mut self, frame: usize) {
        if frame + 1 == self.frames.len() {
            self.frames.push(Vec::new());
        }
        let (original, copy) = self.frames.split_at_mut(frame + 1);
        copy[0].clear();
        copy[0].extend_from_slice(&original[frame]);
    }

    /// Sends the frames that were written to rings. Frames that a device refuses are queued before the others, in
    /// buffers from `frame` on.
    fn launch(&mut self, mut frame: usize, bearers: &mut [Attached]) {
        for (index, Attached { bearer, traffic, .. }) in bearers.iter_mut().enumerate() {
            let mut refused = Vec::new();
            let gone = bearer.launch(|to, bytes| {
                if frame == self.frames.len() {
                    self.frames.push(Vec::new());
                }
                self.frames[frame].clear();
                self.frames[frame].extend_from_slice(bytes);
                refused.push(Message { bearer: index, frame, to });
                frame += 1;
            });
            traffic.frames_sent += gone as u64;
            traffic.send_calls += u64::from(gone > 0);
            self.messages.splice(..0, refused);
        }
    }

    /// Passes the batch to the system, consecutive frames of a bearer in one call.
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
                // An unreachable remote must not delay the frames of others; its frame is lost as on any medium.
                Err(_) => {
                    traffic.frames_unsent += 1;
                    self.next += 1;
                }
            }
        }
    }
}
