//! How one end sleeps and the other wakes it: the only thing in which the ring mechanisms differ.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crossway_sys::OsError;

use crate::sync::{AtomicU32, Ordering, fence};

/// The longest sleep of a bell that cannot hear the peer die while it sleeps.
pub const SLICE: Duration = Duration::from_millis(50);

/// One end's means to sleep and to wake the other end.
pub trait Bell: Send + 'static {
    /// Stands between a publication and the look at the other end's state word. Pairs with [`Bell::heavy_fence`].
    fn light_fence(&self);

    /// Stands between setting one's own state word to asleep and the last look.
    fn heavy_fence(&self) -> Result<(), OsError>;

    /// Sleeps while `own_state` is asleep, at most for `limit`; may return early for no reason. Bells that hear of the
    /// peer's death only between sleeps return after [`SLICE`] at the latest.
    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError>;

    /// Wakes the other end, whose state word has just been changed from asleep to awake.
    fn ring(&self, other_state: &AtomicU32) -> Result<(), OsError>;

    /// Whether the peer's process is gone.
    fn peer_gone(&self) -> Result<bool, OsError>;

    /// This end has nothing to do and is about to say so in its state word: what rang before is heard. For bells that
    /// are polled by descriptor.
    fn rearm(&self) -> Result<(), OsError> {
        Ok(())
    }

    /// This end was asleep and found work by itself, while more may follow: a descriptor that others poll must stay
    /// readable.
    fn ring_self(&self) -> Result<(), OsError> {
        Ok(())
    }

    /// A descriptor that polls readable while this end has something to do.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the end's state must show asleep whenever it has nothing to do, because others poll its descriptor.
    const ARMED_WHEN_IDLE: bool = false;
}

/// A ring's bell where something else wakes and is waited for: a socket's descriptor, say, which also tells that the peer is gone.
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
