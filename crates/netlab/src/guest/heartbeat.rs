//! Detects guests that have died. A silent guest is sent a ping; if it does not answer, the state and the CPU time of
//! its processes distinguish a busy guest from a dead one. A guest that has lost one of its processes can keep its
//! serial line open for ever, idle or in an endless loop; but a guest that got seconds of CPU time could have
//! answered.

use std::collections::VecDeque;
use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::relay::{Wire, lock};
use crate::registry::Process;

/// A guest is pinged after it has been silent for this long. While programs in it are measured, it sends frames more
/// often than that.
const ASK_AFTER: Duration = Duration::from_secs(2);
/// An idle guest that has been silent for this long is considered dead.
const IDLE_AND_SILENT: Duration = Duration::from_secs(5);
/// A guest that has used this much CPU time while it was silent is considered dead, too: whatever runs in it, its
/// scheduler would have run the thread that answers.
const BUSY_AND_SILENT: Duration = Duration::from_secs(3);
/// A guest that has been silent for this long is considered dead, whatever it does.
const SILENT: Duration = Duration::from_secs(30);
/// Interval between two samples of the guest's processes.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// How many of the latest samples decide whether a guest is idle.
const SAMPLES: usize = 6;
/// A guest that uses less than this share of one CPU counts as idle: an idle kernel's timers take about a hundredth.
const IDLE_SHARE: f64 = 0.1;
/// Ticks of `/proc/PID/stat` per second (USER_HZ, the same on all machines).
const TICKS_PER_S: f64 = 100.0;

/// When the last frame from a guest arrived and, if the guest was considered dead, why.
pub(super) struct Heartbeat {
    /// How much slower the guest is than this machine: [`super::GuestMachine::slowdown`].
    slowdown: u32,
    heard: Mutex<Instant>,
    verdict: Mutex<Option<String>>,
}

impl Heartbeat {
    pub(super) fn new(slowdown: u32) -> Heartbeat {
        Heartbeat { slowdown, heard: Mutex::new(Instant::now()), verdict: Mutex::new(None) }
    }

    /// Records that a frame from the guest has arrived.
    pub(super) fn beat(&self) {
        *lock(&self.heard) = Instant::now();
    }

    /// Why the guest was considered dead, if it was.
    pub(super) fn verdict(&self) -> Option<String> {
        lock(&self.verdict).clone()
    }

    /// Watches until the guest's kernel has ended; kills a guest that is dead.
    pub(super) fn watch(&self, kernel: Process, wire: &Wire) {
        // On a separate thread, since a write to a line that is not read blocks.
        let (ask, asked) = sync_channel::<()>(1);
        let line = wire.clone();
        std::thread::spawn(move || asked.iter().for_each(|()| line.send(&Frame::Ping)));
        let busy = BUSY_AND_SILENT * self.slowdown;
        let mut lately: VecDeque<Activity> = VecDeque::new();
        let mut asked_at: Option<Activity> = None;
        while kernel.is_alive() {
            std::thread::sleep(SAMPLE_INTERVAL);
            let silent = lock(&self.heard).elapsed();
            if silent < ASK_AFTER {
                lately.clear();
                asked_at = None;
                continue;
            }
            let _ = ask.try_send(());
            let now = Activity::of(kernel.pid);
            let had = now.seconds_since(*asked_at.get_or_insert(now));
            lately.push_back(now);
            if lately.len() > SAMPLES {
                lately.pop_front();
            }
            let idle = silent >= IDLE_AND_SILENT && is_idle(lately.make_contiguous());
            if silent >= SILENT * self.slowdown || idle || had >= busy.as_secs_f64() {
                *lock(&self.verdict) = Some(format!(
                    "it did not answer for {} s, in which it used {had:.1} s of CPU time; one of its processes may \
                     have been killed or stopped",
                    silent.as_secs(),
                ));
                kernel.kill();
                return;
            }
        }
    }
}

/// What the processes of a guest are doing.
#[derive(Clone, Copy)]
struct Activity {
    at: Instant,
    /// CPU time of all processes, user and system, in ticks.
    ticks: u64,
    /// Whether any process is running, runnable or waiting for a disk.
    waits_for_cpu: bool,
}

impl Activity {
    /// CPU time used by the guest since `before`, in seconds. The time of processes that have ended is missing.
    fn seconds_since(&self, before: Activity) -> f64 {
        self.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_S
    }

    fn of(pid: u32) -> Activity {
        let mut all = Activity { at: Instant::now(), ticks: 0, waits_for_cpu: false };
        all.add(pid);
        all
    }

    fn add(&mut self, pid: u32) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (state, ticks) = state_and_ticks(&stat);
        self.ticks += ticks;
        self.waits_for_cpu |= matches!(state, 'R' | 'D');
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_ascii_whitespace() {
            if let Ok(child) = child.parse() {
                self.add(child);
            }
        }
    }
}

/// Whether a guest was idle while these samples were taken: it hardly used a CPU, and waited for one in fewer than half
/// of them.
fn is_idle(samples: &[Activity]) -> bool {
    let [first, .., last] = samples else { return false };
    let used = last.seconds_since(*first);
    let span = (last.at - first.at).as_secs_f64();
    let waiting = samples.iter().filter(|sample| sample.waits_for_cpu).count();
    used < span * IDLE_SHARE && 2 * waiting < samples.len()
}

/// The state, and the sum of user and system time in ticks, from a line of `/proc/PID/stat`. The line contains the
/// program's name, which may contain anything; it ends at the last closing parenthesis.
fn state_and_ticks(stat: &str) -> (char, u64) {
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let state = fields.first().and_then(|word| word.chars().next()).unwrap_or('X');
    let time = |at: usize| fields.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    (state, time(11) + time(12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let line = "77 (a) R (b) S 1 2 3 4 5 6 7 8 9 10 120 45 0 0 20 0 1 0 5 6 7";
        assert_eq!(state_and_ticks(line), ('S', 165));
        assert_eq!(state_and_ticks(""), ('X', 0));
    }

    #[test]
    fn a_guest_that_computes_or_waits_for_a_cpu_is_not_idle() {
        let at = Instant::now();
        let samples = |each: &[(u64, bool)]| -> Vec<Activity> {
            let sample = |(s, &(ticks, waits_for_cpu)): (usize, &(u64, bool))| Activity {
                at: at + Duration::from_secs(s as u64),
                ticks,
                waits_for_cpu,
            };
            each.iter().enumerate().map(sample).collect()
        };
        assert!(is_idle(&samples(&[(1000, false), (1001, true), (1003, false)])));
        assert!(!is_idle(&samples(&[(1000, true), (1001, true), (1003, false)])));
        assert!(!is_idle(&samples(&[(1000, false), (1050, false), (1100, false)])));
        assert!(!is_idle(&samples(&[(1000, false)])), "one sample decides nothing");
    }
}
