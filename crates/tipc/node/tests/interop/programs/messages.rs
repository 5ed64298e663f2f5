//! Checks of messages between nodes without a connection: intact at all sizes, in large numbers, multicast, and
//! undeliverable.

use crossway_tipc_client::{ErrorCode, Event, SocketAddress, SocketKind, SocketOption};

use super::{Part, bytes, is_readable, soon};

const SIZES: [usize; 7] = [1, 100, 1_400, 1_429, 5_000, 20_000, 66_000];
/// Number of messages in flight at the same time.
const BURST: u32 = 300;
/// Offset, from a check's first service, of a service whose socket does not read and is closed on request.
const DEAF: u32 = 1;
/// Offset of a service whose socket does not read, so that its queue fills up.
const FULL: u32 = 2;
/// Maximum payload length of a returned message in bytes.
const RETURNED: usize = 1_024;

/// Returns every message to its sender, until a message tells it to stop.
pub(super) fn echo(part: &Part<'_>) {
    let socket = part.bound(SocketKind::Rdm, 0, 1, 1);
    let mut buf = vec![0; 66_000];
    loop {
        let message = socket.recv_message(&mut buf, soon()).unwrap();
        let at_name = message.service.map(|range| (range.service, range.lower, range.upper));
        assert_eq!((message.event, at_name), (Event::Data, Some((part.service, 1, 1))));
        socket.send(&buf[..message.len], Some(message.from.into()), soon()).unwrap();
        if &buf[..message.len] == b"enough" {
            return;
        }
    }
}

pub(super) fn call(part: &Part<'_>) {
    let server = part.server(0);
    let socket = part.socket(SocketKind::Rdm);
    let mut buf = vec![0; 66_000];
    for (n, len) in (0..).zip(SIZES) {
        let sent = bytes(len, n);
        socket.send(&sent, part.name(0), soon()).unwrap();
        let got = socket.recv_message(&mut buf, soon()).unwrap();
        assert!(
            got.event == Event::Data && buf[..got.len] == sent,
            "a message of {len} bytes was changed"
        );
        assert_eq!((got.from, got.service), (server, None));
    }
    for n in 0..BURST {
        socket.send(&bytes(n as usize * 9 + 1, n), part.name(0), soon()).unwrap();
    }
    for n in 0..BURST {
        let len = socket.recv(&mut buf, soon()).unwrap();
        assert!(buf[..len] == bytes(n as usize * 9 + 1, n), "message {n} of the burst");
    }
    socket.send(b"enough", part.name(0), soon()).unwrap();
    assert_eq!(socket.recv(&mut buf, soon()), Ok(6));
}

/// A range, the number of bytes sent to it, and the members that it reaches.
type Round = ((u32, u32), usize, &'static [usize]);
const ROUNDS: [Round; 6] = [
    ((0, 99), 5, &[0, 1, 2]),
    ((45, 45), 1_000, &[0, 1, 2]),
    ((50, 55), 20_000, &[1, 2]),
    ((0, 39), 66_000, &[0]),
    ((61, 200), 66_000, &[1]),
    ((0, 99), 3_000, &[0, 1, 2]),
];

/// The multicast methods to test: the node's own choice, then each explicit method.
const WAYS: [Option<SocketOption>; 3] =
    [None, Some(SocketOption::MulticastReplicast), Some(SocketOption::MulticastBroadcast)];

/// Receives multicasts on three sockets that are bound to overlapping ranges of a service, and answers each one.
pub(super) fn members(part: &Part<'_>) {
    let sockets = [(0, 49), (40, 99), (40, 60)].map(|(l, u)| part.bound(SocketKind::Rdm, 1, l, u));
    // The socket that the client waits for is bound last.
    let done = part.bound(SocketKind::Rdm, 0, 1, 1);
    let mut buf = vec![0; 66_000];
    let rounds = WAYS.iter().flat_map(|_| (0..).zip(ROUNDS));
    for (round, (range, len, reached)) in rounds {
        for &member in reached {
            let got = sockets[member].recv_message(&mut buf, soon()).unwrap();
            assert!(buf[..got.len] == bytes(len, round), "round {round}");
            let at = got.service.map(|range| (range.lower, range.upper));
            assert_eq!(at, Some(range), "the range as sent");
            sockets[member].send(b"got it", Some(got.from.into()), soon()).unwrap();
        }
    }
    assert_eq!(done.recv(&mut buf, soon()), Ok(4));
    assert!(!sockets.iter().any(is_readable), "each message arrives only once");
}

pub(super) fn multicast(part: &Part<'_>) {
    part.server(0);
    let mut buf = [0; 16];
    for way in WAYS {
        let socket = part.socket(SocketKind::Rdm);
        if let Some(way) = way {
            socket.set_option(way, 0).unwrap();
        }
        for (round, ((lower, upper), len, reached)) in (0..).zip(ROUNDS) {
            socket.send(&bytes(len, round), part.range(1, lower, upper), soon()).unwrap();
            for _ in reached {
                assert_eq!(socket.recv(&mut buf, soon()), Ok(6));
            }
        }
    }
    part.socket(SocketKind::Rdm).send(b"done", part.name(0), soon()).unwrap();
}

/// Binds two sockets and never reads from them. One is closed on request, the other one's queue fills up.
pub(super) fn deaf(part: &Part<'_>) {
    let deaf = part.bound(SocketKind::Rdm, DEAF, 1, 1);
    let _full = part.bound(SocketKind::Rdm, FULL, 1, 1);
    let control = part.bound(SocketKind::Rdm, 0, 1, 1);
    let mut buf = [0; 16];
    assert_eq!(control.recv(&mut buf, soon()), Ok(5));
    drop(deaf);
    assert_eq!(control.recv(&mut buf, soon()), Ok(6));
}

pub(super) fn returned(part: &Part<'_>) {
    let server = part.server(0);
    let socket = part.socket(SocketKind::Rdm);
    socket.set_option(SocketOption::DestinationDroppable, 0).unwrap();
    let mut buf = vec![0; 66_000];
    let mut back = |what: &[u8], from: SocketAddress, why: ErrorCode| {
        let got = socket.recv_message(&mut buf, soon()).unwrap();
        assert_eq!((got.event, got.from, got.len), (Event::Returned(why), from, what.len()));
        assert!(buf[..got.len] == *what);
    };
    // The socket does not exist: the beginning of the message is returned.
    let nobody = SocketAddress { port: 4_242, ..server };
    for len in [1, 1_000, 3_000, 66_000] {
        let sent = bytes(len, 7);
        socket.send(&sent, Some(nobody.into()), soon()).unwrap();
        back(&sent[..len.min(RETURNED)], nobody, ErrorCode::NoPort);
    }
    // A socket that is closed before it has read.
    let deaf = part.server(DEAF);
    for message in [&b"first"[..], b"second", b"third"] {
        socket.send(message, part.name(DEAF), soon()).unwrap();
    }
    socket.send(b"close", part.name(0), soon()).unwrap();
    for message in [&b"first"[..], b"second", b"third"] {
        back(message, deaf, ErrorCode::NoPort);
    }
    // A socket that reads too late.
    let full = part.server(FULL);
    let sent = bytes(60_000, 8);
    for _ in 0..60 {
        socket.send(&sent, part.name(FULL), soon()).unwrap();
    }
    back(&sent[..RETURNED], full, ErrorCode::Overload);
    // Other returned messages cannot be distinguished from the last ones.
    let control = part.socket(SocketKind::Rdm);
    control.send(b"enough", part.name(0), soon()).unwrap();
}
