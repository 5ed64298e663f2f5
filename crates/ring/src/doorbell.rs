//! Makes a ring visible through a socket. A message called a *bell* is put into the socket, so that poll, epoll, select
//! and blocking calls on the descriptor that a program already has also notice the messages in the ring.
//!
//! The producer rings after it has published, and only if no bell is in the socket. The consumers, one at a time, leave
//! the bell in the socket while the ring contains messages, and remove ("eat") it when the ring is empty. So the socket
//! polls readable exactly while a message can be taken, and a bell costs its two system calls only if the ring was
//! empty in between.
//!
//! One shared word holds the state of the bell:
//!
//! | word | meaning | changed by |
//! |---|---|---|
//! | [`QUIET`] | no bell; a producer that publishes must ring | producer |
//! | [`RINGING`] | the producer is putting a bell into the socket, or has put one there for a consumer that stopped waiting meanwhile | producer: `RUNG`, once the bell is in the socket, or with its next message |
//! | [`RUNG`] | a bell is in the socket | consumer |
//! | [`EATING`] | a consumer checks that the ring is empty and removes the bell; a producer that publishes must ring again | consumer: `QUIET`, or `RUNG` if the ring was not empty |
//!
//! The producer only changes the word to `RINGING` and from there to `RUNG`, or to `QUIET` if there is nothing left to
//! announce. A message does not count as received until its bell is in the socket. Otherwise, a consumer could take the
//! message, empty the ring and find no bell to remove. The bell, arriving late, would then make the descriptor poll
//! readable while the ring is empty.
//!
//! A consumer may be killed at any point. The next consumer ([`settle`]) then finds `EATING` and checks whether the
//! bell is still in the socket. If the producer has rung again meanwhile, the old bell may remain as a stray. A stray
//! only makes a descriptor poll readable, and a consumer that finds it while the word is `QUIET` removes it
//! ([`eat_stray`]).
//!
//! # A consumer that waits by receiving the bell
//!
//! A consumer that sleeps until a bell arrives and removes it later makes two system calls. A consumer that will take a
//! single message anyway can receive the bell itself, which is one call. It has to announce this beforehand
//! ([`await_bell`]), because a bell that has been removed announces nothing to others. The producer then rings once for
//! this consumer. It rings a second time, with a bell that stays in the socket, for the messages that this consumer
//! will not take. During this time the word has one of two flags, and its upper bits contain the number of bytes that
//! the consumer takes:
//!
//! | flag | meaning | changed by |
//! |---|---|---|
//! | [`AWAITED`] | a consumer receives the next bell; only with `QUIET` | producer: `GIVEN`, before it rings for the consumer; that consumer, if it stops waiting ([`give_up`]) |
//! | [`GIVEN`] | a bell was sent for the consumer, in addition to the bell of the word's state | that consumer: no flag, when it has the turn ([`end_wait`]); another consumer that took the message instead: `AWAITED`, and it removes the bell, so that the first consumer continues to wait ([`emptied`]) |
//!
//! If other consumers receive too, or one of them is killed, the socket may contain more bells than the word indicates
//! (strays), but never fewer. If the waiting consumer is killed, its flag remains; the only effect on the others is
//! that none of them can wait in this way. If it is killed after it has removed the bell and before its turn, the
//! message is announced together with the next one. By comparison, a message that the kernel itself delivers is lost if
//! the process is killed in the receiving call.
//!
//! A consumer that spins before it waits also sets the flag [`SPINS`]. Then no bell is sent for it, and if it is
//! killed, nothing wakes another consumer in its place. The next consumer that has the turn removes the flag, and from
//! then on the spinning consumer waits for a bell.

mod waiting;

pub use waiting::{await_bell, end_wait, give_up, is_spinning, stop_spinning, withdraw};

use crate::sync::{AtomicU32, Ordering, fence};

/// No bell is in the socket.
pub const QUIET: u32 = 0;
/// The producer is about to put a bell into the socket.
pub const RINGING: u32 = 1;
/// A bell is in the socket.
pub const RUNG: u32 = 2;
/// A consumer checks whether the ring is empty; if so, it removes the bell.
pub const EATING: u32 = 3;
/// Flag: a consumer waits to receive the next bell.
pub const AWAITED: u32 = 4;
/// Flag: an additional bell was sent for the waiting consumer.
pub const GIVEN: u32 = 8;
/// Flag, combined with [`AWAITED`] or [`GIVEN`]: the waiting consumer spins and needs no bell.
pub const SPINS: u32 = 16;

/// The bits of the state itself.
const STATE: u32 = 3;
const TAKES_SHIFT: u32 = 5;

/// The largest number of bytes that a waiting consumer can announce. It means that the consumer takes a message of any
/// length.
pub const TAKES_ALL: usize = (u32::MAX >> TAKES_SHIFT) as usize;

/// Maximum number of attempts to change the word. A correct consumer changes it only a few times after something was
/// published; a hostile one must not keep a producer busy for longer.
const ATTEMPTS: u32 = 16;

/// The content of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The socket is empty.
    Nothing,
    /// The socket contains a bell.
    Bell,
    /// The producer has shut down its end, and no bell is left.
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

    /// Removes a bell from the socket, which must contain one.
    ///
    /// # Errors
    /// The error of the system call.
    fn eat(&self) -> Result<(), Self::Error> {
        self.eat_if_there().map(drop)
    }

    /// Removes a bell if the socket contains one, and returns whether it did.
    ///
    /// # Errors
    /// The error of the system call.
    fn eat_if_there(&self) -> Result<bool, Self::Error>;

    /// Whether nothing is published in the ring.
    ///
    /// # Errors
    /// The ring is corrupted.
    fn ring_is_empty(&self) -> Result<bool, Self::Error>;
}

/// Changes the state from `from` to `to` and keeps the flags; does nothing if the state is not `from`.
fn change(word: &AtomicU32, from: u32, to: u32) {
    let mut seen = word.load(Ordering::Relaxed);
    for _ in 0..ATTEMPTS {
        if seen & STATE != from {
            return;
        }
        let next = seen & !STATE | to;
        match word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => seen = other,
        }
    }
}

/// Returns the value of the word after the bell for the waiting consumer was sent.
const fn given(awaited: u32) -> u32 {
    awaited & !AWAITED | GIVEN
}

/// Announces what the producer has just published. Does not ring if a bell is in the socket already, if `is_taken`
/// returns true because everything has been taken under an earlier bell, or for a consumer that spins. `is_for_one` is
/// passed a number of bytes; it returns whether a consumer that takes one message of at most this size takes everything
/// in the ring.
///
/// # Errors
/// The errors of `ring`. The caller must then call this function again.
pub fn announce<E>(
    word: &AtomicU32,
    is_for_one: impl Fn(usize) -> bool,
    is_taken: impl Fn() -> bool,
    mut ring: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    // Either we see that the consumer is removing the bell, or it sees what we have published.
    fence(Ordering::SeqCst);
    // Acquire: what a waiting consumer has freed before it said that it waits is seen by `is_for_one`.
    let mut seen = word.load(Ordering::Acquire);
    for _ in 0..ATTEMPTS {
        match seen & STATE {
            RUNG => return Ok(()),
            // This producer never leaves this state behind: a consumer stopped waiting after the bell for it was sent,
            // so that bell is one for all. A second one would be a stray.
            RINGING => {
                let rung = seen & !STATE | RUNG;
                match word.compare_exchange(seen, rung, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Ok(()),
                    Err(other) => seen = other,
                }
                continue;
            }
            _ => {}
        }
        let is_awaited = seen & AWAITED != 0;
        if is_awaited && is_taken() {
            return Ok(());
        }
        // Nothing is taken before its bell was sent, so this cannot change before the next step.
        let is_enough = is_awaited && is_for_one((seen >> TAKES_SHIFT) as usize);
        let next = if is_awaited { given(seen) } else { seen & !STATE | RINGING };
        match word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
            // A consumer saw what we published and left the bell, or does not wait any more.
            Err(other) => seen = other,
            Ok(_) if is_awaited => {
                if seen & SPINS == 0 {
                    ring_for_waiter(word, seen, &mut ring)?;
                }
                if is_enough {
                    return Ok(());
                }
                seen = word.load(Ordering::Acquire);
            }
            Ok(_) => return ring_for_all(word, is_taken, ring),
        }
    }
    word.store(RINGING, Ordering::Release);
    ring_for_all(word, is_taken, ring)
}

/// Rings for all consumers. The word is `RINGING`: from here on no consumer takes anything before the bell is in the
/// socket.
fn ring_for_all<E>(
    word: &AtomicU32,
    is_taken: impl FnOnce() -> bool,
    mut ring: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let (outcome, next) = if is_taken() {
        (Ok(()), QUIET)
    } else {
        let outcome = ring();
        let next = if outcome.is_ok() { RUNG } else { QUIET };
        (outcome, next)
    };
    // If a consumer has found the bell meanwhile, the consumer has changed the word.
    change(word, RINGING, next);
    outcome
}

/// Sends the bell for the waiting consumer, after the flag `AWAITED` in the word `awaited` was replaced by `GIVEN`.
fn ring_for_waiter<E>(
    word: &AtomicU32,
    awaited: u32,
    ring: &mut impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    if let Err(error) = ring() {
        // The consumer may have given up before this; then the bell would have been one for all.
        let given = given(awaited);
        if word.compare_exchange(given, awaited, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            change(word, RINGING, QUIET);
        }
        return Err(error);
    }
    Ok(())
}

/// Repeats the bells that a killed producer may not have sent. Called by the process that replaces the producer, before
/// [`announce`]: sends the bell for a waiting consumer again, and makes [`announce`] send the bell for all consumers
/// again.
///
/// # Errors
/// The errors of `ring`.
pub fn repeat<E>(word: &AtomicU32, ring: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let is_given = word.load(Ordering::Acquire) & (GIVEN | SPINS) == GIVEN;
    change(word, RINGING, QUIET);
    if is_given { ring() } else { Ok(()) }
}

/// Whether the messages in the ring have been announced and therefore count as received. `seen` is true if the caller
/// has seen the current bell in the socket.
///
/// # Errors
/// As [`Bells::presence`].
#[inline]
pub fn is_heard<B: Bells>(word: &AtomicU32, seen: bool, bells: &B) -> Result<bool, B::Error> {
    let word = word.load(Ordering::Acquire);
    match word & STATE {
        _ if word & GIVEN != 0 => Ok(true),
        RUNG => Ok(true),
        RINGING if seen => Ok(true),
        RINGING => Ok(bells.presence()? != Presence::Nothing),
        // A bell found now is a stray; the producer's own bell is about to arrive, unless the producer has ended in
        // between.
        _ => Ok(bells.presence()? == Presence::End),
    }
}

/// Called when the ring was seen empty: removes the bell, unless something has been published in the meantime.
///
/// # Errors
/// The errors of `bells`.
pub fn emptied<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    loop {
        let seen = word.load(Ordering::Acquire);
        let is_given = seen & GIVEN != 0;
        match seen & STATE {
            RUNG => {}
            // With a waiting consumer, the bell in the socket may be the one for it.
            RINGING if !is_given && bells.presence()? == Presence::Bell => {}
            QUIET if seen & (AWAITED | SPINS) == AWAITED | SPINS => {
                // From here on a bell wakes whoever waits.
                let _ =
                    word.compare_exchange(seen, seen & !SPINS, Ordering::AcqRel, Ordering::Relaxed);
                return Ok(());
            }
            QUIET if is_given => {
                // What the waiting consumer's bell announced was taken here: it waits for another one.
                if !bells.ring_is_empty()? {
                    return Ok(());
                }
                let back = seen & !(GIVEN | SPINS) | AWAITED;
                let is_back =
                    word.compare_exchange(seen, back, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if is_back && seen & SPINS == 0 {
                    bells.eat_if_there()?;
                }
                if is_back {
                    return Ok(());
                }
                continue;
            }
            EATING if is_given && bells.ring_is_empty()? => {
                // A killed consumer has left this.
                change(word, EATING, QUIET);
                continue;
            }
            _ => return Ok(()),
        }
        let eating = seen | EATING;
        if word.compare_exchange(seen, eating, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && !(eat_unless_published(word, bells)? && is_given)
        {
            return Ok(());
        }
    }
}

/// Called when the word is `EATING` and a bell is in the socket: removes the bell if the ring is empty. Returns whether
/// it was empty.
fn eat_unless_published<B: Bells>(word: &AtomicU32, bells: &B) -> Result<bool, B::Error> {
    fence(Ordering::SeqCst);
    let is_empty = bells.ring_is_empty()?;
    if !is_empty {
        let seen = word.load(Ordering::Relaxed);
        let rung = seen & !STATE | RUNG;
        if seen & STATE == EATING
            && word.compare_exchange(seen, rung, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return Ok(false);
        }
        // The producer rings again: one of the two bells must be removed.
        bells.eat()?;
        return Ok(false);
    }
    bells.eat()?;
    // This does nothing if the producer rings again.
    change(word, EATING, QUIET);
    Ok(true)
}

/// Called when the last consumer died during its turn: completes what that consumer may have begun with the bell.
///
/// # Errors
/// The errors of `bells`.
pub fn settle<B: Bells>(word: &AtomicU32, bells: &B) -> Result<(), B::Error> {
    // While a bell is given to a waiting consumer, everything in the ring is heard, and the bell in the socket may be
    // that one: the consumer that empties the ring, or the waiting one, continues.
    let is_eating = || word.load(Ordering::Acquire) & (STATE | GIVEN) == EATING;
    if !is_eating() {
        return Ok(());
    }
    let there = bells.presence()? == Presence::Bell;
    // A producer that rings again changes the word first, so if the word is unchanged, the bell is the old one.
    if !is_eating() {
        return Ok(());
    }
    if there {
        return eat_unless_published(word, bells).map(drop);
    }
    // The bell was removed. Whatever is published gets announced: the word has been EATING since before the dead
    // consumer checked.
    change(word, EATING, QUIET);
    Ok(())
}

/// Called when a bell was seen in the socket in this turn and the ring is empty: removes the bell if it is a stray.
/// Returns whether a bell was removed.
///
/// # Errors
/// The errors of `bells`.
pub fn eat_stray<B: Bells>(word: &AtomicU32, bells: &B) -> Result<bool, B::Error> {
    if word.load(Ordering::Acquire) & AWAITED != 0 {
        // If the consumer's own bell has arrived since, one of the two is removed.
        return bells.eat_if_there();
    }
    if word.compare_exchange(QUIET, EATING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Ok(false);
    }
    // Anything published from now on, or a moment ago, gets its own bell.
    bells.eat()?;
    let _ = word.compare_exchange(EATING, QUIET, Ordering::AcqRel, Ordering::Relaxed);
    Ok(true)
}
