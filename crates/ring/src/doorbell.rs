//! Makes a ring visible through a socket: a message called a bell is put into the socket, so that poll, epoll, select and
//! blocking calls notice the ring through the descriptor that a program already has.
//!
//! The producer rings after it has published, and only if no bell is in the socket. The consumers, one at a time, leave the
//! bell in the socket while the ring contains messages, and remove ("eat") it when the ring is empty. So the socket polls
//! readable exactly while a message can be taken, and a bell costs its two system calls only if the ring was empty in
//! between.
//!
//! One shared word holds the state of the bell:
//!
//! | word | meaning | changed by |
//! |---|---|---|
//! | [`QUIET`] | no bell; a producer that publishes must ring | producer |
//! | [`RINGING`] | the producer is putting a bell into the socket | producer: `RUNG` when it has |
//! | [`RUNG`] | a bell is in the socket | consumer |
//! | [`EATING`] | a consumer checks that the ring is empty and removes the bell; a producer that publishes must ring again | consumer: `QUIET`, or `RUNG` if the ring was not empty |
//!
//! The producer only changes the word to `RINGING` and from there to `RUNG`, or to `QUIET` if there is nothing left to
//! announce. A message does not count as received until its bell is in the socket: a consumer that took it earlier could
//! empty the ring and find no bell to remove, and that bell, arriving late, would make the descriptor poll readable with an
//! empty ring.
//!
//! A consumer may be killed at any point. The next consumer ([`settle`]) finds `EATING`, with or without the bell in the
//! socket, and can tell which. If the producer has rung again meanwhile, the old bell may remain as a stray. A stray only
//! makes a descriptor poll readable, and a consumer that finds it while the word is `QUIET` removes it ([`eat_stray`]).

use crate::sync::{AtomicU32, Ordering, fence};

/// No bell is in the socket.
pub const QUIET: u32 = 0;
/// The producer is about to put a bell into the socket.
pub const RINGING: u32 = 1;
/// A bell is in the socket.
pub const RUNG: u32 = 2;
/// A consumer is removing the bell, or leaves it if it sees that the ring is not empty.
pub const EATING: u32 = 3;

/// The content of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is empty.
    Nothing,
    /// It contains a bell.
    Bell,
    /// The producer has shut down its end, and there is no bell before that.
    End,
}

/// The consumer's access to the socket and to the ring.
pub trait Bells {
    /// The error of a failed call.
    type Error;

    /// Checks the socket without waiting and without removing anything.
    ///
    /// # Errors
    /// The error of the system call.
    fn presence(&self) -> Result<Presence, Self::Error>;

    /// Removes a bell from the socket, which contains one.
    ///
    /// # Errors
    /// The error of the system call.
    fn eat(&self) -> Result<(), Self::Error>;

    /// Whether nothing is published in the ring.
    ///
    /// # Errors
    /// The ring is corrupted.
    fn ring_is_empty(&self) -> Result<bool, Self::Error>;
}

/// Called by the producer after publishing: rings, unless a bell is in the socket, or `is_taken` says that everything was
/// taken under an earlier bell. Returns whether it rang.
///
/// # Errors
/// The errors of `ring`; no bell is in the socket then, and this must be called again.
pub fn announce<E>(
    word: &AtomicU32,
    is_taken: impl FnOnce() -> bool,
    ring: impl FnOnce() -> Result<(), E>,
) -> Result<bool, E> {
    // Either we see that the consumer is removing the bell, or it sees what we have published.
    fence(Ordering::SeqCst);
    if word.load(Ordering::Relaxed) == RUNG {
        return Ok(false);
    }
    if word.swap(RINGING, Ordering::AcqRel) == RUNG {
        // A consumer saw what we published and left the bell.
        let _ = word.compare_exchange(RINGING, RUNG, Ordering::AcqRel, Ordering::Relaxed);
        return Ok(false);
    }
    // From here on no consumer takes anything before the bell is in the socket.
    let (outcome, next) = if is_taken() {
        (Ok(false), QUIET)
    } else {
        match ring() {
            Ok(()) => (Ok(true), RUNG),
            Err(error) => (Err(error), QUIET),
        }
    };
    // If a consumer has found the bell meanwhile, the consumer has changed the word.
    let _ = word.compare_exchange(RINGING, next, Ordering::AcqRel, Ordering::Relaxed);
    outcome
}

/// Whether the messages in the ring count as received from a poller's point of view. `seen` says that the current bell was
/// seen in the socket.
///
/// # Errors
/// As [`Bells::presence`].
#[inline]
pub fn is_heard<B: Bells>(word: &AtomicU32, seen: bool, bells: &B) -> Result<bool, B::Error> {
    match word.load(Ordering::Acquire) {
        RUNG => Ok(true),
        RINGING if seen => Ok(true),
        RINGING => Ok(bells.presence()? != Presence::Nothing),
        // A bell found now is a stray; the producer's own bell is about to arrive, unless the producer has ended in between.
        _ => Ok(bells.presence()? == Presence::End),
    }
}

/// Called when the ring was seen empty: removes the bell, unless something has been published meanwhile.
///
/// # Errors
/// The errors of `bells`.
pub fn emptied<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    loop {
        let seen = word.load(Ordering::Acquire);
        match seen {
            RUNG => {}
            RINGING if bells.presence()? == Presence::Bell => {}
            _ => return Ok(()),
        }
        if word.compare_exchange(seen, EATING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return eat_unless_published(word, bells);
        }
    }
}

/// Called when the word is `EATING` and a bell is in the socket: removes the bell unless the ring is not empty.
fn eat_unless_published<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    fence(Ordering::SeqCst);
    if !bells.ring_is_empty()? {
        let left = word.compare_exchange(EATING, RUNG, Ordering::AcqRel, Ordering::Relaxed);
        if left.is_ok() {
            return Ok(());
        }
        // The producer rings again: one of the two bells must be removed.
        return bells.eat();
    }
    bells.eat()?;
    // This fails if the producer rings again.
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(())
}

/// Called when the last consumer died during its turn: completes what it may have begun.
///
/// # Errors
/// The errors of `bells`.
pub fn settle<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    if word.load(Ordering::Acquire) != EATING {
        return Ok(());
    }
    let there = bells.presence()? == Presence::Bell;
    // A producer that rings again changes the word first, so if the word is unchanged, the bell is the old one.
    if word.load(Ordering::Acquire) != EATING {
        return Ok(());
    }
    if there {
        return eat_unless_published(word, bells);
    }
    // The bell was removed. Whatever is published gets announced: the word has been EATING since before the dead consumer
    // checked.
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(())
}

/// Called when a bell was seen in the socket in this turn and the ring is empty: removes the bell if it is a stray. Returns
/// whether it was.
///
/// # Errors
/// The errors of `bells`.
pub fn eat_stray<B: Bells>(word: &AtomicU32, bells: &B) -> Result<bool, B::Error> {
    if word.compare_exchange(QUIET, EATING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Ok(false);
    }
    // Anything published from now on, or a moment ago, gets its own bell.
    bells.eat()?;
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(true)
}
