//! Tests frames that are protected by an AEAD. Nodes with the same key make contact, nothing on the medium is readable,
//! and frames that are not authentic are dropped.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce};
use crossway_tipc_node::{BearerSpec, Guard, Runner};
use crossway_tipc_proto::addr::{NodeAddr, NodeId, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::node::{Config, Event};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::Frame;

const WATCHDOG: Duration = Duration::from_secs(120);
const NONCE_LEN: usize = 12;

/// AES-GCM. The nonce consists of the sender's number and a counter, and is sent in clear.
struct Sealed {
    cipher: Aes128Gcm,
    sender: u32,
    count: u64,
    buffer: Vec<u8>,
}

impl Sealed {
    fn new(key: u8, sender: u32) -> Self {
        let cipher = Aes128Gcm::new(&[key; 16].into());
        Self { cipher, sender, count: 0, buffer: Vec::new() }
    }
}

impl Guard for Sealed {
    const OVERHEAD: usize = NONCE_LEN + 16;

    fn seal(&mut self, frame: &mut Vec<u8>) -> bool {
        self.count += 1;
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&self.sender.to_be_bytes());
        nonce[4..].copy_from_slice(&self.count.to_be_bytes());
        let Ok(sealed) = self.cipher.encrypt(&Nonce::from(nonce), &frame[..]) else { return false };
        frame.clear();
        frame.extend_from_slice(&nonce);
        frame.extend_from_slice(&sealed);
        true
    }

    fn open<'a>(&'a mut self, packet: &'a mut [u8]) -> Option<&'a [u8]> {
        let (nonce, sealed) = packet.split_at_checked(NONCE_LEN)?;
        let nonce: [u8; NONCE_LEN] = nonce.try_into().ok()?;
        self.buffer = self.cipher.decrypt(&Nonce::from(nonce), sealed).ok()?;
        Some(&self.buffer)
    }
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn runner(number: u32, key: u8, own: u16, others: &[u16]) -> Runner<Sealed> {
    let id = NodeId::from_text(&format!("node-{number}"));
    let cfg = Config { id, addr: Some(NodeAddr(number)), seed: number.into(), ..Config::default() };
    let mut runner = Runner::guarded(cfg, Sealed::new(key, number)).unwrap();
    let mut spec = format!("udp:127.0.0.1:{own}");
    for other in others {
        spec += &format!(",127.0.0.1:{other}");
    }
    let spec: BearerSpec = spec.parse().unwrap();
    runner.enable(&spec, "udp0").unwrap();
    runner
}

#[test]
fn nodes_meet_behind_their_key_and_the_medium_shows_nothing() {
    let (a, b, c) = (free_port(), free_port(), free_port());
    // Listens where the frames are sent, and sends data that is not a frame.
    let eavesdropper = UdpSocket::bind("127.0.0.1:0").unwrap();
    eavesdropper.set_nonblocking(true).unwrap();
    let ear = eavesdropper.local_addr().unwrap().port();
    let mut one = runner(1, 7, a, &[b, c, ear]);
    let mut two = runner(2, 7, b, &[a, c, ear]);
    let mut stranger = runner(3, 8, c, &[a, b]);
    let range = ServiceRange::single(1000, 1);
    let sink = one.node().open(SocketKind::Rdm).unwrap();
    one.node().bind(sink, range, Scope::Cluster).unwrap();
    let source = two.node().open(SocketKind::Rdm).unwrap();
    let payload = vec![0x5a; 30_000];
    let (start, mut sent, mut heard) = (Instant::now(), false, 0);
    let got = loop {
        for runner in [&mut one, &mut two, &mut stranger] {
            runner.turn(Duration::from_millis(1)).unwrap();
        }
        while let Some(event) = two.poll_event() {
            if matches!(event, Event::Published(b) if b.range == range) && !sent {
                let dest = Address::Socket(SocketAddr { port: sink, node: NodeAddr(1) });
                two.node().send(Nanos(0), source, Some(dest), &payload).unwrap();
                sent = true;
            }
        }
        while one.poll_event().is_some() {}
        while let Some(event) = stranger.poll_event() {
            assert!(!matches!(event, Event::LinkUp { .. }), "a node without the key made contact");
        }
        let mut packet = [0; 65_536];
        while let Ok((len, from)) = eavesdropper.recv_from(&mut packet) {
            heard += 1;
            assert!(Frame::decode(&packet[..len]).is_err(), "a frame can be read");
            assert!(!packet[..len].windows(6).any(|w| w == b"node-1" || w == b"node-2"));
            eavesdropper.send_to(&packet[..len.min(40)], from).unwrap();
        }
        if let Ok(message) = one.node().recv(Nanos(0), sink, 70_000) {
            break message;
        }
        assert!(start.elapsed() < WATCHDOG, "the message did not arrive: {:?}", two.node());
    };
    assert_eq!(got.payload, payload);
    assert!(heard > 0, "no frames were captured");
    assert!(one.not_genuine() > 0, "altered and foreign packets were accepted");
    assert!(one.node().peers().all(|p| p.addr == NodeAddr(2)), "only the node with the key");
    let most = one.node().peers().map(|p| p.links[0].mtu).max();
    assert!(
        most.unwrap() <= 14_000 - Sealed::OVERHEAD,
        "packets must leave room for the guard's overhead: {most:?}"
    );
}
