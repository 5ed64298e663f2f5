//! Counts the system calls per message with strace: they must be exactly those that each mechanism's documentation
//! states.
//!
//! The test runs itself under strace with few and with many messages; the difference is the cost of the messages.

use std::collections::BTreeMap;
use std::process::Command;

use crossway_mech::registry::{self, Visitor};
use crossway_mech::{Listener, Mechanism, Probe, Rx, Spec, Tx};
use crossway_sys::signal_queue;

const SIZE: usize = 4096;
const FEW: usize = 128;
const MANY: usize = FEW + 1024;

/// Environment variable that passes the task to the program under strace: the mechanism's id and the number of
/// messages.
const TASK: &str = "CROSSWAY_SYSTEM_CALLS_TASK";

/// Sends messages from one thread to another. Both ends block, and the receiver reads in place.
struct OneWay {
    messages: usize,
}

impl Visitor for OneWay {
    type Out = ();

    fn visit<M: Mechanism>(self) {
        let size = M::caps().max_message.map_or(SIZE, |most| most.min(SIZE));
        let spec = Spec { max_message: size, ..Spec::default() };
        let (mut listener, mut offer) = M::listen(&spec).unwrap();
        let receiver = std::thread::spawn(move || {
            let (tx, mut rx) = M::connect(&spec, &mut offer).unwrap();
            let mut buf = vec![0; size];
            for n in 0..self.messages {
                let first = rx.recv_in_place(&mut buf, None, |bytes| bytes[0]).unwrap();
                assert_eq!(first, n as u8);
            }
            tx
        });
        let (mut tx, _rx) = listener.accept(None).unwrap();
        for n in 0..self.messages {
            tx.send(&[n as u8; SIZE][..size], None).unwrap();
        }
        tx.flush().unwrap();
        drop(receiver.join().unwrap());
    }
}

#[test]
fn a_task_from_the_environment_is_done() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (id, messages) = task.split_once(' ').unwrap();
    registry::dispatch(id, OneWay { messages: messages.parse().unwrap() }).unwrap();
}

/// Counts the calls of all threads by name with strace. If that is impossible, the error is the reason.
fn counted(id: &str, messages: usize) -> Result<BTreeMap<String, f64>, String> {
    let table = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-c", "-U", "calls,name", "-o"])
        .arg(table.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_task_from_the_environment_is_done"])
        .env(TASK, format!("{id} {messages}"));
    let with_signals = id == "signal";
    // In a thread, because the program inherits the signals that are blocked in the thread that starts it.
    let running = std::thread::spawn(move || {
        if with_signals {
            signal_queue::block_all().unwrap();
        }
        command.output()
    });
    let output = running.join().unwrap().map_err(|error| format!("strace: {error}"))?;
    let text = std::fs::read_to_string(table.path()).unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if text.is_empty() {
            return Err(said);
        }
        panic!("{id} under strace: {said}{}", String::from_utf8_lossy(&output.stdout));
    }
    let calls = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (count, name) = (words.next()?, words.next()?);
        Some((name.to_owned(), count.parse().ok()?))
    });
    Ok(calls.filter(|(name, _)| name != "total").collect())
}

fn per_message(id: &str) -> Result<BTreeMap<String, f64>, String> {
    let few = counted(id, FEW)?;
    let many = counted(id, MANY)?;
    let more = |(name, count): (&String, &f64)| {
        let difference = count - few.get(name).copied().unwrap_or(0.0);
        (name.clone(), difference / (MANY - FEW) as f64)
    };
    Ok(many.iter().map(more).collect())
}

/// Checks a mechanism's calls per message. Deviations of up to a hundredth are allowed, because scheduling has an
/// influence: a signal of the tracer may interrupt a wait, and the start of a thread makes calls, too.
fn makes<const N: usize>(id: &str, expected: [(&str, f64); N]) {
    makes_within(id, expected.map(|(name, count)| (name, count, count)));
}

/// As [`makes`], for calls whose number depends on how the ends meet: each has a least and a most.
fn makes_within<const N: usize>(id: &str, expected: [(&str, f64, f64); N]) {
    let entry = registry::find(id).unwrap();
    if let Probe::Missing(missing) = (entry.probe)() {
        eprintln!("SKIP {id}: {missing}");
        return;
    }
    let counted = match per_message(id) {
        Ok(counted) => counted,
        Err(why) => {
            eprintln!("SKIP {id}: {why}; install strace, and allow processes to be traced");
            return;
        }
    };
    for (name, count) in &counted {
        let most = expected.iter().find(|call| call.0 == name).map_or(0.0, |call| call.2);
        assert!(*count <= most + 0.01, "{id}: {count} {name} per message, {most} expected");
    }
    for (name, least, _) in expected {
        let count = counted.get(name).copied().unwrap_or(0.0);
        assert!(count >= least - 0.01, "{id}: {count} {name} per message, {least} expected");
    }
}

#[test]
fn posix_mq_makes_one_call_at_each_end() {
    makes("posix-mq", [("mq_timedsend", 1.0), ("mq_timedreceive", 1.0)]);
}

#[test]
fn sysv_mq_makes_one_call_at_each_end() {
    makes("sysv-mq", [("msgsnd", 1.0), ("msgrcv", 1.0)]);
}

#[test]
fn vmsplice_makes_one_call_at_each_end() {
    makes("vmsplice", [("vmsplice", 1.0), ("read", 1.0)]);
}

#[test]
fn splice_makes_one_call_at_each_end() {
    makes("splice", [("splice", 1.0), ("read", 1.0)]);
}

#[test]
fn tcp_zerocopy_makes_one_call_at_each_end_and_at_most_one_for_notices() {
    // The end of a segment may divide a message between two receives. A notice covers several sends,
    // or one; a look that finds none precedes a wait for pages.
    let calls = [
        ("sendto", 1.0, 1.0),
        ("recvfrom", 1.0, 1.25),
        ("recvmsg", 1.0 / 64.0, 2.0),
        ("poll", 0.0, 1.0),
    ];
    makes_within("tcp-zerocopy", calls);
}

#[test]
fn signal_makes_one_call_at_each_end_and_few_for_credits() {
    // A credit for each half of a window of 64; the sender takes one or two at a time.
    let (granted, taken) = (1.0 / 32.0, 1.5 / 64.0);
    makes("signal", [("pidfd_send_signal", 1.0 + granted), ("rt_sigtimedwait", 1.0 + taken)]);
}

#[test]
fn cma_makes_a_notice_a_copy_and_few_acknowledgements() {
    let half = 1.0 / 32.0;
    makes("cma", [("sendto", 1.0 + half), ("recvfrom", 1.0 + half), ("process_vm_readv", 1.0)]);
}

#[test]
fn memfd_passes_checks_and_maps_a_descriptor_for_each_message() {
    let half = 1.0 / 8.0;
    // A debug build checks each descriptor once more before it closes it.
    let fcntl = if cfg!(debug_assertions) { 2.0 } else { 1.0 };
    let calls = [
        ("sendmsg", 1.0),
        ("recvmsg", 1.0),
        ("fstat", 1.0),
        ("fcntl", fcntl),
        ("mmap", 1.0),
        ("munmap", 1.0),
        ("close", 1.0),
        ("sendto", half),
        ("recvfrom", half),
    ];
    makes("memfd", calls);
}

#[test]
fn io_uring_makes_one_call_at_each_end() {
    for id in ["uring-pipe", "uring-uds", "uring-tcp"] {
        makes(id, [("io_uring_enter", 2.0)]);
    }
}

/// A receiver that lags behind takes messages without a call; when its buffers were all full, it makes the request again.
#[test]
fn uring_multishot_makes_a_call_to_send_and_at_most_one_to_wait() {
    makes_within("uring-multishot", [("io_uring_enter", 1.0, 2.0)]);
}

#[test]
fn uring_msg_makes_a_call_to_post_and_at_most_one_to_wait() {
    let half = 1.0 / 32.0;
    makes_within("uring-msg", [("io_uring_enter", 1.0 + half, 2.0 + 2.0 * half)]);
}

#[test]
fn userfaultfd_copies_and_removes_pages_with_few_acknowledgements() {
    // With its header, the message has two pages.
    let half = 1.0 / 32.0;
    let calls = [("ioctl", 2.0), ("madvise", 1.0), ("sendto", half), ("recvfrom", half)];
    makes("userfaultfd", calls);
}
