//! Lanes: a busy socket sends through shared memory, without system calls. See docs/decisions/0042 for the reasons.

use std::sync::Condvar;
use std::sync::atomic::AtomicBool;

use crossway_ring::region::SharedRing;
use crossway_ring::sync::fence;
use crossway_ring::{Bell, RingMemory, RingTx, SendError, Wait};
use crossway_sys::eventfd::EventFd;
use crossway_sys::{fork_mark, futex, poll};

use super::inlet::Down;
use super::outlet::Outlets;
use super::*;
use crate::protocol::lane::{self, LaneMemory, OutletWords};

/// How often a sender that waits for room checks whether its tipcd has ended.
const GLANCE: Duration = Duration::from_millis(50);

/// Number of messages after which a sender that did not have to wake its tipcd checks whether the tipcd has ended.
const WATCH_EVERY: u32 = 64;

/// Maximum number of stream bytes in a record, so that large writes can be read while they are still in progress.
const PIECE: usize = 32 << 10;

/// The lanes of a socket, mapped by this process or its parent.
pub(super) struct Lanes {
    memory: LaneMemory,
    words: OutletWords,
    up: Option<Up>,
    pub(super) down: Option<Down>,
    /// The sending end of the peer's direct lane, which is used instead of `up` once it is granted.
    pub(super) outlet: Outlets,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// The sending end of the lane to tipcd, used only by the process that requested it.
struct Up {
    way: Way<TipcdBell>,
    /// Number of records put into the ring.
    put: AtomicU64,
}

/// The sending end of a ring, shared by the threads of the process that requested it.
pub(super) struct Way<B: Bell> {
    end: Mutex<End<B>>,
    /// Signalled when the thread that slept until there was room has woken, so that the others try again.
    woken: Condvar,
    process: u32,
    /// Set when the ring must no longer be used: it is corrupted, or its tipcd has ended.
    pub(super) broken: AtomicBool,
}

pub(super) struct End<B: Bell> {
    pub(super) tx: RingTx<SharedRing, B>,
    /// Number of messages sent since the last check whether the tipcd is alive.
    unwatched: u32,
    /// Number of times the tipcd had been woken at that check.
    wakes: u64,
    /// Whether a thread is sleeping on the ring's state word. The others wait for that thread.
    sleeps: bool,
}

/// Wakes the tipcd through its eventfd.
struct TipcdBell(Arc<EventFd>);

impl Bell for TipcdBell {
    #[inline]
    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        futex::wait(own_state, crossway_ring::layout::ASLEEP, limit)
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        self.0.signal()
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        // The data descriptor shows whether the tipcd has ended.
        Ok(false)
    }
}

/// Whether a message was put into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// The message was not put into a lane, and must be sent through the descriptor.
    Not,
}

impl Lanes {
    pub(super) fn new(
        memory: LaneMemory,
        file: Option<OwnedFd>,
        bell: EventFd,
        sends: bool,
    ) -> Self {
        let bell = Arc::new(bell);
        let down = file.and_then(|file| Down::new(&memory, file, bell.clone()));
        let up = fork_mark::process().filter(|_| sends).map(|process| {
            let way = Way::new(RingTx::new(memory.up(), TipcdBell(bell), Wait::Block), process);
            Up { way, put: AtomicU64::new(0) }
        });
        Self {
            words: OutletWords::of(memory.words()),
            memory,
            up,
            down,
            outlet: Outlets::default(),
        }
    }

    /// Returns a word of the memory that the lanes share with tipcd, by its index.
    #[inline]
    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        self.words.lanes().word(index)
    }

    /// Returns the words by which this program and tipcd take turns at the peer's direct lane.
    #[inline]
    pub(super) const fn outlet_words(&self) -> &OutletWords {
        &self.words
    }

    /// Number of records that this process has put into the ring to tipcd; `None` if it does not have the sending end.
    #[inline]
    pub(super) fn put_up(&self) -> Option<u64> {
        self.up.as_ref().map(|up| up.put.load(Ordering::Relaxed))
    }
}

impl<B: Bell> Drop for Way<B> {
    fn drop(&mut self) {
        if fork_mark::process() != Some(self.process) {
            self.end.get_mut().unwrap_or_else(PoisonError::into_inner).tx.disown();
        }
    }
}

impl<B: Bell> Way<B> {
    pub(super) fn new(tx: RingTx<SharedRing, B>, process: u32) -> Self {
        let end = Mutex::new(End { tx, unwatched: 0, wakes: 0, sleeps: false });
        Self { end, woken: Condvar::new(), process, broken: AtomicBool::new(false) }
    }

    pub(super) fn end(&self) -> MutexGuard<'_, End<B>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may use the ring.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        fork_mark::process() == Some(self.process) && !self.broken.load(Ordering::Relaxed)
    }

    /// Stops using the ring. The current message and all later ones go through the descriptor, which reports errors.
    #[cold]
    pub(super) fn give_up(&self) -> Put {
        self.broken.store(true, Ordering::Relaxed);
        Put::Not
    }
}

/// Writes a record, which consists of a header and a payload.
#[inline]
pub(super) fn fill(place: &mut [u8], header: &[u8], payload: &[u8]) {
    let (to, rest) = place.split_at_mut(header.len());
    to.copy_from_slice(header);
    rest.copy_from_slice(payload);
}

impl NodeSocket {
    /// Number of times this process slept until there was room in the lane, and number of times it woke the tipcd;
    /// `None` if it does not have the sending end. For tests and diagnostics.
    #[doc(hidden)]
    pub fn lane_sleeps_and_wakes(&self) -> Option<(u64, u64)> {
        let up = self.lanes()?.up.as_ref()?;
        Some(up.way.end().tx.sleeps_and_wakes())
    }

    #[inline]
    pub(super) fn sent(&self) -> &AtomicU64 {
        self.daemon.word(self.opened.slot, slot::SENT)
    }

    /// Whether the lane may be used now: everything that was sent through the descriptor has been read from it, and the
    /// tipcd has not stopped the lane.
    #[inline]
    fn may_use(&self, lanes: &Lanes) -> bool {
        let sent = self.sent().load(Ordering::SeqCst);
        let taken = self.daemon.word(self.opened.slot, slot::TAKEN).load(Ordering::SeqCst);
        sent == taken && lanes.word(lane::STOPPED).load(Ordering::Relaxed) == 0
    }

    /// Puts a message into the peer's direct lane or into the lane to tipcd. `header` is empty for a stream.
    #[inline]
    fn put_by_lane(&self, header: &[u8], payload: &[u8], patience: Patience) -> Result<Put, Errno> {
        let Some(lanes) = self.want_lanes() else { return Ok(Put::Not) };
        let Some(Up { way, put }) = &lanes.up else { return Ok(Put::Not) };
        if !way.is_mine() {
            return Ok(Put::Not);
        }
        if let Some(outlet) = self.outlet(lanes) {
            // From now on the lane towards tipcd stays empty, so that nothing is overtaken.
            return self.put_direct(lanes, outlet, payload, patience);
        }
        let len = header.len() + payload.len();
        let mut end = way.end();
        loop {
            if !self.may_use(lanes) || lanes.outlet.is_granted() {
                return Ok(Put::Not);
            }
            match end.tx.try_send_with(len, |place| fill(place, header, payload)) {
                Ok(()) => {
                    put.fetch_add(1, Ordering::Relaxed);
                    // If no tipcd is left to read it, the descriptor reports the error.
                    let heard = self.is_heard(&mut end)?;
                    return Ok(if heard { Put::Done } else { way.give_up() });
                }
                Err(SendError::Full) => {}
                Err(_) => return Ok(way.give_up()),
            }
            end = match self.wait_for_room(way, end, len, patience)? {
                Some(end) => end,
                None => return Ok(Put::Not),
            };
        }
    }

    /// Checks at intervals whether the tipcd is alive, and returns false if it is not. Without this check, messages
    /// that are put into the ring of a killed tipcd would count as sent.
    #[inline]
    pub(super) fn is_heard<B: Bell>(&self, end: &mut End<B>) -> Result<bool, Errno> {
        let (_, wakes) = end.tx.sleeps_and_wakes();
        end.unwatched += 1;
        if end.unwatched < WATCH_EVERY && end.wakes == wakes {
            return Ok(true);
        }
        (end.unwatched, end.wakes) = (0, wakes);
        Ok(!poll::is_hung_up(&self.fd)?)
    }

    /// Sleeps until the lane may have room. Returns `None` if the message must be sent through the descriptor instead:
    /// the descriptor gives a non-blocking caller the right result and can be polled.
    #[cold]
    pub(super) fn wait_for_room<'a, B: Bell>(
        &self,
        way: &'a Way<B>,
        mut end: MutexGuard<'a, End<B>>,
        len: usize,
        patience: Patience,
    ) -> Result<Option<MutexGuard<'a, End<B>>>, Errno> {
        let waits = match patience {
            Patience::Now => false,
            Patience::Until(_) => !patience.is_over(),
            Patience::Forever => socket::waits_for_ever(&self.fd)?,
        };
        if !waits {
            return Ok(None);
        }
        let limit = patience.left().map_or(GLANCE, |left| left.min(GLANCE));
        if end.sleeps {
            // The thread that sleeps on the ring wakes all others.
            let (end, _) =
                way.woken.wait_timeout(end, limit).unwrap_or_else(PoisonError::into_inner);
            return Ok(self.is_going_on()?.then_some(end));
        }
        match end.tx.announce_sleep(len) {
            Ok(true) => return Ok(Some(end)),
            Ok(false) => {}
            Err(_) => {
                way.give_up();
                return Ok(None);
            }
        }
        let memory = end.tx.memory().clone();
        end.sleeps = true;
        drop(end);
        let slept =
            futex::wait(memory.producer_state(), crossway_ring::layout::ASLEEP, Some(limit));
        let mut end = way.end();
        end.sleeps = false;
        way.woken.notify_all();
        slept.map_err(|error| Errno::from_raw_os_error(error.errno()))?;
        Ok(self.is_going_on()?.then_some(end))
    }

    /// Whether the tipcd still exists, so that there may be room later; EPIPE if the connection has ended.
    fn is_going_on(&self) -> Result<bool, Errno> {
        if self.kind.is_connected_kind() && self.state().phase != Phase::Connected {
            return Err(Errno::PIPE);
        }
        Ok(!poll::is_hung_up(&self.fd)?)
    }

    /// Sends one message.
    #[inline]
    pub(super) fn put(
        &self,
        header: &[u8; SEND_HEADER_LEN],
        payload: &[u8],
        patience: Patience,
    ) -> Result<usize, Errno> {
        if self.put_by_lane(header, payload, patience)? == Put::Done {
            return Ok(payload.len());
        }
        // Count first, so that no message can overtake this one through the lane.
        self.sent().fetch_add(1, Ordering::SeqCst);
        let outcome = patiently(&self.fd, Interest::Writable, patience, |nonblocking| {
            records::send(&self.fd, header, payload, nonblocking)
        });
        if let Err(errno) = outcome {
            self.sent().fetch_sub(1, Ordering::SeqCst);
            return Err(errno);
        }
        Ok(payload.len())
    }

    /// Sends stream bytes, as many as are accepted while patience lasts.
    pub(super) fn put_bytes(&self, payload: &[u8], patience: Patience) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < payload.len() {
            let rest = &payload[sent..];
            let piece = &rest[..rest.len().min(PIECE)];
            let outcome = match self.put_by_lane(&[], piece, patience) {
                Ok(Put::Done) => {
                    sent += piece.len();
                    continue;
                }
                Ok(Put::Not) => self.send_bytes(rest, patience),
                Err(errno) => Err(errno),
            };
            match outcome {
                Ok(more) => sent += more,
                Err(errno) if sent == 0 => return Err(errno),
                Err(_) => break,
            }
            if patience == Patience::Now {
                break;
            }
        }
        Ok(sent)
    }

    /// Sends stream bytes through the descriptor.
    fn send_bytes(&self, bytes: &[u8], patience: Patience) -> Result<usize, Errno> {
        // Count first, so that no data can overtake these bytes through the lane.
        self.sent().fetch_add(bytes.len() as u64, Ordering::SeqCst);
        let outcome = patiently(&self.fd, Interest::Writable, patience, |nonblocking| {
            socket::send(&self.fd, bytes, nonblocking)
        });
        let left = bytes.len() - outcome.unwrap_or(0);
        self.sent().fetch_sub(left as u64, Ordering::SeqCst);
        outcome
    }
}
