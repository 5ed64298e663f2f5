//! Performance counters of a process by perf_event_open: cycles, instructions, cache misses.
//!
//! Many virtual machines have none. A missing counter is reported with its reason and never as a count of 0.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

/// An event that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterEvent {
    /// CPU cycles, of user and kernel code where the kernel allows both.
    Cycles,
    /// Instructions that were retired, which means executed to the end and not discarded after a wrong speculation.
    Instructions,
    /// Misses of the last-level cache, as the processor defines them.
    CacheMisses,
    /// Time on a CPU in nanoseconds, counted by the kernel itself, so it is available even without hardware counters.
    TaskClock,
}

impl CounterEvent {
    /// The event's `type` and `config` for the kernel (include/uapi/linux/perf_event.h).
    fn code(self) -> (u32, u64) {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        match self {
            CounterEvent::Cycles => (HARDWARE, 0),
            CounterEvent::Instructions => (HARDWARE, 1),
            CounterEvent::CacheMisses => (HARDWARE, 3),
            CounterEvent::TaskClock => (SOFTWARE, 1),
        }
    }
}

/// Why a counter is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The processor, as this kernel sees it, cannot count this event.
    NoHardware,
    /// The kernel forbids counting; the value is its `kernel.perf_event_paranoid`, if readable.
    Forbidden(Option<i32>),
    /// The kernel was built without perf events, or a sandbox hides them.
    NotSupported,
    /// The call failed in another way; the value is the system's message.
    Other(String),
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unavailable::NoHardware => write!(
                f,
                "no hardware counters: the processor does not support this event, or the hypervisor hides it"
            ),
            Unavailable::Forbidden(Some(level)) => {
                write!(f, "the kernel forbids counters (kernel.perf_event_paranoid is {level})")
            }
            Unavailable::Forbidden(None) => {
                write!(f, "the kernel or a container's seccomp filter forbids counters")
            }
            Unavailable::NotSupported => write!(f, "this kernel has no perf_event_open"),
            Unavailable::Other(why) => write!(f, "perf_event_open: {why}"),
        }
    }
}

impl std::error::Error for Unavailable {}

impl Unavailable {
    /// What the user can do to make the counter available.
    pub fn remedy(&self) -> &'static str {
        match self {
            Unavailable::NoHardware => {
                "measure on the host itself, or give the virtual machine a PMU (QEMU: -cpu host,pmu=on)"
            }
            Unavailable::Forbidden(_) => {
                "sudo sysctl kernel.perf_event_paranoid=1 (in a container also --cap-add PERFMON)"
            }
            Unavailable::NotSupported => "use a kernel with CONFIG_PERF_EVENTS",
            Unavailable::Other(_) => "run `perf stat true` for details",
        }
    }
}

/// One running counter of the calling process and of the threads and children it starts later. Threads that already run
/// are not counted: open the counter before they start.
#[derive(Debug)]
pub struct Counter {
    file: File,
}

/// What a counter showed when it was read, and how reliable that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The count, scaled up where the kernel had to share the hardware among too many counters.
    pub count: u64,
    /// Share of the time, per mille, in which the hardware really counted; below 1000 the count is an estimate.
    pub counted_per_mille: u32,
}

/// `struct perf_event_attr` in its first published size; the kernel treats the later fields as 0.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

/// PERF_ATTR_SIZE_VER0.
const ATTR_SIZE: u32 = 64;
const _: () = assert!(size_of::<Attr>() == ATTR_SIZE as usize);
/// PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING.
const WITH_TIMES: u64 = 1 | 2;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

impl Counter {
    /// Starts counting. Includes kernel code where the kernel allows it, otherwise user code alone.
    ///
    /// # Errors
    /// Why this event cannot be counted here.
    pub fn start(event: CounterEvent) -> Result<Counter, Unavailable> {
        match open(event, FLAG_INHERIT | FLAG_EXCLUDE_HYPERVISOR) {
            Err(e) if [libc::EACCES, libc::EPERM].contains(&e.raw_os_error().unwrap_or(0)) => {
                open(event, FLAG_INHERIT | FLAG_EXCLUDE_HYPERVISOR | FLAG_EXCLUDE_KERNEL)
            }
            other => other,
        }
        .map(|fd| Counter { file: File::from(fd) })
        .map_err(|e| reason(&e))
    }

    /// Reads the counter, which continues to count.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self) -> Result<Reading, Unavailable> {
        let mut bytes = [0u8; 24];
        (&self.file).read_exact(&mut bytes).map_err(|e| Unavailable::Other(e.to_string()))?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        Ok(scaled(word(0), word(1), word(2)))
    }
}

/// Scales a count: the kernel rotates counters when there are more than the hardware supports, so each counts only part
/// of the time.
fn scaled(count: u64, enabled: u64, running: u64) -> Reading {
    if running == 0 || running >= enabled {
        // Never ran: nothing was executed, or nothing was counted yet; in both cases the count is returned as it is.
        let counted_per_mille = if running == 0 && enabled > 0 { 0 } else { 1000 };
        return Reading { count, counted_per_mille };
    }
    let count = u128::from(count) * u128::from(enabled) / u128::from(running);
    Reading {
        count: u64::try_from(count).unwrap_or(u64::MAX),
        counted_per_mille: (u128::from(running) * 1000 / u128::from(enabled)) as u32,
    }
}

fn open(event: CounterEvent, flags: u64) -> io::Result<OwnedFd> {
    let (kind, config) = event.code();
    let attr =
        Attr { kind, config, size: ATTR_SIZE, read_format: WITH_TIMES, flags, ..Attr::default() };
    // This process, on any CPU, in no group.
    let (pid, cpu, group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
    // SAFETY: the attribute lives through the call and has the size it states.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, group, CLOSE_ON_EXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn reason(error: &io::Error) -> Unavailable {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Unavailable::NoHardware,
        Some(libc::EACCES | libc::EPERM) => Unavailable::Forbidden(paranoid()),
        Some(libc::ENOSYS) => Unavailable::NotSupported,
        _ => Unavailable::Other(error.to_string()),
    }
}

fn paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// Checks whether hardware counters work here, by starting one for cycles.
///
/// # Errors
/// Why they do not.
pub fn probe() -> Result<(), Unavailable> {
    Counter::start(CounterEvent::Cycles).map(drop)
}

/// Cycles, instructions and cache misses of the calling process.
#[derive(Debug)]
pub struct Counters {
    cycles: Counter,
    instructions: Counter,
    cache_misses: Counter,
}

/// The readings of [`Counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// CPU cycles, of user and kernel code where the kernel allows both.
    pub cycles: u64,
    /// Instructions retired, of user and kernel code where the kernel allows both.
    pub instructions: u64,
    /// Misses of the last-level cache.
    pub cache_misses: u64,
    /// Share of the time in which the hardware counted, per mille: the lowest of the three counters' shares. Below 1000
    /// the counts are estimates; see [`Reading`].
    pub counted_per_mille: u32,
}

impl Counters {
    /// Starts all three counters.
    ///
    /// # Errors
    /// Why one of them cannot be counted here.
    pub fn start() -> Result<Counters, Unavailable> {
        Ok(Counters {
            cycles: Counter::start(CounterEvent::Cycles)?,
            instructions: Counter::start(CounterEvent::Instructions)?,
            cache_misses: Counter::start(CounterEvent::CacheMisses)?,
        })
    }

    /// Reads all three counters, which continue to count.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self) -> Result<Counted, Unavailable> {
        let (cycles, instructions, cache_misses) =
            (self.cycles.read()?, self.instructions.read()?, self.cache_misses.read()?);
        Ok(Counted {
            cycles: cycles.count,
            instructions: instructions.count,
            cache_misses: cache_misses.count,
            counted_per_mille: cycles
                .counted_per_mille
                .min(instructions.counted_per_mille)
                .min(cache_misses.counted_per_mille),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> u64 {
        (0..2_000_000u64).fold(1, |a, b| std::hint::black_box(a.wrapping_mul(b | 1)))
    }

    #[test]
    fn the_software_clock_runs_everywhere() {
        let counter = match Counter::start(CounterEvent::TaskClock) {
            Ok(counter) => counter,
            Err(e) => return eprintln!("SKIP software clock: {e}; {}", e.remedy()),
        };
        let before = counter.read().expect("readable");
        std::hint::black_box(work());
        let after = counter.read().expect("readable");
        assert!(after.count > before.count, "{before:?} {after:?}");
    }

    #[test]
    fn hardware_counters_work_or_give_a_reason() {
        match Counters::start() {
            Ok(counters) => {
                let before = counters.read().expect("readable");
                std::hint::black_box(work());
                let after = counters.read().expect("readable");
                assert!(after.instructions > before.instructions, "{before:?} {after:?}");
            }
            Err(e) => {
                assert!(e.to_string().len() > 20 && !e.remedy().is_empty());
                eprintln!("SKIP hardware counters: {e}; {}", e.remedy());
            }
        }
    }

    #[test]
    fn a_shared_counter_is_scaled_up_and_says_so() {
        let estimate = Reading { count: 400, counted_per_mille: 250 };
        assert_eq!(scaled(100, 1000, 250), estimate);
        assert_eq!(scaled(100, 1000, 1000), Reading { count: 100, counted_per_mille: 1000 });
        assert_eq!(scaled(0, 1000, 0), Reading { count: 0, counted_per_mille: 0 });
        assert_eq!(scaled(u64::MAX, u64::MAX, 1).count, u64::MAX);
    }

    #[test]
    fn every_errno_has_a_reason_and_a_next_step() {
        for errno in [libc::ENOENT, libc::EACCES, libc::ENOSYS, libc::EMFILE] {
            let reason = reason(&io::Error::from_raw_os_error(errno));
            assert!(!reason.to_string().is_empty() && !reason.remedy().is_empty());
        }
        assert_eq!(reason(&io::Error::from_raw_os_error(libc::ENOENT)), Unavailable::NoHardware);
    }
}
