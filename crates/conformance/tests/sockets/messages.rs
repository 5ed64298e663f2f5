//! Tests RDM and DGRAM sockets: anycast, multicast, returned messages, errors.

use crossway_tipc_client::{
    Address, Errno, ErrorCode, Event, Patience, Scope, ServiceRange, Socket, SocketKind,
    SocketOption,
};

use crate::site::{Site, is_readable, is_writable, soon, until};

fn bound(site: &Site, kind: SocketKind, service: u32, lower: u32, upper: u32) -> Socket {
    let socket = site.socket(kind);
    socket.bind(ServiceRange { service, lower, upper }, Scope::Cluster).unwrap();
    socket
}

#[test]
fn messages_go_to_a_service_and_back_to_a_socket() {
    for kind in [SocketKind::Rdm, SocketKind::Dgram] {
        let site = Site::lone();
        let server = bound(&site, kind, 1000, 5, 9);
        let client = site.socket(kind);
        assert!(is_writable(&client) && !is_readable(&client));
        let to = Address::service(1000, 7);
        assert_eq!(client.send(b"hello", Some(to), Patience::Forever), Ok(5));
        let mut buf = [0; 100];
        let message = server.recv_message(&mut buf, soon()).unwrap();
        assert_eq!((message.event, &buf[..message.len]), (Event::Data, &b"hello"[..]));
        assert_eq!(message.service, Some(ServiceRange::single(1000, 7)), "as it was addressed");
        assert_eq!(message.from, client.local_address().unwrap());
        server.send(b"welcome", Some(message.from.into()), Patience::Forever).unwrap();
        let message = client.recv_message(&mut buf, soon()).unwrap();
        assert_eq!((message.service, &buf[..message.len]), (None, &b"welcome"[..]));
        assert_eq!(client.recv(&mut buf, Patience::Now), Err(Errno::AGAIN));
        assert!(!is_readable(&client));
    }
}

#[test]
fn sizes_up_to_the_largest_arrive_whole_and_small_buffers_cut() {
    let site = Site::lone();
    let server = bound(&site, SocketKind::Rdm, 1000, 1, 1);
    let client = site.socket(SocketKind::Rdm);
    client.connect(Some(Address::service(1000, 1)), Patience::Forever).unwrap();
    let mut buf = vec![0; 70_000];
    for len in [1, 63, 64, 1500, 16_384, 65_536, 66_000] {
        let message: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
        client.send(&message, None, Patience::Forever).unwrap();
        assert_eq!(server.recv(&mut buf, soon()), Ok(len));
        assert!(buf[..len] == message);
    }
    assert_eq!(client.send(&buf[..66_001], None, Patience::Forever), Err(Errno::MSGSIZE));
    client.send(b"0123456789", None, Patience::Forever).unwrap();
    let peeked = server.peek(&mut buf, soon()).unwrap();
    assert_eq!((peeked.len, peeked.truncated), (10, false));
    let cut = server.recv_message(&mut buf[..4], soon()).unwrap();
    assert_eq!((cut.len, cut.truncated, &buf[..4]), (4, true, &b"0123"[..]));
    assert_eq!(server.recv(&mut [], Patience::Now), Err(Errno::INVAL));
    // The empty message is accepted and not delivered.
    assert_eq!(client.send(b"", None, Patience::Forever), Ok(0));
    client.send(b"after", None, Patience::Forever).unwrap();
    assert_eq!(server.recv(&mut buf, soon()), Ok(5));
}

#[test]
fn a_burst_arrives_whole_and_in_order() {
    let site = Site::lone();
    let server = bound(&site, SocketKind::Rdm, 1000, 1, 1);
    let client = site.socket(SocketKind::Rdm);
    let to = Some(Address::service(1000, 1));
    let (count, window) = (20_000_u32, 500);
    let mut buf = [0; 64];
    let mut received = 0;
    for n in 0..count {
        client.send(&n.to_le_bytes(), to, Patience::Forever).unwrap();
        // A window of the application itself, because a full receiver would reject messages.
        while n + 1 - received >= window || n + 1 == count && received < count {
            assert_eq!(server.recv(&mut buf, soon()), Ok(4));
            assert_eq!(buf[..4], received.to_le_bytes());
            received += 1;
        }
    }
}

#[test]
fn a_range_reaches_everyone_and_an_instance_each_in_turn() {
    let site = Site::lone();
    let servers: Vec<_> = (0..3).map(|_| bound(&site, SocketKind::Rdm, 1000, 1, 10)).collect();
    let client = site.socket(SocketKind::Rdm);
    let mut buf = [0; 16];
    let range = ServiceRange { service: 1000, lower: 3, upper: 4 };
    client.send(b"all", Some(range.into()), Patience::Forever).unwrap();
    for server in &servers {
        let message = server.recv_message(&mut buf, soon()).unwrap();
        assert_eq!(message.service, Some(range), "the range as sent");
    }
    for _ in 0..6 {
        client.send(b"one", Some(Address::service(1000, 3)), Patience::Forever).unwrap();
    }
    for server in &servers {
        for _ in 0..2 {
            assert_eq!(server.recv(&mut buf, soon()), Ok(3));
        }
        assert!(!is_readable(server));
    }
}

#[test]
fn errors_are_the_kernels() {
    let site = Site::lone();
    let socket = site.socket(SocketKind::Rdm);
    let now = Patience::Now;
    assert_eq!(socket.send(b"x", None, now), Err(Errno::DESTADDRREQ));
    let nobody = Address::service(2000, 1);
    assert_eq!(socket.send(b"x", Some(nobody), now), Err(Errno::HOSTUNREACH));
    let nobody = ServiceRange { service: 2000, lower: 1, upper: 2 };
    assert_eq!(socket.send(b"x", Some(nobody.into()), now), Err(Errno::HOSTUNREACH));
    let lost = crossway_tipc_client::SocketAddress { port: 5, node: 0x0100_1009 };
    assert_eq!(socket.send(b"x", Some(lost.into()), now), Err(Errno::HOSTUNREACH));
    let range = |service, lower, upper| ServiceRange { service, lower, upper };
    assert_eq!(socket.bind(range(63, 1, 1), Scope::Cluster), Err(Errno::ACCESS));
    assert_eq!(socket.bind(range(70, 2, 1), Scope::Cluster), Err(Errno::INVAL));
    assert_eq!(socket.unbind(range(70, 1, 2), Scope::Cluster), Ok(()), "nothing is bound");
    let own = Address::Socket(socket.local_address().unwrap()).encode();
    assert_eq!(socket.bind_raw(&own), Err(Errno::AFNOSUPPORT));
    assert_eq!(socket.bind_raw(&[0; 16]), Err(Errno::INVAL));
    socket.bind(range(70, 1, 2), Scope::Cluster).unwrap();
    socket.bind(range(70, 1, 2), Scope::Cluster).unwrap();
    assert_eq!(socket.unbind(range(70, 1, 2), Scope::Node), Err(Errno::INVAL), "other scope");
    assert_eq!(socket.unbind(range(70, 1, 3), Scope::Cluster), Err(Errno::INVAL));
    socket.unbind(range(70, 1, 2), Scope::Cluster).unwrap();
    socket.unbind_all().unwrap();
    socket.unbind_all().unwrap();
    assert_eq!(socket.listen(), Err(Errno::OPNOTSUPP));
    assert_eq!(socket.accept(now).map(drop), Err(Errno::OPNOTSUPP));
    assert_eq!(socket.shutdown(), Err(Errno::NOTCONN));
    assert_eq!(socket.peer_address(), Err(Errno::NOTCONN));
    // A closed port of a reachable node is not an error of the call.
    let dead = crossway_tipc_client::SocketAddress { port: 5, node: 0 };
    assert_eq!(socket.send(b"x", Some(dead.into()), now), Ok(1));
}

#[test]
fn options_have_the_kernels_defaults_and_bounds() {
    let site = Site::lone();
    for (kind, src, dest) in [
        (SocketKind::Rdm, 0, 1),
        (SocketKind::Dgram, 1, 1),
        (SocketKind::Seqpacket, 0, 0),
        (SocketKind::Stream, 0, 0),
    ] {
        let socket = site.socket(kind);
        assert_eq!(socket.option(SocketOption::Importance), Ok(0));
        assert_eq!(socket.option(SocketOption::DestinationDroppable), Ok(dest));
        assert_eq!(socket.option(SocketOption::ConnectTimeout), Ok(8000));
        assert_eq!(
            (
                socket.option(SocketOption::NodeReceiveQueueDepth),
                socket.option(SocketOption::ReceiveQueueDepth),
                socket.option(SocketOption::ReceiveQueueUsed)
            ),
            (Ok(0), Ok(0), Ok(0))
        );
        assert_eq!(socket.option(SocketOption::MulticastBroadcast), Err(Errno::INVAL));
        assert_eq!(socket.option_by_number(9999), Err(Errno::INVAL));
        assert_eq!(socket.set_option(SocketOption::Importance, 4), Err(Errno::INVAL));
        assert_eq!(socket.set_option(SocketOption::ReceiveQueueDepth, 1), Err(Errno::INVAL));
        if kind == SocketKind::Stream {
            assert_eq!(socket.set_option(SocketOption::SourceDroppable, 1), Err(Errno::NOPROTOOPT));
        } else {
            assert_eq!(socket.option(SocketOption::SourceDroppable), Ok(src));
        }
        assert_eq!(socket.set_option(SocketOption::NoDelay, 1), Ok(()));
        for (name, value) in [
            (SocketOption::Importance, 3),
            (SocketOption::DestinationDroppable, 1 - dest),
            (SocketOption::ConnectTimeout, 2000),
        ] {
            socket.set_option(name, value).unwrap();
            assert_eq!(socket.option(name), Ok(value));
        }
    }
}

#[test]
fn an_unreachable_destination_is_noticed_again_after_it_was_reachable() {
    let site = Site::lone();
    let client = site.socket(SocketKind::Rdm);
    let to = Some(Address::service(1000, 1));
    for _ in 0..3 {
        assert_eq!(client.send(b"x", to, Patience::Forever), Err(Errno::HOSTUNREACH));
        let server = bound(&site, SocketKind::Rdm, 1000, 1, 1);
        assert_eq!(client.send(b"x", to, Patience::Forever), Ok(1));
        assert_eq!(server.recv(&mut [0; 4], soon()), Ok(1));
        drop(server);
        until("the withdrawal", || client.send(b"x", to, Patience::Now) == Err(Errno::HOSTUNREACH));
    }
}

#[test]
fn unread_messages_are_returned_if_requested() {
    let site = Site::lone();
    let client = site.socket(SocketKind::Rdm);
    client.set_option(SocketOption::DestinationDroppable, 0).unwrap();
    let server = bound(&site, SocketKind::Rdm, 1000, 1, 1);
    let to = Some(Address::service(1000, 1));
    for message in [&b"first"[..], b"second", b"third"] {
        client.send(message, to, Patience::Forever).unwrap();
    }
    let mut buf = [0; 2000];
    assert_eq!(server.recv(&mut buf, soon()), Ok(5), "a message that was read is not returned");
    assert_eq!(
        server.peek(&mut buf, soon()).unwrap().len,
        6,
        "a message that was only peeked at is returned"
    );
    let gone = server.local_address().unwrap();
    drop(server);
    for message in [&b"second"[..], b"third"] {
        let back = client.recv_message(&mut buf, soon()).unwrap();
        assert_eq!(back.event, Event::Returned(ErrorCode::NoPort));
        assert_eq!((&buf[..back.len], back.from), (message, gone));
    }
    // To a port that no longer exists; the returned message is cut to the maximum length.
    client.send(&[7; 3000], Some(gone.into()), Patience::Forever).unwrap();
    let back = client.recv_message(&mut buf, soon()).unwrap();
    assert_eq!((back.event, back.len), (Event::Returned(ErrorCode::NoPort), 1024));
    assert!(!is_readable(&client));
}

#[test]
fn a_full_receiver_returns_overload() {
    let site = Site::lone();
    let client = site.socket(SocketKind::Rdm);
    client.set_option(SocketOption::DestinationDroppable, 0).unwrap();
    let server = bound(&site, SocketKind::Rdm, 1000, 1, 1);
    let to = Some(Address::service(1000, 1));
    let message = vec![1; 60_000];
    // 2 MiB wait in the node, plus what the descriptor holds.
    for _ in 0..60 {
        client.send(&message, to, Patience::Forever).unwrap();
    }
    let mut buf = vec![0; 66_000];
    let back = client.recv_message(&mut buf, soon()).unwrap();
    assert_eq!(back.event, Event::Returned(ErrorCode::Overload));
    for _ in 0..31 {
        assert_eq!(server.recv(&mut buf, soon()), Ok(60_000));
    }
}
