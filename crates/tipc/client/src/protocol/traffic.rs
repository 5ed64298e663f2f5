//! Words that show whether messages or changes of sockets are on their way through `tipcd`. All programs of a `tipcd` share
//! them.
//!
//! A kernel has queued a message at its receivers when the call that sent it returns; `tipcd` delivers it a little later. A
//! program therefore leaves a mark when it has sent something. A receiver that finds nothing looks at these words: while
//! something is on its way, it asks `tipcd` to deliver it ([`Request::Settle`](super::control::Request::Settle)) and looks
//! once more. So only a receiver that would have returned too early pays for a request, and a sender never waits.
//!
//! Any program can write these words. A wrong mark costs other programs a request, a missing one lets them find a message a
//! little later; nothing else depends on the words.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Number of words.
pub const WORDS: usize = 3;
/// Word 0: not 0 if a message may have been sent since `tipcd` last began a turn. Written by programs after sending.
pub const SENT: usize = 0;
/// Word 1: the same for changes of sockets that others may notice: closed, accepted. Written by programs after the call.
pub const CHANGED: usize = 1;
/// Word 2: which of these marks, combined from [`OF_SENT`] and [`OF_CHANGED`], `tipcd` has cleared without having delivered
/// everything yet. Written by `tipcd`.
pub const WORKING: usize = 2;
/// The bit of [`WORKING`] for [`SENT`].
pub const OF_SENT: u64 = 1;
/// The bit of [`WORKING`] for [`CHANGED`].
pub const OF_CHANGED: u64 = 2;

/// Leaves a mark in `word`, which is [`SENT`] or [`CHANGED`], after the call that it is about.
#[inline]
pub fn mark(word: &AtomicU64) {
    // tipcd clears the mark before it looks for messages: if the old mark is seen here, tipcd will see the message.
    fence(Ordering::SeqCst);
    if word.load(Ordering::Relaxed) == 0 {
        word.store(1, Ordering::Release);
    }
}

/// Which kinds ([`OF_SENT`], [`OF_CHANGED`]) are on their way. `word` returns the word with an index.
#[inline]
pub fn pending<'a>(word: impl Fn(usize) -> &'a AtomicU64) -> u64 {
    // The marks first: tipcd notes that it is working before it clears them.
    let sent = if word(SENT).load(Ordering::Acquire) == 0 { 0 } else { OF_SENT };
    let changed = if word(CHANGED).load(Ordering::Acquire) == 0 { 0 } else { OF_CHANGED };
    sent | changed | word(WORKING).load(Ordering::Acquire)
}

/// Takes all marks for a turn of `tipcd`, in addition to those of an unfinished turn; returns their kinds.
pub fn begin<'a>(word: impl Fn(usize) -> &'a AtomicU64) -> u64 {
    let kinds = pending(&word);
    if kinds != 0 {
        word(WORKING).store(kinds, Ordering::SeqCst);
        for (mark, kind) in [(SENT, OF_SENT), (CHANGED, OF_CHANGED)] {
            if kinds & kind != 0 {
                word(mark).swap(0, Ordering::SeqCst);
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_pending_until_the_turn_that_took_it_has_ended() {
        let words = [const { AtomicU64::new(0) }; WORDS];
        let word = |n: usize| &words[n];
        assert_eq!((pending(word), begin(word)), (0, 0));
        mark(&words[CHANGED]);
        assert_eq!(
            (pending(word), begin(word), pending(word)),
            (OF_CHANGED, OF_CHANGED, OF_CHANGED)
        );
        mark(&words[SENT]);
        // An unfinished turn goes on with the new mark.
        assert_eq!(begin(word), OF_SENT | OF_CHANGED);
        assert_eq!(
            (words[SENT].load(Ordering::Relaxed), words[CHANGED].load(Ordering::Relaxed)),
            (0, 0)
        );
        words[WORKING].store(0, Ordering::Relaxed);
        assert_eq!(pending(word), 0);
    }
}
