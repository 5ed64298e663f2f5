//! Tests the directory of a process's leases: it exists while the process holds a lease and, once a run has begun,
//! until the run ends. The test has a process of its own, because there is one directory per process.

use std::path::PathBuf;

use crossway_sys::lease::{self, Lease, Resource, Run};

/// Creates the directory of this process's leases, unless it exists, and returns its path.
fn directory() -> PathBuf {
    lease::fresh_path("test").unwrap().parent().unwrap().to_owned()
}

fn held() -> Lease {
    lease::hold(Resource::Path { path: lease::fresh_path("test").unwrap() }).unwrap()
}

#[test]
fn the_directory_is_removed_with_the_last_lease_and_that_of_a_run_with_the_run() {
    let dir = directory();
    let [one, other, cancelled] = [held(), held(), held()];
    assert!(dir.exists());
    drop(one);
    cancelled.cancel();
    assert!(dir.exists(), "a lease is left");
    other.release();
    assert!(!dir.exists());

    // The last lease of one thread is dropped while another thread begins to hold one.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..500).for_each(|_| held().release()));
        }
    });
    assert!(!dir.exists());

    let run = Run::begin(None).unwrap();
    held().release();
    assert!(run.dir().exists(), "roles join it");
    drop(run);
    assert!(!dir.exists());
    held().release();
    assert!(!dir.exists());
}
