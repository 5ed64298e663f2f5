//! Tests receivers that block until a message arrives through a lane. The blocking call itself receives the bell (the
//! message in the socket that announces data in the ring; see `crossway_ring::doorbell`), and whatever the receiver
//! does not take remains visible to others.

use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{set_receive_timeout, set_waiting};
use crossway_tipc_client::{Errno, ErrorCode, Event, NodeSocket, Patience, SocketKind};

use crate::direct::{self, KINDS};
use crate::lane_pair::{self, pair_with_lane, signal};
use crate::site::{Site, WATCHDOG, soon, until};

fn is_readable(socket: &NodeSocket) -> bool {
    wait_ready(socket, Interest::Readable, Some(Instant::now())).unwrap()
}

fn wait_until_readable(socket: &NodeSocket) {
    assert_eq!(wait_ready(socket, Interest::Readable, Some(Instant::now() + WATCHDOG)), Ok(true));
}

/// Checks that nothing is left to receive. A bell may still arrive for a message that was taken under an earlier bell,
/// so this waits until the descriptor polls unreadable.
fn assert_nothing_is_there(socket: &NodeSocket) {
    until("a descriptor that is not readable", || {
        assert_eq!(socket.recv(&mut [0; 4], Patience::Now), Err(Errno::AGAIN));
        !is_readable(socket)
    });
}

/// Waits until the thread is blocked in a receive call.
fn blocked<'a, T>(socket: &NodeSocket, thread: ScopedJoinHandle<'a, T>) -> ScopedJoinHandle<'a, T> {
    until("a receiver that waits for its bell", || socket.awaits_bell());
    thread
}

/// Returns two sites, each with the two ends of a connection. The second end receives through a lane: at the first site
/// a direct lane, at the second a lane that tipcd fills.
fn pairs(kind: SocketKind) -> [(Site, NodeSocket, NodeSocket); 2] {
    let by_peer = direct::site();
    let (client, server) = direct::pair(&by_peer, kind);
    let by_tipcd = lane_pair::site();
    let (other_client, other_server) = pair_with_lane(&by_tipcd, kind);
    until("a receiving lane", || {
        other_client.send(b"warm", None, soon()).unwrap();
        assert_eq!(other_server.recv(&mut [0; 4], soon()), Ok(4));
        other_server.down_lane_bells().is_some()
    });
    for server in [&server, &other_server] {
        assert_nothing_is_there(server);
    }
    [(by_peer, client, server), (by_tipcd, other_client, other_server)]
}

#[test]
fn a_receiver_that_blocks_takes_one_message_and_leaves_the_rest_visible() {
    for kind in KINDS {
        for (_site, client, server) in pairs(kind) {
            let mut raw = [0; 4];
            for burst in [1_u32, 2, 3, 1, 1] {
                scope(|scope| {
                    let receive = || server.recv(&mut [0; 4], Patience::Forever);
                    let waiting = blocked(&server, scope.spawn(receive));
                    for n in 0..burst {
                        client.send(&n.to_ne_bytes(), None, soon()).unwrap();
                    }
                    assert_eq!(waiting.join().unwrap(), Ok(4));
                });
                for n in 1..burst {
                    wait_until_readable(&server);
                    assert_eq!(server.recv(&mut raw, Patience::Now), Ok(4));
                    assert_eq!(raw, n.to_ne_bytes());
                }
                assert!(!is_readable(&server), "{kind:?}, burst of {burst}");
                assert_nothing_is_there(&server);
            }
        }
    }
}

/// Tests a receiver that spins: it gets a message without a bell, or with a bell if the message arrives after it has
/// stopped spinning.
#[test]
fn a_receiver_may_spin_before_it_sleeps() {
    const LONG: Duration = Duration::from_secs(1);
    for kind in KINDS {
        for (_site, client, server) in pairs(kind) {
            let round = |pause: Duration| {
                scope(|scope| {
                    let receive = || server.recv(&mut [0; 4], Patience::Forever);
                    let waiting = blocked(&server, scope.spawn(receive));
                    std::thread::sleep(pause);
                    client.send(b"ping", None, soon()).unwrap();
                    assert_eq!(waiting.join().unwrap(), Ok(4));
                });
                assert_nothing_is_there(&server);
                server.down_lane_bells().unwrap()
            };
            let before = round(Duration::ZERO);
            assert_eq!(round(Duration::ZERO), before + 1);
            server.set_spin(WATCHDOG);
            assert_eq!(round(Duration::ZERO), before + 1, "no bell");
            server.set_spin(LONG / 1_000);
            assert_eq!(round(LONG / 10), before + 2);
            // What it does not take is announced to all.
            server.set_spin(WATCHDOG);
            scope(|scope| {
                let receive = || server.recv(&mut [0; 4], Patience::Forever);
                let waiting = blocked(&server, scope.spawn(receive));
                for _ in 0..3 {
                    client.send(b"ping", None, soon()).unwrap();
                }
                assert_eq!(waiting.join().unwrap(), Ok(4));
            });
            for _ in 0..2 {
                wait_until_readable(&server);
                assert_eq!(server.recv(&mut [0; 4], Patience::Now), Ok(4));
            }
            assert_nothing_is_there(&server);
        }
    }
}

#[test]
fn what_a_short_read_of_a_stream_leaves_is_visible() {
    for (_site, client, server) in pairs(SocketKind::Stream) {
        let mut raw = [0; 8];
        scope(|scope| {
            let receive = || server.recv(&mut [0; 3], Patience::Forever);
            let waiting = blocked(&server, scope.spawn(receive));
            client.send(b"12345678", None, soon()).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(3));
        });
        wait_until_readable(&server);
        assert_eq!(server.recv(&mut raw, Patience::Now), Ok(5));
        assert_eq!(&raw[..5], b"45678");
        assert_nothing_is_there(&server);
    }
}

/// Sends numbered messages with these pauses. They are received by calls whose waiting is limited by the descriptor's
/// settings.
fn send_while_receiver_stops_waiting(
    (client, server): (&NodeSocket, &NodeSocket),
    total: u64,
    pause: impl Fn(u64) -> Duration + Sync,
) {
    let mut gave_up = 0;
    scope(|scope| {
        scope.spawn(|| {
            for n in 0..total {
                std::thread::sleep(pause(n));
                client.send(&n.to_ne_bytes(), None, soon()).unwrap();
            }
        });
        let begin = Instant::now();
        let mut raw = [0; 8];
        for n in 0..total {
            while let Err(errno) = server.recv(&mut raw, Patience::Forever) {
                assert_eq!(errno, Errno::AGAIN);
                assert!(begin.elapsed() < WATCHDOG, "message {n} did not arrive");
                gave_up += 1;
            }
            assert_eq!(raw, n.to_ne_bytes());
        }
    });
    assert!(gave_up > 0);
}

#[test]
fn nothing_is_lost_when_a_receiver_stops_waiting_as_a_message_comes() {
    for kind in KINDS {
        for (_site, client, server) in pairs(kind) {
            // The system rounds this up to a tick of up to 10 ms.
            set_receive_timeout(&server, Some(Duration::from_millis(1))).unwrap();
            let pause = |n: u64| Duration::from_micros(n * 7_919 % 30_000);
            send_while_receiver_stops_waiting((&client, &server), 60, pause);
            assert_nothing_is_there(&server);
            set_waiting(&server, false).unwrap();
            let pause = |n: u64| Duration::from_micros(n * 37 % 60);
            send_while_receiver_stops_waiting((&client, &server), 5_000, pause);
            assert_nothing_is_there(&server);
        }
    }
}

/// Tests a socket that two threads share: one blocks, the other polls and receives without waiting. Each message
/// arrives once, and both are notified of the end.
#[test]
fn a_thread_that_blocks_and_one_that_polls_share_a_socket() {
    for kind in KINDS {
        for (_site, client, server) in pairs(kind) {
            let total = 20_000_u32;
            let mut got = scope(|scope| {
                let blocks = scope.spawn(|| {
                    let (mut got, mut raw) = (Vec::new(), [0; 4]);
                    while server.recv(&mut raw, Patience::Forever).unwrap() > 0 {
                        got.push(u32::from_ne_bytes(raw));
                    }
                    got
                });
                let polls = scope.spawn(|| {
                    let (mut got, mut raw) = (Vec::new(), [0; 4]);
                    loop {
                        wait_until_readable(&server);
                        match server.recv(&mut raw, Patience::Now) {
                            Ok(0) => return got,
                            Ok(_) => got.push(u32::from_ne_bytes(raw)),
                            Err(errno) => assert_eq!(errno, Errno::AGAIN),
                        }
                    }
                });
                for n in 0..total {
                    client.send(&n.to_ne_bytes(), None, soon()).unwrap();
                    if n % 7 == 0 {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                }
                client.shutdown().unwrap();
                [blocks.join().unwrap(), polls.join().unwrap()]
            });
            assert!(got.iter().all(|got| got.is_sorted()), "{kind:?}");
            let mut all: Vec<u32> = got.iter_mut().flat_map(std::mem::take).collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..total), "{kind:?}: {} messages", all.len());
        }
    }
}

#[test]
fn a_receiver_that_blocks_learns_of_the_end() {
    for kind in KINDS {
        for (_site, client, server) in pairs(kind) {
            scope(|scope| {
                let receive = || server.recv_message(&mut [0; 4], Patience::Forever);
                let waiting = blocked(&server, scope.spawn(receive));
                client.shutdown().unwrap();
                let end = waiting.join().unwrap().unwrap();
                assert_eq!(end.event, Event::End(ErrorCode::Shutdown), "{kind:?}");
            });
        }
        // Without a tipcd, when the peer closes.
        let site = direct::site();
        let (client, server) = direct::pair(&site, kind);
        assert_nothing_is_there(&server);
        scope(|scope| {
            let receive = || server.recv_message(&mut [0; 4], Patience::Forever);
            let waiting = blocked(&server, scope.spawn(receive));
            signal(&site, "-KILL");
            drop(client);
            let end = waiting.join().unwrap().unwrap();
            assert!(matches!(end.event, Event::End(_)), "{kind:?}: {end:?}");
        });
    }
}
