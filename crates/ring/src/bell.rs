//! Defines *bells*. A bell is the way in which one end of a ring sleeps and the other end wakes it. The ring mechanisms
//! differ only in their bells.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crossway_sys::OsError;

use crate::sync::{AtomicU32, Ordering, fence};

/// The longest sleep of a bell that cannot detect the peer's death while it sleeps.
pub const SLICE: Duration = Duration::from_millis(50);

/// The longest first sleep of an end that waits: the other end may have missed the announcement, because a heavy fence
/// between processes sometimes leaves out a CPU ([`Reach::Registered`](crossway_sys::fence::Reach::Registered)). Then
/// its message, or the room it has made, is there long before this time has passed. A sender waits for as long for a
/// large part of the ring to become free, so that it is woken once per batch; afterwards it uses whatever room there is.
pub const FIRST_SLEEP: Duration = Duration::from_millis(2);

/// How one end sleeps and wakes the other end.
pub trait Bell: Send + 'static {
    /// Executes the fence between a publication and the check of the other end's state word. Pairs with
    /// [`Bell::heavy_fence`].
    fn light_fence(&self);

    /// Executes the fence between setting one's own state word to asleep and the last check for work.
    fn heavy_fence(&self) -> Result<(), OsError>;

    /// Sleeps while `own_state` is asleep, at most for `limit`; spurious returns are allowed. Bells that detect the
    /// peer's death only between sleeps return after [`SLICE`] at the latest.
    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError>;

    /// Wakes the other end, whose state word has just been changed from asleep to awake.
    fn ring(&self, other_state: &AtomicU32) -> Result<(), OsError>;

    /// Whether the peer's process has ended.
    fn peer_gone(&self) -> Result<bool, OsError>;

    /// Clears earlier wake-ups; only bells that are polled by descriptor need this. Called when this end has nothing to
    /// do, before it sets its state word to asleep.
    fn rearm(&self) -> Result<(), OsError> {
        Ok(())
    }

    /// Makes this end's own descriptor readable. Called when this end was marked as asleep and found work by itself,
    /// and more may follow: a descriptor that others poll must then stay readable.
    fn ring_self(&self) -> Result<(), OsError> {
        Ok(())
    }

    /// A descriptor that polls readable while this end has something to do, if the bell has one.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the state must be asleep whenever this end has nothing to do, because others poll its descriptor.
    const ARMED_WHEN_IDLE: bool = false;
}

/// A bell that does nothing, for rings whose users sleep and wake by other means, such as a socket's descriptor that
/// also reports the end of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Bell for Silent {
    fn light_fence(&self) {}

    fn heavy_fence(&self) -> Result<(), OsError> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn sleep(&self, _: &AtomicU32, _: Option<Duration>) -> Result<(), OsError> {
        Ok(())
    }

    fn ring(&self, _: &AtomicU32) -> Result<(), OsError> {
        Ok(())
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        Ok(false)
    }
}
