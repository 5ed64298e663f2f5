//! The receiving end of a socket's lane: the ring, the words and the lock that its receivers share, and the descriptor
//! from which they receive bells.

use std::sync::OnceLock;

use crossway_ring::doorbell::{Bells, Presence};
use crossway_ring::process_lock::ProcessLock;
use crossway_ring::receiver::Receiver;
use crossway_ring::region::{FreeWords, SharedRing};
use crossway_ring::shared_rx::ReceiverWords;
use crossway_ring::{RingMemory, SharedRx};
use crossway_sys::eventfd::EventFd;
use crossway_sys::futex;

use super::lane_request::Beginning;
use super::*;
use crate::daemon::Answer;
use crate::protocol::control::Granted;
use crate::protocol::lane::{self, LaneMemory};

/// A socket's receiving lane.
pub(super) struct Down {
    /// The ring in the memory of the socket's own lanes.
    pub(super) lane: Inlet,
    /// The ring of the direct lane, which is used instead if there is one.
    pub(super) direct: OnceLock<Inlet>,
    pub(super) words: Receiver,
    pub(super) lock: ProcessLock<Receiver>,
    /// Wakes the tipcd when it waits for room.
    bell: Arc<EventFd>,
    pub(super) beginning: Beginning,
    /// Number of calls that have taken something since a call last found nothing.
    taken: AtomicU32,
}

/// The receiving end of a ring: the ring of the socket's own lane, or of a direct lane.
pub(super) struct Inlet {
    pub(super) rx: SharedRx<SharedRing, InletWords>,
    /// The ring and words of a direct lane, whose producer may be the peer's program; `None` for the socket's own lane.
    direct: Option<(SharedRing, FreeWords)>,
}

/// The words that a ring's receivers share. For a direct lane, the words that only receivers use (`own`) are in the
/// memory of the socket's own lanes, where the peer's program cannot tamper with them.
pub(super) struct InletWords {
    shared: Receiver,
    own: Receiver,
}

impl ReceiverWords for InletWords {
    #[inline]
    fn bell(&self) -> &AtomicU32 {
        self.shared.bell()
    }

    #[inline]
    fn bells_consumed(&self) -> &AtomicU32 {
        self.own.bells_consumed()
    }

    #[inline]
    fn part(&self) -> &AtomicU64 {
        self.own.part()
    }
}

impl InletWords {
    /// 1 if everything that the descriptor held before the first bell has been read, otherwise 0 ([`Receiver::begun`]).
    #[inline]
    pub(super) fn begun(&self) -> &AtomicU32 {
        self.own.begun()
    }
}

impl Down {
    /// Creates the lane in the memory of `file`. Returns `None` if the system does not support locking between
    /// processes.
    pub(super) fn new(memory: &LaneMemory, file: OwnedFd, bell: Arc<EventFd>) -> Option<Self> {
        let words = Receiver::of(&memory.words(), lane::DOWN);
        let lock = ProcessLock::join(words.clone(), file).ok()?;
        let both = InletWords { shared: words.clone(), own: words.clone() };
        let lane = Inlet { rx: SharedRx::new(memory.down(), both), direct: None };
        let (direct, beginning, taken) = (OnceLock::new(), Beginning::default(), AtomicU32::new(0));
        Some(Self { lane, direct, words, lock, bell, beginning, taken })
    }

    /// Handles the answer to a request to receive through the lane. It may carry the memory of a direct lane.
    pub(super) fn begin(&self, mut answer: Answer) -> Result<(), Errno> {
        let Some(file) = answer.fds.pop() else { return Ok(()) };
        let granted = Granted::decode(&mut Reader::new(&answer.bytes)).ok_or(Errno::PROTO)?;
        let memory = LaneMemory::open(&file, granted.ring_bytes as usize);
        let memory = memory.map_err(|_| Errno::PROTO)?;
        let shared = Receiver::of(&memory.words(), lane::DOWN);
        let words = InletWords { shared, own: self.words.clone() };
        let direct = Some((memory.down(), memory.words()));
        // Another thread may have received the same answer.
        let _ = self.direct.set(Inlet { rx: SharedRx::new(memory.down(), words), direct });
        Ok(())
    }

    /// Renews this process's claim to the lock after another descriptor of the same file was closed, which released the
    /// claim.
    pub(super) fn claim_again(&self) -> Result<(), Errno> {
        self.lock.claim_again()
    }

    /// Records that a call has taken a message, or bytes of a stream. Returns the number of such calls since a call
    /// last found nothing.
    #[inline]
    pub(super) fn note_taken(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed).saturating_add(1);
        self.taken.store(taken, Ordering::Relaxed);
        taken
    }

    /// Called when the ring is empty. Returns whether the next wait should be a call that receives the bell itself: if
    /// the last bell announced one message, and no other process is known to receive. If another process received, too,
    /// and this process were killed after it had received the bell and before it took the message, the other process
    /// would not be notified of the message.
    #[inline]
    pub(super) fn waits_for_one(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        taken <= 1 && self.lock.is_alone()
    }

    /// Notifies the producer that there is room in the ring.
    fn wake_producer(&self, inlet: &Inlet) {
        if let Some((ring, words)) = &inlet.direct {
            // A producer that is not woken looks by itself later.
            let _ = futex::wake(ring.producer_state());
            if words.word(lane::ROOM_WANTED).swap(0, Ordering::AcqRel) == 0 {
                return;
            }
        }
        // An eventfd counter cannot be full here.
        let _ = self.bell.signal();
    }
}

/// The data descriptor as a source of bells.
pub(super) struct Bell<'a> {
    pub(super) fd: &'a OwnedFd,
    pub(super) down: &'a Down,
    pub(super) inlet: &'a Inlet,
}

impl Bell<'_> {
    /// Receives a bell. Returns false at the end of the connection, and if there is no bell and the call does not wait.
    pub(super) fn receive(&self, nonblocking: bool) -> Result<bool, Errno> {
        match socket::recv(self.fd, &mut [0], nonblocking) {
            Ok(0) | Err(Errno::CONNRESET) => Ok(false),
            Err(Errno::AGAIN) if nonblocking => Ok(false),
            Err(errno) => Err(errno),
            Ok(_) => {
                self.inlet.rx.words().bells_consumed().fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
        }
    }

    /// Notifies the producer that there is room in the ring.
    pub(super) fn wake_producer(&self) {
        self.down.wake_producer(self.inlet);
    }
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

    fn eat_if_there(&self) -> Result<bool, Errno> {
        self.receive(true)
    }

    fn ring_is_empty(&self) -> Result<bool, Errno> {
        Ok(self.inlet.rx.is_empty())
    }
}
