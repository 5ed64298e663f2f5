//! How a socket tells that a ring has something: a bell is put into it, so that poll, epoll, select and blocking calls see the ring
//! through the descriptor that a program already has.
//!
//! The producer rings after it has published, and only if no bell is in the socket. The consumers, one at a time, leave the bell where it is
//! while there is something in the ring, and eat it when the ring is empty. So the socket polls readable while a message can be taken and
//! not otherwise, and a bell costs its two system calls only when the ring was empty in between.
//!
//! One shared word says where the bell is:
//!
//! | word | meaning | left by |
//! |---|---|---|
//! | [`QUIET`] | no bell; who publishes rings | producer |
//! | [`RINGING`] | the producer is putting a bell into the socket | producer: `RUNG` when it has |
//! | [`RUNG`] | a bell is in the socket | consumer |
//! | [`EATING`] | a consumer makes sure that the ring is empty and takes the bell out; who publishes rings anew | consumer: `QUIET`, or `RUNG` if the ring was not empty |
//!
//! The producer changes the word to `RINGING` and from there to `RUNG`, or to `QUIET` where nothing is left to announce, nothing else. What is published before its bell is in the socket has not come
//! yet: a consumer that took it could empty the ring and find no bell to eat, and that bell, arriving late, would make the
//! descriptor poll readable for nothing.
//!
//! A consumer may be killed anywhere. Its successor ([`settle`]) finds `EATING`, with or without the bell in the socket, and can tell which. If the
//! producer has rung anew meanwhile, the old bell may be left over: a stray. It only makes a descriptor poll readable, and whoever finds it with
//! the word `QUIET` eats it ([`eat_stray`]).

use crate::sync::{AtomicU32, Ordering, fence};

/// No bell is in the socket.
pub const QUIET: u32 = 0;
/// The producer is about to put one there.
pub const RINGING: u32 = 1;
/// One is there.
pub const RUNG: u32 = 2;
/// A consumer is taking it out, or leaves it when it sees that the ring is not empty.
pub const EATING: u32 = 3;

/// What a look into the socket showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nothing.
    Nothing,
    /// A bell.
    Bell,
    /// The producer has shut its end, and no bell stands before that.
    End,
}

/// The consumer's end of the socket, and its look into the ring.
pub trait Bells {
    /// Why a call failed.
    type Error;

    /// Looks into the socket without waiting and takes nothing.
    ///
    /// # Errors
    /// What the system says.
    fn presence(&self) -> Result<Presence, Self::Error>;

    /// Takes a bell out of the socket, which is there.
    ///
    /// # Errors
    /// What the system says.
    fn eat(&self) -> Result<(), Self::Error>;

    /// Whether nothing is published in the ring.
    ///
    /// # Errors
    /// What is wrong with the ring.
    fn ring_is_empty(&self) -> Result<bool, Self::Error>;
}

/// The producer has published something: rings, unless a bell is there, or all of it `is_taken` under an earlier one. Returns whether it rang.
///
/// # Errors
/// Those of `ring`; then no bell is there, and this must be called again.
pub fn announce<E>(
    word: &AtomicU32,
    is_taken: impl FnOnce() -> bool,
    ring: impl FnOnce() -> Result<(), E>,
) -> Result<bool, E> {
    // Either we see that the consumer is eating, or it sees what we have published.
    fence(Ordering::SeqCst);
    if word.load(Ordering::Relaxed) == RUNG {
        return Ok(false);
    }
    if word.swap(RINGING, Ordering::AcqRel) == RUNG {
        // A consumer saw what we published and left the bell.
        let _ = word.compare_exchange(RINGING, RUNG, Ordering::AcqRel, Ordering::Relaxed);
        return Ok(false);
    }
    // From here on nobody takes anything before the bell is there.
    let (outcome, next) = if is_taken() {
        (Ok(false), QUIET)
    } else {
        match ring() {
            Ok(()) => (Ok(true), RUNG),
            Err(error) => (Err(error), QUIET),
        }
    };
    // If a consumer has found the bell meanwhile, the word is the consumer's.
    let _ = word.compare_exchange(RINGING, next, Ordering::AcqRel, Ordering::Relaxed);
    outcome
}

/// Whether what the ring holds has come, as far as pollers are concerned. `seen` tells that the bell that is rung now was seen in the socket.
///
/// # Errors
/// As [`Bells::presence`].
#[inline]
pub fn is_heard<B: Bells>(word: &AtomicU32, seen: bool, bells: &B) -> Result<bool, B::Error> {
    match word.load(Ordering::Acquire) {
        RUNG => Ok(true),
        RINGING if seen => Ok(true),
        RINGING => Ok(bells.presence()? != Presence::Nothing),
        // A bell that is there now is a stray; the producer's own is about to come, unless it has gone in between.
        _ => Ok(bells.presence()? == Presence::End),
    }
}

/// The ring was seen empty: takes the bell out, unless something has been published meanwhile.
///
/// # Errors
/// Those of the bells.
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

/// The word is `EATING`, and a bell is in the socket.
fn eat_unless_published<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    fence(Ordering::SeqCst);
    if !bells.ring_is_empty()? {
        let left = word.compare_exchange(EATING, RUNG, Ordering::AcqRel, Ordering::Relaxed);
        if left.is_ok() {
            return Ok(());
        }
        // The producer rings anew: one of the two bells goes.
        return bells.eat();
    }
    bells.eat()?;
    // Failure: the producer rings anew.
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(())
}

/// The last consumer died in its turn: finishes what it may have begun.
///
/// # Errors
/// Those of the bells.
pub fn settle<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    if word.load(Ordering::Acquire) != EATING {
        return Ok(());
    }
    let there = bells.presence()? == Presence::Bell;
    // A producer that rings anew says so before it does: with the word as it was, the bell is the old one.
    if word.load(Ordering::Acquire) != EATING {
        return Ok(());
    }
    if there {
        return eat_unless_published(word, bells);
    }
    // It was taken out. What is published is announced: the word has been EATING since before the dead one looked.
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(())
}

/// A bell is in the socket, seen in this turn, and the ring is empty: takes it out if it is nobody's. Returns whether it was.
///
/// # Errors
/// Those of the bells.
pub fn eat_stray<B: Bells>(word: &AtomicU32, bells: &B) -> Result<bool, B::Error> {
    if word.compare_exchange(QUIET, EATING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Ok(false);
    }
    // Whatever is published from now on, or was a moment ago, gets a bell of its own.
    bells.eat()?;
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(true)
}
