//! The cost of creating, querying and removing IPC objects, by number of threads: the control plane (item E5 of Enea's
//! study).

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::sysv::Segment;
use crossway_sys::sysv_queue::SysvQueue;
use crossway_sys::{OsError, pipe};

use crossway_records::limits::{ControlRate, Spread};

/// Numbers of threads with which the rates are measured; Enea's study measured its patch with four.
const THREADS: [u32; 3] = [1, 2, 4];

/// Length of the System V shared memory segments, bytes.
const SEGMENT_BYTES: usize = 4096;

/// Number of operations between two readings of the clock.
const AT_A_TIME: u64 = 16;

/// The operation that a thread repeats; dropping it releases the resources that it holds.
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

/// Measures all operations; each run counts the operations within `run_ms`. `gaps` receives the operations that failed,
/// each with its error.
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
                    window_ms: Some(run_ms),
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

/// Time between the start of the threads and that of the window in which their operations are counted.
const LEAD: Duration = Duration::from_millis(1);

/// Operations per second of this number of threads together: all operations within one window, divided by its length.
/// Threads that take turns on a CPU share the window as they share the CPU.
fn rate(made: Made, threads: u32, run_ms: u32) -> Result<f64, OsError> {
    let barrier = Barrier::new(threads as usize);
    let window = OnceLock::new();
    let length = Duration::from_millis(run_ms.into());
    let one = || -> Result<f64, OsError> {
        let operation = made();
        barrier.wait();
        let mut operation = operation?;
        let &(begin, end) = window.get_or_init(|| {
            let begin = Instant::now() + LEAD;
            (begin, begin + length)
        });
        let mut done = 0.0;
        let mut from = Instant::now();
        while from < end {
            for _ in 0..AT_A_TIME {
                operation()?;
            }
            let to = Instant::now();
            done += AT_A_TIME as f64 * share_within((from, to), (begin, end));
            from = to;
        }
        Ok(done)
    };
    let done: f64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum::<Result<f64, OsError>>()
    })?;
    Ok(done / length.as_secs_f64())
}

/// The fraction of a span of time that lies within a window.
fn share_within(span: (Instant, Instant), window: (Instant, Instant)) -> f64 {
    let within = span.1.min(window.1).saturating_duration_since(span.0.max(window.0));
    within.as_secs_f64() / (span.1 - span.0).as_secs_f64().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use crossway_sys::{affinity, usage};

    use super::*;

    #[test]
    fn threads_on_one_cpu_are_not_faster_than_the_cpu() {
        const OPERATION_NS: u64 = 2000;
        // Each operation takes this much of a CPU's time, however often its thread is interrupted.
        let made: Made = || {
            Ok(Box::new(|| {
                let end = usage::thread_cpu_ns() + OPERATION_NS;
                while usage::thread_cpu_ns() < end {}
                Ok(())
            }))
        };
        let cpu = affinity::allowed().expect("affinity")[0];
        let pinned = || {
            // The threads that measure inherit the CPU of the one that starts them.
            affinity::pin(cpu).expect("an allowed CPU");
            rate(made, 4, 20).expect("the operation does not fail")
        };
        let per_s = std::thread::scope(|scope| scope.spawn(pinned).join().expect("no panic"));
        let at_most = 1e9 / OPERATION_NS as f64;
        assert!(per_s <= at_most * 1.1, "{per_s} operations per second; one CPU does {at_most}");
    }

    #[test]
    fn operations_count_as_far_as_they_are_within_the_window() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let share = |from, to| share_within((at(from), at(to)), (at(10), at(20)));
        let of =
            [share(0, 10), share(5, 15), share(12, 14), share(15, 35), share(0, 40), share(20, 30)];
        assert_eq!(of, [0.0, 0.5, 1.0, 0.25, 0.25, 0.0]);
    }

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
