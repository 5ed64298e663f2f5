//! Two memory fences: one of the end that sleeps, one of the end that wakes it. Either both are full fences, or the end
//! that sleeps bears the whole cost, with membarrier(2).

use crossway_ring::sync::{Ordering, fence};
use crossway_sys::OsError;
use crossway_sys::fence::{self as fences, Reach};

use crate::{Offer, OpenError};

/// The name of the value in the offer that says whether both ends use `membarrier`.
const WORD: &str = "asymmetric_fence";

/// The fences that each end needs between storing what the other must see and checking the state of the other.
///
/// The membarrier sometimes leaves out a CPU ([`Reach::Registered`]), so that the end that sleeps is not woken. The ends
/// of a ring therefore look again after a moment ([`FIRST_SLEEP`](crossway_ring::bell::FIRST_SLEEP)). An end that does
/// not, because others poll its descriptor, needs [`Fences::FULL`], and so does the end that wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fences {
    /// Whether both processes are registered for `membarrier`, so that the sleeper's fence also
    /// acts on the waker.
    asymmetric: bool,
}

impl Fences {
    /// Full fences at both ends.
    pub const FULL: Fences = Fences { asymmetric: false };

    /// Chooses the fences for the listener, and adds the choice to the offer.
    pub fn offer(offer: Offer) -> (Fences, Offer) {
        let asymmetric = fences::register(Reach::Registered);
        (Fences { asymmetric }, offer.with_word(WORD, u8::from(asymmetric)))
    }

    /// Returns the fences that the offer specifies, for the connector. `id` names the mechanism in errors.
    pub fn join(id: &'static str, offer: &Offer) -> Result<Fences, OpenError> {
        let asymmetric = offer.word::<u8>(id, WORD)? == 1;
        if asymmetric && !fences::register(Reach::Registered) {
            return Err(OpenError::BadOffer {
                mechanism: id,
                why: "the listening end relies on the system call membarrier, which this process is not permitted to \
                      use; run both ends in the same sandbox"
                    .into(),
            });
        }
        Ok(Fences { asymmetric })
    }

    /// The fence of the end that wakes the other, executed for every message. It is only a compiler fence if the fence
    /// of the end that sleeps is a membarrier.
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
    /// [`OsError`] of membarrier(2), if the ends agreed to use it.
    pub fn heavy(self) -> Result<(), OsError> {
        if self.asymmetric {
            fences::heavy(Reach::Registered)
        } else {
            fence(Ordering::SeqCst);
            Ok(())
        }
    }
}
