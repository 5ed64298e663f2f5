//! Streams whose directions end one by one.

use crossway_sys::socket;
use crossway_tipc_client::protocol::control::HALF_CLOSE;
use crossway_tipc_client::{Address, Errno, Patience, Scope, ServiceRange, Socket, SocketKind};

use crate::site::{Site, is_writable, soon, until};
use crate::two_nodes::two_sites;

/// A connection from a socket of one site to a socket of another, with the option at both ends.
fn connection(here: &Site, there: &Site) -> (Socket, Socket) {
    let listener = there.socket(SocketKind::Stream);
    listener.listen().unwrap();
    listener.bind(ServiceRange::single(2001, 1), Scope::Cluster).unwrap();
    let client = here.socket(SocketKind::Stream);
    let name = Some(Address::service(2001, 1));
    until("the name", || client.connect(name, Patience::Now) != Err(Errno::HOSTUNREACH));
    let (server, _) = listener.accept(soon()).unwrap();
    until("the answer", || is_writable(&client));
    for end in [&client, &server] {
        end.set_option_by_number(HALF_CLOSE, 1).unwrap();
    }
    (client, server)
}

/// Receives raw bytes until the end of the stream.
fn rest(socket: &Socket) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), vec![0; 50_000]);
    loop {
        match socket::recv(socket, &mut part, false).unwrap() {
            0 => return all,
            len => all.extend_from_slice(&part[..len]),
        }
    }
}

fn send_all(socket: &Socket, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += socket::send(socket, &bytes[sent..], false).unwrap();
    }
}

#[test]
fn a_half_that_ends_leaves_the_other_one_open() {
    let (one, two) = two_sites("96");
    let lone = Site::lone();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
    for (here, there) in [(&one, &two), (&lone, &lone)] {
        for first_is_client in [true, false] {
            let (client, server) = connection(here, there);
            let (first, second) =
                if first_is_client { (&client, &server) } else { (&server, &client) };
            std::thread::scope(|scope| {
                // More than all windows hold: the end waits behind it.
                scope.spawn(|| {
                    send_all(first, &bytes);
                    socket::shutdown_send(first);
                });
                // Something is on its way against it meanwhile.
                send_all(second, b"before");
                std::thread::sleep(std::time::Duration::from_millis(50));
                assert!(rest(second) == bytes);
            });
            // Long after its end, a program still gets what the other one sends, to the last byte.
            let answer = std::thread::scope(|scope| {
                scope.spawn(|| {
                    send_all(second, &bytes);
                    socket::shutdown_send(second);
                });
                rest(first)
            });
            assert!(answer.starts_with(b"before") && answer[6..] == bytes);
        }
    }
}

#[test]
fn without_the_option_a_half_is_the_whole() {
    let (here, there) = two_sites("97");
    let (client, server) = connection(&here, &there);
    for end in [&client, &server] {
        end.set_option_by_number(HALF_CLOSE, 0).unwrap();
    }
    send_all(&client, b"all");
    socket::shutdown_send(&client);
    assert_eq!(rest(&server), b"all");
    assert_eq!(rest(&client), b"", "nothing can come any more");
    let messages = here.socket(SocketKind::Seqpacket);
    assert_eq!(messages.set_option_by_number(HALF_CLOSE, 1), Err(Errno::NOPROTOOPT));
}

#[test]
fn a_program_that_dies_after_its_half_ends_the_other_one() {
    let (here, there) = two_sites("98");
    let (client, server) = connection(&here, &there);
    send_all(&client, b"last");
    socket::shutdown_send(&client);
    assert_eq!(rest(&server), b"last");
    send_all(&server, b"unread");
    drop(client);
    until("the end", || socket::send(&server, b"more", false).is_err());
}
