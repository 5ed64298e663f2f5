//! Tests direct lanes: two connected programs of one tipcd exchange messages without involving the tipcd, and
//! everything else is the same as without lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::{Errno, ErrorCode, Event, NodeSocket, Patience, SocketKind};

use crate::lane_pair::{bound, counts, node_socket, signal};
use crate::site::{Site, WATCHDOG, soon, until};

pub(crate) const KINDS: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];

/// Returns a connection whose two ends send directly to each other, with nothing in flight.
pub(crate) fn pair(site: &Site, kind: SocketKind) -> (NodeSocket, NodeSocket) {
    let (listener, name) = bound(site, kind);
    let client = node_socket(site, kind);
    assert_eq!(client.connect(Some(name), Patience::Now), Err(Errno::INPROGRESS));
    let server = listener.accept(soon()).unwrap().0;
    assert_eq!(wait_ready(&client, Interest::Writable, Some(Instant::now() + WATCHDOG)), Ok(true));
    let mut raw = [0; 8];
    until("direct lanes", || {
        for (from, to) in [(&client, &server), (&server, &client)] {
            assert_eq!(from.send(b"warm", None, soon()), Ok(4));
            assert_eq!(to.recv(&mut raw, soon()), Ok(4));
        }
        client.sends_directly() && server.sends_directly()
    });
    (client, server)
}

pub(crate) fn site() -> Site {
    Site::with(&["--lane-after", "1"])
}

fn is_readable(socket: &NodeSocket) -> bool {
    wait_ready(socket, Interest::Readable, Some(Instant::now())).unwrap()
}

/// Returns the number of messages that were passed by the tipcd, and the number of those that were passed directly.
fn passed(site: &Site) -> (u64, u64) {
    let counts = counts(site);
    (counts.iter().map(|c| c.sent).sum(), counts.iter().map(|c| c.direct).sum())
}

#[test]
fn messages_do_not_pass_through_the_tipcd_which_may_even_be_stopped() {
    for kind in KINDS {
        let site = site();
        let (client, server) = pair(&site, kind);
        let before = passed(&site);
        signal(&site, "-STOP");
        let mut raw = [0; 100];
        for n in 0..1_000_u32 {
            let (from, to) = if n % 2 == 0 { (&client, &server) } else { (&server, &client) };
            assert_eq!(from.send(&n.to_ne_bytes(), None, soon()), Ok(4));
            assert_eq!(to.recv(&mut raw, soon()), Ok(4));
            assert_eq!(raw[..4], n.to_ne_bytes());
        }
        signal(&site, "-CONT");
        let after = passed(&site);
        assert_eq!((after.0, after.1 - before.1), (before.0, 1_000), "{kind:?}");
    }
}

#[test]
fn the_descriptor_polls_readable_exactly_while_something_is_there() {
    for kind in KINDS {
        let site = site();
        let (client, server) = pair(&site, kind);
        let mut raw = [0; 4];
        for burst in [1, 2, 50] {
            assert!(!is_readable(&server));
            let before = server.down_lane_bells().unwrap();
            for n in 0..burst {
                client.send(&[n; 4], None, soon()).unwrap();
            }
            for n in 0..burst {
                assert!(is_readable(&server), "{n} of {burst}");
                assert_eq!(server.peek(&mut raw, Patience::Now).unwrap().len, 4);
                assert_eq!(server.recv(&mut raw, Patience::Now), Ok(4));
                assert_eq!(raw, [n; 4]);
            }
            assert!(!is_readable(&server));
            assert_eq!(server.recv(&mut raw, Patience::Now), Err(Errno::AGAIN));
            assert_eq!(server.down_lane_bells(), Some(before + 1), "one bell for all messages");
        }
    }
}

#[test]
fn a_message_names_its_sender_and_the_service() {
    let site = site();
    let (client, server) = pair(&site, SocketKind::Seqpacket);
    let mut raw = [0; 4];
    client.send(b"ping", None, soon()).unwrap();
    let direct = server.recv_message(&mut raw, soon()).unwrap();
    assert_eq!(direct.from, client.local_address().unwrap());
    assert_eq!(direct.event, Event::Data);
    assert!(direct.service.is_some(), "the service through which the connection was made");
}

/// Tests two senders that find the ring full: one does not wait and uses the descriptor, the other sleeps. Nothing is
/// lost or overtaken, and both return to the direct lane.
#[test]
fn a_full_ring_keeps_the_order_for_senders_that_wait_or_do_not() {
    for kind in KINDS {
        for patience in [Patience::Now, Patience::Forever] {
            let site = site();
            let (client, server) = pair(&site, kind);
            let total: u64 = 40_000;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut message = [0; 1_000];
                    for n in 0..total {
                        message[..8].copy_from_slice(&n.to_ne_bytes());
                        let mut sent = 0;
                        while sent < message.len() {
                            match client.send(&message[sent..], None, patience) {
                                Ok(len) => sent += len,
                                Err(Errno::AGAIN) => {
                                    let at = Some(Instant::now() + WATCHDOG);
                                    assert_eq!(
                                        wait_ready(&client, Interest::Writable, at),
                                        Ok(true)
                                    );
                                }
                                Err(errno) => panic!("message {n}: {errno}"),
                            }
                        }
                    }
                });
                let mut raw = [0; 1_000];
                for n in 0..total {
                    if n % 4_000 == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    let mut got = 0;
                    while got < raw.len() {
                        got += server.recv(&mut raw[got..], soon()).unwrap();
                    }
                    assert_eq!(raw[..8], n.to_ne_bytes(), "{kind:?} {patience:?}");
                }
            });
            let before = passed(&site);
            until("the direct lane is used again", || {
                client.send(b"more", None, soon()).unwrap();
                server.recv(&mut [0; 8], soon()).unwrap();
                passed(&site).1 > before.1
            });
        }
    }
}

#[test]
fn the_end_comes_after_the_last_message_and_unread_ones_are_returned() {
    for kind in KINDS {
        let site = site();
        let (client, server) = pair(&site, kind);
        client.send(b"last", None, soon()).unwrap();
        client.shutdown().unwrap();
        let mut raw = [0; 64];
        assert_eq!(server.recv(&mut raw, soon()), Ok(4));
        let end = server.recv_message(&mut raw, soon()).unwrap();
        assert_eq!(end.event, Event::End(ErrorCode::Shutdown), "{kind:?}");

        let (client, server) = pair(&site, kind);
        for n in 0..3 {
            client.send(&[n; 10], None, soon()).unwrap();
        }
        server.recv(&mut raw[..10], soon()).unwrap();
        drop(server);
        let end = client.recv_message(&mut raw, soon()).unwrap();
        assert_eq!(end.event, Event::End(ErrorCode::NoPort), "{kind:?}");
        if kind == SocketKind::Seqpacket {
            assert_eq!(raw[..end.len], [1; 10], "the first message that was not received");
        }
        assert_eq!(client.send(b"more", None, soon()), Err(Errno::PIPE));
    }
}

#[test]
fn a_sender_that_waits_for_room_learns_that_its_peer_has_closed() {
    for kind in KINDS {
        let site = site();
        let (client, server) = pair(&site, kind);
        let fills = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                loop {
                    match client.send(&[7; 10_000], None, Patience::Forever) {
                        Ok(_) => fills.store(true, Ordering::Relaxed),
                        Err(errno) => return errno,
                    }
                }
            });
            until("messages", || fills.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(100));
            drop(server);
            assert_eq!(sender.join().unwrap(), Errno::PIPE);
        });
    }
}

/// Tests that the connection continues without the tipcd until one of the two programs closes it.
#[test]
fn two_programs_go_on_without_their_tipcd_until_one_of_them_closes() {
    for kind in KINDS {
        let site = site();
        let (client, server) = pair(&site, kind);
        signal(&site, "-KILL");
        let mut raw = [0; 4];
        for (from, to) in [(&client, &server), (&server, &client)] {
            for n in 0..200 {
                assert_eq!(from.send(&[n; 4], None, soon()), Ok(4), "{kind:?}");
                assert_eq!(to.recv(&mut raw, soon()), Ok(4));
                assert_eq!(raw, [n; 4]);
            }
        }
        client.send(b"last", None, soon()).unwrap();
        drop(client);
        assert_eq!(server.recv(&mut raw, soon()), Ok(4));
        let end = server.recv_message(&mut raw, soon()).unwrap();
        assert!(matches!(end.event, Event::End(_)), "{end:?}");
        until("no receiver", || server.send(b"more", None, soon()).is_err());
    }
}

#[test]
fn without_direct_lanes_everything_passes_through_the_tipcd() {
    let site = Site::with(&["--lane-after", "1", "--no-direct-lanes"]);
    let (client, server) = crate::lane_pair::pair_with_lane(&site, SocketKind::Seqpacket);
    for _ in 0..200 {
        client.send(b"ping", None, soon()).unwrap();
        server.recv(&mut [0; 8], soon()).unwrap();
    }
    assert!(!client.sends_directly());
    assert_eq!(passed(&site).1, 0);
}
