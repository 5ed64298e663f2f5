//! A frame that a kernel (6.1.176) encrypted with a cluster key, decrypted with AES-GCM.

use std::fmt::Write as _;

use aes_gcm::aead::array::Array;
use aes_gcm::{AeadInOut, Aes128Gcm, KeyInit};
use crossway_tipc_proto::addr::NodeId;
use crossway_tipc_proto::crypto::{Header, KeyOwner, Keyring, SecretKey, Sender, Suite};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::{Config, Node};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::{DiscoveryKind, Frame};

const KEY: &[u8] = b"a-128-bit-key-+-salt";

/// A discovery request of the node `in-the-kernel`.
const FRAME: &str = "fa400000000000000000005569 6e2d7468652d6b65726e656c000000\
    49d75ce984d2558d9ee88ef500d95928412f3130f01f8633eaad2235a250422a00fa0360c9f7d1dfcecddb1bc5e7a0df\
    6d021699d0f75f6d5e526eb2159e5618822d108f50f9f7e584fd6624d70b9d0f5f923a5d12d9a5a6925217b8";

/// AES-128-GCM, and random numbers that are none.
#[derive(Debug)]
struct Gcm;

impl Suite for Gcm {
    type Key = Cipher;

    fn prepare(&self, key: &[u8]) -> Cipher {
        Cipher(Aes128Gcm::new(&Array(key.try_into().expect("16 bytes"))))
    }

    fn seal(key: &Cipher, nonce: &[u8; 12], header: &[u8], text: &mut [u8]) -> [u8; 16] {
        key.0.encrypt_inout_detached(&Array(*nonce), header, text.into()).unwrap().0
    }

    fn open(
        key: &Cipher,
        nonce: &[u8; 12],
        header: &[u8],
        text: &mut [u8],
        tag: &[u8; 16],
    ) -> bool {
        let (nonce, tag) = (Array(*nonce), Array(*tag));
        key.0.decrypt_inout_detached(&nonce, header, text.into(), &tag).is_ok()
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

struct Cipher(Aes128Gcm);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

fn frame() -> Vec<u8> {
    let digits: Vec<u8> = FRAME.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn keyring() -> Keyring<Gcm> {
    let mut ring = Keyring::new(Gcm);
    ring.set_key(Nanos(0), None, SecretKey::new(KEY).unwrap(), KeyOwner::Cluster).unwrap();
    ring
}

#[test]
fn a_kernels_frame_is_decrypted_once() {
    let (mut ring, node) = (keyring(), Node::new(Config::default()));
    let mut bytes = frame();
    let kernel = NodeId::from_text("in-the-kernel").unwrap();
    let (header, len) = Header::decode(&bytes).unwrap();
    assert_eq!((header.sender, header.number, len), (Sender::Id(kernel), 0x55, 28));
    assert_eq!(header.encode()[..], bytes[..28], "the header is written as the kernel does");
    let (text, sealed) = ring.open(Nanos(1), &node, &mut bytes).unwrap();
    assert!(sealed);
    let Ok(Frame::Discovery(request)) = Frame::decode(text) else { panic!("{text:02x?}") };
    assert_eq!((request.kind, request.id), (DiscoveryKind::Request, kernel));
    let again = ring.open(Nanos(2), &node, &mut frame()).map(drop);
    assert_eq!(again, Err(DropReason::Replayed));
}

#[test]
fn a_kernels_frame_with_any_bit_flipped_or_any_byte_missing_is_refused() {
    let node = Node::new(Config::default());
    let whole = frame();
    let mut reasons = std::collections::BTreeMap::new();
    let mut refused = |mut bytes: Vec<u8>, what: usize| {
        let reason = keyring().open(Nanos(1), &node, &mut bytes).map(drop).unwrap_err();
        let mut name = String::new();
        write!(name, "{reason:?}").unwrap();
        reasons.entry(name).or_insert_with(Vec::new).push(what);
    };
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused(bytes, bit);
    }
    (0..whole.len()).for_each(|len| refused(whole[..len].to_vec(), len));
    assert!(reasons["NotGenuine"].len() > 900, "{reasons:?}");
}

#[test]
fn what_a_keyring_encrypts_another_one_with_the_key_decrypts() {
    let node = Node::new(Config::default());
    let (mut ours, mut theirs) = (keyring(), keyring());
    let mut plain = frame();
    let plain = ours.open(Nanos(1), &node, &mut plain).unwrap().0.to_vec();
    let mut sealed = plain.clone();
    assert!(ours.seal(1, None, &mut sealed));
    assert_eq!(sealed.len(), plain.len() + 28 + 16);
    assert_eq!(theirs.open(Nanos(1), &node, &mut sealed).unwrap(), (&plain[..], true));
    assert!(!ours.seal(2, None, &mut plain.clone()), "there is no such key");
}
