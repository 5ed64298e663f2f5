//! Fuzz target for encrypted frames: whatever arrives at a node with keys is refused, or comes from a node that has the
//! key; the cipher is a weak one, so that the fuzzer finds both.
#![no_main]

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crossway_tipc_proto::crypto::{KeyOwner, Keyring, NONCE_LEN, SecretKey, Suite, TAG_LEN};
use crossway_tipc_proto::node::{BearerConfig, Config, Node};
use crossway_tipc_proto::time::Nanos;
use libfuzzer_sys::fuzz_target;

/// A tag is genuine if its first byte is the key's, and nothing is encrypted.
#[derive(Debug)]
struct Weak;

impl Suite for Weak {
    type Key = u8;

    fn prepare(&self, key: &[u8]) -> u8 {
        key[0]
    }

    fn seal(key: &u8, _: &[u8; NONCE_LEN], _: &[u8], _: &mut [u8]) -> [u8; TAG_LEN] {
        [*key; TAG_LEN]
    }

    fn open(key: &u8, _: &[u8; NONCE_LEN], _: &[u8], _: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        tag[0] == *key
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let own = NodeId::from_text("own").expect("legal");
    let mut node =
        Node::new(Config { id: Some(own), addr: Some(NodeAddr(1)), ..Config::default() });
    let media = MediaAddr::Ethernet([2, 0, 0, 0, 0, 1]);
    let _ = node.enable_bearer(Nanos(0), BearerConfig::new("eth0", media, 1_468));
    let mut ring = Keyring::new(Weak);
    let key = |n| SecretKey::new(&[n; 20]).expect("legal");
    let _ = ring.set_key(Nanos(0), Some(own), key(7), KeyOwner::Master);
    let _ = ring.set_key(Nanos(0), Some(own), key(9), KeyOwner::Cluster);
    let mut now = Nanos(1);
    let mut out = Vec::new();
    // Each frame is preceded by its length, and by the time that passes before it.
    let mut rest = bytes;
    while let [len, time, after @ ..] = rest {
        let (frame, next) = after.split_at(usize::from(*len).min(after.len()));
        rest = next;
        now.0 += u64::from(*time) * 50_000_000;
        let mut frame = frame.to_vec();
        match ring.open(now, &node, &mut frame) {
            Ok((frame, true)) => node.handle_sealed(now, BearerId(0), None, frame),
            Ok((_, false)) => panic!("a plain frame was accepted"),
            Err(reason) => node.refuse_frame(now, BearerId(0), None, reason),
        }
        while let Some((from, key)) = node.poll_key() {
            let _ = ring.take_key(from, &key);
        }
        node.handle_timeout(now);
        ring.handle_timeout(now);
        while let Some(key) = ring.poll_distribution() {
            node.send_key(&key);
        }
        while let Some(transmit) = node.poll_transmit(now, &mut out) {
            for way in ring.ways(now, transmit.peer, &out) {
                let crossway_tipc_proto::crypto::Way::Sealed(slot) = way else {
                    panic!("a plain frame was sent");
                };
                ring.seal(slot, transmit.peer, &mut out.clone());
            }
        }
    }
});
