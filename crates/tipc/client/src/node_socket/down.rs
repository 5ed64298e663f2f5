//! The way from `tipcd` to the program by shared memory. docs/decisions/0042 gives the reasons.
//!
//! All threads and processes that have the socket take turns at the ring, whose position lies in the shared memory. The data descriptor
//! carries bells ([`crossway_ring::doorbell`]) and the end; what it held when the lane began is read first.

use crossway_ring::SharedRx;
use crossway_ring::doorbell::{self, Bells, Presence};
use crossway_ring::process_lock::{Held, ProcessLock};
use crossway_ring::receiver::Receiver;
use crossway_ring::region::SharedRing;
use crossway_ring::shared_rx::{ReceiverWords, Turn};
use crossway_ring::sync::fence;
use crossway_sys::eventfd::EventFd;
use crossway_sys::poll;

use super::lane_request::Beginning;
use super::receive::Came;
use super::*;
use crate::protocol::lane::{self, LaneMemory};

/// Messages found waiting, one look after the other, from which on a lane is worth its bells.
const GATHERS_FROM: u32 = 8;

/// One receiving call of so many looks before it waits.
const TRY_EVERY: u32 = 4;

/// How messages have come to a socket that has no lane.
#[derive(Debug, Default)]
pub(super) struct Pace {
    calls: AtomicU32,
    found: AtomicU32,
}

/// A socket's receiving lane.
pub(super) struct Down {
    rx: SharedRx<SharedRing, Receiver>,
    lock: ProcessLock<Receiver>,
    /// Wakes the tipcd, which waits for room.
    bell: Arc<EventFd>,
    pub(super) beginning: Beginning,
}

impl Down {
    /// The lane in the memory behind `file`; `None` where the system does not let processes take turns.
    pub(super) fn new(memory: &LaneMemory, file: OwnedFd, bell: Arc<EventFd>) -> Option<Self> {
        let words = Receiver::of(&memory.words(), lane::DOWN);
        let lock = ProcessLock::join(words.clone(), file).ok()?;
        Some(Self {
            rx: SharedRx::new(memory.down(), words),
            lock,
            bell,
            beginning: Beginning::default(),
        })
    }
}

impl Down {
    /// There is room for what waits in the tipcd.
    fn wake_tipcd(&self) {
        // It is a counter that cannot be full.
        let _ = self.bell.signal();
    }

    /// After another descriptor of the memory's file was closed.
    pub(super) fn claim_again(&self) -> Result<(), Errno> {
        self.lock.claim_again()
    }
}

/// The data descriptor, as far as it carries bells.
struct Bell<'a> {
    fd: &'a OwnedFd,
    down: &'a Down,
}

impl Bells for Bell<'_> {
    type Error = Errno;

    fn presence(&self) -> Result<Presence, Errno> {
        match records::recv(self.fd, &mut [], &mut [0], true, true) {
            Ok(came) if came.len > 0 => Ok(Presence::Bell),
            Ok(_) | Err(Errno::CONNRESET) => Ok(Presence::End),
            Err(Errno::AGAIN) => Ok(Presence::Nothing),
            Err(errno) => Err(errno),
        }
    }

    fn eat(&self) -> Result<(), Errno> {
        match socket::recv(self.fd, &mut [0], true) {
            Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => {}
            Err(errno) => return Err(errno),
        }
        self.down.rx.words().bells_eaten().fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn ring_is_empty(&self) -> Result<bool, Errno> {
        Ok(self.down.rx.is_empty())
    }
}

/// What a turn found.
pub(super) enum Found {
    /// A message, or octets.
    Came(Came),
    /// Nothing. When the descriptor polls readable and so many bells have been taken out by then, the bell that was seen is still there.
    Nothing { bells_eaten: u32 },
    /// The end.
    End,
}

type MyTurn<'a> = Turn<'a, SharedRing, Receiver, Held<'a>>;

impl NodeSocket {
    fn down_word(&self) -> &AtomicU64 {
        self.daemon.word(self.opened.slot, slot::DOWN)
    }

    /// Whether messages come by the lane and by nothing else.
    #[inline]
    pub(super) fn is_down_lane_on(&self) -> bool {
        self.down_word().load(Ordering::Acquire) != 0
    }

    /// Reads the data descriptor, if its octets are the messages themselves; `None` if they are not any more.
    #[inline]
    pub(super) fn read_descriptor<T>(
        &self,
        read: impl FnOnce() -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        let readers = self.daemon.word(self.opened.slot, slot::READERS);
        // Either tipcd sees that we read, or we see that the lane is on.
        readers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let outcome = (!self.is_down_lane_on()).then(read);
        readers.fetch_sub(1, Ordering::Release);
        outcome
    }

    /// Whether messages wait for this program rather than it for them: a bell then stands for many of them. Where there are lanes from the first message on
    /// it is taken for granted.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.daemon.lane_after() == 1 || self.pace.found.load(Ordering::Relaxed) >= GATHERS_FROM
    }

    /// Whether this receiving call is one of those that find out whether a message waits already, before they wait for one.
    #[inline]
    pub(super) fn tries_this_time(&self) -> bool {
        self.pace.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EVERY)
    }

    /// A message was there at once, or not.
    #[inline]
    pub(super) fn note_found(&self, at_once: bool) {
        let found = self.pace.found.load(Ordering::Relaxed);
        if found < GATHERS_FROM {
            self.pace.found.store(if at_once { found + 1 } else { 0 }, Ordering::Relaxed);
        }
    }

    /// The lane that is on, perhaps by another process's wish.
    #[inline]
    pub(super) fn down_lane(&self) -> Result<&Down, Errno> {
        let lanes = match self.lanes() {
            Some(lanes) => lanes,
            None => self.join_lanes()?,
        };
        lanes.down.as_ref().ok_or(Errno::NOLCK)
    }

    /// Bells taken out of the data descriptor since messages come by the lane; `None` while they do not. For tests and the curious.
    #[doc(hidden)]
    pub fn down_lane_bells(&self) -> Option<u32> {
        if !self.is_down_lane_on() {
            return None;
        }
        let down = self.down_lane().ok()?;
        Some(down.rx.words().bells_eaten().load(Ordering::Relaxed))
    }

    /// Takes what is there; with `look` it stays. `waited` is what the last turn found, after which the descriptor polled readable; `is_last` asks for the
    /// end even so.
    #[inline]
    pub(super) fn take_turn(
        &self,
        down: &Down,
        buf: &mut [u8],
        look: bool,
        waited: Option<u32>,
        is_last: bool,
    ) -> Result<Found, Errno> {
        let held = down.lock.hold()?;
        let orphaned = held.orphaned;
        let mut turn = down.rx.turn(held);
        let bell = Bell { fd: &self.fd, down };
        if orphaned {
            turn.settle(&bell, || down.wake_tipcd())?;
        }
        if down.rx.words().begun().load(Ordering::Relaxed) == 0 {
            match self.read_what_was_before(down, buf, look)? {
                Some(found) => {
                    // What was read is to be handed over even if the bell could not be.
                    if !look && self.has_begun(down).unwrap_or(false) && turn.is_empty() {
                        // Nobody is to come for the bell alone.
                        let _ = turn.emptied(&bell, || down.wake_tipcd());
                    }
                    return Ok(found);
                }
                None => down.rx.words().begun().store(1, Ordering::Relaxed),
            }
        }
        self.look_into_ring(&mut turn, &bell, buf, look, (waited, is_last))
    }

    #[inline]
    fn look_into_ring(
        &self,
        turn: &mut MyTurn<'_>,
        bell: &Bell<'_>,
        buf: &mut [u8],
        look: bool,
        (waited, is_last): (Option<u32>, bool),
    ) -> Result<Found, Errno> {
        let bells_eaten = turn.bells_eaten();
        loop {
            let Some(front) = turn.front().map_err(|_| Errno::PROTO)? else {
                turn.emptied(bell, || bell.down.wake_tipcd())?;
                // Published meanwhile, under the bell that is there: who is told of changes once gets no other sign of it.
                if !turn.is_empty() {
                    continue;
                }
                if waited.is_none() && !is_last {
                    return Ok(Found::Nothing { bells_eaten });
                }
                return match bell.presence()? {
                    Presence::End if turn.is_empty() => Ok(Found::End),
                    // Published just before the end.
                    Presence::End => continue,
                    Presence::Bell if turn.is_empty() => {
                        turn.eat_stray(bell)?;
                        Ok(Found::Nothing { bells_eaten: turn.bells_eaten() })
                    }
                    _ => Ok(Found::Nothing { bells_eaten }),
                };
            };
            if !turn.is_heard(waited == Some(bells_eaten), bell)? {
                return Ok(Found::Nothing { bells_eaten });
            }
            let came = if self.kind == Kind::Stream {
                take_octets(turn, front, buf, look)
            } else {
                let came = turn.with(&front, |record| Came::copy(record, buf));
                if !look {
                    turn.take(&front);
                }
                came
            };
            if !look {
                if turn.is_empty() {
                    // What was taken is to be handed over even if the bell could not be.
                    let _ = turn.emptied(bell, || bell.down.wake_tipcd());
                } else {
                    turn.wake_producer(|| bell.down.wake_tipcd());
                }
            }
            // What a later version may add is not for this one.
            if let Some(came) = came {
                return Ok(Found::Came(came));
            }
            if look {
                // It stays where it is.
                return Err(Errno::PROTO);
            }
        }
    }

    /// Octets of a stream, or of the next record, that stand in the descriptor before the first bell.
    fn octets_before_bell(&self) -> Result<usize, Errno> {
        if self.kind == Kind::Stream {
            return Ok(socket::readable_octets(&self.fd)?.saturating_sub(1));
        }
        match records::recv(&self.fd, &mut [], &mut [0], true, true) {
            Ok(came) if came.len >= HEADER_LEN => Ok(came.len),
            Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// Whether only bells are in the descriptor; then it stays so.
    fn has_begun(&self, down: &Down) -> Result<bool, Errno> {
        let begun = down.rx.words().bell().load(Ordering::Acquire) == doorbell::RUNG
            && self.octets_before_bell()? == 0;
        down.rx.words().begun().store(begun.into(), Ordering::Relaxed);
        Ok(begun)
    }

    /// Reads what the descriptor held when the lane began: everything before the first bell. `None` when nothing is left of it.
    #[cold]
    fn read_what_was_before(
        &self,
        down: &Down,
        buf: &mut [u8],
        look: bool,
    ) -> Result<Option<Found>, Errno> {
        let bells_eaten = down.rx.words().bells_eaten().load(Ordering::Relaxed);
        let is_rung = || down.rx.words().bell().load(Ordering::Acquire) == doorbell::RUNG;
        // Of one that was killed in the middle of beginning no bell will come: what it left is read, and then the end.
        if !is_rung() && (!poll::is_hung_up(&self.fd)? || is_rung()) {
            // The tipcd is about to put the bell there, or not to begin after all.
            std::thread::yield_now();
            return Ok(Some(Found::Nothing { bells_eaten }));
        }
        let before = self.octets_before_bell()?;
        if before == 0 {
            return Ok(None);
        }
        let outcome = if self.kind == Kind::Stream {
            let len = buf.len().min(before);
            self.read_octets(&mut buf[..len], true, look)
        } else {
            self.read_record(buf, true, look)
        };
        match outcome {
            Ok(Some(came)) => Ok(Some(Found::Came(came))),
            Ok(None) => Ok(Some(Found::Nothing { bells_eaten })),
            Err(Errno::AGAIN | Errno::CONNRESET) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// As many octets of a stream as are there and find room.
#[inline]
fn take_octets(
    turn: &mut MyTurn<'_>,
    front: crossway_ring::shared_rx::Front,
    buf: &mut [u8],
    look: bool,
) -> Option<Came> {
    let (mut filled, mut next) = (0, Some(front));
    while let Some(front) = next.filter(|_| filled < buf.len()) {
        let room = &mut buf[filled..];
        let len = turn.with(&front, |octets| {
            let len = octets.len().min(room.len());
            room[..len].copy_from_slice(&octets[..len]);
            len
        });
        filled += len;
        // Damage is told when nothing stands before it.
        next = if look {
            turn.after(&front).unwrap_or(None)
        } else {
            turn.take_part(&front, len);
            turn.front().unwrap_or(None)
        };
    }
    (filled > 0).then(|| Came::octets(filled))
}
