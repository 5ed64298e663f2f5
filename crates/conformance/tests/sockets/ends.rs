//! Tests how connections and messages end: what is returned, the order of reports, and the calls that a socket does not
//! support.

use std::time::{Duration, Instant};

use crossway_tipc_client::{
    Address, Errno, ErrorCode, Event, Patience, Scope, ServiceRange, Socket, SocketKind,
    SocketOption,
};

use crate::connections::pair;
use crate::site::{Site, is_readable, is_writable, soon, until};

const BOTH: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];
const SERVICE: Address = Address::service(1100, 1);
const NAMED: ServiceRange = ServiceRange::single(1100, 1);

fn listening(site: &Site, kind: SocketKind) -> Socket {
    let socket = site.socket(kind);
    socket.listen().unwrap();
    socket.bind(NAMED, Scope::Cluster).unwrap();
    socket
}

/// The two ends of a connection made through [`NAMED`], the client's first. No other socket of the site may be bound to
/// that name.
fn named_pair(site: &Site, kind: SocketKind) -> (Socket, Socket) {
    let listener = listening(site, kind);
    let client = site.socket(kind);
    assert_eq!(client.connect(Some(SERVICE), Patience::Now), Err(Errno::INPROGRESS));
    let (server, _) = listener.accept(soon()).unwrap();
    until("the answer", || is_writable(&client));
    (client, server)
}

#[test]
fn data_sent_before_a_shutdown_arrives_before_it() {
    for kind in BOTH {
        let site = Site::lone();
        for _ in 0..20 {
            let (client, server) = pair(&site, kind);
            // A request of another kind first, so that the path of its answer is ready when the
            // message arrives.
            client.local_address().unwrap();
            client.send(b"last words", None, soon()).unwrap();
            client.shutdown().unwrap();
            let mut buf = [0; 16];
            assert_eq!(server.recv(&mut buf, soon()), Ok(10), "{kind:?}");
            let end = server.recv_message(&mut buf, soon()).unwrap();
            assert_eq!((end.event, end.len), (Event::End(ErrorCode::Shutdown), 0));
        }
    }
}

#[test]
fn what_was_sent_comes_before_what_was_asked_through_another_socket() {
    let site = Site::lone();
    for _ in 0..20 {
        let server = site.socket(SocketKind::Rdm);
        server.bind(NAMED, Scope::Cluster).unwrap();
        let client = site.socket(SocketKind::Rdm);
        client.send(b"before", Some(SERVICE), soon()).unwrap();
        server.unbind(NAMED, Scope::Cluster).unwrap();
        assert_eq!(server.recv(&mut [0; 16], soon()), Ok(6));
    }
}

#[test]
fn a_connection_closed_with_something_unread_is_reset_with_the_first_of_it() {
    for kind in BOTH {
        let site = Site::lone();
        let (client, server) = pair(&site, kind);
        client.send(b"never read", None, soon()).unwrap();
        client.send(b"nor this", None, soon()).unwrap();
        until("the messages", || is_readable(&server));
        drop(server);
        let mut buf = [0; 2000];
        until("the reset", || is_readable(&client));
        let end = client.recv_message(&mut buf, soon()).unwrap();
        assert_eq!(end.event, Event::End(ErrorCode::NoPort), "{kind:?}");
        // With a stream, only a kernel that merges no messages could tell where it was cut off.
        if kind == SocketKind::Seqpacket {
            assert_eq!(&buf[..end.len], b"never read");
        }
        assert_eq!(client.send(b"x", None, Patience::Now), Err(Errno::PIPE));
    }
}

#[test]
fn a_reset_is_reported_by_every_plain_receive() {
    let site = Site::lone();
    let (client, server) = pair(&site, SocketKind::Seqpacket);
    client.send(b"never read", None, soon()).unwrap();
    until("the message", || is_readable(&server));
    drop(server);
    for _ in 0..3 {
        assert_eq!(client.recv(&mut [0; 100], soon()), Err(Errno::CONNRESET));
    }
}

#[test]
fn connections_tell_the_service_they_were_made_through() {
    for kind in BOTH {
        let site = Site::lone();
        let (client, server) = named_pair(&site, kind);
        let mut buf = [0; 16];
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.send(b"x", None, soon()).unwrap();
            let got = to.recv_message(&mut buf, soon()).unwrap();
            assert_eq!((got.event, got.service), (Event::Data, Some(NAMED)), "{kind:?}");
            assert_eq!(got.from, from.local_address().unwrap());
        }
    }
}

#[test]
fn a_message_without_connection_does_not_reach_a_listener() {
    let site = Site::lone();
    let listener = listening(&site, SocketKind::Seqpacket);
    let client = site.socket(SocketKind::Rdm);
    client.set_option(SocketOption::DestinationDroppable, 0).unwrap();
    client.send(b"hello", Some(SERVICE), soon()).unwrap();
    let back = client.recv_message(&mut [0; 16], soon()).unwrap();
    assert_eq!((back.event, back.len), (Event::Returned(ErrorCode::NoPort), 5));
    assert!(!is_readable(&listener));
    // A caller that does not ask for control data gets nothing.
    client.send(b"again", Some(SERVICE), soon()).unwrap();
    assert_eq!(client.recv(&mut [0; 16], soon()), Ok(0));
}

#[test]
fn a_request_to_a_socket_without_connections_is_not_answered() {
    let site = Site::lone();
    let server = site.socket(SocketKind::Rdm);
    server.bind(NAMED, Scope::Cluster).unwrap();
    for kind in BOTH {
        let client = site.socket(kind);
        client.set_option(SocketOption::ConnectTimeout, 60).unwrap();
        assert_eq!(client.connect(Some(SERVICE), Patience::Forever), Err(Errno::TIMEDOUT));
    }
    assert_eq!(server.recv(&mut [0; 16], Patience::Now), Err(Errno::AGAIN));
}

#[test]
fn a_default_destination_can_be_a_range_and_be_forgotten() {
    let site = Site::lone();
    // Two bindings of one socket count as one receiver.
    let servers: Vec<_> = (0..2).map(|_| site.socket(SocketKind::Dgram)).collect();
    for server in &servers {
        for lower in [1, 5] {
            let range = ServiceRange { service: 1100, lower, upper: lower + 2 };
            server.bind(range, Scope::Node).unwrap();
        }
    }
    let client = site.socket(SocketKind::Dgram);
    let all = ServiceRange { service: 1100, lower: 0, upper: 9 };
    client.connect(Some(all.into()), Patience::Forever).unwrap();
    client.send(b"all", None, soon()).unwrap();
    for server in &servers {
        assert_eq!(server.recv(&mut [0; 16], soon()), Ok(3));
        assert!(!is_readable(server), "once");
    }
    client.connect(None, Patience::Forever).unwrap();
    assert_eq!(client.send(b"x", None, Patience::Now), Err(Errno::DESTADDRREQ));
}

#[test]
fn importance_makes_room() {
    let site = Site::lone();
    let server = site.socket(SocketKind::Rdm);
    server.bind(NAMED, Scope::Cluster).unwrap();
    let client = site.socket(SocketKind::Rdm);
    client.set_option(SocketOption::Importance, 2).unwrap();
    client.set_option(SocketOption::DestinationDroppable, 0).unwrap();
    // Twice the room for the lowest importance.
    let message = vec![3; 60_000];
    for _ in 0..66 {
        client.send(&message, Some(SERVICE), soon()).unwrap();
    }
    let mut buf = vec![0; 66_000];
    for _ in 0..66 {
        assert_eq!(server.recv(&mut buf, soon()), Ok(60_000));
    }
    assert!(!is_readable(&client), "nothing came back");
}

#[test]
fn waiting_messages_are_counted() {
    let site = Site::lone();
    let server = site.socket(SocketKind::Rdm);
    server.bind(NAMED, Scope::Cluster).unwrap();
    let client = site.socket(SocketKind::Rdm);
    for _ in 0..5 {
        client.send(&[1; 100], Some(SERVICE), soon()).unwrap();
    }
    until("the messages", || server.option(SocketOption::ReceiveQueueDepth) == Ok(5));
    // The kernel counts its own overhead with the bytes.
    assert!(server.option(SocketOption::ReceiveQueueUsed).unwrap() >= 500);
    server.recv(&mut [0; 200], soon()).unwrap();
    assert_eq!(server.option(SocketOption::ReceiveQueueDepth), Ok(4));
    for _ in 0..4 {
        server.recv(&mut [0; 200], soon()).unwrap();
    }
    assert_eq!(
        (
            server.option(SocketOption::ReceiveQueueDepth),
            server.option(SocketOption::ReceiveQueueUsed)
        ),
        (Ok(0), Ok(0))
    );
}

#[test]
fn deadlines_end_waiting_where_there_is_nothing() {
    let site = Site::lone();
    let (client, _server) = pair(&site, SocketKind::Seqpacket);
    let rdm = site.socket(SocketKind::Rdm);
    for socket in [&client, &rdm] {
        let begin = Instant::now();
        let patience = Patience::Until(begin + Duration::from_millis(30));
        assert_eq!(socket.recv(&mut [0; 4], patience), Err(Errno::AGAIN));
        assert!(begin.elapsed() >= Duration::from_millis(30));
    }
}

#[test]
fn a_socket_cannot_be_its_own_peer() {
    for kind in BOTH {
        let site = Site::lone();
        let socket = site.socket(kind);
        let own = socket.local_address().unwrap();
        let outcome = socket.connect(Some(own.into()), Patience::Forever);
        assert_eq!(outcome, Err(Errno::CONNREFUSED), "{kind:?}");
    }
}
