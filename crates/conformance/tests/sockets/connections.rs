//! Tests SEQPACKET and STREAM sockets: set-up, flow control, the end of connections.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossway_tipc_client::{
    Address, Errno, ErrorCode, Event, Patience, Scope, ServiceRange, Socket, SocketKind,
    SocketOption,
};

use crate::site::{Site, is_readable, is_writable, on_kernel, soon, until};

const BOTH: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];
const SERVICE: Address = Address::service(1000, 1);

fn listening(site: &Site, kind: SocketKind) -> Socket {
    let socket = site.socket(kind);
    socket.listen().unwrap();
    socket.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    socket
}

/// Two ends of a connection, the connecting one first.
pub(crate) fn pair(site: &Site, kind: SocketKind) -> (Socket, Socket) {
    // A closed listener stays bound as long as a process that another test has just forked holds it, so each has its
    // own name.
    static NEXT: AtomicU32 = AtomicU32::new(2);
    let instance = NEXT.fetch_add(1, Ordering::Relaxed);
    let listener = site.socket(kind);
    listener.listen().unwrap();
    listener.bind(ServiceRange::single(1000, instance), Scope::Cluster).unwrap();
    let client = site.socket(kind);
    let service = Address::service(1000, instance);
    assert_eq!(client.connect(Some(service), Patience::Now), Err(Errno::INPROGRESS));
    let (server, from) = listener.accept(soon()).unwrap();
    assert_eq!(from, client.local_address().unwrap());
    until("the answer", || is_writable(&client));
    (client, server)
}

#[test]
fn polling_is_correct_while_a_connection_is_made() {
    for kind in BOTH {
        let site = Site::lone();
        let listener = site.socket(kind);
        assert!(is_writable(&listener) && !is_readable(&listener), "fresh");
        listener.listen().unwrap();
        listener.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
        assert!(!is_writable(&listener) && !is_readable(&listener), "an idle listener");
        let client = site.socket(kind);
        let nobody = Some(Address::service(1099, 1));
        assert_eq!(client.connect(nobody, Patience::Now), Err(Errno::HOSTUNREACH));
        assert_eq!(client.connect(Some(SERVICE), Patience::Now), Err(Errno::INPROGRESS));
        assert!(!is_writable(&client) && !is_readable(&client), "connecting");
        assert_eq!(client.connect(Some(SERVICE), Patience::Now), Err(Errno::ALREADY));
        assert_eq!(client.send(b"x", None, Patience::Now), Err(Errno::NOTCONN));
        assert_eq!(client.recv(&mut [0; 4], Patience::Now), Err(Errno::AGAIN));
        until("the request", || is_readable(&listener));
        let (server, _) = listener.accept(Patience::Now).unwrap();
        assert_eq!(listener.accept(Patience::Now).map(drop), Err(Errno::AGAIN));
        until("the answer", || is_writable(&client));
        assert_eq!(client.take_error(), None);
        assert!(!is_readable(&client));
        assert_eq!(client.connect(Some(SERVICE), Patience::Now), Err(Errno::ISCONN));
        assert_eq!(client.peer_address(), server.local_address());
        assert_eq!(server.peer_address(), client.local_address());
        client.send(b"ping", None, soon()).unwrap();
        let mut buf = [0; 8];
        assert_eq!(server.recv(&mut buf, soon()), Ok(4));
        server.send(b"pong", None, soon()).unwrap();
        assert_eq!(client.recv(&mut buf, soon()), Ok(4));
        assert!(!is_readable(&client) && is_writable(&client));
    }
}

#[test]
fn errors_are_the_kernels() {
    for kind in BOTH {
        let site = Site::lone();
        let socket = site.socket(kind);
        let connect = |socket: &Socket, to| socket.connect(Some(to), soon());
        assert_eq!(connect(&socket, Address::service(2000, 1)), Err(Errno::HOSTUNREACH));
        let range = ServiceRange { service: 1000, lower: 1, upper: 2 };
        assert_eq!(connect(&socket, range.into()), Err(Errno::INVAL));
        assert_eq!(socket.connect(None, soon()), Err(Errno::INVAL));
        assert!(is_writable(&socket), "a failed attempt leaves it unchanged");
        assert_eq!(socket.accept(Patience::Now).map(drop), Err(Errno::INVAL));
        assert_eq!(socket.send(b"x", None, Patience::Now), Err(Errno::NOTCONN));
        assert_eq!(socket.recv(&mut [0; 4], Patience::Now), Err(Errno::NOTCONN));
        assert_eq!(socket.shutdown(), Err(Errno::NOTCONN));
        // No socket listens at that port: the connection is refused, with and without waiting.
        let idle = site.socket(kind);
        let port = idle.local_address().unwrap().into();
        assert_eq!(connect(&socket, port), Err(Errno::CONNREFUSED));
        assert_eq!(socket.send(b"x", None, Patience::Now), Err(Errno::PIPE));
        let other = site.socket(kind);
        assert_eq!(other.connect(Some(port), Patience::Now), Err(Errno::INPROGRESS));
        until("the refusal", || is_readable(&other) && is_writable(&other));
        assert_eq!(other.take_error(), Some(Errno::CONNREFUSED));
        assert_eq!(other.take_error(), None, "reported only once");
        let listener = listening(&site, kind);
        assert_eq!(listener.listen(), Err(Errno::INVAL));
        assert_eq!(connect(&listener, SERVICE), Err(Errno::INVAL));
        assert_eq!(listener.accept(Patience::Now).map(drop), Err(Errno::AGAIN));
        let begin = Instant::now();
        let until = Patience::Until(begin + Duration::from_millis(30));
        assert_eq!(listener.accept(until).map(drop), Err(Errno::AGAIN));
        assert!(begin.elapsed() >= Duration::from_millis(30));
        let bound = site.socket(kind);
        bound.bind(ServiceRange::single(1001, 1), Scope::Cluster).unwrap();
        assert_eq!(connect(&bound, SERVICE), Err(Errno::OPNOTSUPP));
    }
}

#[test]
fn a_connection_that_nobody_accepts_times_out_and_can_be_tried_again() {
    for kind in BOTH {
        let site = Site::lone();
        let listener = listening(&site, kind);
        let client = site.socket(kind);
        client.set_option(SocketOption::ConnectTimeout, 60).unwrap();
        assert_eq!(client.connect(Some(SERVICE), Patience::Forever), Err(Errno::TIMEDOUT));
        assert!(!is_writable(&client) && !is_readable(&client));
        assert_eq!(client.send(b"x", None, Patience::Now), Err(Errno::NOTCONN));
        client.set_option(SocketOption::ConnectTimeout, 8000).unwrap();
        // The kernel's socket is still connecting, the node's starts a new request.
        let again = client.connect(Some(SERVICE), Patience::Now);
        assert!(matches!(again, Err(Errno::INPROGRESS | Errno::ALREADY)), "{again:?}");
        // The first request is stale, but the listener cannot know that.
        let mut accepted = Vec::new();
        until("the answer", || {
            accepted.extend(listener.accept(Patience::Now));
            is_writable(&client)
        });
        client.send(b"now", None, soon()).unwrap();
        // The answer to the first request also serves the second, which comes from the same port.
        let (server, _) = accepted.first().unwrap();
        assert_eq!(server.recv(&mut [0; 8], soon()), Ok(3));
    }
}

#[test]
fn a_request_may_carry_the_first_message() {
    for kind in BOTH {
        let site = Site::lone();
        let listener = listening(&site, kind);
        let client = site.socket(kind);
        assert_eq!(client.send(b"first", Some(SERVICE), Patience::Now), Ok(5));
        let (server, _) = listener.accept(soon()).unwrap();
        let mut buf = [0; 16];
        assert_eq!(server.recv(&mut buf, soon()), Ok(5));
        assert_eq!(&buf[..5], b"first");
        until("the answer", || is_writable(&client));
        assert_eq!(client.send(b"second", Some(SERVICE), soon()), Ok(6), "the address is ignored");
        assert_eq!(server.recv(&mut buf, soon()), Ok(6));
    }
}

#[test]
fn a_full_connection_blocks_until_the_peer_reads() {
    for kind in BOTH {
        let site = Site::lone();
        let (client, server) = pair(&site, kind);
        let message = [7; 1000];
        let (mut sent, mut refusals) = (0, 0);
        // The window is full only if neither waiting nor forwarding of everything sent before helps; the tipcd answers
        // a request only after that. A busy machine may delay the tipcd for longer than one wait.
        while refusals < 3 {
            let brief = Patience::Until(Instant::now() + Duration::from_millis(20));
            match client.send(&message, None, brief) {
                Ok(len) => (sent, refusals) = (sent + len, 0),
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    client.local_address().unwrap();
                    refusals += 1;
                }
            }
            assert!(sent < 64 << 20, "the window does not fill up");
        }
        assert!(sent >= 65 * 1000, "{sent}");
        assert!(!is_writable(&client));
        assert_eq!(client.send(&message, None, Patience::Now), Err(Errno::AGAIN));
        let sender = std::thread::spawn(move || {
            let len = client.send(&message, None, Patience::Forever);
            (client, len)
        });
        let mut received = 0;
        let mut buf = [0; 1000];
        while received < sent {
            let len = server.recv(&mut buf, soon()).unwrap();
            assert!(buf[..len].iter().all(|&byte| byte == 7));
            received += len;
        }
        let (client, len) = sender.join().unwrap();
        assert_eq!(len, Ok(1000));
        while received < sent + 1000 {
            received += server.recv(&mut buf, soon()).unwrap();
        }
        until("room", || is_writable(&client));
        assert!(!is_readable(&server));
    }
}

#[test]
fn a_shut_connection_gives_what_was_sent_and_then_its_end() {
    for kind in BOTH {
        let site = Site::lone();
        let (client, server) = pair(&site, kind);
        client.send(b"last words", None, soon()).unwrap();
        client.shutdown().unwrap();
        client.shutdown().unwrap();
        assert_eq!(client.send(b"x", None, Patience::Now), Err(Errno::PIPE));
        assert_eq!(client.recv(&mut [0; 4], Patience::Forever), Err(Errno::NOTCONN));
        assert_eq!(client.recv(&mut [0; 4], Patience::Now), Err(Errno::AGAIN));
        let mut buf = [0; 16];
        assert_eq!(server.recv(&mut buf, soon()), Ok(10));
        assert_eq!(server.recv(&mut buf, soon()), Ok(0));
        // The kernel reports it once and then waits for ever.
        if !on_kernel() {
            let end = server.recv_message(&mut buf, Patience::Now).unwrap();
            assert_eq!(end.event, Event::End(ErrorCode::Shutdown));
        }
        assert_eq!(server.send(b"x", None, Patience::Now), Err(Errno::PIPE));
        assert!(is_readable(&server), "the end stays readable");
    }
}

#[test]
fn a_closed_connection_is_reset_after_what_was_sent() {
    for kind in BOTH {
        let site = Site::lone();
        let (client, server) = pair(&site, kind);
        client.send(b"last words", None, soon()).unwrap();
        drop(client);
        let mut buf = [0; 16];
        assert_eq!(server.recv(&mut buf, soon()), Ok(10));
        assert_eq!(server.recv(&mut buf, soon()), Err(Errno::CONNRESET));
        assert_eq!(server.recv(&mut buf, Patience::Now), Err(Errno::CONNRESET));
        assert_eq!(server.send(b"x", None, Patience::Now), Err(Errno::PIPE));
        assert_eq!(server.peer_address(), Err(Errno::NOTCONN));
    }
}

#[test]
fn a_connection_that_ends_as_soon_as_it_is_made_was_made() {
    const TRIES: usize = 30;
    for kind in BOTH {
        // A closed listener stays bound as long as a process that another test has just forked holds it.
        let site = Site::lone();
        let listener = listening(&site, kind);
        std::thread::scope(|scope| {
            let clients = scope.spawn(|| {
                for n in 0..TRIES {
                    let client = site.socket(kind);
                    assert_eq!(client.connect(Some(SERVICE), soon()), Ok(()));
                    let mut buf = [0; 8];
                    if n % 2 == 0 {
                        assert_eq!(client.recv(&mut buf, soon()), Ok(3));
                    }
                    assert_eq!(client.recv(&mut buf, soon()), Err(Errno::CONNRESET));
                }
            });
            for n in 0..TRIES {
                let (server, _) = listener.accept(soon()).unwrap();
                if n % 2 == 0 {
                    server.send(b"bye", None, soon()).unwrap();
                }
            }
            clients.join().unwrap();
        });
    }
}

#[test]
fn a_closed_listener_refuses_waiting_connections() {
    for kind in BOTH {
        let site = Site::lone();
        let listener = listening(&site, kind);
        // More connections than the tipcd passes to the listener at a time.
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let client = site.socket(kind);
                assert_eq!(client.connect(Some(SERVICE), Patience::Now), Err(Errno::INPROGRESS));
                client
            })
            .collect();
        until("the requests", || is_readable(&listener));
        drop(listener);
        for client in waiting {
            until("the refusal", || is_readable(&client));
            assert_eq!(client.take_error(), Some(Errno::CONNREFUSED));
        }
    }
}

#[test]
fn ten_megabytes_arrive_byte_by_byte() {
    for kind in BOTH {
        let site = Site::lone();
        let (client, server) = pair(&site, kind);
        let total = 10 << 20;
        let pattern = |n: usize| (n.wrapping_mul(2_654_435_761) >> 13) as u8;
        let sender = std::thread::spawn(move || {
            let (mut sent, mut size) = (0, 1);
            while sent < total {
                let len = size.min(total - sent);
                let message: Vec<u8> = (sent..sent + len).map(pattern).collect();
                let mut part = 0;
                while part < len {
                    part += client.send(&message[part..], None, Patience::Forever).unwrap();
                }
                sent += len;
                size = size * 5 % 66_000 + 1;
            }
            client
        });
        let (mut received, mut buf) = (0, vec![0; 66_000]);
        while received < total {
            let len = server.recv(&mut buf, soon()).unwrap();
            assert!(buf[..len].iter().zip(received..).all(|(byte, n)| *byte == pattern(n)));
            received += len;
        }
        drop(sender.join().unwrap());
        assert_eq!(server.recv(&mut buf, soon()), Err(Errno::CONNRESET));
    }
}

#[test]
fn many_connections_at_once_find_their_ways() {
    let site = Site::lone();
    let listener = listening(&site, SocketKind::Seqpacket);
    let clients: Vec<_> = (0..100).map(|_| site.socket(SocketKind::Seqpacket)).collect();
    for client in &clients {
        assert_eq!(client.connect(Some(SERVICE), Patience::Now), Err(Errno::INPROGRESS));
    }
    let servers: Vec<_> = clients.iter().map(|_| listener.accept(soon()).unwrap()).collect();
    for (n, client) in (0_u32..).zip(&clients) {
        until("the answer", || is_writable(client));
        client.send(&n.to_le_bytes(), None, soon()).unwrap();
    }
    for (server, from) in &servers {
        let mut buf = [0; 8];
        server.recv(&mut buf, soon()).unwrap();
        let n = u32::from_le_bytes([buf[0], buf[1], buf[2], buf[3]]);
        assert_eq!(clients[n as usize].local_address().unwrap(), *from);
    }
}
