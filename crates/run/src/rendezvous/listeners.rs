//! The ports that programs which run so listen on.

use super::*;

impl Table {
    /// Notes that process `pid` listens on a port.
    pub fn note_listener(&self, pid: u32, port: u16, network: u64) {
        let own = listener_word(port, pid);
        let all = (0..LISTENERS).map(|at| (at, self.words.word(LISTENER_STATES + at)));
        for (at, word) in all.clone().take(self.ever(LISTENERS_EVER, LISTENERS)) {
            if word.load(Ordering::Acquire) == own
                && self.listener(at, OF_NETWORK).load(Ordering::Relaxed) == network
            {
                return;
            }
        }
        for (at, word) in all {
            let before = word.load(Ordering::Acquire);
            // Set while the contents are written; if the writer is killed then, the place remains unused.
            let writing = 1 << 63;
            let is_free =
                before == 0 || (before != writing && !proc::exists(listener_of(before).1));
            if is_free
                && word
                    .compare_exchange(before, writing, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                self.listener(at, OF_NETWORK).store(network, Ordering::Relaxed);
                self.listener(at, NOT_BEFORE).store(0, Ordering::Relaxed);
                self.listener(at, MISSES).store(0, Ordering::Relaxed);
                self.listener(at, SHORT_ONES).store(0, Ordering::Relaxed);
                self.words.word(LISTENERS_EVER).fetch_max(at as u64 + 1, Ordering::AcqRel);
                word.store(own, Ordering::Release);
                return;
            }
        }
    }

    /// Removes the note that process `pid` listens on a port.
    pub fn forget_listener(&self, pid: u32, port: u16) {
        let own = listener_word(port, pid);
        for at in 0..self.ever(LISTENERS_EVER, LISTENERS) {
            let word = self.words.word(LISTENER_STATES + at);
            let _ = word.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Removes all notes of this process.
    pub(super) fn forget_all(&self) {
        for at in 0..self.ever(LISTENERS_EVER, LISTENERS) {
            let word = self.words.word(LISTENER_STATES + at);
            let now = word.load(Ordering::Acquire);
            if now != 0 && listener_of(now).1 == std::process::id() {
                let _ = word.compare_exchange(now, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// A place with a note that a living process listens on this port, and whether only process `own` does. Costs one pass
    /// over the places in use if there is none.
    pub fn find_listener(&self, own: u32, port: u16) -> Option<(usize, bool)> {
        let mut found = None;
        for at in 0..self.ever(LISTENERS_EVER, LISTENERS) {
            let word = self.words.word(LISTENER_STATES + at);
            let now = word.load(Ordering::Acquire);
            let (noted, pid) = listener_of(now);
            if noted != port || now == 0 || pid == 0 {
                continue;
            }
            if !proc::exists(pid) {
                let _ = word.compare_exchange(now, 0, Ordering::AcqRel, Ordering::Relaxed);
                continue;
            }
            found = Some((at, pid == own && found.is_none_or(|(_, only)| only)));
        }
        found
    }

    /// Whether connections to the listener at this place are left alone for a while, since it was slow to accept or they live
    /// shortly. Costs less than anything that prepares an announcement.
    pub fn is_paused(&self, listener: usize) -> bool {
        self.listener(listener, NOT_BEFORE).load(Ordering::Relaxed) > monotonic_ns()
    }

    /// Notes how long a moved connection to the listener at this place lived. While programs connect for every request, moving
    /// costs more than it gains: it is paused.
    pub fn judge_life(&self, listener: usize, life_ms: u32) {
        if listener >= LISTENERS {
            return;
        }
        let short_ones = self.listener(listener, SHORT_ONES);
        if life_ms >= SHORT_LIFE_MS {
            if short_ones.load(Ordering::Relaxed) != 0 {
                short_ones.store(0, Ordering::Relaxed);
            }
        } else if short_ones.fetch_add(1, Ordering::Relaxed) + 1 >= SHORT_ONES_MOST {
            let until = monotonic_ns().saturating_add(SHORT_ONES_PAUSE_NS);
            self.listener(listener, NOT_BEFORE).store(until, Ordering::Relaxed);
        }
    }
}

/// A listener's word: port and pid.
pub(super) fn listener_word(port: u16, pid: u32) -> u64 {
    u64::from(port) | u64::from(pid) << 16
}

fn listener_of(word: u64) -> (u16, u32) {
    (word as u16, (word >> 16) as u32)
}
