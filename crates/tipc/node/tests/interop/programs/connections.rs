//! Checks of connections between nodes: messages, a long stream, and all ways in which a connection can fail.

use crossway_tipc_client::{Errno, Event, Patience, SocketAddress, SocketKind};

use crate::on_lanes;

use super::{Part, bytes, is_readable, soon, until};

const BOTH: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];
const SIZES: [usize; 6] = [1, 1_400, 3_000, 14_000, 60_000, 66_000];
/// Number of bytes of a stream that takes more packets than there are sequence numbers.
const STREAM_BYTES: usize = 100_000_000;
/// Size of a single write in bytes. It is not a multiple of any packet size.
const WRITE: usize = 100_003;
/// Offset, from the check's first service, of the first RDM service for communication outside the connections.
const BESIDE: u32 = 5;

pub(super) fn answer(part: &Part<'_>) {
    let socket = part.accepted(SocketKind::Seqpacket, 0);
    let mut buf = vec![0; 66_000];
    loop {
        match socket.recv(&mut buf, soon()).unwrap() {
            // The peer shut the connection down.
            0 => break,
            len => assert_eq!(socket.send(&buf[..len], None, soon()), Ok(len)),
        }
    }
    assert_eq!(socket.send(b"late", None, soon()), Err(Errno::PIPE));
}

pub(super) fn ask(part: &Part<'_>) {
    let socket = part.connected(SocketKind::Seqpacket, 0);
    let mut buf = vec![0; 66_000];
    for (n, len) in (0..).zip(SIZES) {
        assert_eq!(socket.send(&bytes(len, n), None, soon()), Ok(len));
        assert_eq!(socket.recv(&mut buf, soon()), Ok(len));
        assert!(buf[..len] == bytes(len, n), "{len} bytes came back changed");
    }
    for n in 0..200 {
        socket.send(&bytes(3_000, n), None, soon()).unwrap();
        if n % 10 == 9 {
            for back in n - 9..=n {
                assert_eq!(socket.recv(&mut buf, soon()), Ok(3_000));
                assert!(buf[..3_000] == bytes(3_000, back));
            }
        }
    }
    socket.shutdown().unwrap();
}

pub(super) fn sink(part: &Part<'_>) {
    let socket = part.accepted(SocketKind::Stream, 0);
    let mut crc = crc32fast::Hasher::new();
    let (mut left, mut buf) = (STREAM_BYTES, vec![0; 1 << 16]);
    while left > 0 {
        let most = buf.len().min(left);
        let len = socket.recv(&mut buf[..most], soon()).unwrap();
        assert!(len > 0, "the stream ended with {left} bytes missing");
        crc.update(&buf[..len]);
        left -= len;
    }
    socket.send(&crc.finalize().to_be_bytes(), None, soon()).unwrap();
    assert_eq!(socket.recv(&mut buf, soon()), Ok(0), "the end");
}

pub(super) fn source(part: &Part<'_>) {
    let socket = part.connected(SocketKind::Stream, 0);
    let block = bytes(WRITE, part.service);
    let mut crc = crc32fast::Hasher::new();
    let mut left = STREAM_BYTES;
    while left > 0 {
        let mut rest = &block[..WRITE.min(left)];
        crc.update(rest);
        left -= rest.len();
        while !rest.is_empty() {
            let len = socket.send(rest, None, soon()).unwrap();
            rest = &rest[len..];
        }
    }
    let (mut answer, mut got) = ([0; 4], 0);
    while got < 4 {
        got += socket.recv(&mut answer[got..], soon()).unwrap();
    }
    assert_eq!(u32::from_be_bytes(answer), crc.finalize(), "the checksum of the other end");
    socket.shutdown().unwrap();
}

/// Number of bytes sent before the end. They are more than a window of messages of 1,000 bytes, each of which takes two
/// blocks.
const BEFORE_END: usize = 400_000;

/// Starts to read when the other end has already ended the connection.
pub(super) fn ended(part: &Part<'_>) {
    let mut buf = vec![0; 66_000];
    for (n, kind) in (0..).zip(BOTH) {
        let listener = part.bound(kind, n, 1, 1);
        for _ in 0..part.ends {
            let (socket, _) = listener.accept(soon()).unwrap();
            if part.lanes {
                on_lanes::begin(&socket, false);
            }
            // Allow time for the end to arrive too early.
            std::thread::sleep(std::time::Duration::from_millis(5));
            let mut got = 0;
            loop {
                match socket.recv(&mut buf, soon()).unwrap() {
                    0 => break,
                    len => got += len,
                }
            }
            assert_eq!(got, BEFORE_END, "{kind:?}");
        }
        eprintln!("    {kind:?}: {} orderly ends, no reset, lanes: {}", part.ends, part.lanes);
    }
}

pub(super) fn ender(part: &Part<'_>) {
    for (n, kind) in (0..).zip(BOTH) {
        part.server(n);
        for _ in 0..part.ends {
            let socket = part.socket(kind);
            socket.connect(part.name(n), soon()).unwrap();
            if part.lanes {
                on_lanes::begin(&socket, true);
            }
            for _ in 0..BEFORE_END / 1_000 {
                assert_eq!(socket.send(&[5; 1_000], None, soon()), Ok(1_000));
            }
            socket.shutdown().unwrap();
        }
    }
}

/// Runs the server of the check of refused requests and resets: for each kind of socket, a listening socket that is
/// closed with a request waiting, and a connection that is closed with unread data.
pub(super) fn refuser(part: &Part<'_>) {
    let mut buf = [0; 16];
    for (n, kind) in (0..).zip(BOTH) {
        let listener = part.bound(kind, n, 1, 1);
        let closed = part.bound(kind, 2 + n, 1, 1);
        let beside = part.bound(SocketKind::Rdm, BESIDE + n, 1, 1);
        assert_eq!(beside.recv(&mut buf, soon()), Ok(6), "refuse");
        until("the request", || is_readable(&closed));
        drop(closed);
        let (socket, _) = listener.accept(soon()).unwrap();
        socket.send(b"last words", None, soon()).unwrap();
        assert_eq!(beside.recv(&mut buf, soon()), Ok(5), "reset");
        until("the word", || is_readable(&socket));
        drop(socket);
        assert_eq!(beside.recv(&mut buf, soon()), Ok(4), "done");
    }
}

pub(super) fn refused(part: &Part<'_>) {
    let beside = part.socket(SocketKind::Rdm);
    let mut buf = [0; 16];
    for (n, kind) in (0..).zip(BOTH) {
        let server = part.server(BESIDE + n);
        let nobody = SocketAddress { port: 4_242, ..server };
        let socket = part.socket(kind);
        assert_eq!(socket.connect(Some(nobody.into()), soon()), Err(Errno::CONNREFUSED));
        assert_eq!(socket.send(b"x", None, soon()), Err(Errno::PIPE));
        let unknown = SocketAddress { node: server.node ^ 1, ..server };
        let socket = part.socket(kind);
        assert_eq!(socket.connect(Some(unknown.into()), soon()), Err(Errno::HOSTUNREACH));

        let waiting = part.socket(kind);
        let asked = waiting.connect(part.name(2 + n), Patience::Now);
        assert_eq!(asked, Err(Errno::INPROGRESS));
        beside.send(b"refuse", part.name(BESIDE + n), soon()).unwrap();
        until("the refusal", || is_readable(&waiting));
        assert_eq!(waiting.take_error(), Some(Errno::CONNREFUSED));

        let socket = part.connected(kind, n);
        assert_eq!(socket.peer_address().map(|at| at.node), Ok(server.node));
        socket.send(b"unread", None, soon()).unwrap();
        beside.send(b"reset", part.name(BESIDE + n), soon()).unwrap();
        assert_eq!(socket.recv(&mut buf, soon()), Ok(10), "data sent before the reset comes first");
        assert_eq!(socket.recv(&mut buf, soon()), Err(Errno::CONNRESET));
        assert_eq!(socket.send(b"x", None, soon()), Err(Errno::PIPE));
        beside.send(b"done", part.name(BESIDE + n), soon()).unwrap();
    }
}

pub(super) fn accepter(part: &Part<'_>) {
    let mut buf = vec![0; 66_000];
    for (n, kind) in (0..).zip(BOTH) {
        let socket = part.accepted(kind, n);
        for len in [60_000, 6] {
            let mut got = 0;
            while got < len {
                let message = socket.recv_message(&mut buf[got..len], soon()).unwrap();
                assert_eq!(message.event, Event::Data);
                got += message.len;
            }
            assert!(buf[..len] == bytes(len, n));
        }
        socket.send(b"welcome", None, soon()).unwrap();
        assert_eq!(socket.recv(&mut buf, soon()), Ok(0), "the end");
    }
}

pub(super) fn implied(part: &Part<'_>) {
    for (n, kind) in (0..).zip(BOTH) {
        part.server(n);
        let socket = part.socket(kind);
        assert_eq!(socket.send(&bytes(60_000, n), part.name(n), soon()), Ok(60_000));
        assert_eq!(socket.send(&bytes(6, n), part.name(n), soon()), Ok(6), "once connected");
        assert_eq!(socket.recv(&mut [0; 16], soon()), Ok(7));
        socket.shutdown().unwrap();
    }
}
