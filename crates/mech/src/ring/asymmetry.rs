//! The two fences of a sleep: full on both sides, or all of it on the side that sleeps.

use crossway_ring::sync::{Ordering, fence};
use crossway_sys::{OsError, futex};

use crate::{Offer, OpenError};

/// The word in the offer that says whether both ends take part in `membarrier`.
const WORD: &str = "asymmetric_fence";

/// What stands between a store that the other end must see and the look at the other end's state.
#[derive(Clone, Copy, Debug)]
pub struct Fences {
    /// Both processes are registered for `membarrier`: the sleeper's fence acts on the waker too.
    asymmetric: bool,
}

impl Fences {
    /// The listener's; the offer tells the connector which.
    pub fn offer(offer: Offer) -> (Fences, Offer) {
        let asymmetric = futex::register_heavy_fence();
        (Fences { asymmetric }, offer.with_word(WORD, u8::from(asymmetric)))
    }

    /// The connector's, as offered. `id` names the mechanism in errors.
    pub fn join(id: &'static str, offer: &Offer) -> Result<Fences, OpenError> {
        let asymmetric = offer.word::<u8>(id, WORD)? == 1;
        if asymmetric && !futex::register_heavy_fence() {
            return Err(OpenError::BadOffer {
                mechanism: id,
                why: "the listener relies on membarrier, which is forbidden to this process; \
                      run both ends in the same sandbox"
                    .into(),
            });
        }
        Ok(Fences { asymmetric })
    }

    /// The waker's.
    #[inline]
    pub fn light(self) {
        if self.asymmetric {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The sleeper's.
    pub fn heavy(self) -> Result<(), OsError> {
        if self.asymmetric {
            futex::heavy_fence()
        } else {
            fence(Ordering::SeqCst);
            Ok(())
        }
    }
}
