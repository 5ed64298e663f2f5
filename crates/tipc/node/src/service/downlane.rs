//! Passes messages from the node to a program through a ring in shared memory. A *bell*, a byte or a record of one byte
//! in the socket's descriptor, announces them. See docs/decisions/0042 for the reasons.
//!
//! The program can write to the memory, too. Everything read from the memory is therefore checked, and a program that
//! writes invalid values loses its socket.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crossway_ring::bell::Silent;
use crossway_ring::doorbell;
use crossway_ring::receiver::Receiver;
use crossway_ring::region::SharedRing;
use crossway_ring::shared_rx::ReceiverWords;
use crossway_ring::sync::{Ordering, fence};
use crossway_ring::{RingTx, SendError, Wait};
use crossway_sys::{Errno, socket};
use crossway_tipc_client::protocol::control::SocketKind;
use crossway_tipc_client::protocol::lane::{self, OutletWords};
use crossway_tipc_client::protocol::record::HEADER_LEN;
use crossway_tipc_client::protocol::slot;

use super::Service;
use super::direct::Direct;
use super::lanes::Lanes;
use super::local::{Local, Outgoing, Phase, Unread};
use super::request::Answer;
use super::token::Place;

/// Returned if the contents of the shared memory are invalid: the program's socket is closed.
pub(super) const NONSENSE: Errno = Errno::BADMSG;

/// A socket's lane towards its program.
pub(super) struct Down {
    tx: RingTx<SharedRing, Silent>,
    words: Receiver,
    /// Messages in the ring that the program may not have taken, oldest first, each with the position at which it ends.
    unread: VecDeque<(u64, Unread)>,
    /// Messages in the ring for which no bell has been sent yet; `None` if there are none.
    to_announce: Option<Unannounced>,
    /// Set if the ring is a direct lane. `unread` is then empty: the ring itself shows what was not taken.
    direct: Option<Direct>,
}

/// Messages in a ring for which no bell has been sent.
#[derive(Clone, Copy)]
enum Unannounced {
    /// One, with its position in the ring and the length of its payload in bytes.
    One { start: u64, len: usize },
    /// Several.
    More,
    /// Messages of a peer's program that was killed. The program may have sent a bell for some of them.
    Inherited,
}

impl std::fmt::Debug for Down {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Down").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

impl Down {
    fn new(lanes: &Lanes, direct: Option<Direct>) -> Self {
        let memory = direct.as_ref().map_or(&lanes.memory, Direct::memory);
        let tx = RingTx::new(memory.down(), Silent, Wait::Block);
        let words = Receiver::of(&memory.words(), lane::DOWN);
        Self { tx, words, unread: VecDeque::new(), to_announce: None, direct }
    }

    /// Returns the answer to the request to receive through the lane.
    fn answer(&self) -> Result<Answer, Errno> {
        self.direct.as_ref().map_or_else(|| Ok(Answer::done()), Direct::answer)
    }

    /// Calls [`Direct::grant`].
    pub(super) fn grant(
        &mut self,
        peer: &OwnedFd,
        client: Place,
        words: OutletWords,
        header: &[u8; HEADER_LEN],
    ) -> Result<Answer, Errno> {
        let direct = self.direct.as_mut().ok_or(Errno::OPNOTSUPP)?;
        direct.grant(&self.tx, peer, client, words, header)
    }

    /// Ends the use of the ring by the peer's program, which may have been killed after it had published a message and
    /// before it had sent the bell. Returns false if that use had already ended.
    pub(super) fn take_over(&mut self) -> bool {
        let Some(direct) = self.direct.as_mut() else { return false };
        direct.resume(&mut self.tx);
        let is_first = direct.end_producer();
        if is_first {
            self.to_announce = Some(Unannounced::Inherited);
        }
        is_first
    }

    /// Forgets the messages that the program has taken. A program that claims to have taken more than it was given only
    /// harms the senders of messages that it did not read.
    fn note_taken(&mut self) {
        let Ok(freed) = self.tx.freed() else { return };
        while self.unread.front().is_some_and(|(end, _)| *end <= freed) {
            self.unread.pop_front();
        }
    }

    /// Puts a record into the ring. Returns EAGAIN if there is no room; in that case, the program signals its eventfd
    /// as soon as there is room.
    fn put(&mut self, header: &[u8], payload: &[u8]) -> Result<(), Errno> {
        let len = header.len() + payload.len();
        if let Some(direct) = &self.direct {
            direct.resume(&mut self.tx);
        }
        let start = self.tx.position();
        loop {
            let put = self.tx.try_send_with(len, |place| {
                let (head, body) = place.split_at_mut(header.len());
                head.copy_from_slice(header);
                body.copy_from_slice(payload);
            });
            if let (Some(direct), Err(SendError::Full)) = (&self.direct, &put) {
                direct.want_room();
            }
            match put {
                Ok(()) => {
                    if let Some(direct) = &self.direct {
                        direct.leave(&self.tx);
                    }
                    self.to_announce = Some(match self.to_announce {
                        None => Unannounced::One { start, len: payload.len() },
                        Some(Unannounced::Inherited) => Unannounced::Inherited,
                        Some(_) => Unannounced::More,
                    });
                    return Ok(());
                }
                Err(SendError::Full) => match self.tx.ask_for_room(len) {
                    Ok(true) => {}
                    Ok(false) => return Err(Errno::AGAIN),
                    Err(_) => return Err(NONSENSE),
                },
                Err(_) => return Err(NONSENSE),
            }
        }
    }
}

impl Local {
    /// Whether messages to the program use its lane.
    pub(super) fn has_down_lane(&self) -> bool {
        self.down.is_some()
    }

    /// The socket's lane, if that is a direct lane.
    pub(super) fn direct(&self) -> Option<&Direct> {
        self.down.as_ref()?.direct.as_ref()
    }

    /// Forgets the messages that the program has taken from its lane.
    pub(super) fn note_lane_taken(&mut self) {
        if let Some(down) = self.down.as_mut() {
            down.note_taken();
        }
    }

    /// Messages in the lane that the program may not have taken.
    pub(super) fn unread_in_lane(&self) -> impl Iterator<Item = &Unread> {
        self.down.iter().flat_map(|down| down.unread.iter().map(|(_, unread)| unread))
    }

    /// Removes and returns the messages in the lane that the program may not have taken.
    pub(super) fn take_unread_in_lane(&mut self) -> impl Iterator<Item = Unread> + use<> {
        let unread = self.down.as_mut().map(|down| std::mem::take(&mut down.unread));
        unread.unwrap_or_default().into_iter().map(|(_, unread)| unread)
    }

    /// Moves messages taken from the node to the lane. Returns EAGAIN if there is no room for the rest.
    pub(super) fn write_lane(&mut self) -> Result<(), Errno> {
        let Self { out, out_sent, kind, down: Some(down), .. } = self else { return Ok(()) };
        down.note_taken();
        while let Some(Outgoing { header, taken }) = out.front() {
            let payload = taken.payload();
            if *kind == SocketKind::Stream {
                // A peer may send an empty message; on a stream, nothing is reported for it.
                if payload.len() > *out_sent {
                    down.put(&[], &payload[*out_sent..])?;
                }
                *out_sent = 0;
                out.pop_front();
                continue;
            }
            down.put(header, payload)?;
            let end = down.tx.position();
            let Some(Outgoing { taken, .. }) = out.pop_front() else { break };
            if down.direct.is_some() {
                continue;
            }
            let bytes = taken.payload().len();
            // A message is only kept until it is read if its sender wants it returned.
            let taken = taken.is_returnable().then_some(taken);
            down.unread.push_back((end, Unread { bytes, taken }));
        }
        Ok(())
    }

    /// Puts one message into the lane ahead of those that wait for room. Returns false if it does not fit.
    pub(super) fn write_lane_now(&mut self, header: &[u8; HEADER_LEN], payload: &[u8]) -> bool {
        let Some(down) = self.down.as_mut() else { return false };
        down.note_taken();
        let done = down.put(header, payload).is_ok();
        if done {
            if down.direct.is_none() {
                let unread = Unread { bytes: payload.len(), taken: None };
                down.unread.push_back((down.tx.position(), unread));
            }
            // If this fails, it is announced when the descriptor has room again.
            let _ = self.announce();
        }
        done
    }

    /// Sends a bell for the messages that have been put into the lane, if one is needed.
    pub(super) fn announce(&mut self) -> Result<(), Errno> {
        let Self { fd, down: Some(down), .. } = self else { return Ok(()) };
        let Down { tx, words, to_announce, .. } = &mut **down;
        let Some(what) = *to_announce else { return Ok(()) };
        let ring = || socket::send(&*fd, &[doorbell::RUNG as u8], true).map(drop);
        if matches!(what, Unannounced::Inherited) {
            doorbell::repeat(words.bell(), ring)?;
        }
        let is_for_one = |takes| match what {
            Unannounced::One { start, len } => len <= takes && tx.is_freed_up_to(start),
            _ => false,
        };
        let is_taken = || tx.is_freed_up_to(tx.position());
        doorbell::announce(words.bell(), is_for_one, is_taken, ring)?;
        *to_announce = None;
        Ok(())
    }
}

impl Service {
    /// Switches a socket to receiving through its lane. If that is a direct lane, the answer carries the descriptor of
    /// its memory.
    pub(super) fn begin_down_lane(&mut self, place: Place) -> Result<Answer, Errno> {
        let local = self.sockets.get(place).ok_or(Errno::BADF)?;
        if let Some(down) = &local.down {
            return down.answer();
        }
        let lanes = local.lanes.as_ref().ok_or(Errno::OPNOTSUPP)?;
        match local.phase {
            Phase::Connected => {}
            Phase::Open if !local.kind.is_connected_kind() => {}
            _ => return Err(Errno::OPNOTSUPP),
        }
        if local.end.is_some() || local.lingers.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let client = self.clients.get(local.client).ok_or(Errno::BADF)?;
        let down = Box::new(Down::new(lanes, self.make_direct(place)?));
        let answer = down.answer()?;
        // From here on receivers wait until the first bell is there, or the lane off again.
        let by = if down.direct.is_some() { slot::DOWN_DIRECT } else { slot::DOWN_BY_LANE };
        client.store(local.slot, slot::DOWN, by);
        // Ordering: either we see the reader of the descriptor, or the reader sees that it must not read.
        fence(Ordering::SeqCst);
        let read_by_nobody = client.load(local.slot, slot::READERS) == 0;
        let rung = if read_by_nobody {
            socket::send(&local.fd, &[doorbell::RUNG as u8], true)
        } else {
            Err(Errno::AGAIN)
        };
        if rung.is_err() {
            client.store(local.slot, slot::DOWN, 0);
            return Err(Errno::AGAIN);
        }
        down.words.bell().store(doorbell::RUNG, Ordering::Release);
        let peer = local.peer;
        if let Some(local) = self.sockets.get_mut(place) {
            local.down = Some(down);
            local.writable = true;
        }
        if let Some(peer) = peer {
            self.offer_outlet(peer);
        }
        Ok(answer)
    }
}
