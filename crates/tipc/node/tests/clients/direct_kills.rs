//! Tests a program that is killed at any instant while it exchanges messages through direct lanes. Its peer receives
//! what the program had sent by then, in order, and then the end; nothing is left behind. `CROSSWAY_DIRECT_KILLS=1000`
//! kills that many programs.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossway_tipc_client::{Address, Errno, NodeSocket, Patience, SocketKind};

use crate::direct::{KINDS, site};
use crate::hostile::works;
use crate::lane_attacks::{Random, descriptors};
use crate::lane_pair::{bound, counts};
use crate::site::{Site, soon, until};

const VARIABLE: &str = "TIPC_DIRECT_ECHO";
const LEN: usize = 40;

/// Starts another process, which connects and returns every message.
fn echo(site: &Site, kind: SocketKind, name: Address) -> Child {
    let Address::Service { service, instance, .. } = name else { panic!("{name:?}") };
    Command::new(std::env::current_exe().unwrap())
        .args(["direct_kills::as_an_echo_this_process_answers", "--exact", "--nocapture"])
        .env(VARIABLE, format!("{kind:?} {service} {instance} {}", site.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn as_an_echo_this_process_answers() {
    let Ok(task) = std::env::var(VARIABLE) else { return };
    let mut words = task.splitn(4, ' ');
    let mut word = || words.next().unwrap();
    let kind = if word() == "Stream" { SocketKind::Stream } else { SocketKind::Seqpacket };
    let (service, instance) = (word().parse().unwrap(), word().parse().unwrap());
    let socket = NodeSocket::open(std::path::Path::new(word()), kind).unwrap();
    socket.connect(Some(Address::service(service, instance)), soon()).unwrap();
    let mut buf = [0; LEN];
    while let Ok(len) = socket.recv(&mut buf, Patience::Forever) {
        let mut sent = 0;
        while sent < len {
            let Ok(more) = socket.send(&buf[sent..len], None, Patience::Forever) else { return };
            sent += more;
        }
    }
}

/// Sends numbers and receives their echoes until the peer ends. Returns the number of echoes received.
fn exchange(server: &NodeSocket, ahead: u64) -> u64 {
    let (mut sent, mut got, mut part) = (0_u64, 0_u64, Vec::new());
    let mut buf = [0; LEN];
    let mut message = [0; LEN];
    loop {
        // Messages that cannot be sent any more have no echo either.
        while sent < got + ahead {
            message[..8].copy_from_slice(&sent.to_ne_bytes());
            match server.send(&message, None, soon()) {
                Ok(len) => assert_eq!(len, LEN),
                Err(Errno::PIPE) => break,
                Err(errno) => panic!("message {sent}: {errno}"),
            }
            sent += 1;
        }
        match server.recv(&mut buf, soon()) {
            Ok(len) => part.extend_from_slice(&buf[..len]),
            Err(Errno::CONNRESET) => return got,
            Err(errno) => panic!("echo {got}: {errno}"),
        }
        while part.len() >= LEN {
            assert_eq!(part[..8], got.to_ne_bytes(), "out of order, lost or repeated");
            part.drain(..LEN);
            got += 1;
        }
    }
}

#[test]
fn a_program_killed_at_any_instant_leaves_its_peer_a_prefix_and_the_end() {
    let kills = std::env::var("CROSSWAY_DIRECT_KILLS").map_or(24, |n| n.parse().unwrap());
    let site = site();
    works(&site);
    let pid = site.tipcd().pid();
    let before = descriptors(pid);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut echoes = 0;
    for round in 0..kills {
        let kind = KINDS[round % 2];
        let (listener, name) = bound(&site, kind);
        let mut child = echo(&site, kind, name);
        let (server, _) = listener.accept(soon()).unwrap();
        let after = Duration::from_micros(random.next() % 20_000);
        let ahead = [1, 8, 64][round / 2 % 3];
        echoes += std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(after);
                child.kill().unwrap();
                child.wait().unwrap();
            });
            exchange(&server, ahead)
        });
    }
    assert!(echoes > 0, "nothing was exchanged");
    until("the lanes' end", || counts(&site).is_empty());
    until("the descriptors' end", || descriptors(pid) <= before);
    works(&site);
}
