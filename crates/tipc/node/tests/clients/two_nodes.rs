//! Tests programs on two nodes that are linked over UDP.

use std::net::UdpSocket;
use std::process::Command;

use crossway_tipc_client::admin::{Administration, Order, Outcome};
use crossway_tipc_client::{Address, Errno, Patience, Scope, ServiceRange, SocketKind};

use crate::site::{Site, is_writable, soon, until};

fn free_ports() -> (u16, u16) {
    let one = UdpSocket::bind("127.0.0.1:0").unwrap();
    let two = UdpSocket::bind("127.0.0.1:0").unwrap();
    (one.local_addr().unwrap().port(), two.local_addr().unwrap().port())
}

pub(crate) fn two_sites(netid: &str) -> (Site, Site) {
    sites_with(netid, &[])
}

pub(crate) fn sites_with(netid: &str, options: &[&str]) -> (Site, Site) {
    let (a, b) = free_ports();
    let bearer = |own: u16, other: u16| format!("udp:127.0.0.1:{own},127.0.0.1:{other}");
    let common = ["--netid", netid];
    let site = |address: &str, bearer: &str| {
        Site::with(
            &[&common[..], options, &["--address", address, "--id", address, bearer]].concat(),
        )
    };
    (site("a1", &bearer(a, b)), site("b2", &bearer(b, a)))
}

#[test]
fn messages_and_connections_cross_and_a_killed_node_is_noticed() {
    let (here, there) = two_sites("91");
    let server = there.socket(SocketKind::Rdm);
    server.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    let client = here.socket(SocketKind::Rdm);
    let to = Some(Address::service(1000, 1));
    until("the link", || client.send(b"hello", to, Patience::Forever).is_ok());
    let mut buf = vec![0; 66_000];
    let message = server.recv_message(&mut buf, soon()).unwrap();
    assert_eq!((message.from.node, &buf[..5]), (0xa1, &b"hello"[..]));
    let large: Vec<u8> = (0..66_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
    server.send(&large, Some(message.from.into()), Patience::Forever).unwrap();
    assert_eq!(client.recv(&mut buf, soon()), Ok(66_000));
    assert!(buf == large);
    // A socket's address is known to be reachable, too, although it is not a service address.
    let itself = Some(server.local_address().unwrap().into());
    client.send(b"you", itself, Patience::Forever).unwrap();
    assert_eq!(server.recv(&mut buf, soon()), Ok(3));

    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        let listener = there.socket(kind);
        listener.listen().unwrap();
        listener.bind(ServiceRange::single(1001, kind as u32), Scope::Cluster).unwrap();
        let client = here.socket(kind);
        let name = Address::service(1001, kind as u32);
        until("the name", || match client.connect(Some(name), Patience::Now) {
            Err(Errno::HOSTUNREACH) => false,
            other => {
                assert_eq!(other, Err(Errno::INPROGRESS));
                true
            }
        });
        let (server, _) = listener.accept(soon()).unwrap();
        until("the answer", || is_writable(&client));
        let sender = std::thread::spawn(move || {
            for n in 0..2_000_u32 {
                let message = [n as u8; 1_000];
                assert_eq!(client.send(&message, None, Patience::Forever), Ok(1_000));
            }
            client
        });
        let mut received = 0;
        while received < 2_000_000 {
            let len = server.recv(&mut buf, soon()).unwrap();
            assert!(buf[..len].iter().zip(received..).all(|(b, n)| *b == (n / 1_000) as u8));
            received += len;
        }
        let client = sender.join().unwrap();
        if kind == SocketKind::Stream {
            // The node at the other end dies without sending anything more.
            crossway_sys::proc::kill_exactly(
                there.tipcd().pid(),
                crossway_sys::proc::started_ticks(there.tipcd().pid()).unwrap(),
            );
            assert_eq!(client.recv(&mut buf, soon()), Err(Errno::CONNRESET));
            assert_eq!(client.send(b"x", None, Patience::Now), Err(Errno::PIPE));
            assert_eq!(server.recv(&mut buf, soon()), Err(Errno::CONNRESET), "no tipcd");
        }
    }
    for lost in [to, itself] {
        until("the loss", || client.send(b"x", lost, Patience::Now) == Err(Errno::HOSTUNREACH));
    }
    assert_eq!(server.send(b"x", to, Patience::Now), Err(Errno::NETDOWN));
    assert_eq!(server.recv(&mut buf, Patience::Now), Err(Errno::NETDOWN));
}

/// Returns the number of bundles that a node has sent, and of the messages in them.
fn bundles(site: &Site) -> (u64, u64) {
    let outcome = Administration::at(site.path()).unwrap().order(&Order::Links).unwrap();
    let Outcome::Links(links) = outcome else { panic!("{outcome:?}") };
    let sum = |of: fn(&crossway_tipc_client::admin::CounterView) -> u64| {
        links.iter().map(|link| of(&link.counters)).sum()
    };
    (sum(|c| c.sent_bundles), sum(|c| c.sent_bundled))
}

#[test]
fn data_sent_within_one_turn_leaves_in_one_packet() {
    let (here, there) = two_sites("92");
    let server = there.socket(SocketKind::Rdm);
    server.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    let client = here.socket(SocketKind::Rdm);
    let to = Some(Address::service(1000, 1));
    until("the link", || client.send(b"hello", to, Patience::Forever).is_ok());
    let mut buf = vec![0; 100];
    assert_eq!(server.recv(&mut buf, soon()), Ok(5));
    let before = bundles(&here);

    let pid = here.tipcd().pid();
    let signal = |name: &str| {
        let done = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
        assert!(done.success());
    };
    signal("-STOP");
    until("the stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    });
    // Four of the batches in which tipcd reads, but less than a UDP packet.
    for n in 0..128_u8 {
        assert_eq!(client.send(&[n; 64], to, Patience::Now), Ok(64));
    }
    signal("-CONT");
    for n in 0..128_u8 {
        assert_eq!(server.recv(&mut buf, soon()), Ok(64));
        assert_eq!(buf[..64], [n; 64]);
    }
    let after = bundles(&here);
    // In two bundles only if the tipcd was stopped between checking for data and reading it.
    assert!((1..=2).contains(&(after.0 - before.0)), "{before:?} {after:?}");
    assert_eq!(after.1 - before.1, 128);
}
