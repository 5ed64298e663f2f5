//! Resource usage of a process; the difference of two snapshots is the usage in between.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Resources used by the whole process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds (CLOCK_PROCESS_CPUTIME_ID): exact, or a multiple of [`cpu_clock_step_ns`].
    pub cpu_ns: u64,
    /// The part of `cpu_ns` spent in the kernel, in nanoseconds (getrusage; split by sampling on most kernels).
    pub system_ns: u64,
    /// How often the process gave up its CPU to wait for something.
    pub switches_voluntary: u64,
    /// How often the scheduler took the CPU away from the process.
    pub switches_involuntary: u64,
    /// Page faults resolved without I/O.
    pub faults_minor: u64,
    /// Page faults that waited for I/O.
    pub faults_major: u64,
}

impl Usage {
    /// The current usage of this process. Makes two system calls; call it outside of timed loops.
    pub fn now() -> Usage {
        // SAFETY: an all-zero rusage is valid, and getrusage fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        Usage {
            cpu_ns: cpu_ns(),
            system_ns: usage.ru_stime.tv_sec as u64 * 1_000_000_000
                + usage.ru_stime.tv_usec as u64 * 1_000,
            switches_voluntary: usage.ru_nvcsw as u64,
            switches_involuntary: usage.ru_nivcsw as u64,
            faults_minor: usage.ru_minflt as u64,
            faults_major: usage.ru_majflt as u64,
        }
    }

    /// The usage of another process: all its threads together, without its children; `None` if there is no such
    /// process.
    ///
    /// CPU time is as exact as in [`Usage::now`]. The kernel's part comes from `/proc/PID/stat` in clock ticks (10 ms
    /// on most kernels). Context switches are counted only for threads that still run.
    pub fn of_process(pid: u32) -> Option<Usage> {
        let cpu_ns = process_cpu_ns(pid)?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Fields are counted after the command's last parenthesis; in proc(5) the state is field 3.
        let fields: Vec<u64> = stat[stat.rfind(')')? + 1..]
            .split_ascii_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let mut usage = Usage {
            cpu_ns,
            system_ns: (field(15) * tick_ns).min(cpu_ns),
            faults_minor: field(10),
            faults_major: field(12),
            ..Usage::default()
        };
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        for thread in threads.filter_map(Result::ok) {
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let switches = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            usage.switches_voluntary += switches("voluntary_ctxt_switches:");
            usage.switches_involuntary += switches("nonvoluntary_ctxt_switches:");
        }
        Some(usage)
    }

    /// The sum of this usage and another one.
    pub fn plus(&self, other: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            system_ns: self.system_ns + other.system_ns,
            switches_voluntary: self.switches_voluntary + other.switches_voluntary,
            switches_involuntary: self.switches_involuntary + other.switches_involuntary,
            faults_minor: self.faults_minor + other.faults_minor,
            faults_major: self.faults_major + other.faults_major,
        }
    }

    /// The usage since `earlier`. The kernel's part never exceeds the total.
    pub fn since(&self, earlier: &Usage) -> Usage {
        let cpu_ns = self.cpu_ns.saturating_sub(earlier.cpu_ns);
        Usage {
            cpu_ns,
            system_ns: self.system_ns.saturating_sub(earlier.system_ns).min(cpu_ns),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
            faults_minor: self.faults_minor.saturating_sub(earlier.faults_minor),
            faults_major: self.faults_major.saturating_sub(earlier.faults_major),
        }
    }

    /// CPU time in user mode, in nanoseconds.
    pub fn user_ns(&self) -> u64 {
        self.cpu_ns - self.system_ns.min(self.cpu_ns)
    }
}

fn cpu_ns() -> u64 {
    nanoseconds_of(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread since its start, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds_of(ClockId::ThreadCPUTime)
}

fn nanoseconds_of(clock: ClockId) -> u64 {
    let cpu = clock_gettime(clock);
    cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64
}

/// CPU time of another process since its start, in nanoseconds, all its threads together; `None` when there is no such
/// process.
///
/// Needs no permission: any process may call `clock_getcpuclockid`.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    // PID_MAX_LIMIT: a clock id has no space for a larger pid, and 0 means the caller.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| (1..=1 << 22).contains(pid))?;
    let mut clock: libc::clockid_t = 0;
    let mut cpu = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write to locals that outlive them; a clock whose process has ended meanwhile is an error.
    let known = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut cpu) == 0
    };
    known.then_some(cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64)
}

/// Voluntary and involuntary context switches of the calling thread.
pub fn thread_switches() -> (u64, u64) {
    // SAFETY: an all-zero rusage is valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
}

/// The smallest increase observed in this process's CPU time, in nanoseconds. A kernel without a fast clock counts
/// whole ticks, whatever `clock_getres` reports; on other kernels the value is the cost of reading the clock.
///
/// Consumes CPU time until it has seen four steps; `None` if they did not occur within ten seconds.
pub fn cpu_clock_step_ns() -> Option<u64> {
    let begin = Instant::now();
    let mut last = cpu_ns();
    let mut next_step = || {
        loop {
            let now = cpu_ns();
            if now > last {
                return Some(now - std::mem::replace(&mut last, now));
            }
            if begin.elapsed() > Duration::from_secs(10) {
                return None;
            }
        }
    };
    // The first step may have begun earlier.
    next_step()?;
    let steps = [next_step()?, next_step()?, next_step()?];
    steps.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_is_seen_to_switch_and_to_use_little() {
        let limit = 10_000_000.max(cpu_clock_step_ns().unwrap_or(0));
        // Sometimes the kernel makes a thread wait in addition, above all for a page, and charges it for time it did
        // not use; hence several attempts.
        let seen = (0..10).map(|_| {
            let (cpu, (voluntary, _)) = (thread_cpu_ns(), thread_switches());
            std::thread::sleep(Duration::from_millis(20));
            let (switches, used) = (thread_switches().0 - voluntary, thread_cpu_ns() - cpu);
            assert!(switches >= 1);
            (switches, used)
        });
        let seen: Vec<_> = seen.collect();
        assert!(seen.iter().any(|(switches, used)| *switches == 1 && *used <= limit), "{seen:?}");
    }

    #[test]
    fn a_process_s_cpu_time_is_read_from_outside() {
        let own = cpu_ns();
        assert!(process_cpu_ns(std::process::id()).unwrap() >= own);
        assert_eq!(process_cpu_ns(0), None);
        assert_eq!(process_cpu_ns(i32::MAX as u32), None);
        assert_eq!(process_cpu_ns(u32::MAX), None);
    }

    #[test]
    fn another_process_s_usage_matches_its_own_measurement() {
        let before = Usage::now();
        let seen = Usage::of_process(std::process::id()).unwrap();
        assert!(seen.cpu_ns >= before.cpu_ns);
        assert!(seen.faults_minor >= before.faults_minor);
        assert!(seen.system_ns <= seen.cpu_ns);
        assert_eq!(Usage::of_process(0), None);
    }

    #[test]
    fn a_yielding_and_writing_process_is_seen_to_use_cpu_and_fault() {
        let step_ns = cpu_clock_step_ns().unwrap();
        assert!(step_ns > 0);
        let before = Usage::now();
        let memory = std::hint::black_box(vec![1u8; 8 << 20]);
        while cpu_ns() < before.cpu_ns + step_ns {}
        let used = Usage::now().since(&before);
        assert_eq!(memory.len(), 8 << 20);
        assert!(used.cpu_ns >= step_ns);
        assert!(used.faults_minor + used.faults_major > 0);
        assert_eq!(used.user_ns() + used.system_ns, used.cpu_ns);
    }
}
