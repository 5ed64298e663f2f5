//! Tests that receiving through shared memory works as through the descriptor: messages arrive once and in order, and
//! the descriptor polls accordingly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket;
use crossway_tipc_client::{
    Address, Errno, Event, NodeSocket, Patience, Scope, ServiceRange, SocketKind, SocketOption,
};

use crate::site::{Site, soon, until};

fn eager() -> Site {
    Site::with(&["--lane-after", "1"])
}

fn open(site: &Site, kind: SocketKind) -> NodeSocket {
    NodeSocket::open(site.path(), kind).unwrap()
}

fn is_readable(socket: &NodeSocket) -> bool {
    wait_ready(socket, Interest::Readable, Some(Instant::now())).unwrap()
}

const TYPE: u32 = 4100;

fn bound(site: &Site) -> (NodeSocket, Address) {
    let server = open(site, SocketKind::Rdm);
    server.bind(ServiceRange::single(TYPE, 1), Scope::Cluster).unwrap();
    (server, Address::service(TYPE, 1))
}

/// Sends messages until they arrive through the lane.
fn warm(site: &Site, server: &NodeSocket, to: Option<Address>) {
    let client = open(site, SocketKind::Rdm);
    until("the lane", || {
        client.send(b"warm", to, soon()).unwrap();
        assert_eq!(server.recv(&mut [0; 8], soon()), Ok(4));
        server.down_lane_bells().is_some()
    });
}

/// Returns a connection whose first end receives through its lane.
fn connection(site: &Site, kind: SocketKind, number: u32) -> (NodeSocket, NodeSocket) {
    let listener = open(site, kind);
    listener.bind(ServiceRange::single(TYPE + 1, number), Scope::Cluster).unwrap();
    listener.listen().unwrap();
    let client = open(site, kind);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept(soon()).unwrap().0);
        client.connect(Some(Address::service(TYPE + 1, number)), soon()).unwrap();
        let server = server.join().unwrap();
        until("the lane", || {
            client.send(b"warm", None, soon()).unwrap();
            assert_eq!(server.recv(&mut [0; 8], soon()), Ok(4));
            server.down_lane_bells().is_some()
        });
        (server, client)
    })
}

#[test]
fn a_burst_rings_once_and_what_was_read_does_not_poll_readable() {
    let site = eager();
    let (server, to) = bound(&site);
    warm(&site, &server, Some(to));
    let client = open(&site, SocketKind::Rdm);
    for _ in 0..3 {
        assert!(!is_readable(&server));
        let before = server.down_lane_bells().unwrap();
        for n in 0..500_u32 {
            client.send(&n.to_ne_bytes(), Some(to), soon()).unwrap();
        }
        // The tipcd's answer comes after all messages sent before.
        client.local_address().unwrap();
        let mut raw = [0; 8];
        for n in 0..500_u32 {
            assert!(is_readable(&server), "with message {n} unread");
            assert_eq!(server.peek(&mut raw, Patience::Now).unwrap().len, 4);
            assert_eq!(server.recv(&mut raw, Patience::Now), Ok(4));
            assert_eq!(raw[..4], n.to_ne_bytes());
        }
        assert!(!is_readable(&server));
        assert_eq!(server.recv(&mut raw, Patience::Now), Err(Errno::AGAIN));
        assert_eq!(server.down_lane_bells(), Some(before + 1), "one bell for all messages");
    }
}

#[test]
fn what_the_descriptor_held_when_the_lane_began_comes_first() {
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        let site = eager();
        let listener = open(&site, kind);
        listener.bind(ServiceRange::single(TYPE, 2), Scope::Cluster).unwrap();
        listener.listen().unwrap();
        let client = open(&site, kind);
        client.connect(Some(Address::service(TYPE, 2)), Patience::Now).unwrap_err();
        let (server, _) = listener.accept(soon()).unwrap();
        let mut next = 0_u8;
        let mut send = |count: usize| {
            for _ in 0..count {
                client.send(&[next; 3], None, soon()).unwrap();
                next += 1;
            }
            client.local_address().unwrap();
        };
        until("the connection", || client.peer_address().is_ok());
        send(50);
        let mut got = Vec::new();
        let mut raw = [0; 3];
        let mut receive = || {
            assert_eq!(server.recv(&mut raw, soon()), Ok(3), "{kind:?}");
            got.extend(raw);
            // The earlier request has been answered.
            server.local_address().unwrap();
        };
        for _ in 0..40 {
            receive();
        }
        assert!(
            server.down_lane_bells().is_some(),
            "the lane was not switched on during the first fifty messages"
        );
        send(20);
        for _ in 0..30 {
            receive();
        }
        let wanted: Vec<u8> = (0..70).flat_map(|n| [n; 3]).collect();
        assert_eq!(got, wanted, "{kind:?}");
        assert!(!is_readable(&server));
    }
}

#[test]
fn threads_share_a_socket_and_each_message_comes_to_one_of_them() {
    const EACH: u64 = 2_000;
    let site = eager();
    let (server, to) = bound(&site);
    warm(&site, &server, Some(to));
    let (count, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for sender in 0..4 {
            let client = open(&site, SocketKind::Rdm);
            scope.spawn(move || {
                for n in 0..EACH {
                    // The receiver's queue is limited.
                    let word = sender * EACH + n;
                    client.send(&word.to_ne_bytes(), Some(to), soon()).unwrap();
                    if n % 64 == 63 {
                        client.local_address().unwrap();
                    }
                }
            });
        }
        for patience in [Patience::Forever, Patience::Forever, soon(), soon()] {
            let (server, count, sum) = (&server, &count, &sum);
            scope.spawn(move || {
                let mut raw = [0; 8];
                loop {
                    assert_eq!(server.recv(&mut raw, patience), Ok(8));
                    let word = u64::from_ne_bytes(raw);
                    if word == u64::MAX {
                        return;
                    }
                    sum.fetch_add(word, Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let client = open(&site, SocketKind::Rdm);
        until("all messages", || count.load(Ordering::Relaxed) == 4 * EACH);
        for _ in 0..4 {
            client.send(&u64::MAX.to_ne_bytes(), Some(to), soon()).unwrap();
        }
    });
    let all = 4 * EACH;
    assert_eq!(sum.load(Ordering::Relaxed), all * (all - 1) / 2);
    assert!(!is_readable(&server));
}

#[test]
fn epoll_reports_what_comes_by_edges_and_by_level() {
    let site = eager();
    let (server, to) = bound(&site);
    warm(&site, &server, Some(to));
    let client = open(&site, SocketKind::Rdm);
    for report in [Trigger::Changes, Trigger::WhileReadable] {
        let mut epoll = Epoll::new(8).unwrap();
        epoll.add(&server, 7, report).unwrap();
        let mut reports = || {
            let ready = epoll.wait_for(Some(Duration::ZERO)).unwrap();
            ready.filter(|ready| ready.readable).count()
        };
        reports();
        for round in 0..100 {
            assert_eq!(reports(), 0, "{report:?}, round {round}: nothing was sent");
            for _ in 0..=round % 3 {
                client.send(b"x", Some(to), soon()).unwrap();
            }
            until("a report", || reports() == 1);
            let mut got = 0;
            while server.recv(&mut [0; 8], Patience::Now).is_ok() {
                got += 1;
            }
            // The rest of a round may arrive after the first report.
            until("the rest", || {
                while server.recv(&mut [0; 8], Patience::Now).is_ok() {
                    got += 1;
                }
                got == round % 3 + 1
            });
            reports();
        }
    }
}

#[test]
fn a_descriptor_s_own_patience_holds() {
    let site = eager();
    let (server, to) = bound(&site);
    warm(&site, &server, Some(to));
    let mut raw = [0; 8];
    socket::set_waiting(&server, false).unwrap();
    assert_eq!(server.recv(&mut raw, Patience::Forever), Err(Errno::AGAIN));
    socket::set_waiting(&server, true).unwrap();
    socket::set_receive_timeout(&server, Some(Duration::from_millis(20))).unwrap();
    assert_eq!(server.recv(&mut raw, Patience::Forever), Err(Errno::AGAIN));
    socket::set_receive_timeout(&server, None).unwrap();
    let until = Patience::Until(Instant::now() + Duration::from_millis(20));
    assert_eq!(server.recv(&mut raw, until), Err(Errno::AGAIN));
    let client = open(&site, SocketKind::Rdm);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.recv(&mut [0; 8], Patience::Forever));
        client.send(b"at last", Some(to), soon()).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(7));
    });
}

fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

#[test]
fn a_stream_of_a_hundred_megabytes_arrives_byte_by_byte_in_parts_of_all_sizes() {
    const TOTAL: u64 = 100 << 20;
    let site = eager();
    let (server, client) = connection(&site, SocketKind::Stream, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            let mut chunk = vec![0; 70_000];
            while sent < TOTAL {
                let len = (1 + sent as usize * 7 % 69_999).min((TOTAL - sent) as usize);
                for (at, byte) in (sent..).zip(&mut chunk[..len]) {
                    *byte = pattern(at);
                }
                sent += client.send(&chunk[..len], None, Patience::Forever).unwrap() as u64;
            }
        });
        let mut got = 0;
        let mut buf = vec![0; 100_000];
        while got < TOTAL {
            let room = 1 + got as usize * 11 % 99_999;
            if got % 5 == 0 {
                let seen = server.peek(&mut buf[..room], soon()).unwrap().len;
                assert!((got..).zip(&buf[..seen]).all(|(at, byte)| *byte == pattern(at)));
            }
            let len = server.recv(&mut buf[..room], soon()).unwrap();
            assert!(len > 0, "the end after {got}");
            assert!(
                (got..).zip(&buf[..len]).all(|(at, byte)| *byte == pattern(at)),
                "wrong data within {len} bytes from offset {got}"
            );
            got += len as u64;
        }
        assert!(!is_readable(&server));
    });
}

#[test]
fn the_largest_messages_come_whole_and_small_buffers_cut_them() {
    let site = eager();
    let (server, client) = connection(&site, SocketKind::Seqpacket, 2);
    let mut buf = vec![0; 66_000];
    for round in 0..40_u8 {
        client.send(&vec![round; 66_000], None, soon()).unwrap();
        client.send(&[round; 10], None, soon()).unwrap();
        let room = if round % 2 == 0 { 66_000 } else { 100 };
        let message = server.recv_message(&mut buf[..room], soon()).unwrap();
        assert_eq!((message.len, message.full_len, message.truncated), (room, 66_000, room < 200));
        assert!(buf[..room].iter().all(|byte| *byte == round));
        assert_eq!(server.recv(&mut buf, soon()), Ok(10));
    }
}

#[test]
fn the_end_comes_behind_what_was_sent_also_when_the_tipcd_is_killed() {
    let site = Site::with(&["--lane-after", "1", "--no-direct-lanes"]);
    for (number, shuts) in [(3, true), (4, false)] {
        let (server, client) = connection(&site, SocketKind::Seqpacket, number);
        for n in 0..200_u32 {
            client.send(&n.to_ne_bytes(), None, soon()).unwrap();
        }
        client.local_address().unwrap();
        if shuts {
            client.shutdown().unwrap();
        } else {
            until("the last message", || server.option(SocketOption::ReceiveQueueDepth) == Ok(200));
            let pid = site.tipcd().pid();
            crossway_sys::proc::kill_exactly(pid, crossway_sys::proc::started_ticks(pid).unwrap());
        }
        let mut raw = [0; 8];
        for n in 0..200_u32 {
            assert_eq!(server.recv(&mut raw, soon()), Ok(4), "message {n}");
            assert_eq!(raw[..4], n.to_ne_bytes());
        }
        for _ in 0..2 {
            let end = server.recv_message(&mut raw, soon()).unwrap();
            assert!(matches!(end.event, Event::End(_)), "{end:?}");
            assert!(is_readable(&server));
        }
    }
}

#[test]
fn what_waits_in_a_lane_goes_back_to_its_sender_and_is_counted() {
    for is_counted in [true, false] {
        let site = eager();
        let (server, to) = bound(&site);
        warm(&site, &server, Some(to));
        let client = open(&site, SocketKind::Rdm);
        client.set_option(SocketOption::DestinationDroppable, 0).unwrap();
        for n in 0..10_u8 {
            client.send(&[n; 20], Some(to), soon()).unwrap();
        }
        client.local_address().unwrap();
        let mut raw = [0; 32];
        for _ in 0..4 {
            assert_eq!(server.recv(&mut raw, soon()), Ok(20));
        }
        // The tipcd need not have received a request in the meantime.
        if is_counted {
            assert_eq!(server.option(SocketOption::ReceiveQueueDepth), Ok(6));
        }
        drop(server);
        for n in 4..10_u8 {
            let back = client.recv_message(&mut raw, soon()).unwrap();
            assert!(matches!(back.event, Event::Returned(_)), "{back:?}");
            assert_eq!(raw[..back.len], [n; 20]);
        }
    }
}

/// Tests that a request for lanes that was made too early is repeated.
#[test]
fn a_receive_before_the_connection_does_not_prevent_lanes() {
    let site = eager();
    let listener = open(&site, SocketKind::Seqpacket);
    listener.bind(ServiceRange::single(TYPE + 2, 1), Scope::Cluster).unwrap();
    listener.listen().unwrap();
    let client = open(&site, SocketKind::Seqpacket);
    let outcome = client.connect(Some(Address::service(TYPE + 2, 1)), Patience::Now);
    assert_eq!(outcome, Err(Errno::INPROGRESS));
    for _ in 0..20 {
        assert_eq!(client.recv(&mut [0; 8], Patience::Now), Err(Errno::AGAIN));
    }
    let (server, _) = listener.accept(soon()).unwrap();
    until("the lane", || {
        server.send(b"warm", None, soon()).unwrap();
        assert_eq!(client.recv(&mut [0; 8], soon()), Ok(4));
        client.down_lane_bells().is_some()
    });
}
