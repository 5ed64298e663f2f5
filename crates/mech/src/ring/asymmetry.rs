//! The two fences of a sleep: full fences on both sides, or the whole cost on the side that sleeps.

use crossway_ring::sync::{Ordering, fence};
use crossway_sys::{OsError, futex};

use crate::{Offer, OpenError};

/// The word in the offer that says whether both ends use `membarrier`.
const WORD: &str = "asymmetric_fence";

/// The fences between a store that the other end must see and the check of the other end's state.
#[derive(Clone, Copy, Debug)]
pub struct Fences {
    /// Whether both processes are registered for `membarrier`, so that the sleeper's fence also
    /// acts on the waker.
    asymmetric: bool,
}

impl Fences {
    /// Chooses the listener's fences and adds the choice to the offer.
    pub fn offer(offer: Offer) -> (Fences, Offer) {
        let asymmetric = futex::register_heavy_fence();
        (Fences { asymmetric }, offer.with_word(WORD, u8::from(asymmetric)))
    }

    /// The connector's fences, as offered. `id` names the mechanism in errors.
    pub fn join(id: &'static str, offer: &Offer) -> Result<Fences, OpenError> {
        let asymmetric = offer.word::<u8>(id, WORD)? == 1;
        if asymmetric && !futex::register_heavy_fence() {
            return Err(OpenError::BadOffer {
                mechanism: id,
                why: "the listener relies on membarrier, which this process may not use; \
                      run both ends in the same sandbox"
                    .into(),
            });
        }
        Ok(Fences { asymmetric })
    }

    /// The fence of the end that wakes the other, on the path of every message: only a compiler fence if the sleeper's
    /// is a membarrier.
    #[inline]
    pub fn light(self) {
        if self.asymmetric {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The fence of an end that is about to sleep.
    ///
    /// # Errors
    /// [`OsError`] of membarrier(2), if the ends agreed on it.
    pub fn heavy(self) -> Result<(), OsError> {
        if self.asymmetric {
            futex::heavy_fence()
        } else {
            fence(Ordering::SeqCst);
            Ok(())
        }
    }
}
