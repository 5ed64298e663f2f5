//! Tests a program that shares its socket with a child and is killed in a receive call, while it waits for a bell (a
//! wake-up by the sender) that only this call would have received.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossway_tipc_client::admin::{Administration, Order, Outcome};
use crossway_tipc_client::{Errno, NodeSocket, Patience, Scope, ServiceRange, SocketKind};

use super::Built;

/// Time limit of each wait. It is reached only if something hangs.
const WATCHDOG: Duration = Duration::from_secs(120);

fn soon() -> Patience {
    Patience::Until(Instant::now() + WATCHDOG)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WATCHDOG, "timed out while waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn exchange(peer: &NodeSocket, data: [u8; 4]) {
    assert_eq!(peer.send(&data, None, soon()), Ok(4));
    expect(peer, data);
}

fn expect(peer: &NodeSocket, data: [u8; 4]) {
    let mut got = [0; 4];
    assert_eq!(peer.recv(&mut got, soon()), Ok(4));
    assert_eq!(got, data);
}

/// Whether the main thread of a process is asleep.
fn sleeps(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

/// How the child waits for messages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Child {
    Blocks,
    Polls,
    /// Blocks, and is killed after its parent.
    Dies,
}

fn one(built: &Built, program: &Path, direct: bool, kind: SocketKind, mode: Child) {
    let all = ["--lane-after", "1", "--no-direct-lanes"];
    let tipcd = built.tipcd(if direct { &all[..2] } else { &all });
    let listener = NodeSocket::open(tipcd.path(), kind).unwrap();
    listener.listen().unwrap();
    listener.bind(ServiceRange::single(5000, 1), Scope::Cluster).unwrap();
    let mut parent = Command::new(program)
        .arg(tipcd.path())
        .arg(if kind == SocketKind::Stream { "stream" } else { "seqpacket" })
        .arg("1")
        .arg(if mode == Child::Polls { "polls" } else { "blocks" })
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (peer, _) = listener.accept(soon()).unwrap();
    until("the receiver to get its lane", || {
        exchange(&peer, *b"echo");
        if direct { peer.sends_directly() } else { lanes(tipcd.path()) == 2 }
    });
    exchange(&peer, *b"fork");
    let mut said = BufReader::new(parent.stdout.take().unwrap());
    let mut child = String::new();
    said.read_line(&mut child).unwrap();
    until("the receiver to wait for its bell", || {
        // It waits for a bell if its last one was for a single message.
        exchange(&peer, *b"next");
        until("the receiver to sleep", || sleeps(parent.id()));
        !direct || peer.peer_awaits_bell()
    });
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert_eq!(
        peer.peer_awaits_bell(),
        direct,
        "a killed receiver must still count as waiting for its bell"
    );
    if mode == Child::Dies {
        kill(child.trim());
        assert_eq!(peer.recv(&mut [0; 4], soon()), Err(Errno::CONNRESET));
    } else {
        for n in 0..100_u32 {
            exchange(&peer, n.to_ne_bytes());
        }
        for n in 0..100_u32 {
            assert_eq!(peer.send(&n.to_ne_bytes(), None, soon()), Ok(4));
        }
        for n in 0..100_u32 {
            expect(&peer, n.to_ne_bytes());
        }
    }
    drop(peer);
    // The end of the output is the end of both processes.
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, if mode == Child::Dies { "" } else { "ended\n" });
    until("all lanes to be closed", || lanes(tipcd.path()) == 0);
}

/// Number of sockets that have lanes (shared memory instead of a socket to the tipcd).
fn lanes(path: &Path) -> usize {
    let outcome = Administration::at(path).unwrap().order(&Order::Sockets).unwrap();
    let Outcome::Sockets(sockets) = outcome else { panic!("{outcome:?}") };
    sockets.iter().filter(|socket| socket.lanes.is_some()).count()
}

#[test]
fn a_child_goes_on_when_its_parent_is_killed_as_it_awaits_a_bell() {
    let Some(built) = Built::new() else { return };
    let words = ["-std=c99", "-D_POSIX_C_SOURCE=200809L"];
    let program = built.program("cc", &words, "tests/killed_receiver.c");
    for mode in [Child::Blocks, Child::Polls, Child::Dies] {
        for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
            for direct in [true, false] {
                eprintln!("{mode:?}, {kind:?}, direct: {direct}");
                one(&built, &program, direct, kind, mode);
            }
        }
    }
}
