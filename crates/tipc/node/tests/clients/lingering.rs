//! Tests that data which a program sent before a close or shutdown is still sent on if there was no room for it, but
//! not for ever.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Instant;

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::proc;
use crossway_tipc_client::admin::{Administration, Order, Outcome};
use crossway_tipc_client::{Errno, ErrorCode, Event, NodeSocket, Patience, SocketKind};

use crate::lane_pair::{bound, node_socket, pair_with_lane, signal};
use crate::site::{Site, WATCHDOG, soon, until};

pub(crate) fn pair(site: &Site, kind: SocketKind) -> (NodeSocket, NodeSocket) {
    let (listener, name) = bound(site, kind);
    let client = node_socket(site, kind);
    assert_eq!(client.connect(Some(name), Patience::Now), Err(Errno::INPROGRESS));
    let server = listener.accept(soon()).unwrap().0;
    until("the connection", || client.peer_address().is_ok());
    (client, server)
}

/// Sends until there is no room. Returns the number of bytes sent.
pub(crate) fn fill(socket: &NodeSocket) -> usize {
    let mut sent = 0;
    // The tipcd also reads from the descriptor until TIPC's window is full; then nothing more is accepted.
    let mut refused = 0;
    while refused < 20 {
        match socket.send(&[5; 8_000], None, Patience::Now) {
            Ok(len) => (sent, refused) = (sent + len, 0),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                // Answered when it has read what it can.
                socket.report().unwrap();
                refused += 1;
            }
        }
    }
    sent
}

/// Returns a connection whose first end has sent until there was no room, and the number of bytes sent.
fn full(site: &Site, kind: SocketKind) -> (NodeSocket, NodeSocket, usize) {
    let (client, server) = pair(site, kind);
    let sent = fill(&client);
    assert!(sent > 500_000, "{sent}");
    (client, server, sent)
}

#[test]
fn data_sent_before_the_end_arrives_even_if_buffers_were_full() {
    for after in ["0", "1"] {
        let site = Site::with(&["--lane-after", after]);
        for (kind, shuts) in [
            (SocketKind::Seqpacket, false),
            (SocketKind::Seqpacket, true),
            (SocketKind::Stream, false),
            (SocketKind::Stream, true),
        ] {
            let (client, server, sent) = full(&site, kind);
            let kept = shuts.then(|| {
                client.shutdown().unwrap();
                assert_eq!(client.send(b"x", None, soon()), Err(Errno::PIPE));
                client
            });
            let (got, end) = rest(&server);
            assert_eq!(got, sent, "--lane-after {after}, {kind:?}, shut down: {shuts}");
            assert!(!shuts || end == ErrorCode::Shutdown, "{end:?}");
            drop(kept);
        }
    }
}

/// Reads to the end. Returns the number of bytes, and how the connection ended.
fn rest(socket: &NodeSocket) -> (usize, ErrorCode) {
    let (mut buf, mut got) = (vec![0; 66_000], 0);
    loop {
        let message = socket.recv_message(&mut buf, soon()).unwrap();
        match message.event {
            Event::Data => got += message.len,
            Event::End(code) => return (got, code),
            other => panic!("{other:?}"),
        }
    }
}

/// Tests that closing a socket after a shutdown does not turn the shutdown into a reset, even if there is no room for
/// either.
#[test]
fn a_connection_that_was_shut_down_and_closed_ends_in_good_order() {
    for after in ["0", "1"] {
        let site = Site::with(&["--lane-after", after]);
        for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
            let (client, server, sent) = full(&site, kind);
            client.shutdown().unwrap();
            drop(client);
            // Later requests are answered only after its end has been handled.
            server.local_address().unwrap();
            assert_eq!(rest(&server), (sent, ErrorCode::Shutdown), "{after} {kind:?}");
        }
    }
}

/// Tests a connection on which each end has sent until nothing more was accepted. One of them is closed; the other
/// continues to send before it reads.
#[test]
fn an_end_that_sends_before_it_reads_gets_all_data_before_the_end() {
    let site = Site::with(&["--lane-after", "0"]);
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        for shuts in [false, true] {
            let (client, server, sent) = full(&site, kind);
            let (there, told) = mpsc::channel();
            let sender = std::thread::spawn(move || {
                for n in 0..400 {
                    // Its peer does not read, so it blocks.
                    if server.send(&[6; 8_000], None, soon()) == Err(Errno::PIPE) {
                        break;
                    }
                    let _ = there.send(n);
                }
                rest(&server)
            });
            // There is never room for this many.
            while told.recv_timeout(WATCHDOG).unwrap() < 60 {}
            if shuts {
                client.shutdown().unwrap();
            }
            drop(client);
            let end = if shuts { ErrorCode::Shutdown } else { ErrorCode::NoPort };
            assert_eq!(sender.join().unwrap(), (sent, end), "{kind:?}");
        }
    }
}

/// Tests that no end receives an orderly shutdown if data is lost.
#[test]
fn what_is_given_up_ends_in_a_reset() {
    let site = Site::with(&["--linger", "100", "--lane-after", "0"]);
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        for closes in [false, true] {
            let (client, server, sent) = full(&site, kind);
            client.shutdown().unwrap();
            let client = (!closes).then_some(client);
            until("the end", || server.peer_address().is_err());
            let (got, end) = rest(&server);
            assert!(got < sent, "{got}");
            assert_eq!(end, ErrorCode::NoPort, "{kind:?}, closed: {closes}");
            drop(client);
        }
    }
}

#[test]
fn unread_data_is_kept_no_longer_than_the_time_to_linger() {
    let site = Site::with(&["--linger", "100"]);
    let sockets = || {
        let view = Administration::at(site.path()).unwrap().order(&Order::Node);
        let Ok(Outcome::Node(node)) = view else { panic!("{view:?}") };
        node.sockets
    };
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        let (client, server, _) = full(&site, kind);
        until("the listener's end", || sockets() == 2);
        drop(client);
        until("the client's end", || sockets() == 1);
        drop(server);
        until("the server's end", || sockets() == 0);
    }
}

/// Tests a program that closes a socket with unread data in its descriptor. The end is then reported to the tipcd as an
/// error, ahead of the data that the program sent.
#[test]
fn closing_with_unread_data_does_not_lose_sent_data() {
    let site = crate::lane_pair::site();
    let plain = Site::with(&["--lane-after", "0"]);
    for (kind, lane) in [
        (SocketKind::Seqpacket, true),
        (SocketKind::Stream, true),
        (SocketKind::Seqpacket, false),
        (SocketKind::Stream, false),
    ] {
        let site = if lane { &site } else { &plain };
        let (client, server) = if lane { pair_with_lane(site, kind) } else { pair(site, kind) };
        server.send(b"unread", None, soon()).unwrap();
        until("unread data in the descriptor", || {
            crossway_sys::socket::readable_bytes(client.as_fd()).unwrap() > 0
        });
        signal(site, "-STOP");
        for n in 0..100_u8 {
            assert_eq!(client.send(&[n], None, Patience::Now), Ok(1));
        }
        drop(client);
        signal(site, "-CONT");
        for n in 0..100_u8 {
            let mut byte = [0];
            assert_eq!(server.recv(&mut byte, soon()), Ok(1), "{kind:?}, {lane}, message {n}");
            assert_eq!(byte, [n], "{kind:?}");
        }
    }
}

/// Tests that a program that waits for an answer to its connection request is notified when the tipcd ends.
#[test]
fn a_connect_ends_with_its_tipcd() {
    let site = Site::lone();
    let (listener, name) = bound(&site, SocketKind::Stream);
    let client = node_socket(&site, SocketKind::Stream);
    let (told, outcome) = mpsc::channel();
    std::thread::spawn(move || told.send(client.connect(Some(name), Patience::Forever)));
    let asked = wait_ready(&listener, Interest::Readable, Some(Instant::now() + WATCHDOG));
    assert_eq!(asked, Ok(true));
    // Answered after the request, which is pending by then.
    listener.local_address().unwrap();
    let pid = site.tipcd().pid();
    proc::kill_exactly(pid, proc::started_ticks(pid).unwrap());
    let outcome = outcome.recv_timeout(WATCHDOG).expect("it continues to wait");
    assert_eq!(outcome, Err(Errno::NETDOWN));
}
