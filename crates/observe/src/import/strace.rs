//! Logs of `strace -f -ttt -T -yy`.

use std::collections::HashMap;
use std::io::BufRead;

use super::ImportError;
use super::assembly::{Assembly, Call};
use super::end::{End, one_way, over_ip};
use super::strace_line::{Finished, What, annotation, finished, parse};
use crate::recording::{Operation, RecordingError};

/// The calls that matter, for `strace -e trace=`. A leading `?` lets strace ignore a name that this machine does not
/// have.
pub const TRACED_CALLS: &str = "read,write,readv,writev,recvfrom,sendto,recvmsg,sendmsg,?recvmmsg,?sendmmsg,sendfile,\
     splice,vmsplice,mq_timedsend,mq_timedreceive,msgsnd,msgrcv,?poll,ppoll,?select,pselect6,?epoll_wait,epoll_pwait,\
     ?epoll_pwait2,futex,?io_uring_enter,clone,?clone3,?fork,?vfork,execve";

/// What such a log does not show.
pub const BLIND_TO: &str =
    "loads and stores in shared memory; what io_uring moves; FIFOs, which look like files";

/// A call that has begun.
struct Begun {
    name: String,
    at_ns: i64,
    rest: String,
}

/// Reads a log to its end into a recording. Call `each` after every line; it returns false to stop early.
///
/// # Errors
/// The log cannot be read, or the recording cannot be written.
pub fn read_strace(
    mut log: impl BufRead,
    assembly: &mut Assembly,
    mut each: impl FnMut() -> bool,
) -> Result<(), ImportError> {
    let mut begun: HashMap<u32, Begun> = HashMap::new();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if log.read_until(b'\n', &mut bytes).map_err(ImportError::Log)? == 0 || !each() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some(line) = parse(&text) else {
            assembly.lost.not_understood += u64::from(!is_remark(&text));
            continue;
        };
        // A log of a single thread does not say which.
        let thread = line.thread.unwrap_or(1);
        let known = match line.what {
            What::Other => true,
            What::Call { name, rest } => take(assembly, thread, line.at_ns, name, rest)?,
            What::Unfinished { name, rest } => {
                let (name, rest) = (name.to_owned(), rest.to_owned());
                begun.insert(thread, Begun { name, at_ns: line.at_ns, rest });
                true
            }
            What::Resumed { name, rest } => match begun.remove(&thread) {
                Some(begin) if begin.name == name => {
                    let rest = begin.rest + rest;
                    take(assembly, thread, begin.at_ns, name, &rest)?
                }
                _ => false,
            },
        };
        assembly.lost.not_understood += u64::from(!known);
        assembly.flush_if_due()?;
    }
}

/// Lines that strace writes about itself.
fn is_remark(text: &str) -> bool {
    text.trim().is_empty() || text.starts_with("strace: ")
}

/// Which arguments of a call are descriptors that send or receive.
pub(super) struct Shape {
    pub(super) sends: Option<usize>,
    pub(super) receives: Option<usize>,
}

/// How a call moves bytes; `None`: it does not.
pub(super) fn shape(name: &str) -> Option<Shape> {
    let (sends, receives) = match name {
        "read" | "readv" | "recvfrom" | "recvmsg" | "recvmmsg" | "recv" | "mq_timedreceive"
        | "msgrcv" => (None, Some(0)),
        "write" | "writev" | "sendto" | "sendmsg" | "sendmmsg" | "send" | "mq_timedsend"
        | "msgsnd" | "vmsplice" => (Some(0), None),
        "sendfile" | "sendfile64" => (Some(0), Some(1)),
        "splice" => (Some(2), Some(0)),
        _ => return None,
    };
    Some(Shape { sends, receives })
}

/// Whether a call only waits; a futex call may or may not.
pub(super) fn is_wait_call(name: &str) -> bool {
    matches!(
        name,
        "poll"
            | "ppoll"
            | "select"
            | "pselect6"
            | "epoll_wait"
            | "epoll_pwait"
            | "epoll_pwait2"
            | "io_uring_enter"
    )
}

fn is_wait(name: &str, args: &[&str]) -> bool {
    match name {
        "futex" => args.get(1).is_some_and(|operation| operation.contains("FUTEX_WAIT")),
        name => is_wait_call(name),
    }
}

/// Takes in a finished call; false if it is not understood.
fn take(
    assembly: &mut Assembly,
    thread: u32,
    at_ns: i64,
    name: &str,
    rest: &str,
) -> Result<bool, RecordingError> {
    let Some(call) = finished(rest) else { return Ok(false) };
    let took_ns = call.took_ns.unwrap_or(0);
    let of = |operation, size_bytes| Call {
        thread,
        at_ns,
        took_ns,
        operation,
        size_bytes,
        cpu: None,
        off_cpu_ns: None,
    };
    if let Some(shape) = shape(name) {
        let ends = [(shape.receives, Operation::Receive), (shape.sends, Operation::Send)];
        for (at, operation) in ends {
            let Some(arg) = at.and_then(|at| call.args.get(at)) else { continue };
            let sizes = sizes(name, &call);
            if sizes.is_empty() {
                continue;
            }
            let Some(end) = end_of(name, arg, operation, &call) else {
                assembly.lost.not_a_channel += 1;
                continue;
            };
            let place = assembly.place(&end);
            for (number, size) in sizes.into_iter().enumerate() {
                let mut event = of(operation, size);
                // The time of a call with several messages counts once; all of them are there when it returns.
                if number > 0 {
                    event.at_ns = at_ns.saturating_add_unsigned(took_ns);
                    event.took_ns = 0;
                }
                assembly.add(event, Some(place))?;
            }
        }
    } else if is_wait(name, &call.args) {
        assembly.add(of(Operation::Wait, 0), None)?;
    } else if let Some(result) = call.result {
        let positive = u32::try_from(result).ok().filter(|child| *child > 0);
        match name {
            "clone" | "clone3" | "fork" | "vfork" => {
                if let Some(child) = positive {
                    let same = call.args.iter().any(|arg| arg.contains("CLONE_THREAD"));
                    assembly.started(thread, child, same);
                }
            }
            "execve" if result == 0 => {
                let path = call.args.first().map_or("", |arg| arg.trim_matches('"'));
                let program = path.rsplit('/').next().unwrap_or(path);
                if !program.is_empty() {
                    assembly.rename(thread, program);
                }
            }
            _ => {}
        }
    }
    Ok(true)
}

/// The sizes of the messages that a call moved; none if it failed or met the end of the channel.
fn sizes(name: &str, call: &Finished<'_>) -> Vec<u64> {
    let Some(result) = call.result.and_then(|result| u64::try_from(result).ok()) else {
        return Vec::new();
    };
    let number = |at: usize| call.args.get(at).and_then(|arg| arg.parse::<u64>().ok());
    match name {
        // These return 0, not the length.
        "mq_timedsend" | "msgsnd" => number(2).into_iter().collect(),
        "sendmmsg" | "recvmmsg" => {
            let text = call.args.get(1).copied().unwrap_or_default();
            let lengths = text.split("msg_len=").skip(1).filter_map(|rest| {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
                digits.parse().ok()
            });
            lengths.take(usize::try_from(result).unwrap_or(usize::MAX)).collect()
        }
        // A datagram may be empty; a stream has ended.
        "recvfrom" | "recvmsg" | "read" | "readv" | "sendfile" | "splice" if result == 0 => {
            Vec::new()
        }
        _ => vec![result],
    }
}

/// The channel's end that a descriptor is, by what strace says about it.
fn end_of(name: &str, arg: &str, operation: Operation, call: &Finished<'_>) -> Option<End> {
    if name.starts_with("msg") {
        let queue = arg.parse::<u64>().ok()?;
        return Some(one_way("sysv-queue", &queue.to_string(), operation));
    }
    let about = annotation(arg)?;
    if name.starts_with("mq_") {
        return Some(End { name: about.to_owned(), ..one_way("posix-queue", about, operation) });
    }
    let (kind, inner) = about.split_once(":[")?;
    let inner = inner.strip_suffix(']')?;
    match kind {
        "pipe" => Some(one_way("pipe", inner, operation)),
        "UNIX" | "UNIX-STREAM" => unix("unix-stream", inner),
        "UNIX-DGRAM" => unix("unix-datagram", inner),
        "UNIX-SEQPACKET" => unix("unix-seqpacket", inner),
        "TCP" | "TCPv6" => inet("tcp", inner, call),
        "UDP" | "UDPv6" => inet("udp", inner, call),
        "SCTP" | "SCTPv6" => inet("sctp", inner, call),
        "NETLINK" => Some(End {
            channel: format!("netlink:{inner}"),
            end: "program".to_owned(),
            carrier: "netlink",
            name: inner.split(':').next().unwrap_or(inner).to_lowercase(),
        }),
        // Without -yy, a socket has only an inode, and its peer is unknown.
        "socket" => Some(End {
            channel: format!("socket:{inner}"),
            end: "known".to_owned(),
            carrier: "other-socket",
            name: String::new(),
        }),
        _ => None,
    }
}

/// `OWN->PEER,"PATH"`, `OWN->PEER` or `OWN,"PATH"`.
fn unix(carrier: &'static str, inner: &str) -> Option<End> {
    let (inodes, name) = match inner.split_once(',') {
        Some((inodes, path)) => (inodes, path.trim_matches('"').to_owned()),
        None => (inner, String::new()),
    };
    let (own, peer) = match inodes.split_once("->") {
        Some((own, peer)) => (own.parse::<u64>().ok()?, Some(peer.parse::<u64>().ok()?)),
        None => (inodes.parse::<u64>().ok()?, None),
    };
    let channel = match peer {
        Some(peer) => format!("unix:{}:{}", own.min(peer), own.max(peer)),
        None => format!("unix:{own}"),
    };
    Some(End { channel, end: own.to_string(), carrier, name })
}

/// `LOCAL->REMOTE`, or `LOCAL` of a socket that receives from anyone; then the call's address is the remote one.
fn inet(protocol: &'static str, inner: &str, call: &Finished<'_>) -> Option<End> {
    let given = || call.args.iter().rev().find_map(|arg| inet_address(arg));
    let (local, remote) = match inner.split_once("->") {
        Some((local, remote)) => (local, Some(remote.to_owned())),
        None => (inner, given()),
    };
    Some(over_ip(protocol, local, remote.as_deref()))
}

/// The IPv4 address in `{sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.1")}`.
fn inet_address(arg: &str) -> Option<String> {
    let between = |from: &str, to: char| arg.split_once(from)?.1.split(to).next();
    let port = between("htons(", ')')?;
    let host = between("inet_addr(\"", '"')?;
    Some(format!("{host}:{port}"))
}
