//! A child that runs this test program and dies at a step or is killed, and the check that nothing is left of it.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::stream::soon;

/// A child; dropping it kills it.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the test `child` of this program with an environment; it dies when it passes the `fault`, `STEP@TIMES`.
pub(crate) fn start(environment: &[(&str, String)], fault: Option<&str>) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).envs(environment.iter().cloned());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(fault) = fault {
        command.env("CROSSWAY_CHANNEL_FAULT", fault);
    }
    Killed(command.spawn().unwrap())
}

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

/// Waits for a child to end by itself; panics if it does not.
#[allow(dead_code)] // not every test that shares this file has children that end by themselves
pub(crate) fn end_of(child: &mut Killed, what: &str) -> ExitStatus {
    let limit = soon().unwrap();
    loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < limit, "{what}: the child never came to this step");
        std::thread::sleep(Duration::from_millis(1));
    }
}
