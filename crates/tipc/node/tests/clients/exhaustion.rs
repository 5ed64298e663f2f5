//! Tests programs that use up resources, or send requests without receiving the answers. Other programs can still
//! connect, operators always can, and refused programs get the reason.

mod subscriptions;

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crossway_sys::socket;
use crossway_sys::{Errno, fdpass, proc};
use crossway_tipc_client::admin::{Administration, NodeView, Order, Outcome};
use crossway_tipc_client::protocol::VERSION;
use crossway_tipc_client::protocol::control::Request;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::{Address, NodeSocket, Patience, Scope, ServiceRange, SocketKind};

use crate::hostile::raw;
use crate::site::{Site, for_all_users, soon, until};
use subscriptions::{subscriber, subscribes};

/// The ID of a user who runs nothing here.
const NOBODY: u32 = 65_534;

/// Sends a hello and returns the errno in the answer; `None` if the tipcd closes the connection without an answer.
fn greet(fd: &OwnedFd) -> Option<i32> {
    let hello = Request::Hello { version: VERSION }.encode();
    // A refused program may be unable to send, and is answered nevertheless.
    let _ = fdpass::send(fd, &hello, &[]);
    let (mut bytes, mut fds) = (vec![0; 4096], Vec::new());
    let read = |bytes: &mut Vec<u8>, fds: &mut Vec<OwnedFd>| fdpass::receive(fd, bytes, fds, false);
    let len = match read(&mut bytes, &mut fds) {
        Err(Errno::CONNRESET) => read(&mut bytes, &mut fds).unwrap(),
        len => len.unwrap(),
    };
    bytes[..len].first_chunk().map(|errno| i32::from_ne_bytes(*errno))
}

fn number(refusal: Refusal) -> Option<i32> {
    Some(refusal.errno().raw_os_error())
}

/// This test program, where every user may run it.
fn this_program(site: &Site) -> std::path::PathBuf {
    for_all_users(std::env::current_exe().unwrap(), site.path().parent().unwrap())
}

/// Runs this test program as a process of the user `uid` that does the given job. Returns its output.
fn as_another(site: &Site, job: &str, uid: u32) -> String {
    let output = Command::new(this_program(site))
        .args(["exhaustion::as_another_process_this_one_does_its_job", "--exact", "--nocapture"])
        .env("TIPC_JOB", format!("{job} {}", site.path().display()))
        .uid(uid)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn as_another_process_this_one_does_its_job() {
    let Ok(task) = std::env::var("TIPC_JOB") else { return };
    let (job, path) = task.split_once(' ').unwrap();
    let path = std::path::Path::new(path);
    match job {
        "open" => match NodeSocket::open(path, SocketKind::Rdm) {
            Ok(_) => println!("opened"),
            Err(error) => println!("{error}"),
        },
        "order" => match Administration::at(path).map(|at| at.order(&Order::Node)) {
            Ok(Ok(_)) => println!("obeyed"),
            Ok(Err(error)) => println!("{error}"),
            Err(error) => println!("{error}"),
        },
        "work" => work(path),
        "subscribe" if subscribes(&subscriber(path)) => println!("subscribed"),
        "subscribe" => println!("refused"),
        other => panic!("no job {other}"),
    }
}

/// A well-behaved program: many sockets, connections and messages, one after the other.
fn work(path: &std::path::Path) {
    let open = |kind| NodeSocket::open(path, kind).unwrap();
    for round in 0..50 {
        let (server, client) = (open(SocketKind::Rdm), open(SocketKind::Rdm));
        server.bind(ServiceRange::single(4000, round), Scope::Cluster).unwrap();
        client.send(b"ok?", Some(Address::service(4000, round)), soon()).unwrap();
        assert_eq!(server.recv(&mut [0; 8], soon()), Ok(3));
        let (listener, caller) = (open(SocketKind::Seqpacket), open(SocketKind::Seqpacket));
        listener.listen().unwrap();
        listener.bind(ServiceRange::single(4001, round), Scope::Cluster).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| caller.connect(Some(Address::service(4001, round)), soon()).unwrap());
            let (accepted, _) = listener.accept(soon()).unwrap();
            accepted.send(b"hello", None, soon()).unwrap();
        });
        assert_eq!(caller.recv(&mut [0; 8], soon()), Ok(5));
    }
    println!("worked");
}

fn node(site: &Site) -> NodeView {
    let at = Administration::at(site.path()).unwrap();
    match at.order(&Order::Node) {
        Ok(Outcome::Node(node)) => *node,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_process_has_its_share_of_the_places_and_no_more() {
    let site = Site::with(&["--clients", "8", "--clients-per-process", "3"]);
    // The connection with which the site was started also belongs to this process.
    let held: Vec<_> = (0..2).map(|_| raw(&site)).collect();
    assert!(held.iter().all(|fd| greet(fd) == Some(0)));
    for _ in 0..20 {
        assert_eq!(greet(&raw(&site)), number(Refusal::PlacesOfProcess));
    }
    assert!(as_another(&site, "open", 0).contains("opened"));
    assert_eq!(node(&site).turned_away, 20);
    drop(held);
    until("a free place", || greet(&raw(&site)) == Some(0));
}

#[test]
fn operators_are_heard_when_no_program_is_let_in() {
    let site = Site::with(&["--clients", "4"]);
    let _held: Vec<_> = (0..3).map(|_| raw(&site)).collect();
    assert!(as_another(&site, "order", 0).contains("obeyed"));
    let said = as_another(&site, "open", 0);
    assert!(
        said.contains("the maximum number of programs is connected (tipcd --clients)"),
        "{said}"
    );
    // Connections in reserved places that send nothing are closed.
    let silent: Vec<_> = (0..10).map(|_| raw(&site)).collect();
    for _ in 0..3 {
        assert!(as_another(&site, "order", 0).contains("obeyed"));
    }
    assert!(node(&site).programs <= 4 + 4);
    drop(silent);
    let none = Site::with(&["--clients", "1", "--operators", "0"]);
    let said = as_another(&none, "order", 0);
    assert!(said.contains("refuses this program") && said.contains("--clients"), "{said}");
}

#[test]
fn a_user_has_a_share_and_the_next_one_finds_room() {
    if !proc::is_root() {
        eprintln!(
            "SKIP a_user_has_a_share_and_the_next_one_finds_room: needs programs of two users; run as root"
        );
        return;
    }
    let site = Site::of_user(NOBODY, 256, &["--clients", "8", "--clients-per-user", "2"]);
    let of = |uid| as_another(&site, "open", uid);
    assert!(of(1001).contains("opened"));
    // The maximum for one user, each a process that stays.
    let mut children = Vec::new();
    for _ in 0..2 {
        children.push(holder(&site, 1001, "place").0);
    }
    let said = of(1001);
    assert!(said.contains("--clients-per-user"), "{said}");
    assert!(of(1002).contains("opened"), "another user");
    assert!(of(NOBODY).contains("opened"), "the user who runs the tipcd");
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    until("a free place", || of(1001).contains("opened"));
}

/// CVE-2026-74283 of kernels: settings could be changed without privilege.
#[test]
fn only_operators_may_give_orders() {
    if !proc::is_root() {
        eprintln!("SKIP only_operators_may_give_orders: needs programs of two users; run as root");
        return;
    }
    let site = Site::of_user(NOBODY, 256, &[]);
    assert!(as_another(&site, "open", 1001).contains("opened"), "it may use sockets");
    let said = as_another(&site, "order", 1001);
    assert!(!said.contains("obeyed"), "{said}");
    for uid in [0, NOBODY] {
        assert!(as_another(&site, "order", uid).contains("obeyed"), "user {uid}");
    }
}

/// Starts a process of the user `uid` that takes as much as it gets of something (a `place`, `names`, `sockets`,
/// `subscriptions`), and waits until it has that. Returns the process, and how many it got.
fn holder(site: &Site, uid: u32, what: &str) -> (std::process::Child, usize) {
    let mut child = Command::new(this_program(site))
        .args(["exhaustion::as_a_holder_this_process_stays", "--exact", "--nocapture"])
        .env("TIPC_HOLDER", site.path())
        .env("TIPC_HOLDS", what)
        .uid(uid)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(child.stdout.take().unwrap());
    let said = std::io::BufRead::lines(out).map_while(Result::ok);
    let count =
        said.filter_map(|line| Some(line.strip_prefix("have it: ")?.parse().unwrap())).next();
    (child, count.expect("the process got a connection"))
}

#[test]
fn as_a_holder_this_process_stays() {
    let Ok(path) = std::env::var("TIPC_HOLDER") else { return };
    let open = || NodeSocket::open(path.as_ref(), SocketKind::Rdm);
    let socket = open().unwrap();
    let bind = |n| socket.bind(ServiceRange::single(7_000, n), Scope::Cluster);
    let (mut sockets, mut count) = (Vec::new(), 1);
    let refusal = match std::env::var("TIPC_HOLDS").as_deref() {
        Ok("names") => {
            count = 0;
            loop {
                match bind(count) {
                    Ok(()) => count += 1,
                    Err(errno) => break Some(errno),
                }
            }
        }
        Ok("sockets") => loop {
            match open() {
                Ok(socket) => sockets.push(socket),
                Err(error) => break Some(error.errno()),
            }
        },
        Ok("subscriptions") => {
            count = 0;
            // One that is refused ends all others of its connection, so each has its own.
            loop {
                let subscriber = subscriber(path.as_ref());
                if !subscribes(&subscriber) {
                    break;
                }
                sockets.push(subscriber);
            }
            None
        }
        _ => None,
    };
    assert!(refusal.is_none_or(|errno| errno == Errno::NOMEM), "{refusal:?}");
    println!("\nhave it: {}", count as usize + sockets.len());
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

#[test]
fn a_user_has_a_share_of_names_and_sockets_and_the_next_one_finds_room() {
    if !proc::is_root() {
        eprintln!(
            "SKIP a_user_has_a_share_of_names_and_sockets_and_the_next_one_finds_room: needs programs of three users; run as root"
        );
        return;
    }
    let limits = ["--bindings-per-node", "400", "--sockets", "100"];
    let site = Site::of_user(NOBODY, 512, &limits);
    // Three quarters for one user.
    let (mut names, count) = holder(&site, 1001, "names");
    assert_eq!(count, 300);
    let (mut sockets, count) = holder(&site, 1001, "sockets");
    assert_eq!(count, 75 - 1, "the process with the names has one socket");
    let said = as_another(&site, "open", 1001);
    assert!(said.contains("this user has the maximum share"), "{said}");
    // Others work meanwhile: another user, root, and the user who runs the tipcd.
    for uid in [1002, 0, NOBODY] {
        assert!(as_another(&site, "work", uid).contains("worked"), "user {uid}");
    }
    // A second user who takes the rest leaves names for operators.
    let (mut rest, count) = holder(&site, 1002, "names");
    assert_eq!(count, 350 - 300);
    assert!(as_another(&site, "work", 0).contains("worked"));
    assert!(node(&site).turned_away >= 3);
    for child in [&mut names, &mut sockets, &mut rest] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    until("free sockets", || as_another(&site, "open", 1001).contains("opened"));
    let (mut again, count) = holder(&site, 1001, "names");
    assert_eq!(count, 300, "what was given back is counted once");
    again.kill().unwrap();
    again.wait().unwrap();
}

/// Requests sockets until the tipcd reads no more requests, and receives none of the answers. Returns the number of
/// requests sent.
fn ask_in_vain(fd: &OwnedFd) -> usize {
    let open = Request::Open { kind: SocketKind::Rdm }.encode();
    let _ = fdpass::try_send(fd, &Request::Hello { version: VERSION }.encode(), &[]);
    (0..1_000).take_while(|_| fdpass::try_send(fd, &open, &[]).is_ok()).count()
}

/// Tests the limit for unprivileged users: the system limits the descriptors in flight per user to RLIMIT_NOFILE, and
/// counts all that this tipcd sends together.
#[test]
fn a_program_that_never_receives_answers_does_not_delay_others() {
    if !proc::is_root() {
        eprintln!(
            "SKIP a_program_that_never_receives_answers_does_not_delay_others: needs a tipcd of another user; run as root"
        );
        return;
    }
    let site = Site::of_user(NOBODY, 256, &[]);
    let mut hoard: Vec<OwnedFd> = Vec::new();
    for n in 0..60 {
        let fd = raw(&site);
        ask_in_vain(&fd);
        if n % 3 == 1 {
            // The answers are kept, and so is the place.
            socket::shutdown_send(&fd);
            socket::shutdown_recv(&fd);
        } else if n % 3 == 2 {
            let _ = fdpass::try_send(&fd, b"nonsense", &[]);
        }
        hoard.push(fd);
        if n % 20 == 19 {
            assert!(as_another(&site, "work", 1001).contains("worked"));
        }
    }
    assert!(as_another(&site, "order", 0).contains("obeyed"));
    // A program's requests are read again when it receives.
    let (mut bytes, mut fds) = (vec![0; 4096], Vec::new());
    let first = &hoard[0];
    for _ in 0..20 {
        fds.clear();
        assert!(fdpass::receive(first, &mut bytes, &mut fds, false).unwrap() > 0);
        assert_eq!(bytes[..4], [0; 4], "one answer per request");
    }
    hoard.clear();
    until("its places", || greet(&raw(&site)) == Some(0));
}

/// Tests a program that leaves many connection requests in its queues. It is passed no more requests, because each
/// carries a descriptor, and gets them when it accepts the earlier ones.
#[test]
fn requests_that_nobody_takes_are_not_handed_out_without_end() {
    if !proc::is_root() {
        eprintln!(
            "SKIP requests_that_nobody_takes_are_not_handed_out_without_end: needs a tipcd of another user; run as root"
        );
        return;
    }
    // Three quarters of 32 for a process; from 16 on, one for each listener.
    let site = Site::of_user(NOBODY, 256, &[]);
    let listeners: Vec<_> = (0..21)
        .map(|service| {
            let listener = NodeSocket::open(site.path(), SocketKind::Seqpacket).unwrap();
            listener.listen().unwrap();
            listener.bind(ServiceRange::single(5000, service), Scope::Cluster).unwrap();
            listener
        })
        .collect();
    let call = |service| {
        let caller = NodeSocket::open(site.path(), SocketKind::Seqpacket).unwrap();
        let outcome = caller.connect(Some(Address::service(5000, service)), Patience::Now);
        assert_eq!(outcome, Err(Errno::INPROGRESS));
        caller
    };
    let mut callers: Vec<_> = (0..2).flat_map(|service| vec![service; 10]).map(call).collect();
    callers.extend((2..21).map(call));
    assert!(as_another(&site, "work", 1001).contains("worked"));
    assert_eq!(listeners[9].accept(Patience::Now).map(drop), Ok(()), "one for each");
    assert_eq!(
        listeners[20].accept(Patience::Now).map(drop),
        Err(Errno::AGAIN),
        "its share of descriptors in flight is used up"
    );
    // Accepted requests make room, and none is forgotten.
    for _ in 0..10 {
        listeners[0].accept(soon()).unwrap();
    }
    for listener in &listeners[10..] {
        listener.accept(soon()).unwrap();
    }
}
