//! What made the TIPC of kernels fail, replayed against this node: each test is a row of the table in
//! docs/TIPC-CONFORMANCE.md and names the vulnerability. Tests are compiled with overflow checks. The facts come from the public descriptions.

mod bindings;
mod calls;
mod frames;
mod lifetimes;

use core::time::Duration;
use std::cell::RefCell;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::wire::LinkFields;
use crossway_tipc_sim::{HostId, Network};

/// The node under attack, the node whose frames are replaced, and an honest one.
const A: HostId = HostId(0);
const B: HostId = HostId(1);
const C: HostId = HostId(2);

/// Largest frame of the medium, in bytes.
const MTU: usize = 9_000;

/// Marks the messages of B that are replaced on their way by what follows the mark.
const MARK: &[u8] = b"\0replaced by:\0";

thread_local! {
    /// What replaces the body of the STATE messages from B to A.
    static BODY: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// User of a frame or message, and its type.
fn kind(frame: &[u8]) -> (u8, u8) {
    (frame[0] >> 1 & 15, frame[4] >> 5)
}

fn meddle(to: HostId, frame: &mut Vec<u8>) {
    if to != A {
        return;
    }
    if let Some(at) = frame.windows(MARK.len()).position(|bytes| bytes == MARK) {
        let mut message = frame.split_off(at + MARK.len());
        // The link's own fields stay, so that the message is the next one of the link.
        message[6..16].copy_from_slice(&frame[6..16]);
        *frame = message;
    } else if kind(frame) == (7, 0) && frame[12..16] == 0x1001_u32.to_be_bytes() {
        BODY.with_borrow(|body| {
            let Some(body) = body else { return };
            frame.truncate(40);
            frame.extend_from_slice(body);
            let size = frame.len() as u32;
            let word = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
            frame[..4].copy_from_slice(&(word & !0x1_ffff | size).to_be_bytes());
        });
    }
}

/// Three nodes in contact, and a socket of B that sends what replaces its messages to a socket of A.
struct Attack {
    net: Network,
    from: Port,
    to: SocketAddr,
}

impl Attack {
    fn new() -> Self {
        let mut net = Network::new(1, 3, MTU, Duration::from_millis(1500));
        BODY.set(None);
        net.meddler = Some(meddle);
        for host in [A, B, C] {
            net.start(host, false);
        }
        net.run(Duration::from_secs(3));
        let open = |net: &mut Network, host| {
            net.with(host, |node, _| node.open(SocketKind::Rdm)).unwrap().unwrap()
        };
        let (from, to) = (open(&mut net, B), open(&mut net, A));
        let to = SocketAddr { port: to, node: net.addr(A) };
        Self { net, from, to }
    }

    /// Makes a message, with header and body, the next one that A receives from B on their link.
    fn deliver(&mut self, message: &[u8]) {
        let payload = [MARK, message].concat();
        let (from, to) = (self.from, Some(Address::Socket(self.to)));
        // Contact may just be coming back.
        while self.net.with(B, |node, now| node.send(now, from, to, &payload)).unwrap().is_err() {
            self.net.run(Duration::from_millis(100));
        }
        self.net.run(Duration::from_millis(1));
    }

    /// Lets B's supervision carry this body for a time.
    fn supervise(&mut self, body: &[u8], time: Duration) {
        BODY.set(Some(body.to_vec()));
        self.net.run(time);
        BODY.set(None);
    }

    fn drops(&mut self, reason: DropReason) -> u64 {
        self.net.with(A, |node, _| node.drops().get(reason)).unwrap()
    }

    /// Checks that A is well: the link to C never failed, contact with B exists or returns, messages of both arrive, and no
    /// timer stays due.
    fn check(&mut self) {
        self.net.run(Duration::from_secs(3));
        let links = |net: &mut Network, from, to| {
            let to = net.addr(to);
            net.with(from, |node, _| {
                let peer = node.peers().find(|peer| peer.addr == to).unwrap();
                (peer.links[0].state, peer.links[0].stats.ups)
            })
            .unwrap()
        };
        assert_eq!(links(&mut self.net, A, C), (LinkState::Established, 1), "the honest link");
        assert_eq!(links(&mut self.net, C, A), (LinkState::Established, 1), "the honest link");
        assert_eq!(links(&mut self.net, A, B).0, LinkState::Established);
        let range = ServiceRange::single(60_000, 1);
        let server = self.net.with(A, |node, _| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, range, Scope::Cluster).unwrap();
            port
        });
        let server = server.unwrap();
        self.net.run(Duration::from_millis(200));
        let dest = Address::Service { service: 60_000, instance: 1, domain: NodeAddr(0) };
        for (host, text) in [(B, b"from B"), (C, b"from C")] {
            self.net.with(host, |node, now| {
                let port = node.open(SocketKind::Rdm).unwrap();
                node.send(now, port, Some(dest), text).unwrap();
            });
            self.net.run(Duration::from_millis(200));
            let got = self.net.with(A, |node, now| node.recv(now, server, 100)).unwrap().unwrap();
            assert_eq!(got.payload, text);
        }
        self.net.with(A, |node, now| {
            node.close(now, server).unwrap();
            node.handle_timeout(now);
            assert!(node.poll_timeout().is_none_or(|due| due > now), "a timer stays due");
            assert!(node.held_bytes() < 1 << 20, "{} bytes are held", node.held_bytes());
        });
    }
}

/// A message of a user and a type, with a header of `header` bytes, of which some words are given.
fn message(
    (user, kind): (u32, u32),
    header: usize,
    words: &[(usize, u32)],
    body: &[u8],
) -> Vec<u8> {
    let mut all = vec![0_u32; header / 4];
    all[0] = 2 << 29 | user << 25 | (header as u32 / 4) << 21 | (header + body.len()) as u32;
    all[1] = kind << 29;
    for (n, word) in words {
        all[*n] |= word;
    }
    let head = all.into_iter().flat_map(u32::to_be_bytes);
    head.chain(body.iter().copied()).collect()
}

/// What `encode` makes of the fields of a link from B.
fn encoded(encode: impl FnOnce(&LinkFields, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&LinkFields { sender: NodeAddr(0x1001), ..LinkFields::default() }, &mut out);
    out
}
