//! `shm-eventfd`: a ring in shared memory whose ends sleep on eventfds, so that a receiver works with any event loop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossway_sys::OsError;
use crossway_sys::eventfd::EventFd;
use crossway_sys::lifeline::{Lifeline, Wakeup};

use crate::building_blocks::complete::Complete;
use crate::ring::asymmetry::Fences;
use crate::ring::channel::{Shared, probe, ring_caps};
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport, Wait};
use crossway_ring::layout::ASLEEP;
use crossway_ring::region::{Direction, SharedRing};
use crossway_ring::sync::{AtomicU32, Ordering};
use crossway_ring::{Bell, RingMemory, RingRx, RingTx};

/// The mechanism `shm-eventfd`. While both ends run, messages cost no system call. Waking an end costs a write(2), and
/// the end that is woken makes a poll(2) and a read(2).
pub struct ShmEventfd;

/// Sleeps in `poll` on an eventfd and on the lifeline, so that the peer's death is noticed immediately.
pub struct EventBell {
    /// The fences with which this end wakes the other one, and with which it sleeps. Between a receiver that sleeps and
    /// its sender they are full.
    wakes: Fences,
    sleeps: Fences,
    lifeline: Arc<Lifeline>,
    own: EventFd,
    other: EventFd,
    /// A descriptor that polls readable when `own` does or the peer has ended; `None` for senders.
    either: Option<OwnedFd>,
}

impl EventBell {
    /// Removes a wake-up that arrived before this end announced its sleep; a later wake-up must stay.
    fn drop_stale_ring(&self, own_state: &AtomicU32) -> Result<(), OsError> {
        if own_state.load(Ordering::SeqCst) == ASLEEP
            && self.own.clear()?
            && own_state.load(Ordering::SeqCst) != ASLEEP
        {
            self.own.signal()?;
        }
        Ok(())
    }
}

impl Bell for EventBell {
    const ARMED_WHEN_IDLE: bool = true;

    #[inline]
    fn light_fence(&self) {
        self.wakes.light();
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        self.sleeps.heavy()
    }

    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        if self.lifeline.wait_readable(self.own.as_fd(), limit)? == Wakeup::Readable {
            self.drop_stale_ring(own_state)?;
            if self.either.is_none() {
                // A sender's descriptor is not polled by others, so the wake-up can be cleared.
                self.own.clear()?;
            }
        }
        Ok(())
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        self.other.signal()
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        self.lifeline.peer_gone()
    }

    fn rearm(&self) -> Result<(), OsError> {
        self.own.clear().map(drop)
    }

    fn ring_self(&self) -> Result<(), OsError> {
        self.own.signal()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.either.as_ref().map(AsFd::as_fd)
    }
}

/// The sending half, which sleeps in poll(2) when the ring is full.
pub type ShmEventfdTx = RingTx<SharedRing, EventBell>;
/// The receiving half, which sleeps in poll(2) when the ring is empty, or can be waited for by an event loop.
pub type ShmEventfdRx = RingRx<SharedRing, EventBell>;

/// The four eventfds of a channel, one per half that may sleep, with their names in the offer.
struct Counters {
    /// The connector has something to receive.
    to_connector: EventFd,
    /// The listener has room to send.
    listener_room: EventFd,
    /// The listener has something to receive.
    to_listener: EventFd,
    /// The connector has room to send.
    connector_room: EventFd,
}

const NAMES: [&str; 4] = ["to_connector", "listener_room", "to_listener", "connector_room"];

impl Counters {
    fn new() -> Result<Counters, OsError> {
        Ok(Counters {
            to_connector: EventFd::new()?,
            listener_room: EventFd::new()?,
            to_listener: EventFd::new()?,
            connector_room: EventFd::new()?,
        })
    }

    fn offer(&self, mut offer: Offer) -> Result<Offer, OsError> {
        let all =
            [&self.to_connector, &self.listener_room, &self.to_listener, &self.connector_room];
        for (name, counter) in NAMES.into_iter().zip(all) {
            offer = offer.with_fd(name, counter.duplicate()?);
        }
        Ok(offer)
    }

    fn take(offer: &mut Offer) -> Result<Counters, OpenError> {
        let mut take = |name| offer.take_fd(ShmEventfd::ID, name).map(EventFd::from_fd);
        Ok(Counters {
            to_connector: take(NAMES[0])?,
            listener_room: take(NAMES[1])?,
            to_listener: take(NAMES[2])?,
            connector_room: take(NAMES[3])?,
        })
    }
}

impl Mechanism for ShmEventfd {
    const ID: &'static str = "shm-eventfd";
    const ABOUT: &'static str = "ring in shared memory, woken through eventfds that can be polled";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, Transport::Memory);
    type Tx = ShmEventfdTx;
    type Rx = ShmEventfdRx;
    type Listener = Complete<ShmEventfdTx, ShmEventfdRx>;

    fn caps() -> Caps {
        Caps { waitable_fd: true, ..ring_caps() }
    }

    fn probe() -> Probe {
        probe::<Self>(Wait::Block)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (shared, offer) = Shared::listen(Self::ID, spec)?;
        let (fences, offer) = Fences::offer(offer);
        let counters = Counters::new()?;
        let offer = counters.offer(offer)?;
        let (out, into) = (Direction::FromListener, Direction::FromConnector);
        for direction in [out, into] {
            // The first message must wake the receiver even before it has checked the ring.
            shared.ring(direction).consumer_state().store(ASLEEP, Ordering::Release);
        }
        let Counters { to_connector, listener_room, to_listener, connector_room } = counters;
        let tx = sending(&shared, fences, listener_room, to_connector);
        let rx = receiving(&shared, fences, to_listener, connector_room)?;
        let ends = (
            RingTx::new(shared.ring(out), tx, spec.wait),
            RingRx::new(shared.ring(into), rx, spec.wait),
        );
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let fences = Fences::join(Self::ID, offer)?;
        let shared = Shared::connect(Self::ID, spec, offer)?;
        let Counters { to_connector, listener_room, to_listener, connector_room } =
            Counters::take(offer)?;
        let tx = sending(&shared, fences, connector_room, to_listener);
        let rx = receiving(&shared, fences, to_connector, listener_room)?;
        Ok((
            RingTx::new(shared.ring(Direction::FromConnector), tx, spec.wait),
            RingRx::new(shared.ring(Direction::FromListener), rx, spec.wait),
        ))
    }
}

fn sending(shared: &Shared, fences: Fences, own: EventFd, other: EventFd) -> EventBell {
    let lifeline = Arc::clone(&shared.lifeline);
    EventBell { wakes: Fences::FULL, sleeps: fences, lifeline, own, other, either: None }
}

fn receiving(
    shared: &Shared,
    fences: Fences,
    own: EventFd,
    other: EventFd,
) -> Result<EventBell, OsError> {
    let lifeline = Arc::clone(&shared.lifeline);
    let either = Some(lifeline.watched_with(own.as_fd())?);
    Ok(EventBell { wakes: fences, sleeps: Fences::FULL, lifeline, own, other, either })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listener;

    #[test]
    fn a_receiver_that_others_poll_does_not_rely_on_a_fence_that_may_leave_out_its_sender() {
        let spec = Spec::default();
        let (mut listener, mut offer) = ShmEventfd::listen(&spec).unwrap();
        let (tx, rx) = ShmEventfd::connect(&spec, &mut offer).unwrap();
        for (tx, rx) in [(tx, rx), listener.accept(None).unwrap()] {
            assert_eq!((tx.bell().wakes, rx.bell().sleeps), (Fences::FULL, Fences::FULL));
        }
    }
}
