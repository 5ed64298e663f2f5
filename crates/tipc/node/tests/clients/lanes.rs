//! Tests sending through lanes: order and completeness when the lane overflows, with several threads and after deaths;
//! and that a program that overwrites the shared memory harms no other.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossway_ring::RingMemory;
use crossway_sys::{Errno, proc, socket};
use crossway_tipc_client::protocol::VERSION;
use crossway_tipc_client::protocol::control::{Granted, Opened, Reader, Request};
use crossway_tipc_client::protocol::lane::LaneMemory;
use crossway_tipc_client::{NodeSocket, Patience, SocketKind};

use crate::hostile::{ask, raw, works};
use crate::lane_pair::{
    bound, counts, node_socket, pair_with_lane, resident_bytes, sent_by_lane, signal, site,
};
use crate::site::{Site, WATCHDOG, soon, until};

#[test]
fn a_thousand_messages_to_a_sleeping_tipcd_are_one_bell_and_nothing_goes_by_the_descriptor() {
    let site = site();
    for kind in [SocketKind::Rdm, SocketKind::Seqpacket, SocketKind::Stream] {
        let (client, server) = pair_with_lane(&site, kind);
        let before = sent_by_lane(&site);
        signal(&site, "-STOP");
        let (_, bells) = client.lane_sleeps_and_wakes().unwrap();
        for n in 0..1_000_u32 {
            let mut message = [0; 64];
            message[..4].copy_from_slice(&n.to_ne_bytes());
            assert_eq!(client.send(&message, None, Patience::Now), Ok(64));
        }
        let (_, after) = client.lane_sleeps_and_wakes().unwrap();
        // None if it was stopped before it went to sleep.
        assert!(after - bells <= 1, "{kind:?}: {bells} {after}");
        signal(&site, "-CONT");
        for n in 0..1_000_u32 {
            let mut message = [0; 64];
            receive_all(&server, &mut message);
            assert_eq!(message[..4], n.to_ne_bytes(), "{kind:?}");
        }
        assert_eq!(sent_by_lane(&site) - before, 1_000, "{kind:?}");
    }
}

fn receive_all(socket: &NodeSocket, buf: &mut [u8]) {
    let mut have = 0;
    while have < buf.len() {
        have += socket.recv(&mut buf[have..], soon()).unwrap();
    }
}

/// Sends the whole message, in as many calls as that takes.
fn send_all(socket: &NodeSocket, message: &[u8], patience: impl Fn() -> Patience) {
    let mut sent = 0;
    while sent < message.len() {
        match socket.send(&message[sent..], None, patience()) {
            Ok(more) => sent += more,
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(errno) => panic!("{errno}"),
        }
    }
}

#[test]
fn order_and_number_hold_when_the_lane_overflows_into_the_descriptor_and_back() {
    const WORDS: u64 = 3 << 20;
    let site = site();
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        let (client, server) = pair_with_lane(&site, kind);
        let before = sent_by_lane(&site);
        let sender = std::thread::spawn(move || {
            let (mut at, mut n) = (0, 0_u64);
            while at < WORDS {
                n += 1;
                // Mostly small messages, with an occasional large one.
                let words = if n.is_multiple_of(61) { 8_000 } else { n * 7 % 60 + 1 };
                let words = words.min(WORDS - at);
                let message: Vec<u8> = (at..at + words).flat_map(u64::to_ne_bytes).collect();
                at += words;
                // Phases with non-blocking calls, with short timeouts, and with blocking calls.
                match n >> 9 & 3 {
                    0 => send_all(&client, &message, || Patience::Now),
                    1 => send_all(&client, &message, || {
                        Patience::Until(Instant::now() + Duration::from_micros(200))
                    }),
                    _ => send_all(&client, &message, || Patience::Forever),
                }
            }
            client
        });
        let (mut buf, mut carry) = (vec![0; 66_000], Vec::new());
        let mut expected = 0_u64;
        while expected < WORDS {
            let len = server.recv(&mut buf, soon()).unwrap();
            carry.extend_from_slice(&buf[..len]);
            let whole = carry.len() / 8 * 8;
            for word in carry[..whole].chunks_exact(8) {
                assert_eq!(u64::from_ne_bytes(word.try_into().unwrap()), expected, "{kind:?}");
                expected += 1;
            }
            carry.drain(..whole);
        }
        let client = sender.join().unwrap();
        let by_lane = sent_by_lane(&site) - before;
        assert!(by_lane > 1_000, "{kind:?}: only {by_lane} were sent through the lane");
        eprintln!("{kind:?}: {by_lane} sent through the lane");
        drop(client);
        assert_eq!(server.recv(&mut buf, soon()), Err(Errno::CONNRESET), "nothing comes twice");
    }
}

#[test]
fn four_threads_send_on_one_socket_each_in_its_order() {
    const EACH: u32 = 20_000;
    let site = site();
    let (client, server) = pair_with_lane(&site, SocketKind::Seqpacket);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let client = &client;
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut message = [0; 100];
                    message[..4].copy_from_slice(&thread.to_ne_bytes());
                    message[4..8].copy_from_slice(&n.to_ne_bytes());
                    let patience = if thread == 0 { Patience::Now } else { Patience::Forever };
                    send_all(client, &message, || patience);
                }
            });
        }
        let mut next = [0; 4];
        for _ in 0..4 * EACH {
            let mut message = [0; 100];
            assert_eq!(server.recv(&mut message, soon()), Ok(100));
            let word = |n: usize| u32::from_ne_bytes(message[n..n + 4].try_into().unwrap());
            let thread = word(0) as usize;
            assert_eq!(word(4), next[thread], "of thread {thread}");
            next[thread] += 1;
        }
        assert_eq!(next, [EACH; 4]);
    });
}

#[test]
fn writing_to_the_descriptor_ends_the_use_of_the_lane() {
    let site = site();
    let (client, server) = pair_with_lane(&site, SocketKind::Stream);
    socket::send(&client, b"raw", false).unwrap();
    let mut buf = [0; 3];
    receive_all(&server, &mut buf);
    assert_eq!(&buf, b"raw");
    let before = sent_by_lane(&site);
    for n in 0..100_u8 {
        if n.is_multiple_of(2) {
            socket::send(&client, &[n], false).unwrap();
        } else {
            client.send(&[n], None, soon()).unwrap();
        }
    }
    for n in 0..100_u8 {
        let mut byte = [0];
        receive_all(&server, &mut byte);
        assert_eq!(byte, [n]);
    }
    assert_eq!(sent_by_lane(&site), before);
}

#[test]
fn a_program_that_has_written_to_the_descriptor_gets_no_lanes() {
    let site = site();
    let (bound, name) = bound(&site, SocketKind::Stream);
    let client = node_socket(&site, SocketKind::Stream);
    client.connect(Some(name), Patience::Now).unwrap_err();
    let server = bound.accept(soon()).unwrap().0;
    until("the connection", || client.peer_address().is_ok());
    socket::send(&client, b"raw", false).unwrap();
    receive_all(&server, &mut [0; 3]);
    for n in 0..50_u8 {
        client.send(&[n], None, soon()).unwrap();
        let mut byte = [0];
        receive_all(&server, &mut byte);
        assert_eq!(byte, [n]);
    }
    assert_eq!(client.lane_sleeps_and_wakes(), None);
}

/// Tests that a stream of which a part was sent through the descriptor eventually uses the lane again.
#[test]
fn a_stream_that_was_full_goes_on_by_its_lane() {
    let site = site();
    let (client, server) = pair_with_lane(&site, SocketKind::Stream);
    let mut sent = 0;
    let mut refused = 0;
    while refused < 20 {
        match client.send(&[3; 50_000], None, Patience::Now) {
            Ok(len) => (sent, refused) = (sent + len, 0),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                client.report().unwrap();
                refused += 1;
            }
        }
    }
    let mut buf = vec![0; 100_000];
    while sent > 0 {
        sent -= server.recv(&mut buf, soon()).unwrap();
    }
    until("the lane", || {
        let before = sent_by_lane(&site);
        client.send(b"x", None, soon()).unwrap();
        receive_all(&server, &mut [0]);
        sent_by_lane(&site) > before
    });
}

#[test]
fn a_full_lane_keeps_to_deadlines_and_a_killed_tipcd_is_reported_soon() {
    let site = site();
    let kinds = [SocketKind::Rdm, SocketKind::Seqpacket, SocketKind::Stream];
    for (kind, is_own) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let (client, _server) = pair_with_lane(&site, kind);
        signal(&site, "-STOP");
        let message = [7; 1_000];
        let fill = |patience: fn() -> Patience| {
            let begin = Instant::now();
            loop {
                assert!(begin.elapsed() < WATCHDOG, "it is never full");
                match client.send(&message, None, patience()) {
                    Ok(_) => {}
                    Err(errno) => break errno,
                }
            }
        };
        let moment = || Patience::Until(Instant::now() + Duration::from_millis(20));
        if is_own {
            // The descriptor's own blocking mode applies.
            socket::set_waiting(&client, false).unwrap();
            assert_eq!(fill(|| Patience::Forever), Errno::AGAIN, "{kind:?}");
        } else {
            assert_eq!(fill(moment), Errno::AGAIN, "{kind:?}");
            assert_eq!(fill(|| Patience::Now), Errno::AGAIN, "{kind:?}");
        }
        signal(&site, "-CONT");
    }
    let (client, _server) = pair_with_lane(&site, SocketKind::Dgram);
    let pid = site.tipcd().pid();
    proc::kill_exactly(pid, proc::started_ticks(pid).unwrap());
    until("the end", || crossway_sys::poll::is_hung_up(client.as_fd()).unwrap());
    let told = (0..100).find_map(|_| client.send(b"x", None, Patience::Now).err());
    assert_eq!(told, Some(Errno::NETDOWN));
}

#[test]
fn a_program_that_scribbles_over_the_shared_memory_harms_nobody_else() {
    let site = site();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let before = resident_bytes(site.tipcd().pid());
    for round in 0..40 {
        let control = raw(&site);
        ask(&control, &Request::Hello { version: VERSION }.encode());
        let (answer, _data) = ask(&control, &Request::Open { kind: SocketKind::Rdm }.encode());
        let token = Opened::decode(&mut Reader::new(&answer[4..])).unwrap().token;
        let (answer, mut fds) = ask(&control, &Request::Lanes { token }.encode());
        let granted = Granted::decode(&mut Reader::new(&answer[4..])).unwrap();
        assert!(granted.sends);
        let bell = crossway_sys::eventfd::EventFd::from_fd(fds.pop().unwrap());
        let memory = LaneMemory::open(fds.pop().unwrap(), granted.ring_bytes as usize).unwrap();
        let up = memory.up();
        for _ in 0..4_000 {
            let place = next() as usize % (memory.ring_bytes() / 8) * 8;
            match next() % 8 {
                // Values that could be a header, mainly of the first records.
                0 => {
                    let sequence = next() % 4;
                    let len = next() as usize % 70_000;
                    let word = crossway_ring::layout::header(sequence, len);
                    let place = if next().is_multiple_of(2) { 0 } else { place };
                    up.header(place).store(word, Ordering::Release);
                }
                1 => up.head().store(next(), Ordering::Release),
                2 => up.head_wanted().store(next(), Ordering::Release),
                3 => up.producer_state().store(next() as u32 % 4, Ordering::Release),
                4 => up.consumer_state().store(next() as u32 % 4, Ordering::Release),
                5 => {
                    let words = memory.words();
                    words.word(next() as usize % words.count()).store(next(), Ordering::Release);
                }
                _ => up.header(place).store(next(), Ordering::Release),
            }
            if next().is_multiple_of(8) {
                bell.signal().unwrap();
            }
        }
        if round % 10 == 0 {
            works(&site);
        }
    }
    works(&site);
    let grown = resident_bytes(site.tipcd().pid()).saturating_sub(before);
    assert!(grown < 16 << 20, "it grew by {grown} bytes");
}

#[test]
fn beyond_their_limit_sockets_go_on_without_lanes_and_those_that_close_make_room() {
    let site = Site::with(&["--lane-after", "1", "--lanes", "1"]);
    let (client, server) = pair_with_lane(&site, SocketKind::Seqpacket);
    assert_eq!(counts(&site).len(), 1);
    for _ in 0..100 {
        server.send(b"back", None, soon()).unwrap();
        assert_eq!(client.recv(&mut [0; 8], soon()), Ok(4));
    }
    assert_eq!(server.lane_sleeps_and_wakes(), None);
    drop((client, server));
    until("the room", || counts(&site).is_empty());
    pair_with_lane(&site, SocketKind::Rdm);
}

#[test]
fn a_socket_that_never_looks_for_its_lanes_does_not_keep_others_from_theirs() {
    let site = site();
    let (_server, name) = bound(&site, SocketKind::Rdm);
    let [idle, closed, busy] = [(); 3].map(|()| {
        let socket = node_socket(&site, SocketKind::Rdm);
        socket.connect(Some(name), soon()).unwrap();
        socket
    });
    // Each requests lanes with its first message, and none makes another call.
    idle.send(b"x", None, soon()).unwrap();
    until("the request of another socket", || {
        closed.send(b"x", None, soon()).unwrap();
        sent_by_lane(&site) > 0 || counts(&site).len() > 1
    });
    drop(closed);
    until("the lane", || {
        busy.send(b"x", None, soon()).unwrap();
        busy.lane_sleeps_and_wakes().is_some()
    });
}
