//! Tests programs that die, flood, read slowly or violate the protocol. These programs only harm themselves.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, fdpass, poll};
use crossway_tipc_client::protocol::VERSION;
use crossway_tipc_client::protocol::control::{Opened, RECEIVE_BYTES, Reader, Request};
use crossway_tipc_client::{
    Address, Error, NodeSocket, Patience, Scope, ServiceRange, Socket, SocketKind,
};

use crate::site::{Site, WATCHDOG, soon, until};

pub(crate) fn raw(site: &Site) -> OwnedFd {
    let fd = socket::unix(SocketType::Seqpacket).unwrap();
    socket::connect(&fd, &socket::path_address(site.path()).unwrap()).unwrap();
    fd
}

/// Sends a request and returns the tipcd's answer, which is empty if the tipcd closes the connection.
pub(crate) fn ask(fd: &OwnedFd, request: &[u8]) -> (Vec<u8>, Vec<OwnedFd>) {
    ask_showing(fd, request, &[])
}

/// Like [`ask`], and passes descriptors with the request.
pub(crate) fn ask_showing(
    fd: &OwnedFd,
    request: &[u8],
    shown: &[BorrowedFd<'_>],
) -> (Vec<u8>, Vec<OwnedFd>) {
    if fdpass::send(fd, request, shown).is_err() {
        return (Vec::new(), Vec::new());
    }
    let until = Some(Instant::now() + WATCHDOG);
    assert_eq!(poll::wait_ready(fd, poll::Interest::Readable, until), Ok(true), "no answer");
    let (mut bytes, mut fds) = (vec![0; 4096], Vec::new());
    let len = fdpass::receive(fd, &mut bytes, &mut fds, true).unwrap_or(0);
    bytes.truncate(len);
    (bytes, fds)
}

pub(crate) fn works(site: &Site) {
    works_between(&site.socket(SocketKind::Rdm), &site.socket(SocketKind::Rdm));
}

fn works_between(server: &Socket, client: &Socket) {
    server.bind(ServiceRange::single(4000, 1), Scope::Cluster).unwrap();
    client.send(b"ok?", Some(Address::service(4000, 1)), soon()).unwrap();
    assert_eq!(server.recv(&mut [0; 8], soon()), Ok(3));
}

#[test]
fn nonsense_ends_the_connection_that_it_came_over() {
    let site = Site::lone();
    let hello = Request::Hello { version: VERSION }.encode();
    let open = Request::Open { kind: SocketKind::Rdm }.encode();
    for nonsense in [&b"x"[..], &[0xff; 100], &hello[..8], &open] {
        let fd = raw(&site);
        assert_eq!(ask(&fd, nonsense).0, b"", "before a hello");
        let fd = raw(&site);
        assert!(!ask(&fd, &hello).0.is_empty());
        if nonsense != open {
            assert_eq!(ask(&fd, nonsense).0, b"", "after a hello");
        }
    }
    let fd = raw(&site);
    ask(&fd, &hello);
    assert_eq!(ask(&fd, &hello).0, b"", "a second hello");
    // A different version is answered, so that the program can report the problem.
    let fd = raw(&site);
    let (answer, _) = ask(&fd, &Request::Hello { version: 999 }.encode());
    assert_eq!(answer[..4], 71_i32.to_ne_bytes());
    // An unknown token.
    let fd = raw(&site);
    ask(&fd, &hello);
    let (answer, _) = ask(&fd, &Request::Report { token: 12345 }.encode());
    assert_eq!(answer, 9_i32.to_ne_bytes());
    works(&site);
}

#[test]
fn nonsense_on_a_data_descriptor_closes_that_socket() {
    let site = Site::lone();
    let hello = Request::Hello { version: VERSION }.encode();
    let records: [&[u8]; 4] =
        [b"short", &[0; 16], &[30, 0, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3], &[7; 70_000]];
    for record in records {
        let fd = raw(&site);
        ask(&fd, &hello);
        let (answer, mut fds) = ask(&fd, &Request::Open { kind: SocketKind::Rdm }.encode());
        let opened = Opened::decode(&mut Reader::new(&answer[4..])).unwrap();
        let data = fds.pop().unwrap();
        socket::send(&data, record, false).unwrap();
        until("the end", || poll::is_hung_up(&data).unwrap());
        let (answer, _) = ask(&fd, &Request::Report { token: opened.token }.encode());
        assert_eq!(answer, 9_i32.to_ne_bytes(), "the socket no longer exists");
    }
    works(&site);
}

#[test]
fn limits_hold_and_say_so() {
    let site = Site::with(&["--sockets-per-client", "4", "--clients", "3", "--operators", "0"]);
    let mut sockets: Vec<_> = (0..4).map(|_| site.socket(SocketKind::Rdm)).collect();
    let refused = NodeSocket::open(site.path(), SocketKind::Rdm).unwrap_err();
    assert_eq!(refused.errno(), Errno::MFILE);
    // A program may request more room than allowed.
    sockets[0].set_option_by_number(RECEIVE_BYTES, u32::MAX).unwrap();
    assert_eq!(sockets[0].option_by_number(RECEIVE_BYTES), Ok(2 << 20));
    assert!(refused.to_string().contains("--sockets-per-client"), "{refused}");
    sockets.pop();
    until("a free place", || NodeSocket::open(site.path(), SocketKind::Rdm).is_ok());
    // This process is one program; two more are admitted.
    let hello = Request::Hello { version: VERSION }.encode();
    let more: Vec<_> = (0..3).map(|_| raw(&site)).collect();
    let answered = more.iter().filter(|fd| !ask(fd, &hello).0.is_empty()).count();
    assert_eq!(answered, 2);
    sockets.pop();
    // A process that another test has just forked may briefly hold closed descriptors.
    let mut two = Vec::new();
    until("two free places", || {
        two.extend(NodeSocket::open(site.path(), SocketKind::Rdm).map(Socket::Node));
        two.len() == 2
    });
    works_between(&two[0], &two[1]);
}

/// Tests that a program's connection is freed when its last socket is closed, even if its control connection was closed
/// before.
#[test]
fn programs_that_end_in_any_order_leave_their_places_to_others() {
    // This process occupies one of the places.
    let site = Site::with(&["--clients", "3"]);
    let hello = Request::Hello { version: VERSION }.encode();
    let witness = raw(&site);
    ask(&witness, &hello);
    for _ in 0..4 {
        let mut opened = None;
        // A process that another test has just forked may briefly hold closed descriptors. Until then an operator gets a reserved
        // place, from which no socket can be opened.
        until("a free place", || {
            let control = raw(&site);
            let greeted = ask(&control, &hello).0.starts_with(&0_i32.to_ne_bytes());
            let (_, data) = ask(&control, &Request::Open { kind: SocketKind::Rdm }.encode());
            opened = (greeted && data.len() == 1).then_some((control, data));
            opened.is_some()
        });
        let (control, _data) = opened.expect("it is free");
        drop(control);
        // Answered after that end has been handled.
        ask(&witness, &Request::Report { token: 0 }.encode());
    }
}

/// Tests that a tipcd does not remove the socket of a successor that has taken over its path.
#[test]
fn a_tipcd_that_ends_leaves_its_successor_s_socket_file_alone() {
    let site = Site::lone();
    let path = site.path().to_owned();
    std::fs::remove_file(&path).unwrap();
    let command = Command::new(env!("CARGO_BIN_EXE_tipcd"));
    let _successor = crossway_tipc_client::LoneTipcd::start(command, &path).unwrap();
    until("its door", || path.exists());
    let pid = site.tipcd().pid();
    let done = Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(done.success());
    // It is a child of this process, so its process ID is not reused.
    until("its end", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('Z')
    });
    assert!(path.exists());
}

#[test]
fn the_socket_file_has_the_requested_permissions() {
    use std::os::unix::fs::PermissionsExt;
    for (args, mode) in [(&[][..], 0o600), (&["--mode", "0620"], 0o620)] {
        let site = Site::with(args);
        let there = std::fs::metadata(site.path()).unwrap().permissions().mode();
        assert_eq!(there & 0o777, mode, "{args:?}");
    }
}

/// Tests a program for which there is no free descriptor. It used to remain in the listen queue, and the tipcd spun.
#[test]
fn a_program_without_free_descriptors_gets_an_error_at_once() {
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tipcd")]);
    let site = Site::start(few);
    let hello = Request::Hello { version: VERSION }.encode();
    let greedy = raw(&site);
    ask(&greedy, &hello);
    let mut sockets = Vec::new();
    loop {
        let (answer, fds) = ask(&greedy, &Request::Open { kind: SocketKind::Rdm }.encode());
        if answer[..4] != 0_i32.to_ne_bytes() {
            break;
        }
        sockets.extend(fds);
    }
    assert!(sockets.len() > 30, "{}", sockets.len());
    // The last descriptors are taken by connections; further programs receive the reason, ten at the same time.
    let rest: Vec<_> = (0..10).map(|_| raw(&site)).collect();
    let mut turned_away = 0;
    for fd in &rest {
        turned_away += u32::from(ask(fd, &hello).0.is_empty());
    }
    assert!(turned_away >= 5, "{turned_away}");
    drop((sockets, rest));
    until("room", || !ask(&raw(&site), &hello).0.is_empty());
    drop(greedy);
    works(&site);
}

#[test]
fn a_reader_that_never_reads_holds_up_nobody() {
    let site = Site::lone();
    let sleepy = NodeSocket::open(site.path(), SocketKind::Rdm).unwrap();
    sleepy.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    let client = site.socket(SocketKind::Rdm);
    let message = vec![1; 60_000];
    for _ in 0..200 {
        client.send(&message, Some(Address::service(1000, 1)), soon()).unwrap();
    }
    works(&site);
    let report = sleepy.report().unwrap();
    assert!(report.queued_bytes < (2 << 20) + 70_000, "{report:?}");
}

/// Runs this test program as a peer that is to be killed.
fn peer(site: &Site, job: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["hostile::as_a_peer_this_process_does_its_job", "--exact", "--nocapture"])
        .env("TIPC_PEER", format!("{job} {}", site.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The line that a peer prints when its connection is full.
const FULL: &str = "the connection is full";

/// Minimum number of messages that a peer sends to fill its connection.
const FILLING: usize = 30;
/// Length of these messages in bytes.
const FILLING_BYTES: usize = 4096;

#[test]
fn as_a_peer_this_process_does_its_job() {
    let Ok(task) = std::env::var("TIPC_PEER") else { return };
    let (job, path) = task.split_once(' ').unwrap();
    let kind = if job.starts_with("stream") { SocketKind::Stream } else { SocketKind::Seqpacket };
    let socket = NodeSocket::open(std::path::Path::new(path), kind).unwrap();
    socket.connect(Some(Address::service(1000, 1)), soon()).unwrap();
    socket.send(b"begun", None, soon()).unwrap();
    match job {
        "stream-idle" | "idle" => loop {
            std::thread::park();
        },
        "stream-receive" | "receive" => {
            let _ = socket.recv(&mut [0; 64], Patience::Forever);
        }
        _ => {
            let message = [2; FILLING_BYTES];
            for _ in 0..FILLING {
                assert_eq!(socket.send(&message, None, Patience::Forever), Ok(FILLING_BYTES));
            }
            let brief = || Patience::Until(Instant::now() + Duration::from_millis(20));
            while socket.send(&message, None, brief()).is_ok() {}
            println!("{FULL}");
            while socket.send(&message, None, Patience::Forever).is_ok() {}
        }
    }
}

#[test]
fn a_killed_peer_is_noticed_in_every_state() {
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        // A closed listener stays bound while a process that another test has just forked holds it.
        let site = Site::lone();
        let listener = site.socket(kind);
        listener.listen().unwrap();
        listener.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
        for job in ["idle", "receive", "fill"] {
            let name =
                if kind == SocketKind::Stream { format!("stream-{job}") } else { job.to_owned() };
            let mut child = peer(&site, &name);
            let (server, _) = listener.accept(soon()).unwrap();
            let mut buf = [0; 8192];
            assert_eq!(server.recv(&mut buf[..5], soon()), Ok(5));
            assert_eq!(&buf[..5], b"begun");
            if job == "fill" {
                let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
                assert!(said.any(|line| line.unwrap().ends_with(FULL)), "it never fills");
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let mut bytes = 0;
            let outcome = loop {
                match server.recv(&mut buf, soon()) {
                    Ok(len) => bytes += len,
                    Err(errno) => break errno,
                }
            };
            assert_eq!(outcome, Errno::CONNRESET, "{name}");
            let least = if job == "fill" { FILLING * FILLING_BYTES } else { 0 };
            assert!(bytes >= least, "data that it had sent is lost: {bytes}");
            assert_eq!(server.send(b"x", None, Patience::Now), Err(Errno::PIPE));
        }
        works(&site);
    }
}

#[test]
fn every_call_reports_a_killed_tipcd_and_its_path_is_used_again() {
    let site = Site::lone();
    let path = site.path().to_owned();
    let idle = NodeSocket::open(&path, SocketKind::Rdm).unwrap();
    let pid = site.tipcd().pid();
    crossway_sys::proc::kill_exactly(pid, crossway_sys::proc::started_ticks(pid).unwrap());
    assert_eq!(idle.recv(&mut [0; 4], soon()), Err(Errno::NETDOWN));
    assert_eq!(idle.report().map(drop), Err(Errno::NETDOWN));
    let error = NodeSocket::open(&path, SocketKind::Rdm).unwrap_err();
    assert!(matches!(error, Error::NoDaemon { .. }), "{error}");
    assert!(error.to_string().contains("crossway tipcd --socket"), "{error}");
    assert!(path.exists(), "kill -9 leaves the file, and the next one takes it over");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tipcd"));
    command.stderr(Stdio::null());
    let again = crossway_tipc_client::LoneTipcd::start(command, &path).unwrap();
    NodeSocket::open(&path, SocketKind::Rdm).unwrap();
    // Two on one path: the second is refused and the first goes on.
    let second = Command::new(env!("CARGO_BIN_EXE_tipcd"))
        .args(["--socket".as_ref(), path.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another tipcd serves at"), "{said}");
    NodeSocket::open(&path, SocketKind::Rdm).unwrap().as_fd();
    drop(again);
    assert!(!path.exists(), "an ordinary end removes the file");
}
