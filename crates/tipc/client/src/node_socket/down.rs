//! Receiving through the lane from `tipcd` to the program, which is shared memory. See docs/decisions/0042 for the
//! reasons.
//!
//! All threads and processes that share the socket take turns at the ring, whose read position is in the shared memory.
//! The data descriptor carries bells, which announce messages in the ring ([`crossway_ring::doorbell`]), and the end of
//! the connection. What it held before the lane was switched on is read first.

use crossway_ring::doorbell::{self, Bells, Presence};
use crossway_ring::process_lock::Held;
use crossway_ring::region::SharedRing;
use crossway_ring::shared_rx::{ReceiverWords, Turn};
use crossway_ring::sync::fence;
use crossway_sys::{poll, spin};

use super::inlet::{Bell, Down, Inlet, InletWords};
use super::receive::Came;
use super::waiting::Woken;
use super::*;

/// Number of consecutive calls that must find a message waiting before a lane is worth the cost of its bells.
const GATHERS_FROM: u32 = 8;

/// One in this many receive calls checks for a waiting message before it waits.
const TRY_EVERY: u32 = 4;

/// How long a receiver yields its CPU when it finds that its lane is being switched on. After that, it sleeps for
/// `CHECK_EVERY` between checks: yielding would not let a tipcd of lower priority run on the receiver's CPU.
const YIELDING: Duration = Duration::from_micros(100);
const CHECK_EVERY: Duration = Duration::from_micros(50);

/// Number of messages taken in a row (under one bell, or without finding the ring empty) after which another message is
/// likely to follow immediately.
const FLOWS_FROM: u32 = 4;

/// How long to wait for the next message before the bell is removed: the time in which a sender of a stream writes
/// some messages.
const NEXT_MESSAGE: Duration = Duration::from_nanos(800);

/// Counts whether receive calls on a socket without a lane find a message waiting.
#[derive(Debug, Default)]
pub(super) struct Pace {
    calls: AtomicU32,
    found: AtomicU32,
}

/// The result of a receive call's turn at the ring.
pub(super) enum Found {
    /// A message, or stream bytes.
    Came(Came),
    /// The ring is empty, and this many bells have been consumed. If the descriptor still polls readable and this count
    /// has not changed, no new bell has arrived.
    Nothing { bells_consumed: u32 },
    /// Like [`Found::Nothing`], and the caller must wait by receiving the next bell: the bell's shared word already
    /// announces that.
    Awaits { bells_consumed: u32 },
    /// The end of the connection.
    End,
    /// Nothing was received, but the next attempt may succeed immediately: the lane has been switched off again, or the
    /// first record was of an unknown kind.
    Again,
}

/// What a receive call already knows when it takes a turn at the ring.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// If the descriptor has polled readable since the last turn: the number of bells that had been consumed by then.
    pub(super) polled: Option<u32>,
    pub(super) woken: Woken,
    /// Whether to check for the end of the connection although the call has not waited.
    pub(super) is_last: bool,
    /// Whether the call can wait by receiving the bell.
    pub(super) may_await: bool,
}

pub(super) type MyTurn<'a> = Turn<'a, SharedRing, InletWords, Held<'a>>;

impl NodeSocket {
    fn down_word(&self) -> &AtomicU64 {
        self.daemon.word(self.opened.slot, slot::DOWN)
    }

    /// Whether messages arrive only through the lane.
    #[inline]
    pub(super) fn is_down_lane_on(&self) -> bool {
        self.down_word().load(Ordering::Acquire) != 0
    }

    /// Reads the data descriptor if it carries the messages themselves. Returns `None` if messages arrive through the
    /// lane.
    #[inline]
    pub(super) fn read_descriptor<T>(
        &self,
        read: impl FnOnce() -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        let readers = self.daemon.word(self.opened.slot, slot::READERS);
        // Ordering: either the tipcd sees this reader, or this reader sees that the lane is on.
        readers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let outcome = (!self.is_down_lane_on()).then(read);
        readers.fetch_sub(1, Ordering::Release);
        outcome
    }

    /// Whether messages usually wait for this program rather than the program for them, so that one bell announces many
    /// of them. Assumed to be true if lanes are requested with the first message.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.daemon.lane_after() == 1 || self.pace.found.load(Ordering::Relaxed) >= GATHERS_FROM
    }

    /// Whether this receive call should check for a waiting message before it waits.
    #[inline]
    pub(super) fn tries_this_time(&self) -> bool {
        self.pace.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EVERY)
    }

    /// Records whether a receive call found a message that was already waiting.
    #[inline]
    pub(super) fn note_found(&self, at_once: bool) {
        let found = self.pace.found.load(Ordering::Relaxed);
        if found < GATHERS_FROM {
            self.pace.found.store(if at_once { found + 1 } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Returns the active lane, which another process may have requested.
    #[inline]
    pub(super) fn down_lane(&self) -> Result<&Down, Errno> {
        let lanes = match self.lanes() {
            Some(lanes) => lanes,
            None => self.join_lanes()?,
        };
        lanes.down.as_ref().ok_or(Errno::NOLCK)
    }

    /// Returns the ring through which messages arrive.
    #[inline]
    pub(super) fn inlet<'a>(&self, down: &'a Down) -> Result<&'a Inlet, Errno> {
        if self.down_word().load(Ordering::Acquire) != slot::DOWN_DIRECT {
            return Ok(&down.lane);
        }
        match down.direct.get() {
            Some(inlet) => Ok(inlet),
            None => self.join_direct(down),
        }
    }

    /// Gets the direct lane if another process requested it, or if this process never fetched the answer that carried
    /// its memory.
    #[cold]
    fn join_direct<'a>(&self, down: &'a Down) -> Result<&'a Inlet, Errno> {
        down.begin(self.ask(&Request::LaneDown { token: self.opened.token })?)?;
        down.direct.get().ok_or(Errno::PROTO)
    }

    /// Number of bells consumed since messages have been arriving through the lane; `None` if they do not arrive
    /// through it. For tests and diagnostics.
    #[doc(hidden)]
    pub fn down_lane_bells(&self) -> Option<u32> {
        if !self.is_down_lane_on() {
            return None;
        }
        let down = self.down_lane().ok()?;
        Some(down.words.bells_consumed().load(Ordering::Relaxed))
    }

    /// Takes the next message or stream bytes; leaves them in the ring if `look` is set.
    #[inline]
    pub(super) fn take_turn(
        &self,
        down: &Down,
        buf: &mut [u8],
        look: bool,
        before: Before,
    ) -> Result<Found, Errno> {
        let inlet = self.inlet(down)?;
        let held = down.lock.hold()?;
        let orphaned = held.orphaned;
        let mut turn = inlet.rx.turn(held);
        let bell = Bell { fd: &self.fd, down, inlet };
        if orphaned {
            turn.settle(&bell, || bell.wake_producer())?;
        }
        let words = inlet.rx.words();
        if words.begun().load(Ordering::Relaxed) == 0 {
            if !self.await_first_bell(words)? {
                return Ok(Found::Again);
            }
            match self.read_what_was_before(buf, look)? {
                Some(found) => {
                    // Data that was read must be delivered even if the bell could not be consumed.
                    if !look && self.has_begun(words).unwrap_or(false) && turn.is_empty() {
                        // No bell is needed if it would announce nothing.
                        let _ = turn.emptied(&bell, || bell.wake_producer());
                    }
                    return Ok(found);
                }
                None => words.begun().store(1, Ordering::Relaxed),
            }
        }
        self.look_into_ring(&mut turn, &bell, buf, look, before)
    }

    #[inline]
    fn look_into_ring(
        &self,
        turn: &mut MyTurn<'_>,
        bell: &Bell<'_>,
        buf: &mut [u8],
        look: bool,
        before: Before,
    ) -> Result<Found, Errno> {
        let Before { polled, woken, is_last, may_await } = before;
        let waited = polled.is_some() || woken != Woken::Not;
        // A bell that was received counts for one message.
        let mut ate = match woken {
            Woken::Not => false,
            Woken::ByBell => !doorbell::withdraw(bell.inlet.rx.words().bell()),
            Woken::WithoutBell => turn.give_up(bell)?,
        };
        let bells_consumed = turn.bells_consumed();
        loop {
            let Some(front) = turn.front().map_err(|_| Errno::PROTO)? else {
                if std::mem::take(&mut ate) {
                    turn.end_wait(bell)?;
                }
                turn.emptied(bell, || bell.wake_producer())?;
                // Published in the meantime, under the existing bell: a program that relies on edge-triggered events gets no other notification.
                if !turn.is_empty() {
                    continue;
                }
                if !waited && !is_last {
                    return Ok(self.find_nothing(turn, bell, buf.len(), may_await));
                }
                return match bell.presence()? {
                    Presence::End if turn.is_empty() => Ok(Found::End),
                    // Published just before the end.
                    Presence::End => continue,
                    Presence::Bell if turn.is_empty() => {
                        turn.eat_stray(bell)?;
                        Ok(Found::Nothing { bells_consumed: turn.bells_consumed() })
                    }
                    _ => Ok(self.find_nothing(turn, bell, buf.len(), may_await)),
                };
            };
            if !ate && !turn.is_heard(polled == Some(bells_consumed), bell)? {
                return Ok(Found::Nothing { bells_consumed });
            }
            let (came, records) = if self.kind == SocketKind::Stream {
                take_bytes(turn, front, buf, look)
            } else {
                let came = turn.with(&front, |record| Came::copy(record, buf));
                if !look {
                    turn.take(&front);
                }
                (came, 1)
            };
            if !look {
                if bell.down.note_taken().max(records) >= FLOWS_FROM {
                    wait_briefly(turn);
                }
                if std::mem::take(&mut ate) {
                    let _ = turn.end_wait(bell);
                }
                if turn.is_empty() {
                    // Data that was taken must be delivered even if the bell could not be consumed.
                    let _ = turn.emptied(bell, || bell.wake_producer());
                } else {
                    turn.wake_producer(|| bell.wake_producer());
                }
            }
            // Skip records of a kind added in a later version.
            if let Some(came) = came {
                return Ok(Found::Came(came));
            }
            if look {
                // The record stays in the ring.
                return Err(Errno::PROTO);
            }
        }
    }

    /// Number of bytes in the descriptor before the first bell; for a socket with messages, the length of the next
    /// record.
    fn bytes_before_bell(&self) -> Result<usize, Errno> {
        if self.kind == SocketKind::Stream {
            return Ok(socket::readable_bytes(&self.fd)?.saturating_sub(1));
        }
        match records::recv(&self.fd, &mut [], &mut [0], true, true) {
            Ok(came) if came.len >= HEADER_LEN => Ok(came.len),
            Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// Checks whether the descriptor holds nothing but bells, and records the result. Once true, it remains true.
    fn has_begun(&self, words: &InletWords) -> Result<bool, Errno> {
        let begun = words.bell().load(Ordering::Acquire) == doorbell::RUNG
            && self.bytes_before_bell()? == 0;
        words.begun().store(begun.into(), Ordering::Relaxed);
        Ok(begun)
    }

    /// Waits for the tipcd that is switching the lane on. The tipcd, which does nothing else in between, either writes
    /// the first bell into the descriptor and marks it as written, or switches the lane off again. A non-blocking call
    /// waits for this too: the descriptor may hold messages, or the bell, and the caller may already have received the
    /// only edge-triggered event for them. Returns false if the lane is off.
    #[cold]
    fn await_first_bell(&self, words: &InletWords) -> Result<bool, Errno> {
        let is_rung = || words.bell().load(Ordering::Acquire) == doorbell::RUNG;
        let asleep_from = Instant::now() + YIELDING;
        while !is_rung() {
            if !self.is_down_lane_on() {
                return Ok(false);
            }
            // If the tipcd was killed in between, no bell will come: its remaining data is read, and then the end.
            if poll::is_hung_up(&self.fd)? && !is_rung() {
                return Ok(true);
            }
            if Instant::now() < asleep_from {
                std::thread::yield_now();
            } else {
                std::thread::sleep(CHECK_EVERY);
            }
        }
        Ok(true)
    }

    /// Reads what the descriptor held before the lane was switched on: everything up to the first bell. Returns `None`
    /// if nothing is left.
    #[cold]
    fn read_what_was_before(&self, buf: &mut [u8], look: bool) -> Result<Option<Found>, Errno> {
        let before = self.bytes_before_bell()?;
        if before == 0 {
            return Ok(None);
        }
        let outcome = if self.kind == SocketKind::Stream {
            let len = buf.len().min(before);
            self.read_bytes(&mut buf[..len], true, look)
        } else {
            self.read_record(buf, true, look)
        };
        match outcome {
            Ok(Some(came)) => Ok(Some(Found::Came(came))),
            Ok(None) => Ok(Some(Found::Again)),
            Err(Errno::AGAIN | Errno::CONNRESET) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Gives a sender that sends one message after another some time to publish the next one. If the bell were removed and
/// sent again for every few messages, it would cost both ends several times as much.
#[inline]
fn wait_briefly(turn: &MyTurn<'_>) {
    if !turn.is_empty() {
        return;
    }
    // Without looking at the ring meanwhile: each look would take a cache line away from the sender, which has to fetch
    // it again for its next message.
    spin::idle_for(NEXT_MESSAGE);
}

/// Reads as many bytes of a stream as are available and fit into the buffer. Also returns the number of records that
/// they come from.
#[inline]
fn take_bytes(
    turn: &mut MyTurn<'_>,
    front: crossway_ring::shared_rx::Front,
    buf: &mut [u8],
    look: bool,
) -> (Option<Came>, u32) {
    let (mut filled, mut records, mut next) = (0, 0, Some(front));
    while let Some(front) = next.filter(|_| filled < buf.len()) {
        let room = &mut buf[filled..];
        let len = turn.with(&front, |bytes| {
            let len = bytes.len().min(room.len());
            room[..len].copy_from_slice(&bytes[..len]);
            len
        });
        (filled, records) = (filled + len, records + 1);
        // Report corruption only if no data precedes it.
        next = if look {
            turn.after(&front).unwrap_or(None)
        } else {
            turn.take_part(&front, len);
            turn.front().unwrap_or(None)
        };
    }
    ((filled > 0).then(|| Came::bytes(filled)), records)
}
