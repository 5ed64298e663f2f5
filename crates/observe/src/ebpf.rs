//! Records running processes with programs in the kernel (eBPF).
//!
//! The programs run at the begin and the end of each system call, ignore all threads but the observed ones, and write a
//! record of each call that moved bytes or waited into a ring, from which [`Probes`] reads. They see no contents. When
//! the recorder ends, in whichever way, the kernel removes them. `bpf/recorder.bpf.c` is their source.

mod calls;
mod cost;
mod objects;
mod records;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use crossway_sys::Errno;
use crossway_sys::clock::monotonic_ns;
use crossway_sys::processes::ProcessFiles;

use crate::import::Assembly;
use crate::recording::RecordingError;
pub use cost::Cost;
use objects::Objects;
use records::Record;

/// The programs, compiled from `bpf/recorder.bpf.c` by `scripts/bpf.sh`.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/recorder.bpf.o");

/// The programs and where the kernel calls them.
const PROGRAMS: [(&str, &str); 6] = [
    ("crossway_fork", "sched_process_fork"),
    ("crossway_exec", "sched_process_exec"),
    ("crossway_end", "sched_process_exit"),
    ("crossway_switch", "sched_switch"),
    ("crossway_exit", "sys_exit"),
    ("crossway_enter", "sys_enter"),
];

/// What these programs cannot see.
pub const BLIND_TO: &str = "loads and stores in shared memory; what io_uring moves; calls that failed; which of several \
     UNIX datagram sockets a message went to; calls that had begun before the recording or ended after it";

/// How long the recorder sleeps when the ring was empty: the delay of the last events, and small beside the time in
/// which a ring of 16 MiB fills, 300 ms at a million events per second.
const NAP: Duration = Duration::from_millis(5);

/// The most records that are taken from the ring before the recorder looks whether it should stop: programs that fill the
/// ring faster than it is read would never let it look.
const BATCH: u64 = 4096;

/// How often the recorder looks whether any observed thread is left.
const CENSUS: Duration = Duration::from_millis(100);

/// A thread's entry: the same size as `struct thread` in `bpf/recorder.bpf.c`.
type Thread = [u64; 10];

/// The place of `on_ns` in it. The thread has a CPU now, or gets one later and sets it again.
const ON_NS: usize = 8;

/// `ENDINGS` there.
const ENDINGS: u32 = 65536;

/// Why the kernel's programs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel does not describe its structures.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux); use a kernel with CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf,
    /// The right is missing.
    #[error(
        "no right to load programs into the kernel; run as root, or with CAP_BPF and CAP_PERFMON"
    )]
    NotPermitted,
    /// The kernel is locked down.
    #[error(
        "the kernel is locked down (confidentiality), which forbids reading its memory; boot with \
         lockdown=integrity or without lockdown"
    )]
    LockedDown,
    /// Processes have other numbers here than in the kernel.
    #[error(
        "process numbers of this container differ from the kernel's; record on the host, or in a container with \
         --pid=host"
    )]
    OtherNumbers,
    /// The kernel refuses the programs.
    #[error("this kernel refuses the programs ({0}); Linux 5.11 or later is needed")]
    Refused(String),
    /// Measuring the cost failed.
    #[error("cannot measure the cost of a call with a pipe: {0}")]
    Pipe(io::Error),
}

/// What the kernel answers if a right is missing.
const FORBIDDEN: [i32; 2] = [Errno::PERM.raw_os_error(), Errno::ACCESS.raw_os_error()];

impl ProbeError {
    fn refused(error: impl Into<EbpfError>) -> ProbeError {
        let error = error.into();
        // The verifier refuses a program by the same number as who lacks a right, but says why.
        let explained = match &error {
            EbpfError::ProgramError(ProgramError::LoadError { verifier_log, .. }) => {
                !verifier_log.to_string().trim().is_empty()
            }
            _ => false,
        };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(at) = cause {
            let code = at.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
            if code.is_some_and(|code| FORBIDDEN.contains(&code)) {
                if is_locked_down() {
                    return ProbeError::LockedDown;
                }
                if !explained {
                    return ProbeError::NotPermitted;
                }
            }
            cause = at.source();
        }
        // An error may or may not repeat its cause.
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(at) = cause {
            let why = at.to_string();
            if !text.contains(&why) {
                text = format!("{text}: {why}");
            }
            cause = at.source();
        }
        ProbeError::Refused(reason(&text))
    }
}

/// What is wrong, of what the verifier says: its log has thousands of lines, and the last ones before its statistics say it.
fn reason(log: &str) -> String {
    let statistics = ["verification time", "stack depth", "processed "];
    let says = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !statistics.iter().any(|begin| line.starts_with(begin))
    };
    let lines: Vec<&str> = log.lines().filter(says).map(str::trim).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Whether the kernel forbids even root to read its memory.
fn is_locked_down() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lockdown")
        .is_ok_and(|text| text.contains("[confidentiality]"))
}

/// The number of the calling thread.
fn own_thread() -> io::Result<u32> {
    let link = std::fs::read_link("/proc/thread-self")?;
    let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    number.ok_or_else(|| io::Error::other("/proc/thread-self has no number"))
}

/// What was lost in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    overrun: u64,
    not_a_channel: u64,
    not_followed: u64,
}

/// The programs in the kernel, attached. Dropping this removes them.
pub struct Probes {
    // Before the maps: nothing is written any more when these go.
    programs: Option<Ebpf>,
    ring: RingBuf<MapData>,
    threads: HashMap<MapData, u32, Thread>,
    /// Whether any observed thread has a number that ends in these bits.
    endings: Array<MapData, u32>,
    counters: PerCpuArray<MapData, u64>,
    objects: Objects,
    cost: Cost,
    before: Counters,
    /// Events on each CPU.
    by_cpu: BTreeMap<u32, u64>,
}

impl Probes {
    /// Loads the programs, attaches them, and measures what they cost. They observe nobody yet.
    ///
    /// # Errors
    /// The kernel lacks something, or refuses; the error says what to do.
    pub fn attach() -> Result<Probes, ProbeError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(ProbeError::NoBtf);
        }
        let btf = Btf::from_sys_fs().map_err(ProbeError::refused)?;
        let mut programs =
            EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(ProbeError::refused)?;
        let mut map = |name: &str| programs.take_map(name).expect("the object has this map");
        let mut calls: Array<MapData, u32> =
            map("calls").try_into().map_err(ProbeError::refused)?;
        for (number, kind) in calls::KINDS {
            calls.set(*number as u32, *kind as u32, 0).map_err(ProbeError::refused)?;
        }
        let mut probes = Probes {
            ring: map("ring").try_into().map_err(ProbeError::refused)?,
            threads: map("threads").try_into().map_err(ProbeError::refused)?,
            endings: map("endings").try_into().map_err(ProbeError::refused)?,
            counters: map("counters").try_into().map_err(ProbeError::refused)?,
            objects: Objects::default(),
            cost: Cost::default(),
            before: Counters::default(),
            by_cpu: BTreeMap::new(),
            programs: None,
        };
        let plain = cost::pipe_call_ns().map_err(ProbeError::Pipe)?;
        for (name, tracepoint) in PROGRAMS {
            let program: &mut BtfTracePoint = programs
                .program_mut(name)
                .expect("the object has this program")
                .try_into()
                .map_err(ProbeError::refused)?;
            program.load(tracepoint, &btf).map_err(ProbeError::refused)?;
            program.attach().map_err(ProbeError::refused)?;
        }
        probes.programs = Some(programs);
        probes.measure_cost(plain)?;
        Ok(probes)
    }

    /// Measures what a call costs an observed thread and others, with this thread as the example.
    fn measure_cost(&mut self, plain: u64) -> Result<(), ProbeError> {
        let others = cost::pipe_call_ns().map_err(ProbeError::Pipe)?;
        let own = own_thread().map_err(ProbeError::Pipe)?;
        self.observe(own)?;
        let observed = cost::pipe_call_ns();
        self.threads.remove(&own).map_err(ProbeError::refused)?;
        let observed = observed.map_err(ProbeError::Pipe)?;
        let mut seen = 0_u64;
        while self.ring.next().is_some() {
            seen += 1;
        }
        if seen == 0 {
            return Err(ProbeError::OtherNumbers);
        }
        self.cost = Cost {
            observed_ns: observed.saturating_sub(plain),
            others_ns: others.saturating_sub(plain),
        };
        self.before = self.counters();
        Ok(())
    }

    /// What the programs add to a call, as measured when they were attached.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    fn observe(&mut self, thread: u32) -> Result<(), ProbeError> {
        let mut entry = Thread::default();
        entry[ON_NS] = monotonic_ns();
        self.endings.set(thread % ENDINGS, 1, 0).map_err(ProbeError::refused)?;
        self.threads.insert(thread, entry, 0).map_err(ProbeError::refused)
    }

    /// Observes all threads of these processes, and from now on what they start. Returns how many threads are new: call
    /// it again with all descendants until that is 0, because a process may fork while its threads are listed.
    ///
    /// # Errors
    /// There are more threads than fit.
    pub fn follow(&mut self, pids: impl IntoIterator<Item = u32>) -> Result<usize, ProbeError> {
        let files = ProcessFiles::new();
        let mut new = 0;
        for pid in pids {
            // A process that has ended has no threads.
            for thread in files.threads(pid).unwrap_or_default() {
                if self.threads.get(&thread, 0).is_err() {
                    self.observe(thread)?;
                    new += 1;
                }
            }
        }
        Ok(new)
    }

    fn counters(&self) -> Counters {
        let sum = |index: u32| {
            let values = self.counters.get(&index, 0);
            values.map_or(0, |values| values.iter().sum::<u64>())
        };
        Counters { overrun: sum(0), not_a_channel: sum(1), not_followed: sum(2) }
    }

    /// Records until `stop` returns true or no observed thread is left. Returns whether any is left.
    ///
    /// # Errors
    /// The recording cannot be written.
    pub fn record(
        &mut self,
        assembly: &mut Assembly,
        mut stop: impl FnMut() -> bool,
    ) -> Result<bool, RecordingError> {
        let mut census = Instant::now();
        loop {
            let read = self.take(BATCH, assembly)?;
            assembly.flush_if_due()?;
            if stop() {
                return Ok(true);
            }
            if read == 0 {
                if census.elapsed() >= CENSUS {
                    census = Instant::now();
                    if self.threads.keys().next().is_none() {
                        return Ok(false);
                    }
                }
                std::thread::sleep(NAP);
            }
        }
    }

    /// The CPUs on which at least a twentieth of the events happened so far.
    pub fn busy_cpus(&self) -> Vec<u32> {
        let all: u64 = self.by_cpu.values().sum();
        self.by_cpu.iter().filter(|(_, n)| **n * 20 >= all).map(|(cpu, _)| *cpu).collect()
    }

    /// Detaches the programs and takes in what they have written. Returns the number of threads that started but could
    /// not be observed because there are too many.
    ///
    /// # Errors
    /// The recording cannot be written. The programs are detached nevertheless.
    pub fn finish(mut self, assembly: &mut Assembly) -> Result<u64, RecordingError> {
        self.programs = None;
        // Nothing is added any more, so this ends.
        self.take(u64::MAX, assembly)?;
        let now = self.counters();
        assembly.lost.overrun += now.overrun - self.before.overrun;
        assembly.lost.not_a_channel += now.not_a_channel - self.before.not_a_channel;
        Ok(now.not_followed - self.before.not_followed)
    }

    /// Takes in what the ring holds, at most `most` records. Returns their number.
    fn take(&mut self, most: u64, assembly: &mut Assembly) -> Result<u64, RecordingError> {
        let mut read = 0;
        while read < most
            && let Some(item) = self.ring.next()
        {
            read += 1;
            match Record::parse(&item) {
                Some(record) => {
                    if let Record::Call(moved) = &record {
                        *self.by_cpu.entry(moved.cpu).or_default() += 1;
                    }
                    self.objects.take(record, assembly)?;
                }
                None => assembly.lost.not_understood += 1,
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_verifier_s_log_the_last_lines_before_its_statistics_are_shown() {
        let log = "the program is refused: 0: R1=ctx()\n\n; return *(u64 *)7;\n3: (79) r0 = *(u64 *)(r1 +0)\n\
                   R1 invalid mem access 'scalar'\nverification time 253 usec\nstack depth 16\n\
                   processed 6 insns (limit 1000000) max_states_per_insn 0\n";
        let shown =
            "; return *(u64 *)7;; 3: (79) r0 = *(u64 *)(r1 +0); R1 invalid mem access 'scalar'";
        assert_eq!(reason(log), shown);
        assert_eq!(reason("one line"), "one line");
    }
}
