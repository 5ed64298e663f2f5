//! The map of real programs: which channels are found, at which cost in system calls, and what happens with processes
//! that end, belong to someone else or hold ten thousand descriptors.

mod servers;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_observe::map::{Carrier, Channel, Map, Party, answers};
use crossway_observe::rates::between;
use crossway_observe::snapshot::Snapshot;
use crossway_observe::target::{TargetError, select};

const PATIENCE: Duration = Duration::from_secs(120);

/// A program that is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// Starts Python with a script that prints a line when it is ready; `None` with a message without Python.
fn python(script: &str) -> Option<(Running, ChildStdin)> {
    let python = if cfg!(target_os = "linux") { "/usr/bin/python3" } else { "python3" };
    let started = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("SKIP observe: no python3; sudo apt-get install python3");
        return None;
    };
    let stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let running = Running(child);
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "ready", "{script}");
    Some((running, stdin))
}

fn look(pids: &[u32]) -> Map {
    let snapshot = Snapshot::take().unwrap();
    let words: Vec<String> = pids.iter().map(u32::to_string).collect();
    let chosen = select(&snapshot, &words).unwrap();
    Map::of(&snapshot, |p| chosen.contains(&p.pid))
}

fn process(pid: u32) -> Party {
    Party::Process { pid }
}

/// The channels of a kind between two processes, in either direction.
fn among(map: &Map, carrier: Carrier, one: u32, other: u32) -> Vec<&Channel> {
    let has = |c: &Channel, pid| c.from.contains(&process(pid)) || c.to.contains(&process(pid));
    let kind = map.channels.iter().filter(|c| c.carrier == carrier);
    kind.filter(|c| has(c, one) && has(c, other)).collect()
}

/// Waits until nothing answers `None`.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_kind_of_channel_between_a_parent_and_its_child_is_found() {
    let script = "
import os, socket, sys, mmap, ctypes, pty
r, w = os.pipe()
a, b = socket.socketpair()
c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
e, f = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
memory = mmap.mmap(-1, 8192)
event = ctypes.CDLL(None).eventfd(0, 0)
listener = socket.create_server(('127.0.0.1', 0))
master, slave = pty.openpty()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('127.0.0.1', 0))
child = os.fork()
if child == 0:
    for fd in (w, master): os.close(fd)
    for s in (a, c, e): s.close()
    tcp = socket.create_connection(listener.getsockname())
    tcp.sendall(b'x' * 1000)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect(udp.getsockname())
    listener.close(); udp.close()
    b.sendall(b'go')
    sys.stdin.read()
    os._exit(0)
for fd in (r, slave): os.close(fd)
for s in (b, d, f): s.close()
conn, _ = listener.accept()
got = 0
while got < 1000: got += len(conn.recv(1000))
a.recv(2)
print('ready', flush=True)
sys.stdin.read()
";
    let Some((parent, _stdin)) = python(script) else { return };
    let map = look(&[parent.pid()]);
    let child = *map.observed.iter().find(|pid| **pid != parent.pid()).expect("the child");
    let pair = |carrier| among(&map, carrier, parent.pid(), child);
    let pipe = pair(Carrier::Pipe);
    let pipe = pipe.iter().find(|c| c.from == [process(parent.pid())]).expect("the pipe");
    assert!(pipe.one_way && pipe.to == [process(child)], "{pipe:?}");
    for carrier in [Carrier::UnixStream, Carrier::UnixDatagram, Carrier::UnixSeqpacket] {
        assert_eq!(pair(carrier).len(), 1, "{carrier:?} {map:?}");
    }
    let tcp = pair(Carrier::TcpLocal);
    assert_eq!(tcp.len(), 1);
    // The client is the child, whichever end has the lower inode.
    assert_eq!((&tcp[0].from, &tcp[0].to), (&vec![process(child)], &vec![process(parent.pid())]));
    assert_eq!((tcp[0].forward_bytes, tcp[0].backward_bytes), (Some(1000), Some(0)));
    assert_eq!(pair(Carrier::UdpLocal).len(), 1, "{map:?}");
    assert_eq!(pair(Carrier::Eventfd).len(), 1);
    assert_eq!(pair(Carrier::Terminal).len(), 1, "{map:?}");
    let memory = pair(Carrier::SharedMemory);
    assert!(memory.iter().any(|c| c.mapped_bytes == Some(8192)), "{memory:?}");
    let found = answers(&map);
    assert_eq!(found.len(), 2, "TCP and UDP: {found:?}");
    assert!(found.iter().all(|a| a.text.contains("although both are on this host")));
    serde_json::to_string(&map).expect("JSON");
}

#[test]
fn a_map_costs_few_system_calls_even_with_ten_thousand_descriptors() {
    let script = "
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
try:
    fds = [os.pipe() for _ in range(5000)]
except OSError:
    print('ready', flush=True)
else:
    print('ready', flush=True)
sys.stdin.read()
";
    let Some((program, _stdin)) = python(script) else { return };
    let snapshot = Snapshot::take().unwrap();
    let map = Map::of(&snapshot, |p| p.pid == program.pid());
    if map.within_one_process < 5000 {
        eprintln!("SKIP ten thousand descriptors: the hard limit is lower; ulimit -Hn 20000");
    }
    let (processes, descriptors) = (snapshot.processes.len() as u64, snapshot.descriptors);
    // Per process: its identity, user, namespace, the list of its descriptors and its mappings, which are read 4 KiB at
    // a time. Per descriptor: its link and, for some, its direction, file or number.
    let bound = 200 * processes + 6 * descriptors + 100;
    assert!(snapshot.calls <= bound, "{} calls, {processes}, {descriptors}", snapshot.calls);
    let large = descriptors >= 10_000;
    let bound = 4 * descriptors + 200 * processes;
    assert!(!large || snapshot.calls <= bound, "{} calls", snapshot.calls);
}

#[test]
fn connections_that_crossway_run_moved_are_named_so_and_get_no_answer() {
    // What two programs by `crossway run` hold: the TCP sockets, a pair whose accepted end has the connection's name, and
    // the table. A second connection was not moved.
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("crossway").join("run-3.table");
    std::fs::create_dir(table.parent().unwrap()).unwrap();
    std::fs::write(&table, [0; 4096]).unwrap();
    let script = format!(
        "
import base64, mmap, os, socket, struct, sys
table = mmap.mmap(os.open('{}', os.O_RDWR), 4096)
listener = socket.create_server(('127.0.0.1', 0))
mailbox = socket.socket(socket.AF_UNIX)
mailbox.bind('')
mailbox.listen()
if os.fork() == 0:
    tcp = socket.create_connection(listener.getsockname())
    other = socket.create_connection(listener.getsockname())
    pair, _ = mailbox.accept()
    listener.close(); mailbox.close()
    sys.stdin.read()
    os._exit(0)
conn, peer = listener.accept()
second, _ = listener.accept()
raw = struct.pack('>QB', 7, 0)
for host, port in (conn.getsockname(), peer):
    raw += bytes(10) + bytes([255, 255]) + socket.inet_aton(host) + struct.pack('>HI', port, 0)
pair = socket.socket(socket.AF_UNIX)
pair.bind(bytes(1) + b'crossway-run/' + base64.urlsafe_b64encode(raw).rstrip(b'='))
pair.connect(mailbox.getsockname())
mailbox.close()
print('ready', flush=True)
sys.stdin.read()
",
        table.display()
    );
    let Some((parent, _stdin)) = python(&script) else { return };
    let (map, child) = eventually("the pair is accepted", || {
        let map = look(&[parent.pid()]);
        let child = *map.observed.iter().find(|pid| **pid != parent.pid())?;
        (among(&map, Carrier::UnixStream, parent.pid(), child).len() == 1).then_some((map, child))
    });
    let pair = among(&map, Carrier::UnixStream, parent.pid(), child)[0];
    // The program that accepted the connection is at the second end.
    assert_eq!(pair.to, [process(parent.pid())], "{pair:?}");
    assert!(pair.name.starts_with("127.0.0.1:") && pair.used_by == Some("crossway run, for TCP"));
    let tcp = among(&map, Carrier::TcpLocal, parent.pid(), child);
    let moved: Vec<_> = tcp.iter().filter(|c| c.moved_to.as_ref() == Some(&pair.id)).collect();
    assert_eq!((tcp.len(), moved.len()), (2, 1), "{tcp:?}");
    assert_eq!(moved[0].used_by, Some("moved by crossway run to UNIX stream"));
    assert_eq!(among(&map, Carrier::SharedMemory, parent.pid(), child), [] as [&Channel; 0]);
    let found = answers(&map);
    assert_eq!(found.iter().map(|a| a.channels).collect::<Vec<_>>(), [1], "{found:?}");
}

#[test]
fn processes_that_ended_are_refused_by_number_and_name() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    // It stays a zombie until it is waited for.
    let snapshot = eventually("a zombie", || {
        let snapshot = Snapshot::take().unwrap();
        snapshot.processes.get(&pid).is_some_and(|p| p.zombie).then_some(snapshot)
    });
    let error = select(&snapshot, &[pid.to_string()]).unwrap_err();
    assert!(matches!(error, TargetError::Zombie { .. }), "{error}");
    child.wait().unwrap();
    let snapshot = Snapshot::take().unwrap();
    let error = select(&snapshot, &[pid.to_string()]).unwrap_err();
    assert_eq!(error, TargetError::NoProcess(pid));
    let error = select(&snapshot, &["no-such-program".to_owned()]).unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[test]
fn processes_that_start_and_end_meanwhile_do_no_harm() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = Command::new("true").status();
            }
        });
        for _ in 0..20 {
            let snapshot = Snapshot::take().unwrap();
            Map::of(&snapshot, |_| true);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn what_another_user_may_not_see_is_listed_with_the_remedy() {
    if crossway_sys::proc::is_root() {
        return eprintln!("SKIP another user's processes: root sees them all; run as a user");
    }
    let snapshot = Snapshot::take().unwrap();
    let hidden = snapshot.processes.values().filter(|p| !p.readable && !p.zombie).count();
    let said = snapshot.gaps.iter().any(|gap| gap.remedy.contains("root"));
    assert_eq!(hidden > 0, said, "{:?}", snapshot.gaps);
}

#[test]
fn a_container_s_sockets_are_found_by_entering_its_namespace() {
    let script = "
import os, socket, sys, fcntl, struct
if not hasattr(os, 'unshare'):
    import ctypes
    failed = ctypes.CDLL(None, use_errno=True).unshare(0x40000000)
else:
    try: failed = os.unshare(os.CLONE_NEWNET)
    except OSError: failed = 1
if failed:
    print('ready', flush=True); sys.stdin.read(); sys.exit()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack('16sH14s', b'lo', 0x49, b''))
listener = socket.create_server(('127.0.0.1', 4242))
if os.fork() == 0:
    tcp = socket.create_connection(('127.0.0.1', 4242))
    listener.close()
    sys.stdin.read()
    os._exit(0)
conn, _ = listener.accept()
print('ready', flush=True)
sys.stdin.read()
";
    let Some((program, _stdin)) = python(script) else { return };
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let theirs = std::fs::read_link(format!("/proc/{}/ns/net", program.pid())).unwrap();
    if own == theirs {
        return eprintln!("SKIP a container's sockets: cannot make a namespace; run as root");
    }
    let map = look(&[program.pid()]);
    let tcp = map.channels.iter().filter(|c| c.carrier == Carrier::TcpLocal).count();
    assert_eq!(tcp, 1, "{map:?}");
    assert!(map.listeners.iter().any(|l| l.address == "127.0.0.1:4242"), "{:?}", map.listeners);
}

#[test]
fn rates_are_the_bytes_between_two_maps() {
    let script = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    tcp = socket.create_connection(listener.getsockname())
    listener.close()
    sys.stdin.buffer.raw.read(1)
    tcp.sendall(b'x' * 50000)
    sys.stdin.read()
    os._exit(0)
conn, _ = listener.accept()
print('ready', flush=True)
while conn.recv(65536): pass
";
    let Some((program, mut stdin)) = python(script) else { return };
    let earlier = look(&[program.pid()]);
    stdin.write_all(b"g").unwrap();
    stdin.flush().unwrap();
    let rates = eventually("50,000 bytes arrive", || {
        let rates = between(&earlier, &look(&[program.pid()]), Duration::from_secs(1));
        rates.channels.values().any(|r| r.forward_bytes_per_s == 50_000.0).then_some(rates)
    });
    assert!(rates.cpus.contains_key(&program.pid()));
}
