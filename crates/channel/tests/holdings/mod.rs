//! The descriptors and mappings that this process holds, and the check that nothing is left behind when another process
//! dies.

use std::time::{Duration, Instant};

use super::stream::soon;

/// Returns the numbers of descriptors and of mappings of shared memory of this process.
fn holdings() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("crossway-")).count())
}

/// Returns the same as [`holdings`], after waiting until the numbers are stable.
pub(crate) fn settled_holdings() -> (usize, usize) {
    loop {
        let held = holdings();
        std::thread::sleep(Duration::from_millis(50));
        if holdings() == held {
            return held;
        }
    }
}

/// Waits until this process holds as much as it did before; panics if it still holds more or less after a time limit.
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
