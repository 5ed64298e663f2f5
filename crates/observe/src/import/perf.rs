//! Output of `perf trace`, and of `perf script` for the events `syscalls:sys_enter_*` and `syscalls:sys_exit_*`.
//!
//! perf names what a descriptor is at best by an inode, so that the two ends of a socket are two channels.

use std::collections::HashMap;
use std::io::BufRead;

use super::assembly::{Assembly, Call};
use super::end::{End, one_way};
use super::strace::{is_wait_call, shape};
use super::{ImportError, strace_line};
use crate::recording::{Operation, RecordingError};

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line<'a> {
    thread: u32,
    /// The process, if the line says it.
    process: Option<u32>,
    comm: &'a str,
    at_ns: i64,
    cpu: Option<u32>,
    what: What<'a>,
}

#[derive(Clone, Debug, PartialEq)]
enum What<'a> {
    /// A call that has not returned yet.
    Begun { name: &'a str, args: &'a str },
    /// A call that has. `args`: `None` if they were in the line of its begin. `took_ns`: `None` if it lasted from there.
    Returned { name: &'a str, args: Option<&'a str>, result: i64, took_ns: Option<u64> },
}

/// Parses a line; `None` if it is not one of perf.
pub(super) fn line(text: &str) -> Option<Line<'_>> {
    script_line(text).or_else(|| trace_line(text))
}

/// `dd 123 [001] 12.345678: syscalls:sys_enter_write: fd: 0x00000001, ...`
fn script_line(text: &str) -> Option<Line<'_>> {
    let (left, event) = text.split_once(" syscalls:sys_")?;
    // The name may contain spaces, so from the end.
    let (left, time) = left.trim_end().strip_suffix(':')?.rsplit_once(' ')?;
    let at_ns = strace_line::nanoseconds(time)?;
    let (left, cpu) = left.trim_end().rsplit_once(' ')?;
    let cpu = cpu.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let (comm, id) = left.trim().rsplit_once(' ').unwrap_or(("", left.trim()));
    let comm = comm.trim();
    let (process, thread) = match id.split_once('/') {
        Some((process, thread)) => (process.parse().ok(), thread.parse().ok()?),
        None => (None, id.parse().ok()?),
    };
    let (name, rest) = event.split_once(':')?;
    let rest = rest.trim();
    let what = if let Some(name) = name.strip_prefix("enter_") {
        What::Begun { name, args: rest }
    } else {
        let name = name.strip_prefix("exit_")?;
        // A negative result is printed as the number without a sign.
        let result = u64::from_str_radix(rest.strip_prefix("0x")?, 16).ok()? as i64;
        What::Returned { name, args: None, result, took_ns: None }
    };
    Some(Line { thread, process, comm, at_ns, cpu, what })
}

/// `12.345 ( 0.028 ms): sh/123 write(fd: 1<pipe:[7]>, buf: 0x55, count: 6) = 6`
fn trace_line(text: &str) -> Option<Line<'_>> {
    let (time, rest) = text.trim_start().split_once(" (")?;
    let at_ns = milliseconds(time)?;
    let (took, rest) = rest.split_once("): ")?;
    let took_ns = took.trim().strip_suffix("ms").and_then(|ms| milliseconds(ms.trim()));
    // Of a single thread, it does not say which.
    let (who, rest) = match rest.split_once(' ') {
        Some((who, rest)) if who.contains('/') && !who.contains('(') => (who, rest),
        _ => ("/1", rest),
    };
    let (comm, thread) = who.rsplit_once('/')?;
    let thread = thread.parse().ok()?;
    let rest = rest.trim();
    let continued = rest.strip_prefix("... [continued]: ");
    let (name, rest) = continued.unwrap_or(rest).split_once('(')?;
    let what = match rest.rsplit_once(") ") {
        Some((args, result)) if result.trim_start().starts_with('=') => {
            let result = result.trim_start().trim_start_matches('=').trim();
            let number = result.split_whitespace().next()?;
            let result = match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
                None => number.parse().ok()?,
            };
            let args = continued.is_none().then_some(args);
            let took_ns = took_ns.and_then(|ns| u64::try_from(ns).ok());
            What::Returned { name, args, result, took_ns }
        }
        _ => What::Begun { name, args: rest.trim_end_matches("...").trim().trim_end_matches(')') },
    };
    Some(Line { thread, process: None, comm, at_ns, cpu: None, what })
}

/// Milliseconds with three decimals, as nanoseconds.
fn milliseconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.')?;
    if fraction.len() != 3 {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let fraction: i64 = fraction.parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(fraction * 1000)
}

/// A call that has begun.
struct Begun {
    name: String,
    at_ns: i64,
    args: String,
}

/// Reads the output to its end into a recording.
pub(super) fn read_perf(
    log: impl BufRead,
    assembly: &mut Assembly,
    mut each: impl FnMut() -> bool,
) -> Result<(), ImportError> {
    let mut begun: HashMap<u32, Begun> = HashMap::new();
    let mut known: HashMap<u32, String> = HashMap::new();
    for text in log.lines() {
        let text = text.map_err(ImportError::Log)?;
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        // What had begun before perf did has a question mark in place of its time.
        let Some(line) = line(&text) else {
            assembly.lost.not_understood += u64::from(!text.trim_start().starts_with('?'));
            continue;
        };
        if known.get(&line.thread).is_none_or(|name| name != line.comm) {
            if !known.contains_key(&line.thread)
                && let Some(process) = line.process.filter(|process| *process != line.thread)
            {
                assembly.started(process, line.thread, true);
            }
            if !line.comm.is_empty() {
                assembly.rename(line.thread, line.comm);
            }
            known.insert(line.thread, line.comm.to_owned());
        }
        match line.what {
            What::Begun { name, args } => {
                let (name, args) = (name.to_owned(), args.to_owned());
                begun.insert(line.thread, Begun { name, at_ns: line.at_ns, args });
            }
            What::Returned { name, args, result, took_ns } => {
                let begin = begun.remove(&line.thread).filter(|begin| begin.name == name);
                let whole = match (args, begin) {
                    (Some(args), _) => Some((line.at_ns, args.to_owned())),
                    (None, Some(begin)) => Some((begin.at_ns, begin.args)),
                    (None, None) => None,
                };
                let understood = match whole {
                    Some((at_ns, args)) => {
                        let took_ns = took_ns.unwrap_or_else(|| line.at_ns.abs_diff(at_ns));
                        let call = Returned { name, args: &args, result, at_ns, took_ns };
                        take(assembly, &line, &call)?
                    }
                    None => false,
                };
                assembly.lost.not_understood += u64::from(!understood);
            }
        }
        assembly.flush_if_due()?;
        if !each() {
            break;
        }
    }
    Ok(())
}

struct Returned<'a> {
    name: &'a str,
    args: &'a str,
    result: i64,
    at_ns: i64,
    took_ns: u64,
}

/// Takes in a finished call; false if it is not understood.
fn take(
    assembly: &mut Assembly,
    line: &Line<'_>,
    call: &Returned<'_>,
) -> Result<bool, RecordingError> {
    let event = |operation, size_bytes| Call {
        thread: line.thread,
        at_ns: call.at_ns,
        took_ns: call.took_ns,
        operation,
        size_bytes,
        cpu: line.cpu,
        off_cpu_ns: None,
    };
    let waits = match call.name {
        // perf trace leaves out arguments that are 0, which is FUTEX_WAIT.
        "futex" => argument(call.args, "op")
            .is_none_or(|op| op.starts_with("WAIT") || waits_by_number(&op)),
        name => is_wait_call(name),
    };
    if waits {
        assembly.add(event(Operation::Wait, 0), None)?;
        return Ok(true);
    }
    if ["clone", "clone3", "fork", "vfork"].contains(&call.name) {
        if let Some(child) = u32::try_from(call.result).ok().filter(|child| *child > 0) {
            let same = call.args.contains("|THREAD") || call.args.contains(" THREAD");
            assembly.started(line.thread, child, same);
        }
        return Ok(true);
    }
    let Some(shape) = shape(call.name) else { return Ok(true) };
    let Ok(size) = u64::try_from(call.result) else { return Ok(true) };
    // Their sizes are in memory that perf does not show.
    if call.name.contains("mmsg") || call.name.starts_with("msg") || call.name.starts_with("mq_") {
        return Ok(size == 0);
    }
    let both = shape.sends.is_some() && shape.receives.is_some();
    let sides = [
        (shape.receives, Operation::Receive, ["in_fd", "fd_in"]),
        (shape.sends, Operation::Send, ["out_fd", "fd_out"]),
    ];
    for (position, operation, names) in sides {
        if position.is_none() || (size == 0 && operation == Operation::Receive) {
            continue;
        }
        let names = if both { names } else { ["fd", "fd"] };
        let found = names.iter().find_map(|name| argument(call.args, name));
        match end_of(found.as_deref().unwrap_or("0"), line, operation) {
            Some(end) => {
                let place = assembly.place(&end);
                assembly.add(event(operation, size), Some(place))?;
            }
            None => assembly.lost.not_a_channel += 1,
        }
    }
    Ok(true)
}

/// Whether the number of an operation on a futex is one that waits.
fn waits_by_number(operation: &str) -> bool {
    // FUTEX_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2; without the flags above them.
    let number = operation.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    number.is_some_and(|number| [0, 6, 9, 11, 13].contains(&(number & 127)))
}

/// The value of an argument: `3<pipe:[7]>` of `fd: 3<pipe:[7]>, buf: 0x1`.
fn argument(args: &str, name: &str) -> Option<String> {
    args.split(", ").find_map(|arg| {
        let (key, value) = arg.split_once(": ")?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The end of a channel that a descriptor is, as far as perf says it; `None` if it is a file.
fn end_of(descriptor: &str, line: &Line<'_>, operation: Operation) -> Option<End> {
    let (number, about) = match descriptor.split_once('<') {
        Some((number, about)) => (number, Some(about.trim_end_matches('>'))),
        None => (descriptor, None),
    };
    let number = match number.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    let inode = |kind: &str| {
        about.and_then(|a| a.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']'))
    };
    if let Some(inode) = inode("pipe") {
        return Some(one_way("pipe", inode, operation));
    }
    let (channel, name) = match (inode("socket"), about) {
        (Some(inode), _) => (format!("socket:{inode}"), String::new()),
        (None, Some(_)) => return None,
        (None, None) => {
            let process = line.process.unwrap_or(line.thread);
            let name = format!("descriptor {number} of {}", line.comm);
            (format!("descriptor:{process}:{number}"), name)
        }
    };
    Some(End { channel, end: "known".to_owned(), carrier: "other-socket", name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_understood() {
        let script = "   my prog 19483 [001]  3334.701334:  syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7f, count: 0x40";
        let expected = Line {
            thread: 19483,
            process: None,
            comm: "my prog",
            at_ns: 3_334_701_334_000,
            cpu: Some(1),
            what: What::Begun { name: "read", args: "fd: 0x00000003, buf: 0x7f, count: 0x40" },
        };
        assert_eq!(line(script), Some(expected));
        let failed = "dd 5/6 [000] 1.000001: syscalls:sys_exit_read: 0xfffffffffffffff5";
        let failed = line(failed).unwrap();
        assert_eq!((failed.process, failed.thread), (Some(5), 6));
        let what = What::Returned { name: "read", args: None, result: -11, took_ns: None };
        assert_eq!(failed.what, what);

        let trace = "    26.080 ( 0.033 ms): cat/19475 write(fd: 1<pipe:[945886]>, buf: 0x7f, count: 6)            = 6";
        let returned = line(trace).unwrap();
        assert_eq!((returned.thread, returned.at_ns), (19475, 26_080_000));
        let args = Some("fd: 1<pipe:[945886]>, buf: 0x7f, count: 6");
        let what = What::Returned { name: "write", args, result: 6, took_ns: Some(33_000) };
        assert_eq!(returned.what, what);
        let begun = line("    11.524 (         ): sh/19 read(fd: 3, count: 9)      ...").unwrap();
        assert_eq!(begun.what, What::Begun { name: "read", args: "fd: 3, count: 9" });
        let rest = line("    11.524 (15.263 ms): sh/19  ... [continued]: read())    = 9").unwrap();
        let what =
            What::Returned { name: "read", args: None, result: 9, took_ns: Some(15_263_000) };
        assert_eq!(rest.what, what);
        for bad in
            ["", "1 2", "         ? (         ): sh/1  ... [continued]: clone())  = ", "1.5 (x): y"]
        {
            assert_eq!(line(bad), None, "{bad}");
        }
    }
}
