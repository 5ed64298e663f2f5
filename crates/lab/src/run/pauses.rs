//! Detects that this machine, or the container, was stopped during a trial: paused, suspended, moved to another host, or
//! throttled by the CPU quota of its cgroup. The controller is stopped then, too, and sees it in its own clock.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossway_sys::cgroup::{self, Throttling};

use crate::assemble::disturbed;
use crossway_records::record::Record;

/// Interval at which the controller wakes up: seldom, because it disturbs the trial.
const EVERY: Duration = Duration::from_millis(250);
/// A wake-up that is later than this was not delayed by other programs.
const STOPPED: Duration = Duration::from_millis(500);

/// A trial is degraded if the quota stopped the processes in more than one of this many periods: the same share as for
/// time that a hypervisor takes away.
const THROTTLED: u64 = 20;

/// What helps against pauses. By these, trials to be repeated are recognised.
const UNSTOPPED: &str = "measure while nothing pauses, suspends or moves this machine or container";
/// What helps against throttling.
const UNTHROTTLED: &str = "raise cpu.max of the cgroup, or `docker run --cpus`";

/// Watches for pauses from its creation until [`Pauses::enter`].
pub(super) struct Pauses {
    watch: Option<(Sender<()>, JoinHandle<Duration>)>,
    throttling: Vec<Throttling>,
}

impl Pauses {
    /// Begins to watch. If no thread can be started, pauses go unnoticed.
    pub(super) fn watch() -> Pauses {
        let (end, ended) = mpsc::channel();
        let watch = std::thread::Builder::new().name("pauses".to_owned()).spawn(move || {
            let mut longest = Duration::ZERO;
            loop {
                let slept = Instant::now();
                let told = ended.recv_timeout(EVERY);
                longest = longest.max(slept.elapsed().saturating_sub(EVERY));
                if told != Err(RecvTimeoutError::Timeout) {
                    return longest;
                }
            }
        });
        let watch = watch.ok().map(|thread| (end, thread));
        Pauses { watch, throttling: cgroup::throttling() }
    }

    /// Marks the record of the trial that has just ended if everything was stopped meanwhile.
    pub(super) fn enter(self, record: &mut Record) {
        let after = cgroup::throttling();
        let late = self.watch.and_then(|(end, thread)| {
            drop(end);
            thread.join().ok()
        });
        mark(record, late.unwrap_or_default(), &self.throttling, &after);
    }
}

fn mark(record: &mut Record, late: Duration, before: &[Throttling], after: &[Throttling]) {
    if late >= STOPPED {
        let why = format!(
            "this machine or container was stopped during the trial: the controller woke up {:.1} s late",
            late.as_secs_f64()
        );
        disturbed(record, why, UNSTOPPED);
    }
    let most = before.iter().zip(after).find_map(|(before, after)| {
        let periods = after.periods.saturating_sub(before.periods);
        let throttled = after.throttled.saturating_sub(before.throttled);
        let is_much = throttled.saturating_mul(THROTTLED) > periods;
        (before.group == after.group && is_much).then_some((throttled, periods))
    });
    if let Some((throttled, periods)) = most {
        let why = format!(
            "the cgroup's CPU quota stopped the processes in {throttled} of {periods} periods of the trial"
        );
        disturbed(record, why, UNTHROTTLED);
    }
}

/// Whether a record was marked for this.
pub(super) fn were_in(record: &Record) -> bool {
    record.remedy.as_deref().is_some_and(|remedy| [UNSTOPPED, UNTHROTTLED].contains(&remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::record::Status;

    fn at(group: &str, periods: u64, throttled: u64) -> Vec<Throttling> {
        vec![Throttling { group: group.into(), periods, throttled }]
    }

    #[test]
    fn a_trial_in_which_everything_stopped_or_was_throttled_is_degraded_and_repeated() {
        let ok = crossway_records::samples::ping_pong("pipe", 64, 0, 5000, 1000.0);
        let marked = |late_ms, before: &[Throttling], after: &[Throttling]| {
            let mut record = ok.clone();
            mark(&mut record, Duration::from_millis(late_ms), before, after);
            record
        };
        let quiet = marked(120, &at("/a", 10, 5), &at("/a", 110, 10));
        assert_eq!((quiet.status, were_in(&quiet)), (Status::Ok, false));
        let same = marked(0, &at("/a", 10, 5), &at("/a", 10, 5));
        assert_eq!(same.status, Status::Ok, "no period passed");
        for (record, words) in [
            (marked(3000, &[], &[]), "woke up 3.0 s late"),
            (marked(0, &at("/a", 10, 5), &at("/a", 508, 495)), "in 490 of 498 periods"),
            (marked(0, &at("/a", 10, 5), &at("/a", 43, 11)), "in 6 of 33 periods"),
        ] {
            assert_eq!(record.status, Status::Degraded);
            assert!(record.reason.as_ref().unwrap().contains(words), "{:?}", record.reason);
            assert!(were_in(&record) && super::super::running::is_to_be_repeated(&record));
        }
        let moved = marked(0, &at("/a", 10, 5), &at("/b", 508, 495));
        assert_eq!(moved.status, Status::Ok, "another cgroup's counters");
    }

    #[test]
    fn a_watch_ends_at_once() {
        let mut record = crossway_records::samples::ping_pong("pipe", 64, 0, 5000, 1000.0);
        Pauses::watch().enter(&mut record);
    }
}
