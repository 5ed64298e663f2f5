//! Which sends the kernel has done with, and which pages are free therefore. No system calls.

use std::collections::VecDeque;
use std::ops::Range;

use crossway_sys::zerocopy::Notice;

/// Room for notices that come before those of earlier sends; more of them allocate memory.
const EARLY: usize = 64;

/// Counts the sends that are complete.
#[derive(Debug)]
pub(super) struct Completions {
    /// Number of sends, from the first on, that are all complete.
    done: u64,
    /// Later sends that are complete, too, as ranges of numbers: notices may overtake each other.
    early: Vec<Range<u64>>,
    copied: u64,
}

impl Completions {
    pub(super) fn new() -> Self {
        Completions { done: 0, early: Vec::with_capacity(EARLY), copied: 0 }
    }

    /// Takes note of a notice.
    pub(super) fn note(&mut self, notice: Notice) {
        // The kernel counts modulo 2^32, and far fewer sends than that are under way.
        let first = self.done + u64::from(notice.first.wrapping_sub(self.done as u32));
        let count = u64::from(notice.last.wrapping_sub(notice.first)) + 1;
        if notice.copied {
            self.copied += count;
        }
        if first > self.done {
            self.early.push(first..first + count);
            return;
        }
        self.done += count;
        while let Some(at) = self.early.iter().position(|range| range.start == self.done) {
            self.done = self.early.swap_remove(at).end;
        }
    }

    /// Number of sends, from the first on, that are all complete.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Number of complete sends whose bytes the kernel copied after all.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }
}

/// Hands out pages in turn. Positions count pages from the first one ever handed out.
#[derive(Debug)]
pub(super) struct Turn {
    pages: u64,
    next: u64,
    /// The messages whose pages may still be read, the oldest first.
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    /// Position of the first page.
    start: u64,
    /// Number of the message's first send. Its last one precedes the first of the next message.
    first_send: u64,
}

impl Turn {
    /// All pages are free.
    pub(super) fn new(pages: usize) -> Self {
        // Each message has a page at least.
        Turn { pages: pages as u64, next: 0, held: VecDeque::with_capacity(pages) }
    }

    /// The position of the next `count` pages: a message's pages are consecutive, so those at the
    /// end may be left out.
    #[inline]
    fn position(&self, count: usize) -> u64 {
        let at = self.next % self.pages;
        if at + count as u64 > self.pages { self.next + (self.pages - at) } else { self.next }
    }

    /// The first of `count` consecutive pages that nobody reads; `None` if some may still be read.
    #[inline]
    pub(super) fn free(&self, count: usize) -> Option<usize> {
        let start = self.position(count);
        let is_free = self
            .held
            .front()
            .is_none_or(|oldest| start + count as u64 <= oldest.start + self.pages);
        is_free.then_some((start % self.pages) as usize)
    }

    /// Records that the pages given by [`Turn::free`] are used by the sends from `first_send` on.
    #[inline]
    pub(super) fn hold(&mut self, count: usize, first_send: u64) {
        let start = self.position(count);
        self.held.push_back(Held { start, first_send });
        self.next = start + count as u64;
    }

    /// Frees the pages of messages whose sends are all among the first `done` of `sent` sends.
    pub(super) fn release(&mut self, done: u64, sent: u64) {
        while !self.held.is_empty() {
            let end = self.held.get(1).map_or(sent, |next| next.first_send);
            if done < end {
                return;
            }
            self.held.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(first: u32, last: u32) -> Notice {
        Notice { first, last, copied: first.is_multiple_of(2) }
    }

    #[test]
    fn a_send_is_done_only_when_all_before_it_are() {
        let mut completions = Completions::new();
        completions.note(notice(2, 3));
        completions.note(notice(5, 5));
        assert_eq!(completions.done(), 0);
        completions.note(notice(0, 1));
        assert_eq!(completions.done(), 4);
        completions.note(notice(4, 4));
        assert_eq!((completions.done(), completions.copied()), (6, 5));
    }

    #[test]
    fn numbers_may_pass_two_to_the_32() {
        let mut completions = Completions::new();
        completions.done = u64::from(u32::MAX) - 1;
        completions.note(notice(1, 2));
        completions.note(notice(u32::MAX - 1, 0));
        assert_eq!(completions.done(), u64::from(u32::MAX) + 4);
    }

    /// Tests that no page is given out that the kernel may still read, with messages of any sizes,
    /// sent by any number of calls, and completions in any groups.
    #[test]
    fn a_page_is_given_out_again_only_after_the_sends_that_use_it() {
        for pages in [3, 4, 16] {
            let (mut turn, mut sent, mut done) = (Turn::new(pages), 0_u64, 0_u64);
            let mut in_use = VecDeque::<(Range<usize>, u64)>::new();
            let mut seed = 1_u32;
            let mut random = move |below: usize| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 16) as usize % below
            };
            for _ in 0..10_000 {
                let count = 1 + random(pages);
                let first = loop {
                    match turn.free(count) {
                        Some(first) => break first,
                        None => {
                            if done < sent {
                                done += 1 + random((sent - done) as usize) as u64;
                            }
                            turn.release(done, sent);
                            assert!(done < sent || turn.free(count).is_some(), "waits for nothing");
                            while in_use.front().is_some_and(|(_, last)| *last <= done) {
                                in_use.pop_front();
                            }
                        }
                    }
                };
                assert!(first + count <= pages);
                let overlaps = |(used, _): &(Range<usize>, u64)| {
                    used.start < first + count && first < used.end
                };
                assert!(!in_use.iter().any(overlaps), "pages {pages}");
                turn.hold(count, sent);
                // None if the kernel refused to send it without a copy.
                sent += random(3) as u64;
                in_use.push_back((first..first + count, sent));
            }
        }
    }
}
