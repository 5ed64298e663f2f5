//! Checks of a group with a member on each node: joining, the four ways to send, answers, leaving.

use crossway_tipc_client::{Errno, Event, Group, Message, Socket, SocketKind};

use super::{Part, bytes, soon};

/// Number of broadcasts in each direction, more than a member's window.
const BROADCASTS: u32 = 200;

fn joined(part: &Part<'_>, instance: u32) -> Socket {
    let socket = part.socket(SocketKind::Rdm);
    socket.join(Group { member_events: true, ..Group::new(part.service, instance) }).unwrap();
    socket
}

/// Receives the next message from the other member, whose instance is `from`.
fn next(socket: &Socket, from: u32, buf: &mut [u8]) -> Message {
    let message = socket.recv_message(buf, soon()).unwrap();
    assert_eq!(message.member, Some(from), "{message:?}");
    message
}

fn broadcast(socket: &Socket) {
    for n in 0..BROADCASTS {
        socket.send(&bytes(n as usize * 15 + 1, n), None, soon()).unwrap();
    }
    socket.send(&bytes(66_000, 1), None, soon()).unwrap();
}

fn heard(socket: &Socket, from: u32, buf: &mut [u8]) {
    for n in 0..BROADCASTS {
        let got = next(socket, from, buf);
        assert_eq!((got.event, got.len), (Event::Data, n as usize * 15 + 1));
        assert!(buf[..got.len] == bytes(got.len, n));
    }
    let got = next(socket, from, buf);
    assert!(buf[..got.len] == bytes(66_000, 1));
}

/// Runs the first member: waits for the other one, receives from it in all four ways, answers each message immediately,
/// and leaves.
pub(super) fn first(part: &Part<'_>) {
    let socket = joined(part, 1);
    let mut buf = vec![0; 66_000];
    let news = next(&socket, 2, &mut buf);
    assert_eq!(news.event, Event::MemberUp);
    heard(&socket, 2, &mut buf);
    for way in [&b"anycast"[..], b"multicast", b"unicast"] {
        let got = next(&socket, 2, &mut buf);
        assert_eq!((got.event, &buf[..got.len], got.from), (Event::Data, way, news.from));
    }
    broadcast(&socket);
    assert_eq!(next(&socket, 2, &mut buf).len, 4, "the other member has received all broadcasts");
    socket.leave().unwrap();
    assert_eq!(socket.send(b"x", None, soon()), Err(Errno::DESTADDRREQ), "no longer a member");
}

pub(super) fn second(part: &Part<'_>) {
    let socket = joined(part, 2);
    let mut buf = vec![0; 66_000];
    let news = next(&socket, 1, &mut buf);
    assert_eq!(news.event, Event::MemberUp);
    broadcast(&socket);
    socket.send(b"anycast", part.name(0), soon()).unwrap();
    socket.send(b"multicast", part.range(0, 1, 1), soon()).unwrap();
    socket.send(b"unicast", Some(news.from.into()), soon()).unwrap();
    heard(&socket, 1, &mut buf);
    socket.send(b"done", Some(news.from.into()), soon()).unwrap();
    let news = next(&socket, 1, &mut buf);
    assert_eq!(news.event, Event::MemberDown);
    assert_eq!(socket.send(b"x", part.name(0), soon()), Err(Errno::HOSTUNREACH), "nobody left");
}
