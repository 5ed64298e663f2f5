//! Creates the two ends of a channel of two rings, and implements the contract's halves over a ring.

use std::sync::Arc;

use crossway_sys::lifeline::Lifeline;
use crossway_sys::shm::Mapping;

use crossway_ring::layout::MAX_PAYLOAD;
use crossway_ring::region::{Dimensions, Direction, SharedRing};
use crossway_ring::{Bell, RingMemory, RingRx, RingTx};

use super::backing::Backing;
use crate::building_blocks::in_place::copy;
use crate::contract::facts_of;
use crate::self_test::round_trip;
use crate::{
    Caps, Deadline, Facts, Mechanism, Offer, OpenError, Probe, RecvError, Rx, SendError, Spec, Tx,
    Wait,
};

/// The resources that both halves of one end share.
pub struct Shared {
    /// The memory with both rings.
    pub mapping: Arc<Mapping>,
    /// The sizes of the rings.
    pub dimensions: Dimensions,
    /// Detects the end of the peer.
    pub lifeline: Arc<Lifeline>,
}

impl Shared {
    /// Creates the listener's view, and the offer for the connector. `id` names the mechanism in errors and in `/proc`.
    pub fn listen(id: &'static str, spec: &Spec) -> Result<(Shared, Offer), OpenError> {
        Self::listen_in(id, spec, Backing::Pages)
    }

    /// As [`Shared::listen`], with the rings in memory of a kind.
    pub fn listen_in(
        id: &'static str,
        spec: &Spec,
        backing: Backing,
    ) -> Result<(Shared, Offer), OpenError> {
        let dimensions = backing.dimensions(dimensions(id, spec)?)?;
        let memory = backing.create(id, dimensions)?;
        let mapping = backing.map(id, &memory, dimensions, spec)?;
        let (lifeline, peers) = Lifeline::pair()?;
        let offer = memory.into_offer(
            Offer::new()
                .with_word("capacity_bytes", dimensions.capacity)
                .with_fd("lifeline", peers),
        );
        Ok((Shared { mapping, dimensions, lifeline: Arc::new(lifeline) }, offer))
    }

    /// Creates the connector's view.
    pub fn connect(id: &'static str, spec: &Spec, offer: &mut Offer) -> Result<Shared, OpenError> {
        Self::connect_in(id, spec, offer, Backing::Pages)
    }

    /// As [`Shared::connect`], with the rings in memory of the kind that the listener uses.
    pub fn connect_in(
        id: &'static str,
        spec: &Spec,
        offer: &mut Offer,
        backing: Backing,
    ) -> Result<Shared, OpenError> {
        let capacity: usize = offer.word(id, "capacity_bytes")?;
        let dimensions = backing.dimensions(dimensions(id, spec)?)?;
        if capacity != dimensions.capacity {
            return Err(OpenError::BadOffer {
                mechanism: id,
                why: format!(
                    "the listening end's ring has {capacity} bytes, but this end's has {}; both ends must be opened \
                     with the same settings",
                    dimensions.capacity
                ),
            });
        }
        let memory = backing.take(id, offer)?;
        if !backing.is_safe(&memory, dimensions)? {
            return Err(OpenError::BadOffer {
                mechanism: id,
                why: "the shared memory is not sealed, or does not have the agreed size".into(),
            });
        }
        let mapping = backing.map(id, &memory, dimensions, spec)?;
        let lifeline = Arc::new(Lifeline::from_fd(offer.take_fd(id, "lifeline")?));
        Ok(Shared { mapping, dimensions, lifeline })
    }

    /// One of the two rings.
    pub fn ring(&self, direction: Direction) -> SharedRing {
        SharedRing::new(Arc::clone(&self.mapping), self.dimensions, direction)
    }
}

/// The capabilities of all rings; the mechanisms override what differs.
pub fn ring_caps() -> Caps {
    Caps { max_message: Some(MAX_PAYLOAD), in_place: true, ..Caps::PLAIN }
}

/// Tests whether a ring works here.
pub fn probe<M: Mechanism>(wait: Wait) -> Probe {
    Probe::of_kernel(
        round_trip::<M>(wait),
        "allow this process to use shared memory and the mechanism's wake-up calls: check its seccomp profile and its memory limits",
    )
}

/// Largest capacity in bytes that may be requested; all that words of 32 bits can state.
const MAX_CAPACITY: usize = MAX_PAYLOAD.saturating_mul(4);

/// Computes the sizes of the rings for a spec. `id` names the mechanism in errors.
pub fn dimensions(id: &'static str, spec: &Spec) -> Result<Dimensions, OpenError> {
    let asked = spec.capacity_bytes.unwrap_or(0);
    if spec.max_message > MAX_PAYLOAD || asked > MAX_CAPACITY {
        return Err(OpenError::Unsupported {
            mechanism: id,
            why: format!(
                "a ring has at most {MAX_CAPACITY} bytes and carries messages of at most {MAX_PAYLOAD} bytes; request \
                 a smaller size",
            ),
        });
    }
    Ok(Dimensions::choose(spec.max_message, spec.capacity_bytes))
}

impl<M: RingMemory, B: Bell> Tx for RingTx<M, B> {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.try_send_with(msg.len(), |to| to.copy_from_slice(msg))
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.send_with(msg.len(), until, |to| to.copy_from_slice(msg))
    }

    #[inline]
    fn send_in_place(
        &mut self,
        len: usize,
        _scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.send_with(len, until, fill)
    }

    fn facts(&self) -> Facts {
        facts(self.memory(), self.sleeps_and_wakes())
    }
}

impl<M: RingMemory, B: Bell> Rx for RingRx<M, B> {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.try_recv_with(buf.len(), |from| copy(from, buf))
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.recv_with(buf.len(), until, |from| copy(from, buf))
    }

    #[inline]
    fn recv_in_place<R>(
        &mut self,
        _scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        self.recv_with(usize::MAX, until, read)
    }

    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.bell().wait_fd()
    }

    fn facts(&self) -> Facts {
        facts(self.memory(), self.sleeps_and_wakes())
    }
}

fn facts(memory: &impl RingMemory, (sleeps, wakes): (u64, u64)) -> Facts {
    facts_of([
        ("ring_bytes", memory.capacity()),
        ("max_message_bytes", memory.max_message()),
        ("ring_sleeps", sleeps as usize),
        ("ring_wakes", wakes as usize),
    ])
}
