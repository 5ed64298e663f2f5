//! The eBPF recorder on real programs: what it sees, what it counts as lost, and that its object is its source.
//! Needs root; skipped elsewhere.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crossway_observe::ebpf::{BLIND_TO, ProbeError, Probes};
use crossway_observe::import::Assembly;
use crossway_observe::recording::{
    Direction, Head, Method, Operation, Recorder, Recording, Summary,
};

fn head() -> Head {
    Head::new(
        "test",
        1,
        Method {
            name: "ebpf".to_owned(),
            cost_ns_per_call: None,
            cost_note: "none".to_owned(),
            blind_to: BLIND_TO.to_owned(),
        },
    )
}

fn probes() -> Option<Probes> {
    match Probes::attach() {
        Ok(probes) => Some(probes),
        Err(error @ ProbeError::Refused(_)) => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIP ebpf: {error}");
            None
        }
    }
}

/// A Python program that waits for a line, does something, says so, and waits for a line before it ends.
struct Program {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(what: &str) -> Option<Program> {
        let script = format!(
            "
import os, socket, sys, select, threading
def ready():
    print('ready', flush=True); sys.stdin.readline()
def done():
    print('done', flush=True); sys.stdin.readline()
{what}
"
        );
        let started = Command::new("/usr/bin/python3")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            eprintln!("SKIP ebpf: no python3; sudo apt-get install python3");
            return None;
        };
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut program = Program { child, stdin, lines };
        program.says("ready");
        Some(program)
    }

    fn says(&mut self, what: &str) {
        assert_eq!(self.lines.next().unwrap().unwrap(), what);
    }

    /// Records what the program does between its two lines.
    fn record(mut self, mut probes: Probes, folder: &Path) -> Recording {
        assert!(probes.follow([self.child.id()]).unwrap() >= 1);
        let mut assembly = Assembly::new(Recorder::create(folder, head(), false).unwrap());
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                self.stdin.write_all(b"go\n").unwrap();
                self.says("done");
                finished.store(true, Ordering::Relaxed);
            });
            probes.record(&mut assembly, || finished.load(Ordering::Relaxed)).unwrap();
        });
        probes.finish(&mut assembly).unwrap();
        assembly.finish().unwrap();
        self.stdin.write_all(b"end\n").unwrap();
        assert!(self.child.wait().unwrap().success(), "the program has not noticed");
        let recording = Recording::read(folder).unwrap();
        assert!(recording.defects.is_empty(), "{:?}", recording.defects);
        recording
    }
}

/// The sizes of a carrier's messages by direction: numbers and sizes of sends and of receives.
fn messages(recording: &Recording, carrier: &str) -> Vec<(Direction, Operation, Vec<u64>)> {
    let mut found: Vec<(Direction, Operation, Vec<u64>)> = Vec::new();
    for event in &recording.events {
        let Some(channel) = event.channel else { continue };
        if recording.head.channels[channel as usize].carrier != carrier {
            continue;
        }
        let same = |f: &&mut (Direction, Operation, Vec<u64>)| {
            (f.0, f.1) == (event.direction, event.operation)
        };
        match found.iter_mut().find(same) {
            Some(entry) => entry.2.push(event.size_bytes),
            None => found.push((event.direction, event.operation, vec![event.size_bytes])),
        }
    }
    found.sort_by_key(|(direction, operation, _)| (*direction, *operation as u8));
    found
}

#[test]
fn time_without_a_cpu_and_the_cpu_time_of_threads_that_ended_are_seen() {
    let Some(probes) = probes() else { return };
    let Some(program) = Program::start(
        "
import time
ready()
a, b = socket.socketpair()
def burn():
    until = time.thread_time() + 0.2
    while time.thread_time() < until: pass
if os.fork() == 0:
    for _ in range(3): time.sleep(0.05); b.sendall(b'x')
    thread = threading.Thread(target=burn); thread.start(); thread.join()
    b.sendall(b'y')
    os._exit(0)
for _ in range(4): a.recv(1)
os.wait()
for _ in range(3): a.sendall(b'z' * 100); b.recv(100)
done()
",
    ) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let recording = program.record(probes, &dir.path().join("r"));
    let events = || recording.events.iter();
    assert!(events().all(|e| e.off_cpu_ns.is_some_and(|off| off <= e.call_ns)));
    // One that waits for another process has no CPU; one that finds what it reads has it all the time, unless it is
    // preempted.
    let waiting: Vec<_> =
        events().filter(|e| e.size_bytes == 1 && e.call_ns > 10_000_000).collect();
    assert!(waiting.len() >= 4, "{waiting:?}");
    assert!(waiting.iter().all(|e| e.off_cpu_ns > Some(e.call_ns / 2)), "{waiting:?}");
    assert!(events().any(|e| e.size_bytes == 100 && e.off_cpu_ns == Some(0)));
    // The child and its thread have ended. Only the program itself still runs.
    let head = &recording.head;
    let known: Vec<u32> = head.cpu.iter().map(|cpu| cpu.thread).collect();
    let ended = (0_u32..).zip(&head.threads).filter(|(_, process)| **process == 1);
    let ended: Vec<u32> = ended.map(|(thread, _)| thread).collect();
    assert_eq!(ended.len(), 2, "{head:?}");
    assert!(ended.iter().all(|thread| known.contains(thread)), "{head:?}");
    let burnt = head.cpu.iter().map(|cpu| cpu.ns).max().unwrap();
    assert!(burnt >= 190_000_000, "the thread has burnt 200 ms: {head:?}");
}

#[test]
fn requests_answers_and_their_causes_are_seen_at_both_ends_of_a_new_process() {
    let Some(probes) = probes() else { return };
    let Some(program) = Program::start(
        "
ready()
a, b = socket.socketpair()
if os.fork() == 0:
    a.close()
    while data := b.recv(100, socket.MSG_WAITALL): b.sendall(b'y' * 300)
    os._exit(0)
b.close()
for _ in range(50):
    a.sendall(b'x' * 100); a.recv(300, socket.MSG_WAITALL)
done()
",
    ) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let recording = program.record(probes, &dir.path().join("r"));
    let (hundred, three_hundred) = (vec![100; 50], vec![300; 50]);
    let (send, receive) = (Operation::Send, Operation::Receive);
    let expected = vec![
        (Direction::Forward, send, hundred.clone()),
        (Direction::Forward, receive, hundred),
        (Direction::Backward, send, three_hundred.clone()),
        (Direction::Backward, receive, three_hundred),
    ];
    assert_eq!(messages(&recording, "unix-stream"), expected);
    let answers = recording.events.iter().enumerate();
    let answers = answers.filter(|(_, e)| e.operation == send && e.size_bytes == 300);
    for (at, answer) in answers {
        let cause = &recording.events[at - answer.after.expect("it waited") as usize];
        assert_eq!((cause.operation, cause.size_bytes), (receive, 100));
        assert!(answer.cpu.is_some());
    }
    let channel = recording.head.channels.iter().find(|c| c.carrier == "unix-stream").unwrap();
    assert_eq!((channel.from.len(), channel.to.len()), (1, 1));
    assert_ne!(channel.from, channel.to, "the child is a process of its own");
    let lost = recording.head.totals.as_ref().unwrap().lost;
    assert_eq!((lost.overrun, lost.not_understood), (0, 0));
    Summary::of(&recording);
}

#[test]
fn every_carrier_is_recognised() {
    let Some(probes) = probes() else { return };
    let Some(program) = Program::start(
        "
path = '/tmp/crossway-ebpf-%d' % os.getpid()
listener = socket.socket(socket.AF_UNIX); listener.bind('\\0' + path); listener.listen()
tcp = socket.socket(); tcp.bind(('127.0.0.1', 0)); tcp.listen()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('127.0.0.1', 0))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); six.bind(('::1', 0))
os.mkfifo(path)
ready()
r, w = os.pipe()
os.write(w, b'p' * 11); os.read(r, 100)
fifo = os.open(path, os.O_RDWR)
os.write(fifo, b'f' * 12); os.read(fifo, 100)
os.unlink(path)
client = socket.socket(socket.AF_UNIX); client.connect('\\0' + path)
client.sendall(b'u' * 13)
taken, _ = listener.accept()
taken.recv(100); taken.sendall(b'v' * 14); client.recv(100)
c = socket.create_connection(tcp.getsockname())
s, _ = tcp.accept()
c.sendall(b't' * 15); s.recv(100)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b'd' * 16, server.getsockname())
_, back = server.recvfrom(100)
server.sendto(b'e' * 17, back); u.recvmsg(100)
x = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); x.connect(six.getsockname())
x.send(b's' * 18); six.recvfrom(100)
g, h = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
g.send(b'g' * 19); h.recv(100); h.send(b'h' * 20); g.recv(100)
os.writev(w, [b'1' * 5, b'2' * 5]); os.readv(r, [bytearray(30)])
select.select([r], [], [], 0.01)
with open('/dev/null', 'wb', buffering=0) as null: null.write(b'nothing')
threading.Thread(target=lambda: os.write(w, b'q' * 21)).start()
os.read(r, 100)
done()
",
    ) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let recording = program.record(probes, &dir.path().join("r"));
    let (forward, backward) = (Direction::Forward, Direction::Backward);
    let (send, receive) = (Operation::Send, Operation::Receive);
    let both = |way, sizes: Vec<u64>| [(way, send, sizes.clone()), (way, receive, sizes)];
    let two = |there, back| [both(forward, vec![there]), both(backward, vec![back])].concat();
    assert_eq!(messages(&recording, "fifo"), both(forward, vec![12]));
    // A socket that is accepted only after the first message is the same channel.
    assert_eq!(messages(&recording, "unix-stream"), two(13, 14));
    assert_eq!(messages(&recording, "tcp-local"), both(forward, vec![15]));
    assert_eq!(messages(&recording, "unix-datagram"), two(19, 20));
    let udp = messages(&recording, "udp-local");
    let sizes: Vec<&[u64]> = udp.iter().map(|(_, _, sizes)| sizes.as_slice()).collect();
    assert_eq!(sizes, [&[16, 18][..], &[16, 18], &[17], &[17]], "{udp:?}");
    // Its standard output is a pipe, too, and its input may have been read within the recording.
    let pipes = recording.head.channels.iter().filter(|c| c.carrier == "pipe").count();
    assert!([2, 3].contains(&pipes), "{pipes}");
    let has = |size| {
        let count = recording.events.iter().filter(|e| e.size_bytes == size).count();
        assert_eq!(count, 2, "a send and a receive of {size} bytes");
    };
    for size in [10, 11, 21] {
        has(size);
    }
    assert!(recording.events.iter().any(|e| e.operation == Operation::Wait && e.call_ns > 0));
    let lost = recording.head.totals.as_ref().unwrap().lost;
    assert!(lost.not_a_channel >= 1, "the file is none");
    assert_eq!((lost.overrun, lost.not_understood), (0, 0));
    let fifo = recording.head.channels.iter().find(|c| c.carrier == "fifo").unwrap();
    assert!(fifo.name.contains("crossway-ebpf-"), "{fifo:?}");
    let unix = recording.head.channels.iter().find(|c| c.carrier == "unix-stream").unwrap();
    assert!(unix.name.starts_with("@/tmp/crossway-ebpf-"), "{unix:?}");
}

#[test]
fn a_recording_ends_when_the_last_thread_does_and_overruns_are_counted() {
    let Some(mut probes) = probes() else { return };
    // More than the ring holds while nobody reads it.
    const BLOCKS: u64 = 500_000;
    let script =
        format!("read x; dd if=/dev/zero bs=1 count={BLOCKS} status=none | cat > /dev/null");
    let mut child =
        Command::new("/bin/sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    probes.follow([child.id()]).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("r");
    let mut assembly = Assembly::new(Recorder::create(&folder, head(), false).unwrap());
    assert!(!probes.record(&mut assembly, || false).unwrap(), "no thread is left");
    probes.finish(&mut assembly).unwrap();
    let totals = assembly.finish().unwrap();
    let recording = Recording::read(&folder).unwrap();
    let sends = recording.events.iter().filter(|e| e.operation == Operation::Send);
    let written = sends.filter(|e| e.size_bytes == 1).count() as u64;
    assert!(totals.lost.overrun > 0, "{totals:?}");
    // Reads of cat are lost, too; none is lost without being counted.
    assert!(written + totals.lost.overrun >= BLOCKS, "{written} {totals:?}");
    let accounted = totals.events + totals.lost.overrun;
    assert!(accounted > BLOCKS && totals.lost.not_a_channel >= BLOCKS, "{totals:?}");
}

#[test]
fn the_object_is_compiled_from_its_source() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/bpf.sh");
    let version = Command::new("clang-14").arg("--version").output();
    let strip = Command::new("llvm-strip-14").arg("--version").output();
    if !version.is_ok_and(|v| v.status.success()) || !strip.is_ok_and(|v| v.status.success()) {
        return eprintln!("SKIP ebpf: no clang 14; sudo apt-get install clang-14 llvm-14");
    }
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made.o");
    let status =
        Command::new(script).arg("crates/observe/bpf/recorder.bpf.c").arg(&made).status().unwrap();
    assert!(status.success());
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/recorder.bpf.o");
    let same = std::fs::read(&made).unwrap() == std::fs::read(kept).unwrap();
    assert!(same, "recorder.bpf.o is not of recorder.bpf.c: run scripts/bpf.sh");
}
