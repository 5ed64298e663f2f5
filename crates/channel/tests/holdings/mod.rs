//! What this process holds of channels, and the check that the death of another process leaves nothing behind.

use std::time::{Duration, Instant};

use super::stream::soon;

/// The descriptors and mappings of shared memory of this process.
fn holdings() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("crossway-")).count())
}

/// As [`holdings`], once threads have dropped what they are about to drop.
pub(crate) fn settled_holdings() -> (usize, usize) {
    loop {
        let held = holdings();
        std::thread::sleep(Duration::from_millis(50));
        if holdings() == held {
            return held;
        }
    }
}

/// Waits until this process holds only what it held before.
pub(crate) fn nothing_is_left(before: (usize, usize), what: &str) {
    let limit = soon().unwrap();
    loop {
        let now = holdings();
        if now == before {
            return;
        }
        assert!(Instant::now() < limit, "{what}: descriptors and mappings {before:?} -> {now:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
