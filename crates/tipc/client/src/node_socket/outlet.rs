//! The sending end of the peer's direct lane. Through direct lanes, two programs of one tipcd exchange messages without
//! involving the tipcd. See docs/decisions/0048 for the reasons.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use crossway_ring::bell::Silent;
use crossway_ring::receiver::Receiver;
use crossway_ring::shared_rx::ReceiverWords;
use crossway_ring::{RingTx, SendError, Wait};
use crossway_ring::{doorbell, handover};
use crossway_sys::fork_mark;

use super::lanes::{End, Lanes, Put, Way, fill};
use super::*;
use crate::daemon::{Answer, Claim};
use crate::protocol::control::Granted;
use crate::protocol::lane::{self, LaneMemory, outlet};

/// The sending end of the peer's direct lane. Only the process that requested it uses it.
pub(super) struct Outlet {
    way: Way<Silent>,
    /// The words of the ring's receivers, among them the state of the bell.
    bell: Receiver,
    /// The other end of the peer's data descriptor, into which bells are sent.
    peer: OwnedFd,
    /// The header of every record.
    header: [u8; HEADER_LEN],
}

/// The state of the request for the outlet, and the outlet once it is granted.
#[derive(Default)]
pub(super) struct Outlets {
    state: AtomicU32,
    granted: OnceLock<Box<Outlet>>,
}

/// No request has been made yet.
const IDLE: u32 = 0;
/// The request is pending.
const ASKED: u32 = 1;
/// The request has failed; there will be no outlet.
const NEVER: u32 = 2;

impl Outlets {
    #[inline]
    pub(super) fn is_granted(&self) -> bool {
        self.granted.get().is_some()
    }

    /// Whether a request is pending, so that an answer may arrive that nobody fetches.
    pub(super) fn is_asked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ASKED
    }
}

impl Outlet {
    fn of(mut answer: Answer, process: u32) -> Option<Self> {
        let mut reader = Reader::new(&answer.bytes);
        let granted = Granted::decode(&mut reader)?;
        let header = reader.header()?;
        let (peer, file) = (answer.fds.pop()?, answer.fds.pop()?);
        let memory = LaneMemory::open(&file, granted.ring_bytes as usize).ok()?;
        let mut tx = RingTx::new(memory.down(), Silent, Wait::Block);
        // The tipcd continues to use the ring after this end.
        tx.disown();
        let bell = Receiver::of(&memory.words(), lane::DOWN);
        Some(Self { way: Way::new(tx, process), bell, peer, header })
    }

    /// Sends the peer a bell for a message that starts at `start` in the ring, unless one is already there. If the bell
    /// cannot be sent, it is sent with a later message.
    #[inline]
    fn announce(&self, end: &End<Silent>, start: u64, len: usize) {
        let tx = &end.tx;
        let _ = doorbell::announce(
            self.bell.bell(),
            |takes| len <= takes && tx.is_freed_up_to(start),
            || tx.is_freed_up_to(tx.position()),
            || socket::send(&self.peer, &[doorbell::RUNG as u8], true).map(drop),
        );
    }
}

impl NodeSocket {
    /// Whether messages are sent through the peer's direct lane. For tests and diagnostics.
    #[doc(hidden)]
    pub fn sends_directly(&self) -> bool {
        self.lanes().is_some_and(|lanes| lanes.outlet.is_granted())
    }

    /// Whether the peer waits by receiving the next bell of its direct lane. For tests only.
    #[doc(hidden)]
    pub fn peer_awaits_bell(&self) -> bool {
        let outlet = self.lanes().and_then(|lanes| lanes.outlet.granted.get());
        outlet.is_some_and(|outlet| {
            outlet.bell.bell().load(Ordering::Relaxed) & doorbell::AWAITED != 0
        })
    }

    /// Returns the sending end of the peer's direct lane, if it is granted; requests it once it is offered.
    #[inline]
    pub(super) fn outlet<'a>(&self, lanes: &'a Lanes) -> Option<&'a Outlet> {
        match lanes.outlet.granted.get() {
            None if lanes.word(outlet::READY).load(Ordering::Relaxed) != 0 => {
                self.want_outlet(lanes)
            }
            outlet => outlet.map(Box::as_ref),
        }
    }

    /// Requests the outlet without waiting for the answer, or fetches the answer.
    #[cold]
    fn want_outlet<'a>(&self, lanes: &'a Lanes) -> Option<&'a Outlet> {
        let Outlets { state, granted } = &lanes.outlet;
        let claim = Claim::Outlet(self.opened.token);
        match state.load(Ordering::Relaxed) {
            // Only one thread makes the request.
            IDLE if state
                .compare_exchange(IDLE, ASKED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok() =>
            {
                match self.daemon.ask_later(&Request::Outlet { token: self.opened.token }, claim) {
                    Ok(true) => {}
                    Ok(false) => state.store(IDLE, Ordering::Relaxed),
                    Err(_) => state.store(NEVER, Ordering::Relaxed),
                }
                None
            }
            ASKED => {
                let answer = self.daemon.fetch(claim, Instant::now())?;
                let outlet = answer
                    .ok()
                    .zip(fork_mark::process())
                    .and_then(|(answer, process)| Outlet::of(answer, process));
                match outlet {
                    Some(outlet) => drop(granted.set(Box::new(outlet))),
                    None => state.store(NEVER, Ordering::Relaxed),
                }
                granted.get().map(Box::as_ref)
            }
            _ => None,
        }
    }

    /// Puts a message into the peer's direct lane. Waits for room as long as patience lasts.
    #[inline]
    pub(super) fn put_direct(
        &self,
        lanes: &Lanes,
        outlet: &Outlet,
        payload: &[u8],
        patience: Patience,
    ) -> Result<Put, Errno> {
        let header = if self.kind == SocketKind::Stream { &[][..] } else { &outlet.header };
        let len = header.len() + payload.len();
        let way = &outlet.way;
        if !way.is_mine() {
            return Ok(Put::Not);
        }
        let mut end = way.end();
        loop {
            match self.publish(lanes, outlet, &mut end, header, payload) {
                Some(Ok(())) => {
                    let heard = self.is_heard(&mut end)?;
                    return Ok(if heard { Put::Done } else { way.give_up() });
                }
                Some(Err(SendError::Full)) => {}
                Some(Err(_)) => return Ok(way.give_up()),
                None => return Ok(Put::Not),
            }
            end = match self.wait_for_room(way, end, len, patience)? {
                Some(end) => end,
                None => return Ok(Put::Not),
            };
        }
    }

    /// Publishes a message. Returns `None` if it must go through the descriptor, for example because the tipcd holds
    /// earlier messages.
    #[inline]
    fn publish(
        &self,
        lanes: &Lanes,
        outlet: &Outlet,
        end: &mut End<Silent>,
        header: &[u8],
        payload: &[u8],
    ) -> Option<Result<(), SendError>> {
        let put = lanes.put_up()?;
        let words = lanes.outlet_words();
        let turn = handover::enter(words, || self.sent().load(Ordering::SeqCst).wrapping_add(put))?;
        if lanes.word(lane::STOPPED).load(Ordering::SeqCst) != 0 {
            return None;
        }
        handover::resume(words, &mut end.tx);
        let (start, len) = (end.tx.position(), header.len() + payload.len());
        if let Err(error) = end.tx.try_send_with(len, |place| fill(place, header, payload)) {
            return Some(Err(error));
        }
        handover::leave(words, &end.tx);
        outlet.announce(end, start, payload.len());
        drop(turn);
        Some(Ok(()))
    }
}
