//! Tests that no program sleeps for ever on the lane through which it receives, neither with edge-triggered events nor
//! after another receiver was killed, and that no non-blocking call waits for a stopped tipcd.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossway_ring::RingMemory;
use crossway_ring::layout::{ASLEEP, AWAKE, record_len, stated_len};
use crossway_ring::process_lock::LockWords;
use crossway_ring::receiver::Receiver;
use crossway_sys::epoll::{Epoll, Trigger};
use crossway_tipc_client::protocol::lane::{self, LaneMemory};
use crossway_tipc_client::{Errno, NodeSocket, Patience, SocketKind};

use crate::lane_pair::{node_socket, pair_with_lane, signal, site};
use crate::site::{Site, WATCHDOG, soon, until};

/// Returns a connection with lanes in both directions.
fn pair(site: &Site, kind: SocketKind) -> (NodeSocket, NodeSocket) {
    let (client, server) = pair_with_lane(site, kind);
    until("the receiving lane", || {
        client.send(b"warm", None, soon()).unwrap();
        assert_eq!(server.recv(&mut [0; 8], soon()), Ok(4));
        server.down_lane_bells().is_some()
    });
    (client, server)
}

/// Tests a receiver that relies on edges. Messages that have arrived by its last check of the ring cause no second
/// edge, so that check must return them.
#[test]
fn an_edge_triggered_reader_that_reads_until_eagain_gets_all() {
    const MESSAGES: u64 = 300_000;
    let site = site();
    let (client, server) = pair(&site, SocketKind::Seqpacket);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..MESSAGES {
                if client.send(&n.to_ne_bytes(), None, soon()).is_err() {
                    return;
                }
            }
        });
        let mut epoll = Epoll::new(8).unwrap();
        epoll.add(&server, 7, Trigger::Changes).unwrap();
        let mut next = 0;
        while next < MESSAGES {
            let edges = epoll.wait_for(Some(WATCHDOG / 3)).unwrap().count();
            assert!(edges > 0, "no edge after message {next}, which waits: {:?}", {
                server.peek(&mut [0; 8], Patience::Now).map(|message| message.len)
            });
            let mut raw = [0; 8];
            loop {
                match server.recv(&mut raw, Patience::Now) {
                    Ok(8) => assert_eq!(u64::from_ne_bytes(raw), next),
                    Err(Errno::AGAIN) => break,
                    other => panic!("{other:?}"),
                }
                next += 1;
            }
        }
    });
}

/// Answers each message with another, edge-triggered: reads until EAGAIN and then waits for the next edge. Sends the
/// first message if `begins` is set.
fn exchange(socket: &NodeSocket, rounds: u32, begins: bool) {
    let mut epoll = Epoll::new(8).unwrap();
    epoll.add(socket, 7, Trigger::Changes).unwrap();
    let mut got = 0;
    if begins {
        assert_eq!(socket.send(b"x", None, Patience::Now), Ok(1));
    }
    while got < rounds {
        let edges = epoll.wait_for(Some(WATCHDOG / 3)).unwrap().count();
        assert!(edges > 0, "no edge after message {got}");
        loop {
            match socket.recv(&mut [0; 8], Patience::Now) {
                Ok(1) => got += 1,
                Err(Errno::AGAIN) => break,
                other => panic!("{other:?}"),
            }
            if !begins || got < rounds {
                assert_eq!(socket.send(b"x", None, Patience::Now), Ok(1));
            }
        }
    }
}

/// Tests a lane that is switched on while messages arrive. A receiver that gets an edge during the switch gets no
/// second edge for the same data, so its next calls must return that data.
#[test]
fn an_edge_triggered_reader_misses_nothing_while_the_lane_begins() {
    const CONNECTIONS: u32 = 60;
    let site = site();
    let mut lanes = 0;
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        for _ in 0..CONNECTIONS {
            let (client, server) = crate::lingering::pair(&site, kind);
            std::thread::scope(|scope| {
                scope.spawn(|| exchange(&server, 50, false));
                exchange(&client, 50, true);
            });
            lanes += u32::from(client.down_lane_bells().is_some());
        }
    }
    assert!(lanes > CONNECTIONS, "only {lanes} lanes have begun");
}

/// Maps the memory of all lanes of this process's sockets a second time. Also returns the descriptors that were used:
/// closing one would release the process's file lock.
fn all_lanes() -> Vec<(LaneMemory, File)> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_of_lanes = |path: &std::path::PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().starts_with("/memfd:tipcd-lanes")
    };
    let open = |path| {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let bytes = (file.metadata().unwrap().len() as usize - crossway_sys::shm::page_len()) / 2;
        (LaneMemory::open(&file, bytes).unwrap(), file)
    };
    let paths: Vec<_> = entries.filter(is_of_lanes).collect();
    paths.into_iter().map(open).collect()
}

fn words_of(memory: &LaneMemory) -> Receiver {
    Receiver::of(&memory.words(), lane::DOWN)
}

/// Returns the number of records in the receiving ring, and the position at which the last one ends.
fn stands_in(memory: &LaneMemory) -> (usize, u64) {
    let ring = memory.down();
    let mut position = ring.head().load(Ordering::SeqCst);
    let mut count = 0;
    loop {
        let offset = (position % memory.ring_bytes() as u64) as usize;
        let word = ring.header(offset).load(Ordering::SeqCst);
        let Some(len) = stated_len(word) else { return (count, position) };
        position += record_len(offset, len) as u64;
        count += 1;
    }
}

/// Tests a receiver that is killed after it has made room and recorded that in the shared words, but before it has
/// notified the tipcd: the next receiver notifies the tipcd.
#[test]
fn a_receiver_killed_before_it_announced_room_leaves_no_sender_waiting() {
    let site = site();
    let (client, server) = pair(&site, SocketKind::Seqpacket);
    let message = [5; 2_000];
    // Other tests of this process also have sockets, but none whose ring is full and never read.
    let lanes = all_lanes();
    let is_full = |(memory, _): &&(LaneMemory, File)| {
        let ring = memory.down();
        ring.producer_state().load(Ordering::SeqCst) == ASLEEP
            && words_of(memory).holder().load(Ordering::SeqCst) == 0
            && stands_in(memory).0 > 50
    };
    let mut sent = 0;
    let mut full = None;
    until("a full ring", || {
        while client.send(&message, None, Patience::Now).is_ok() {
            sent += 1;
        }
        full = lanes.iter().find(is_full);
        full.is_some()
    });
    client.local_address().unwrap();
    let (memory, _) = full.unwrap();
    let (ring, (taken, position)) = (memory.down(), stands_in(memory));
    words_of(memory).holder().store(77_777, Ordering::SeqCst);
    ring.head().store(position, Ordering::SeqCst);
    ring.producer_state().store(AWAKE, Ordering::SeqCst);
    assert!(taken > 0 && taken < sent, "{taken} of {sent}");
    let mut raw = [0; 2_000];
    for n in taken..sent {
        assert_eq!(server.recv(&mut raw, soon()), Ok(2_000), "message {n} of {sent}");
        assert_eq!(raw, message);
    }
}

/// Tests that a non-blocking receive call does not wait for the tipcd, even if it sends a request.
#[test]
fn receiving_without_waiting_does_not_wait_for_a_stopped_tipcd() {
    // A tipcd that does not answer a request for 10 s counts as hanging.
    const BEFORE_IT_HANGS: Duration = Duration::from_secs(8);
    let site = Site::with(&["--lane-after", "1"]);
    let (client, server) =
        (node_socket(&site, SocketKind::Rdm), node_socket(&site, SocketKind::Rdm));
    let itself = server.local_address().unwrap().into();
    let other = client.local_address().unwrap().into();
    until("lanes in use in one direction", || {
        server.send(b"x", Some(other), soon()).unwrap();
        assert_eq!(client.recv(&mut [0; 8], soon()), Ok(1));
        server.lane_sleeps_and_wakes().is_some()
    });
    for _ in 0..20 {
        client.send(b"what waits", Some(itself), soon()).unwrap();
    }
    client.local_address().unwrap();
    signal(&site, "-STOP");
    let (ended, is_over) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut got = 0;
            let mut raw = [0; 16];
            while server.recv(&mut raw, Patience::Now) == Ok(10) {
                got += 1;
            }
            ended.send(got).unwrap();
        });
        let outcome = is_over.recv_timeout(BEFORE_IT_HANGS);
        signal(&site, "-CONT");
        assert_eq!(outcome, Ok(20), "it waited for a stopped tipcd");
    });
    until("the receiving lane", || {
        client.send(b"more", Some(itself), soon()).unwrap();
        assert_eq!(server.recv(&mut [0; 8], soon()), Ok(4));
        server.down_lane_bells().is_some()
    });
    assert_eq!(server.recv(&mut [0; 8], Patience::Now), Err(Errno::AGAIN));
}
