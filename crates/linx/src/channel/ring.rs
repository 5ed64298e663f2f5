//! Signals in shared memory: one ring for each direction, with an eventfd for each end to sleep on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossway_ring::pool::{Block, Pool, Reference};
use crossway_ring::region::{Dimensions, Direction, SharedRing};
use crossway_ring::sync::{AtomicU32, Ordering, fence};
use crossway_ring::{Bell, RecvError, RingRx, RingTx, SendError, Wait};
use crossway_sys::OsError;
use crossway_sys::eventfd::EventFd;
use crossway_sys::shm::{self, Mapping};

use super::frame::{BY_REFERENCE, FIRST, HEADER, Header, OUT_OF_BAND};
use super::parts::{Assembly, Came, accept};
use super::{Broken, Filled, Outgoing, Sent};
use crate::limits::LEAST_SIGNAL;

/// The bell of a ring: wakes the other end through that end's eventfd. [`Bell::sleep`] does nothing, because this end
/// sleeps in the endpoint, on all descriptors that may wake the endpoint.
struct Knock {
    other: Arc<EventFd>,
}

impl Bell for Knock {
    #[inline]
    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn sleep(&self, _: &AtomicU32, _: Option<Duration>) -> Result<(), OsError> {
        Ok(())
    }

    fn ring(&self, _: &AtomicU32) -> Result<(), OsError> {
        self.other.signal()
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        // The node reports the end of the peer.
        Ok(false)
    }
}

/// Returns the dimensions of rings with a capacity of this many bytes each. A piece takes at most a quarter of the
/// capacity, so that both ends can work at the same time.
pub(crate) fn dimensions(capacity: usize) -> Dimensions {
    let capacity = capacity.max(4 * shm::page_len());
    Dimensions::choose(capacity / 4, Some(capacity))
}

/// The part of a signal that waits for room.
struct Unsent {
    header: Header,
    bytes: Vec<u8>,
    at: usize,
}

/// One end of two rings.
pub(crate) struct RingChannel {
    tx: RingTx<SharedRing, Knock>,
    rx: RingRx<SharedRing, Knock>,
    own: EventFd,
    number: u32,
    largest: usize,
    unsent: Option<Unsent>,
    pool: Option<Pool>,
}

impl RingChannel {
    /// Creates one end; `first` says whether its endpoint requested the channel. `(own, other)` are the eventfds on
    /// which this end and the other one sleep.
    pub(crate) fn new(
        memory: &OwnedFd,
        (own, other): (OwnedFd, OwnedFd),
        capacity: usize,
        first: bool,
        number: u32,
        pool: Option<Pool>,
    ) -> Result<Self, OsError> {
        let dimensions = dimensions(capacity);
        if !shm::is_sealed(memory.as_fd(), dimensions.memory_len())? {
            let why = std::io::Error::other("the shared memory does not have the agreed size");
            return Err(OsError::new("mmap", "channel", why));
        }
        let mapping = Arc::new(Mapping::of_pieces(memory, &dimensions.pieces())?);
        let (out, into) = if first {
            (Direction::FromListener, Direction::FromConnector)
        } else {
            (Direction::FromConnector, Direction::FromListener)
        };
        let ring = |direction| SharedRing::new(Arc::clone(&mapping), dimensions, direction);
        let other = Arc::new(EventFd::from_fd(other));
        let knock = || Knock { other: Arc::clone(&other) };
        Ok(RingChannel {
            tx: RingTx::new(ring(out), knock(), Wait::Block),
            rx: RingRx::new(ring(into), knock(), Wait::Block),
            own: EventFd::from_fd(own),
            number,
            largest: dimensions.max_message - HEADER,
            unsent: None,
            pool,
        })
    }

    pub(crate) fn read_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    pub(crate) fn holds_back(&self) -> bool {
        self.unsent.is_some()
    }

    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        let Some(unsent) = &mut self.unsent else { return Ok(true) };
        while unsent.at < unsent.bytes.len() {
            let piece = (unsent.bytes.len() - unsent.at).min(self.largest);
            let header = Header { piece: piece as u32, ..unsent.header };
            let body = &unsent.bytes[unsent.at..unsent.at + piece];
            if put(&mut self.tx, &header, &[], body)? == Sent::Full {
                return Ok(false);
            }
            unsent.at += piece;
        }
        self.unsent = None;
        Ok(true)
    }

    #[inline]
    pub(crate) fn send(&mut self, out: &Outgoing<'_>) -> Result<Sent, Broken> {
        if self.holds_back() && !self.flush()? {
            return Ok(Sent::Full);
        }
        if let (Some(block), Some(pool)) = (out.block, &self.pool)
            && pool.has(block)
        {
            return self.send_reference(out, block.reference());
        }
        let (first, rest) =
            out.payload.split_at(out.payload.len().min(self.largest - LEAST_SIGNAL));
        let flags = if out.out_of_band { OUT_OF_BAND } else { 0 };
        let header = Header {
            piece: (first.len() + LEAST_SIGNAL) as u32,
            size: out.size() as u32,
            from: out.from,
            to: out.to.get(),
            flags: flags | FIRST,
        };
        if put(&mut self.tx, &header, &out.number.to_ne_bytes(), first)? == Sent::Full {
            return Ok(Sent::Full);
        }
        if !rest.is_empty() {
            self.send_rest(Header { flags, ..header }, rest)?;
        }
        Ok(Sent::Taken)
    }

    /// Passes to the peer the block that contains a signal.
    pub(crate) fn send_reference(
        &mut self,
        out: &Outgoing<'_>,
        place: Reference,
    ) -> Result<Sent, Broken> {
        let header = Header::of_reference(out.size(), out.from, out.to, out.out_of_band);
        Ok(match put(&mut self.tx, &header, &[], &place.encode())? {
            Sent::Full => Sent::Full,
            Sent::Taken | Sent::Lent => Sent::Lent,
        })
    }

    /// Allocates a block that has at least one byte more than a signal of `size` bytes needs.
    pub(crate) fn block(&self, size: usize) -> Option<Block> {
        self.pool.as_ref()?.alloc(size + 1)
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// Sends the bytes that did not fit into a signal's first piece; keeps those that have no room yet.
    fn send_rest(&mut self, header: Header, mut rest: &[u8]) -> Result<(), Broken> {
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(self.largest));
            let head = Header { piece: piece.len() as u32, ..header };
            if put(&mut self.tx, &head, &[], piece)? == Sent::Full {
                self.unsent = Some(Unsent { header, bytes: rest.to_vec(), at: 0 });
                return Ok(());
            }
            rest = after;
        }
        Ok(())
    }

    /// Asks the peer to signal the eventfd when there is room; returns true if there already is some.
    pub(crate) fn ask_for_room(&mut self) -> Result<bool, Broken> {
        let len = HEADER + self.largest;
        self.tx.ask_for_room(len).map_err(sending)
    }

    #[inline]
    pub(crate) fn next(&mut self, assembly: &mut Assembly) -> Result<Option<Came>, Broken> {
        let number = self.number;
        loop {
            let taken = self.rx.try_recv_with(usize::MAX, |message| {
                let (head, body) = message
                    .split_first_chunk::<HEADER>()
                    .ok_or(Broken::Damaged("a message without a header"))?;
                let header = Header::decode(head).ok_or(Broken::Damaged("an invalid header"))?;
                if body.len() != header.piece as usize {
                    return Err(Broken::Damaged("a piece is not as long as its header says"));
                }
                if header.flags & BY_REFERENCE != 0 {
                    return accept(self.pool.as_ref(), &header, body).map(Some);
                }
                let mut bytes = assembly.begin(number, &header)?;
                bytes.extend_from_slice(body);
                assembly.complete(number, &header, bytes)
            });
            match taken {
                Ok(Ok(None)) => {}
                Ok(outcome) => return outcome,
                Err(RecvError::Empty) => return Ok(None),
                Err(error) => return Err(receiving(error)),
            }
        }
    }

    /// Clears earlier wake-ups; returns [`Filled::Something`] if there were any.
    pub(crate) fn clear_bell(&mut self) -> Result<Filled, Broken> {
        Ok(if self.own.clear()? { Filled::Something } else { Filled::Nothing })
    }

    /// Asks the peer to signal the eventfd when something arrives; returns false if something has already arrived.
    #[inline]
    pub(crate) fn arm(&mut self) -> Result<bool, Broken> {
        self.rx.announce_sleep().map(|found| !found).map_err(receiving)
    }
}

/// Writes one piece, if there is room.
#[inline]
fn put(
    tx: &mut RingTx<SharedRing, Knock>,
    header: &Header,
    number: &[u8],
    body: &[u8],
) -> Result<Sent, Broken> {
    let head = header.encode();
    let sent = tx.try_send_with(HEADER + number.len() + body.len(), |to| {
        let (to_head, rest) = to.split_at_mut(HEADER);
        let (to_number, to_body) = rest.split_at_mut(number.len());
        to_body.copy_from_slice(body);
        to_number.copy_from_slice(number);
        to_head.copy_from_slice(&head);
    });
    match sent {
        Ok(()) => Ok(Sent::Taken),
        Err(SendError::Full) => Ok(Sent::Full),
        Err(error) => Err(sending(error)),
    }
}

fn sending(error: SendError) -> Broken {
    match error {
        SendError::Os(error) => Broken::Os(error),
        _ => Broken::Ended,
    }
}

fn receiving(error: RecvError) -> Broken {
    match error {
        RecvError::PeerClosed => Broken::Ended,
        RecvError::Os(error) => Broken::Os(error),
        _ => Broken::Damaged("its ring buffer is damaged"),
    }
}
