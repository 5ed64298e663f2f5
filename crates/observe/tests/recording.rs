//! Recordings: their format, what survives a killed recorder, imported logs, and live ones of real programs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crossway_observe::import::{Assembly, read_strace};
use crossway_observe::live::{LiveError, Tracer, measured_cost_ns};
use crossway_observe::recording::{
    Direction, EVENTS_PER_FILE, Event, Head, Lost, Method, Operation, Recorder, Recording,
    RecordingError, Summary, VERSION, write_csv,
};

fn head() -> Head {
    Head {
        cpus: Some(2),
        ..Head::new(
            "test",
            1,
            Method {
                name: "test".to_owned(),
                cost_ns_per_call: None,
                cost_note: "none".to_owned(),
                blind_to: "nothing".to_owned(),
            },
        )
    }
}

/// Imports a log; the recording, and what was lost.
fn imported(folder: &Path, log: &str, anonymous: bool) -> (Recording, Lost) {
    let recorder = Recorder::create(folder, head(), anonymous).unwrap();
    let mut assembly = Assembly::new(recorder);
    read_strace(log.as_bytes(), &mut assembly, || true).unwrap();
    let totals = assembly.finish().unwrap();
    let recording = Recording::read(folder).unwrap();
    assert!(recording.defects.is_empty(), "{:?}", recording.defects);
    assert_eq!(recording.head.totals.as_ref(), Some(&totals));
    (recording, totals.lost)
}

/// A client and a server with two threads over TCP, and a pipe; calls of two threads interleave.
const LOG: &str = r#"10 100.000000 execve("/usr/bin/client", ["client", "secret"], 0x7f /* 3 vars */) = 0 <0.000300>
20 100.000100 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD|CLONE_SIGHAND) = 21 <0.000050>
10 100.001000 write(3<TCP:[127.0.0.1:5000->127.0.0.1:80]>, "secret"..., 64) = 64 <0.000020>
10 100.001050 read(3<TCP:[127.0.0.1:5000->127.0.0.1:80]>,  <unfinished ...>
21 100.001060 recvfrom(7<TCP:[127.0.0.1:80->127.0.0.1:5000]>, "secret", 4096, 0, NULL, NULL) = 64 <0.000010>
21 100.001100 futex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 1 <0.000005>
21 100.001170 sendto(7<TCP:[127.0.0.1:80->127.0.0.1:5000]>, "answer (with) \"brackets\""..., 1000, 0, NULL, 0) = 1000 <0.000030>
10 100.001210 <... read resumed>"answer"..., 4096) = 1000 <0.000160>
10 100.001300 writev(1<pipe:[77]>, [{iov_base="a", iov_len=1}, {iov_base="b", iov_len=1}], 2) = 2 <0.000004>
10 100.001400 read(4</etc/passwd>, "root", 4096) = 900 <0.000004>
10 100.001500 read(3<TCP:[127.0.0.1:5000->127.0.0.1:80]>, "", 4096) = 0 <0.000004>
10 100.001600 write(3<TCP:[127.0.0.1:5000->127.0.0.1:80]>, "x", 1) = -1 EPIPE (Broken pipe) <0.000004>
10 100.001700 epoll_wait(5<anon_inode:[eventpoll]>, [], 8, 10) = 0 <0.010000>
10 100.012000 --- SIGPIPE {si_signo=SIGPIPE, si_code=SI_USER} ---
10 100.013000 sendmmsg(8<UNIX-DGRAM:[30->31]>, [{msg_hdr={}, msg_len=5}, {msg_hdr={}, msg_len=7}], 2, 0) = 2 <0.000009>
garbage that nobody understands
10 99.000000 write(1<pipe:[77]>, "z", 1) = 1 <0.000004>
10 100.014000 +++ exited with 0 +++
"#;

#[test]
fn a_log_becomes_channels_with_sizes_causes_and_queues() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, lost) = imported(&dir.path().join("r"), LOG, false);
    let lost_expected =
        Lost { overrun: 0, not_a_channel: 1, not_understood: 1, clock_backwards: 1 };
    assert_eq!(lost, lost_expected);
    let head = &recording.head;
    let carriers: Vec<&str> = head.channels.iter().map(|c| c.carrier.as_str()).collect();
    assert_eq!(carriers, ["tcp-local", "pipe", "unix-datagram"]);
    // The threads 20 and 21 are one process.
    assert_eq!(head.processes.len(), 2, "{head:?}");
    assert_eq!(head.processes.iter().filter(|p| p.name == "client").count(), 1);
    let tcp = &head.channels[0];
    assert_eq!((tcp.from.len(), tcp.to.len()), (1, 1));
    let of = |channel: u32| {
        recording.events.iter().filter(move |e| e.channel == Some(channel)).collect::<Vec<_>>()
    };
    let tcp: Vec<_> = of(0).iter().map(|e| (e.operation, e.direction, e.size_bytes)).collect();
    let (send, receive) = (Operation::Send, Operation::Receive);
    assert_eq!(
        tcp,
        [
            (send, Direction::Forward, 64),
            (receive, Direction::Forward, 64),
            (send, Direction::Backward, 1000),
            (receive, Direction::Backward, 1000)
        ]
    );
    let queued: Vec<_> = of(0).iter().map(|e| e.queued_bytes).collect();
    // The other end is unknown until it first appears.
    assert_eq!(queued, [None, Some(0), Some(1000), Some(0)]);
    // The server's answer waited for the request, the first event for nothing.
    let answer = recording.events.iter().position(|e| e.size_bytes == 1000).unwrap();
    let back = recording.events[answer].after.unwrap() as usize;
    assert_eq!(recording.events[answer - back].size_bytes, 64);
    assert_eq!(recording.events[answer - back].operation, receive);
    assert_eq!(recording.events[0].after, None);
    let resumed = of(0)[3];
    assert_eq!((resumed.at_ns, resumed.call_ns), (50_000, 160_000));
    assert_eq!(of(2).iter().map(|e| e.size_bytes).collect::<Vec<_>>(), [5, 7]);
    assert_eq!(of(1).len(), 2);

    let summary = Summary::of(&recording);
    let replies =
        summary.directions.iter().find(|d| d.channel == 0 && d.direction == Direction::Backward);
    // From the return of the receive, at 70 us, to the send, at 170 us.
    assert_eq!(replies.unwrap().think_ns.unwrap().p50, 100_000);
    let client = summary.processes.iter().find(|p| p.in_waits_ns > 0).unwrap();
    assert_eq!(client.in_waits_ns, 10_000_000);
    let mut csv = Vec::new();
    write_csv(&recording, &mut csv).unwrap();
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), recording.events.len() + 1);
}

#[test]
fn nothing_that_was_exchanged_is_kept_and_names_only_if_they_may() {
    let dir = tempfile::tempdir().unwrap();
    for (name, anonymous) in [("named", false), ("anonymous", true)] {
        let folder = dir.path().join(name);
        imported(&folder, LOG, anonymous);
        for file in std::fs::read_dir(&folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("secret") && !text.contains("answer"), "{text}");
            let names = ["127.0.0.1", "client", "pid = 10\n"];
            assert!(!anonymous || names.iter().all(|name| !text.contains(name)), "{text}");
        }
    }
}

#[test]
fn damaged_logs_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    for (number, cut) in (0..LOG.len()).step_by(37).enumerate() {
        let Some((head, tail)) = LOG.get(..cut).zip(LOG.get(cut..)) else { continue };
        let folder = dir.path().join(number.to_string());
        // A part is missing in the middle.
        let text = format!("{head}{}", tail.get(11..).unwrap_or_default());
        let mut assembly = Assembly::new(Recorder::create(&folder, self::head(), false).unwrap());
        read_strace(text.as_bytes(), &mut assembly, || true).unwrap();
        assembly.finish().unwrap();
        Recording::read(&folder).unwrap();
    }
}

/// Requests and answers of varied sizes, at varied times, as a real program's.
fn exchange(assembly: &mut Assembly, count: usize) {
    let mut log = String::new();
    let mut at_us = 1_000_000_000u64;
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..count / 4 {
        let (request, answer) = (20 + random(60), 100 + random(4000));
        for (thread, call, size) in [
            (1, "sendto", request),
            (2, "recvfrom", request),
            (2, "sendto", answer),
            (1, "recvfrom", answer),
        ] {
            at_us += 3 + random(40);
            let took = 2 + random(60);
            let channel = if thread == 1 { "30->31" } else { "31->30" };
            log.push_str(&format!(
                "{thread} {}.{:06} {call}(3<UNIX-STREAM:[{channel}]>, \"\"..., {size}, 0, NULL, 0) = {size} <0.{took:06}>\n",
                at_us / 1_000_000,
                at_us % 1_000_000
            ));
        }
    }
    read_strace(log.as_bytes(), assembly, || true).unwrap();
}

#[test]
fn an_event_takes_at_most_sixteen_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("r");
    let mut assembly = Assembly::new(Recorder::create(&folder, head(), false).unwrap());
    exchange(&mut assembly, 100_000);
    let totals = assembly.finish().unwrap();
    let bytes: u64 = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let each = bytes as f64 / totals.events as f64;
    println!("{each:.2} bytes per event");
    assert!(each <= 16.0, "{each}");
    assert_eq!(Recording::read(&folder).unwrap().events.len(), 100_000);
}

#[test]
fn a_recording_whose_recorder_was_killed_is_readable_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("r");
    let mut assembly = Assembly::new(Recorder::create(&folder, head(), false).unwrap());
    exchange(&mut assembly, EVENTS_PER_FILE + 1000);
    // As kill -9 does: nothing is finished.
    std::mem::forget(assembly);
    // How many files there are depends on time, too: each takes at most a second.
    let file = |number: usize| folder.join(format!("events-{number:06}.parquet"));
    let files = (1..).take_while(|number| file(*number).exists()).count();
    assert!(files >= 1, "a full file is written at once");
    // What a recorder that is killed while it writes leaves behind.
    std::fs::write(file(files + 1).with_extension("parquet.part"), b"PAR1 half").unwrap();
    let recording = Recording::read(&folder).unwrap();
    let complete = recording.events.len();
    assert!((1..=EVENTS_PER_FILE + 1000).contains(&complete), "{complete}");
    assert_eq!(recording.head.channels.len(), 1);
    assert!(recording.defects[0].contains("did not finish"), "{:?}", recording.defects);
    Summary::of(&recording);

    // A file that is damaged ends what can be read.
    std::fs::write(file(files + 1), b"PAR1 not a file of events PAR1").unwrap();
    let damaged = Recording::read(&folder).unwrap();
    assert!(damaged.defects[0].contains("is damaged"), "{:?}", damaged.defects);
    assert_eq!(damaged.events.len(), complete);
}

#[test]
fn what_is_no_recording_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("r");
    assert!(matches!(Recording::read(&folder), Err(RecordingError::Read { .. })));
    imported(&folder, LOG, false);
    let exists = Recorder::create(&folder, head(), false).unwrap_err();
    assert!(exists.to_string().contains("exists already"), "{exists}");
    let text = std::fs::read_to_string(folder.join("head.toml")).unwrap();
    let newer = text.replace(&format!("version = {VERSION}"), "version = 9\nunknown = true");
    std::fs::write(folder.join("head.toml"), newer).unwrap();
    let error = Recording::read(&folder).unwrap_err();
    assert!(matches!(error, RecordingError::Newer { version: 9, .. }), "{error}");
    std::fs::write(folder.join("head.toml"), "version = ").unwrap();
    assert!(matches!(Recording::read(&folder), Err(RecordingError::Head { .. })));
    // Events that refer to what the head lacks are not believed.
    let without = text.split("[[channels]]").next().unwrap();
    std::fs::write(folder.join("head.toml"), without).unwrap();
    let recording = Recording::read(&folder).unwrap();
    assert!(recording.defects[0].contains("does not exist"), "{:?}", recording.defects);
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("r");
    let mut recorder = Recorder::create(&folder, head(), false).unwrap();
    recorder.head_mut().threads.push(0);
    recorder
        .add(Event {
            at_ns: 0,
            thread: 0,
            operation: Operation::Wait,
            channel: None,
            direction: Direction::Forward,
            size_bytes: 0,
            call_ns: 1,
            queued_bytes: None,
            cpu: None,
            off_cpu_ns: None,
            after: None,
        })
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let error = recorder.finish(Lost::default()).unwrap_err().to_string();
    assert!(error.contains("head.toml") && error.contains("name a folder"), "{error}");
    // There are no events yet.
    assert!(!error.contains("readable"), "{error}");
    let error = Recorder::create(&folder.join("none"), head(), false).unwrap_err().to_string();
    assert!(
        error.contains("cannot write") && error.ends_with("in a directory that exists"),
        "{error}"
    );
}

/// Two processes that exchange 50 requests of 100 bytes and answers of 300 when told to by a line; `None` without
/// Python.
fn ping_pong() -> Option<Child> {
    let script = "
import os, socket, sys
a, b = socket.socketpair()
if os.fork() == 0:
    a.close()
    while data := b.recv(100, socket.MSG_WAITALL): b.sendall(b'y' * 300)
    os._exit(0)
b.close()
print('ready', flush=True)
sys.stdin.readline()
for _ in range(50):
    a.sendall(b'x' * 100); a.recv(300, socket.MSG_WAITALL)
print('done', flush=True)
sys.stdin.readline()
";
    let started = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    started.map_err(|_| eprintln!("SKIP recording: no python3; sudo apt-get install python3")).ok()
}

#[test]
fn a_running_program_is_recorded_and_goes_on() {
    match measured_cost_ns() {
        Ok(_) => {}
        Err(error @ LiveError::NoStrace) => return eprintln!("SKIP recording: {error}"),
        Err(error) => return eprintln!("SKIP recording: {error}; allow tracing"),
    }
    let Some(mut program) = ping_pong() else { return };
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut stdin = program.stdin.take().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.id()));
    let child: u32 = match children.ok().and_then(|text| text.trim().parse().ok()) {
        Some(child) => child,
        None => return eprintln!("SKIP recording: no list of children; CONFIG_PROC_CHILDREN"),
    };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("r");
    let attached = Tracer::attach(&[program.id(), child]);
    let (tracer, log) = match attached {
        Ok(attached) => attached,
        Err(error) => {
            let _ = program.kill();
            let _ = program.wait();
            return eprintln!("SKIP recording: {error}");
        }
    };
    stdin.write_all(b"go\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    // strace ends, and with it its log.
    drop(tracer);
    let mut assembly = Assembly::new(Recorder::create(&folder, head(), false).unwrap());
    read_strace(log, &mut assembly, || true).unwrap();
    assembly.finish().unwrap();
    // The program has not noticed.
    stdin.write_all(b"end\n").unwrap();
    assert!(program.wait().unwrap().success());
    let recording = Recording::read(&folder).unwrap();
    let summary = Summary::of(&recording);
    let of = |direction| {
        let unix =
            |channel: u32| recording.head.channels[channel as usize].carrier == "unix-stream";
        let found = summary.directions.iter();
        found
            .filter(|d| unix(d.channel))
            .find(|d| d.direction == direction)
            .expect("both directions")
    };
    let (one, other) = (of(Direction::Forward), of(Direction::Backward));
    let (requests, answers) = if one.size_bytes.p50 == 100 { (one, other) } else { (other, one) };
    assert_eq!(
        (requests.messages, requests.size_bytes.min, requests.size_bytes.max),
        (50, 100, 100)
    );
    assert_eq!((answers.messages, answers.size_bytes.min, answers.size_bytes.max), (50, 300, 300));
    // Every answer waited for its request.
    assert!(answers.think_ns.is_some());
}

#[test]
fn only_a_clock_that_was_set_goes_backwards_and_then_time_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    // A call that waited for two messages: the second one is there when it returns.
    let waited = "1 10.000000 recvmmsg(8<UNIX-DGRAM:[30->31]>, [{msg_hdr={}, msg_len=5}, {msg_hdr={}, msg_len=7}], 2, 0) \
                  = 2 <0.050000>\n";
    let (recording, lost) = imported(&dir.path().join("waited"), waited, false);
    assert_eq!(lost.clock_backwards, 0);
    assert_eq!((recording.events[1].at_ns, recording.events[1].call_ns), (50_000_000, 0));
    // The clock is set back by five seconds once; three calls follow, one each 10 ms.
    let mut log = String::new();
    for at in ["10.000000", "5.000000", "5.010000", "5.020000"] {
        log += &format!("1 {at} write(1<pipe:[77]>, \"a\", 1) = 1 <0.000004>\n");
    }
    let (recording, lost) = imported(&dir.path().join("set"), &log, false);
    assert_eq!(lost.clock_backwards, 1);
    let at: Vec<i64> = recording.events.iter().map(|e| e.at_ns).collect();
    assert_eq!(at, [0, 0, 10_000_000, 20_000_000]);
}
