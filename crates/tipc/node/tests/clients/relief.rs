//! Tests a program that cannot send because its peer does not read, while the peer's data fills the program's
//! descriptor. The program may be unable to read before its send returns. The tipcd therefore accepts the data that the
//! program has written, once for each time that the program reads, within limits.

use crossway_tipc_client::{Errno, NodeSocket, Patience, SocketKind};

use crate::lingering::{fill, pair};
use crate::site::{Site, soon};

/// Limit of the bytes that the tipcd of these tests keeps for a socket.
const QUEUE: usize = 2 << 20;
/// Number of bytes that descriptors, lanes and the window of one direction cannot hold.
const ON_ITS_WAY: usize = 3 << 20;

/// Reads everything available. Returns the number of bytes.
fn drain(socket: &NodeSocket) -> usize {
    let (mut buf, mut bytes) = (vec![0; 66_000], 0);
    loop {
        match socket.recv(&mut buf, Patience::Now) {
            Ok(len) => bytes += len,
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                return bytes;
            }
        }
    }
}

fn relieves(site: &Site, kind: SocketKind) {
    let (one, other) = pair(site, kind);
    let (mut sent, mut back) = (fill(&one), fill(&other));
    assert_eq!(fill(&other), 0, "{kind:?}: a program that has not read is relieved once");
    // The data sent by the other end filled this one's descriptor.
    let relieved = fill(&one);
    assert!(relieved > 0, "{kind:?}: is not relieved");
    assert_eq!(fill(&one), 0, "{kind:?}: a program that has not read is relieved once");
    sent += relieved;
    let (mut read, mut rounds) = (0, 0);
    loop {
        let part = drain(&one);
        assert!(part > 0, "{kind:?}: nothing to read in round {rounds}");
        read += part;
        back += fill(&other);
        let relieved = fill(&one);
        sent += relieved;
        if relieved == 0 {
            break;
        }
        rounds += 1;
        assert!(sent < QUEUE + ON_ITS_WAY, "{kind:?}: {sent} bytes in {rounds} rounds");
    }
    assert!(rounds > 1, "{kind:?}: a program that reads is relieved again");
    // None of it is lost.
    let mut buf = vec![0; 66_000];
    for (socket, left) in [(&other, sent), (&one, back - read)] {
        let mut left = left;
        while left > 0 {
            left -= socket.recv(&mut buf, soon()).unwrap();
        }
        assert_eq!(socket.recv(&mut buf, Patience::Now), Err(Errno::AGAIN), "{kind:?}");
    }
}

#[test]
fn a_sender_that_waits_for_room_continues_whenever_it_has_read() {
    for after in ["0", "1"] {
        let site = Site::with(&["--lane-after", after, "--queue", &QUEUE.to_string()]);
        for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
            relieves(&site, kind);
        }
    }
}
