//! Whether somebody waits for what this thread sends next.
//!
//! A thread that had to wait for a message by spinning, and then sends one, is most likely part of an exchange: the
//! receiver of its message spins, too. The lines of that message are then worth pushing out of this core's caches. In
//! a stream they are not: the receiver reads them later, and pushing them out would cost the sender a part of its rate.

#[cfg(not(loom))]
mod real {
    use std::cell::Cell;

    thread_local! {
        static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
    }

    /// Records that this thread has received a message for which it had to spin.
    #[inline]
    pub(crate) fn note_wait() {
        HAS_WAITED.set(true);
    }

    /// Whether this thread has waited for a message since it last sent one.
    #[inline]
    pub(crate) fn is_next_awaited() -> bool {
        HAS_WAITED.replace(false)
    }
}

/// The model knows no caches.
#[cfg(loom)]
mod real {
    pub(crate) fn note_wait() {}

    pub(crate) fn is_next_awaited() -> bool {
        false
    }
}

pub(crate) use real::{is_next_awaited, note_wait};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_wait_makes_one_message_awaited() {
        assert!(!is_next_awaited());
        note_wait();
        note_wait();
        assert!(is_next_awaited());
        assert!(!is_next_awaited());
        note_wait();
        std::thread::spawn(|| assert!(!is_next_awaited())).join().unwrap();
        assert!(is_next_awaited());
    }
}
