//! The cost of creating, querying and removing IPC objects, by number of threads: the control plane (item E5 of Enea's
//! study).

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::sysv::Segment;
use crossway_sys::sysv_queue::SysvQueue;
use crossway_sys::{OsError, pipe};
use serde::{Deserialize, Serialize};

use super::Spread;

/// The rate of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlRate {
    /// Kind of object: `sysv-shm`, `sysv-mq`, `fifo`, `pipe` or `socketpair`.
    pub object: String,
    /// `create-remove`: creating and removing one object; `stat`: querying the state of an object.
    pub operation: String,
    /// Number of threads that perform the operation at the same time, each on its own objects.
    pub threads: u32,
    /// Operations per second of all threads together.
    pub per_s: Spread,
}

/// Numbers of threads to measure; Enea's study measured its patch with four.
const THREADS: [u32; 3] = [1, 2, 4];

/// Length of segments, bytes.
const SEGMENT_BYTES: usize = 4096;

/// Number of operations between two readings of the clock.
const AT_A_TIME: u64 = 16;

/// The operation that a thread repeats; the resources that it holds are released when it is dropped.
type Operation = Box<dyn FnMut() -> Result<(), OsError>>;

type Made = fn() -> Result<Operation, OsError>;

const OPERATIONS: [(&str, &str, Made); 8] = [
    ("sysv-shm", "create-remove", || {
        let key = lease::fresh_key();
        let held = lease::hold(Resource::SysvShm { key })?;
        Ok(Box::new(move || {
            Segment::create(key, SEGMENT_BYTES)?;
            held.resource().remove();
            Ok(())
        }))
    }),
    ("sysv-shm", "stat", || {
        let key = lease::fresh_key();
        let held = lease::hold(Resource::SysvShm { key })?;
        let id = Segment::create(key, SEGMENT_BYTES)?.id();
        Ok(Box::new(move || {
            let _: &Lease = &held;
            Segment::open(id, SEGMENT_BYTES).map(drop)
        }))
    }),
    ("sysv-mq", "create-remove", || {
        let key = lease::fresh_key();
        let held = lease::hold(Resource::SysvMsg { key })?;
        Ok(Box::new(move || {
            let _: &Lease = &held;
            SysvQueue::create(key)?.remove()
        }))
    }),
    ("sysv-mq", "stat", || {
        let key = lease::fresh_key();
        let held = lease::hold(Resource::SysvMsg { key })?;
        let queue = SysvQueue::create(key)?;
        Ok(Box::new(move || {
            let _: &Lease = &held;
            queue.status().map(drop)
        }))
    }),
    ("fifo", "create-remove", || {
        let (path, held) = leased_path()?;
        Ok(Box::new(move || {
            pipe::make_fifo(&path)?;
            held.resource().remove();
            Ok(())
        }))
    }),
    ("fifo", "stat", || {
        let (path, held) = leased_path()?;
        pipe::make_fifo(&path)?;
        Ok(Box::new(move || {
            let _: &Lease = &held;
            let stat = std::fs::metadata(&path);
            stat.map(drop).map_err(|e| OsError::new("stat", path.display(), e))
        }))
    }),
    ("pipe", "create-remove", || Ok(Box::new(|| pipe::pipe().map(drop)))),
    ("socketpair", "create-remove", || {
        Ok(Box::new(|| UnixStream::pair().map(drop).map_err(|e| OsError::new("socketpair", "", e))))
    }),
];

fn leased_path() -> Result<(PathBuf, Lease), OsError> {
    let path = lease::fresh_path("rate")?;
    let held = lease::hold(Resource::Path { path: path.clone() })?;
    Ok((path, held))
}

/// Measures all operations; each run takes `run_ms`. `gaps` receives the operations that this system does not permit.
pub(super) fn measure(run_ms: u32, repeats: usize, gaps: &mut Vec<String>) -> Vec<ControlRate> {
    let mut rates = Vec::new();
    for (object, operation, made) in OPERATIONS {
        for threads in THREADS {
            let runs: Result<Vec<f64>, OsError> =
                (0..repeats).map(|_| rate(made, threads, run_ms)).collect();
            match runs.map(|runs| Spread::of(&runs)) {
                Ok(Some(per_s)) => rates.push(ControlRate {
                    object: object.to_owned(),
                    operation: operation.to_owned(),
                    threads,
                    per_s,
                }),
                Ok(None) => {}
                Err(error) => {
                    gaps.push(format!("{object}, {operation}: {error}"));
                    break;
                }
            }
        }
    }
    rates
}

/// Operations per second of this number of threads together.
fn rate(made: Made, threads: u32, run_ms: u32) -> Result<f64, OsError> {
    let barrier = Barrier::new(threads as usize);
    let length = Duration::from_millis(run_ms.into());
    let one = || -> Result<f64, OsError> {
        let operation = made();
        barrier.wait();
        let mut operation = operation?;
        let begin = Instant::now();
        let mut done = 0u64;
        while begin.elapsed() < length {
            for _ in 0..AT_A_TIME {
                operation()?;
            }
            done += AT_A_TIME;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_made_and_removed_by_several_threads_at_once() {
        let mut gaps = Vec::new();
        let rates = measure(1, 1, &mut gaps);
        assert_eq!(
            rates.len() + THREADS.len() * gaps.len(),
            OPERATIONS.len() * THREADS.len(),
            "{gaps:?}"
        );
        assert!(rates.iter().all(|r| r.per_s.median > 0.0), "{rates:?}");
        assert!(rates.iter().any(|r| r.object == "pipe" && r.threads == 4));
    }
}
