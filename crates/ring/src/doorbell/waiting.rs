//! The calls of a consumer that waits by receiving the bell, or spins before that.

use super::{
    ATTEMPTS, AWAITED, Bells, GIVEN, QUIET, RINGING, SPINS, STATE, TAKES_ALL, TAKES_SHIFT, settle,
};
use crate::sync::{AtomicU32, Ordering};

/// Announces that a consumer will wait by receiving a bell, and then take one message of up to `takes` bytes. The
/// consumer must have the turn and have seen the ring empty. If `spins` is set, it spins first and calls
/// [`stop_spinning`] afterwards. Returns false if it must not wait in this way, because a bell is in the socket or on
/// its way, or another consumer is already waiting in this way.
///
/// A message published in the meantime is not missed: its producer also changes the word, either before this call
/// (which then fails) or after it (and then rings for this consumer).
pub fn await_bell(word: &AtomicU32, takes: usize, spins: bool) -> bool {
    let spins = if spins { SPINS } else { 0 };
    let awaited = AWAITED | spins | (takes.min(TAKES_ALL) as u32) << TAKES_SHIFT;
    word.compare_exchange(QUIET, awaited, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Whether a spinning consumer has to continue.
#[inline]
pub fn is_spinning(word: &AtomicU32) -> bool {
    word.load(Ordering::Acquire) & (AWAITED | SPINS) == AWAITED | SPINS
}

/// Called by a consumer that stops spinning. Returns whether it must receive a bell now; if not, a message was
/// announced without a bell, and the consumer continues as if it had received one.
pub fn stop_spinning(word: &AtomicU32) -> bool {
    let mut seen = word.load(Ordering::Acquire);
    // If another consumer has removed the flag, a bell is there or will come.
    while seen & SPINS != 0 {
        if seen & AWAITED == 0 {
            return false;
        }
        match word.compare_exchange(seen, seen & !SPINS, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(other) => seen = other,
        }
    }
    true
}

/// Ends the wait of a consumer that has received its bell, has the turn, and has taken the message if there was one.
///
/// # Errors
/// The errors of `bells`.
pub fn end_wait<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    word.fetch_and(STATE, Ordering::AcqRel);
    // What a killed consumer has begun could not be completed while this one waited.
    settle(word, bells)
}

/// Ends the wait of a consumer before a bell was sent for it. Returns false if a bell may have been sent: the consumer
/// must then call [`give_up`].
pub fn withdraw(word: &AtomicU32) -> bool {
    let seen = word.load(Ordering::Acquire);
    seen & AWAITED != 0
        && word.compare_exchange(seen, seen & STATE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Called by a consumer that has stopped waiting without having received a bell, and has the turn. Returns true if this
/// call has received that bell after all, so that the consumer must continue as if it had not stopped waiting.
///
/// # Errors
/// The errors of `bells`.
pub fn give_up<B: Bells>(word: &AtomicU32, bells: &B) -> Result<bool, B::Error> {
    for _ in 0..ATTEMPTS {
        let seen = word.load(Ordering::Acquire);
        if seen & (AWAITED | GIVEN) == 0 {
            return Ok(false);
        }
        if seen & GIVEN != 0 && bells.eat_if_there()? {
            return Ok(true);
        }
        // A bell that was given and is not there yet will be there for all.
        let is_coming = seen & GIVEN != 0 && seen & STATE == QUIET;
        let next = if is_coming { RINGING } else { seen & STATE };
        if word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            settle(word, bells)?;
            return Ok(false);
        }
    }
    Ok(false)
}
