//! Classifies samples by the names of functions, and by source files for Crossway's own functions.

mod kernel;

use serde::{Deserialize, Serialize};

use super::lines::{Place, file_name};
use super::script::Frame;

/// The kind of work that a processor was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Copying messages, in the kernel or in a program.
    Copy,
    /// Putting processes to sleep, waking them, and choosing the next one to run.
    WakeUp,
    /// Entering and leaving the kernel, looking up the file of a descriptor, checking permissions.
    SystemCall,
    /// The mechanism's own work, such as protocol, acknowledgements and queues, in the kernel, a library or a broker.
    Protocol,
    /// Checksums that the mechanism calculates.
    Checksum,
    /// Allocating and freeing memory, including page faults.
    Allocation,
    /// Waiting for messages without sleeping.
    Spinning,
    /// Waiting for a lock in the kernel that the other end holds, without sleeping. A mechanism
    /// that blocks does this, too: both ends of a pipe, for example, take its lock for every
    /// message.
    Lock,
    /// Writing messages and reading every byte of them, which the measurement requires of both ends.
    Payload,
    /// The measuring loops, clocks and counters.
    Harness,
    /// Unrelated interrupts, and functions without names.
    Other,
}

impl Part {
    /// All parts, in display order.
    pub const ALL: [Part; 11] = [
        Part::Copy,
        Part::WakeUp,
        Part::SystemCall,
        Part::Protocol,
        Part::Checksum,
        Part::Allocation,
        Part::Spinning,
        Part::Lock,
        Part::Payload,
        Part::Harness,
        Part::Other,
    ];

    /// A readable name.
    pub fn words(self) -> &'static str {
        match self {
            Part::Copy => "copying",
            Part::WakeUp => "wake-up and scheduling",
            Part::SystemCall => "system call entry and exit",
            Part::Protocol => "protocol and acknowledgement",
            Part::Checksum => "checksum",
            Part::Allocation => "allocation",
            Part::Spinning => "spinning for messages",
            Part::Lock => "waiting for a kernel lock",
            Part::Payload => "payload (written and read)",
            Part::Harness => "harness",
            Part::Other => "other",
        }
    }
}

/// Classifies a stack by the innermost frame that is conclusive. `places` are the functions, including inlined ones, at
/// the innermost frame that is not in the kernel.
pub(super) fn of(frames: &[Frame], places: &[Place]) -> Part {
    let kernel = frames.iter().take_while(|frame| frame.is_kernel());
    let mut in_kernel = false;
    for (at, frame) in kernel.enumerate() {
        in_kernel = true;
        if frame.symbol == UNLOCK {
            let caller = frames.get(at + 1).map_or("", |caller| caller.symbol.as_str());
            if !caller.contains("skb") && !caller.contains("slab") && !caller.contains("alloc") {
                return Part::WakeUp;
            }
        }
        if let Some(part) = kernel::part_of(&frame.symbol) {
            return part;
        }
    }
    if in_kernel {
        return Part::Other;
    }
    let Some(frame) = frames.first() else { return Part::Other };
    of_program(frame, places)
}

/// The kernel function that releases a spin lock and enables interrupts again. Sampling by a software clock attributes
/// to this function the work that was done while interrupts were disabled. On the sampled paths, the locks that disable
/// interrupts belong to wait queues or to the scheduler, unless the caller's name shows that they belong to socket
/// buffers or to an allocator. The function that wakes a process is often missing from the stack, because it ends with
/// a tail call to this function.
const UNLOCK: &str = "_raw_spin_unlock_irqrestore";

/// Copying functions of the C library; variants for certain processors have a suffix after an underscore.
const COPYING: &[&str] = &["memcpy", "memmove", "mempcpy"];
const ALLOCATING: &[&str] = &[
    "malloc",
    "_int_",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "tcache",
    "sysmalloc",
    "unlink_chunk",
];
const WAITING: &[&str] =
    &["pthread_", "__pthread", "___pthread", "__lll", "sem_", "__new_sem", "__futex"];
const CLOCKS: &[&str] = &["clock_gettime", "__vdso_clock", "__clock_gettime", "clock_nanosleep"];

fn of_program(frame: &Frame, places: &[Place]) -> Part {
    let file = file_name(&frame.dso);
    let name = frame.symbol.split('@').next().unwrap_or_default();
    let begins = |with: &[&str]| with.iter().any(|prefix| name.starts_with(prefix));
    if frame.dso.starts_with("[vdso") || begins(CLOCKS) {
        return Part::Harness;
    }
    if ["libc.so", "libc-", "ld-linux", "libpthread", "libm.so"].iter().any(|c| file.starts_with(c))
    {
        let bare = name.trim_start_matches('_');
        return match bare {
            _ if COPYING.iter().any(|copy| bare.starts_with(copy)) => Part::Copy,
            _ if begins(ALLOCATING) || bare.starts_with("libc_malloc") => Part::Allocation,
            _ if begins(WAITING) => Part::WakeUp,
            _ if name.is_empty() => Part::Other,
            _ => Part::SystemCall,
        };
    }
    if places.iter().any(waits) {
        return Part::Spinning;
    }
    let own = Place { function: frame.symbol.clone(), line: String::new() };
    let mut copies = false;
    for place in places.iter().chain([&own]) {
        if let Some(part) = of_own(place) {
            return if copies && part == Part::Protocol { Part::Copy } else { part };
        }
        copies |= ["copy_nonoverlapping", "copy_from_slice", "copy"]
            .contains(&last_word(&place.function));
    }
    match () {
        () if places.iter().chain([&own]).any(of_rust) => Part::Other,
        () if COPYING.iter().any(|copy| name.trim_start_matches('_').starts_with(copy)) => {
            Part::Copy
        }
        () if file.contains(".so") || name.len() > 1 => Part::Protocol,
        () => Part::Other,
    }
}

/// Whether the function belongs to Rust's standard library. Its caller is known only if the function was inlined.
fn of_rust(place: &Place) -> bool {
    let begins = ["core::", "std::", "alloc::"].iter().any(|of| place.function.starts_with(of));
    begins || place.line.contains("/rustc/")
}

/// The function's name without its module path.
fn last_word(function: &str) -> &str {
    function.rsplit("::").find(|word| !word.starts_with('{')).unwrap_or(function)
}

/// Whether the function is a spin-wait.
fn waits(place: &Place) -> bool {
    let name = last_word(&place.function);
    [
        "spin_loop",
        "_mm_pause",
        "hint",
        "between_quick_looks",
        "wait_ticks",
        "idle_for",
        "spin",
        "spin_until",
    ]
    .contains(&name)
        || place.line.contains("/ring/src/pace.rs")
}

/// Crossway's own source files, the modules as they appear in symbols, and the kind of work in them.
const OWN: &[(&str, &str, Part)] = &[
    ("/loops/src/payload.rs", "crossway_loops::payload", Part::Payload),
    ("/loops/src/line_buffer.rs", "crossway_loops::line_buffer", Part::Payload),
    ("/ring/src/", "crossway_ring::", Part::Protocol),
    ("/mech/src/", "crossway_mech::", Part::Protocol),
    ("/tipc/", "crossway_tipc", Part::Protocol),
    ("/linx/src/", "crossway_linx::", Part::Protocol),
    ("/channel/src/", "crossway_channel::", Part::Protocol),
    ("/sys/src/clock.rs", "crossway_sys::clock", Part::Harness),
    ("/sys/src/futex.rs", "crossway_sys::futex", Part::WakeUp),
    ("/sys/src/", "crossway_sys::", Part::SystemCall),
    ("/rustix-", "rustix::", Part::SystemCall),
    ("/hdrhistogram-", "hdrhistogram::", Part::Harness),
    ("/loops/src/", "crossway_loops::", Part::Harness),
    ("/lab/src/", "crossway_lab::", Part::Harness),
];

fn of_own(place: &Place) -> Option<Part> {
    match last_word(&place.function) {
        "cw_sum" | "cw_number_next" | "cw_next" | "cw_lines" | "sum64" | "number_next" => {
            return Some(Part::Payload);
        }
        name if name.starts_with("cw_") => return Some(Part::Harness),
        _ => {}
    }
    if place.line.contains("crossway_contender.") {
        return Some(Part::Harness);
    }
    let own = OWN
        .iter()
        .find(|(file, module, _)| place.line.contains(file) || place.function.contains(module));
    own.map(|(_, _, part)| *part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame {
            ip: u64::MAX,
            symbol: (*name).to_owned(),
            dso: "[kernel.kallsyms]".to_owned(),
        };
        names.iter().map(frame).collect()
    }

    fn program(symbol: &str, dso: &str) -> Vec<Frame> {
        vec![Frame { ip: 1, symbol: symbol.to_owned(), dso: dso.to_owned() }]
    }

    #[test]
    fn the_innermost_frame_that_says_something_decides() {
        for (stack, part) in [
            (&["rep_movs_alternative", "_copy_from_iter", "pipe_write"][..], Part::Copy),
            (&["srso_alias_return_thunk", "pipe_write", "vfs_write"], Part::Protocol),
            (&["_raw_spin_unlock_irqrestore", "__wake_up_sync_key", "pipe_write"], Part::WakeUp),
            (&["_raw_spin_unlock_irqrestore", "anon_pipe_read"], Part::WakeUp),
            (&["_raw_spin_unlock_irqrestore", "skb_queue_tail", "unix_dgram"], Part::Protocol),
            (&["finish_task_switch.isra.0", "__schedule", "pipe_read"], Part::WakeUp),
            (&["entry_SYSCALL_64_after_hwframe"], Part::SystemCall),
            (&["native_queued_spin_lock_slowpath", "_raw_spin_lock"], Part::Lock),
            (&["mutex_spin_on_owner", "__mutex_lock.constprop.0", "anon_pipe_write"], Part::Lock),
            (&["csum_partial", "tcp_v4_rcv"], Part::Checksum),
            (&["csum_and_copy_from_iter", "tcp_sendmsg"], Part::Copy),
            (&["kmem_cache_alloc_node", "__alloc_skb", "unix_stream_sendmsg"], Part::Allocation),
            (&["mystery", "clear_page_erms", "vfs_write"], Part::Allocation),
            (&["mystery"], Part::Other),
        ] {
            assert_eq!(of(&kernel(stack), &[]), part, "{stack:?}");
        }
        assert_eq!(of(&[], &[]), Part::Other);
    }

    #[test]
    fn programs_are_judged_by_files_lines_and_names() {
        let place = |function: &str, line: &str| Place {
            function: function.to_owned(),
            line: line.to_owned(),
        };
        let exe = "/usr/bin/crossway";
        let cases: &[(&str, &str, Vec<Place>, Part)] = &[
            ("__memmove_avx_unaligned_erms", "/lib/libc.so.6", vec![], Part::Copy),
            ("_int_malloc", "/lib/libc.so.6", vec![], Part::Allocation),
            ("__write", "/lib/libc.so.6", vec![], Part::SystemCall),
            ("zmq::msg_t::size", "/lib/libzmq.so.5", vec![], Part::Protocol),
            ("__vdso_clock_gettime", "[vdso]", vec![], Part::Harness),
            ("main", exe, vec![place("cw_sum", "crossway_contender.h:9")], Part::Payload),
            (
                "x::run",
                exe,
                vec![
                    place("wrapping_add", "core/num.rs:1"),
                    place("sum", "/c/loops/src/payload.rs:3"),
                ],
                Part::Payload,
            ),
            (
                "x::run",
                exe,
                vec![
                    place("spin_loop", "core/hint.rs:1"),
                    place("recv", "/c/ring/src/receiver.rs:3"),
                ],
                Part::Spinning,
            ),
            (
                "x::run",
                exe,
                vec![
                    place("copy_nonoverlapping", "core/ptr.rs:1"),
                    place("put", "/c/ring/src/region.rs:3"),
                ],
                Part::Copy,
            ),
            ("crossway_loops::workload::ping_pong::run", exe, vec![], Part::Harness),
            ("crossway_mech::mechanisms::shm_spin::ShmSpin::send", exe, vec![], Part::Protocol),
            ("", "", vec![], Part::Other),
        ];
        for (symbol, dso, places, part) in cases {
            assert_eq!(of(&program(symbol, dso), places), *part, "{symbol} {places:?}");
        }
    }
}
