//! A cipher for simulations: fast and repeatable, and of no use against anybody.

use crossway_tipc_proto::crypto::{NONCE_LEN, Suite, TAG_LEN};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Combines a state with a number.
const fn mix(state: u64, with: u64) -> u64 {
    let mut z = (state ^ with).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 32
}

fn hash(from: u64, bytes: &[u8]) -> u64 {
    let len = bytes.len() as u64;
    bytes.chunks(8).fold(mix(from, len), |state, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(state, u64::from_ne_bytes(word))
    })
}

/// Keyed hashes in place of a cipher, and repeatable random numbers.
#[derive(Debug)]
pub struct Toy(Pcg64Mcg);

impl Toy {
    /// A suite whose random numbers follow from this seed.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    fn tag(key: u64, nonce: &[u8; NONCE_LEN], header: &[u8], sealed: &[u8]) -> [u8; TAG_LEN] {
        let start = hash(hash(key, nonce), header);
        let mut tag = [0; TAG_LEN];
        tag[..8].copy_from_slice(&hash(start, sealed).to_be_bytes());
        tag[8..].copy_from_slice(&hash(!start, sealed).to_be_bytes());
        tag
    }

    fn cover(key: u64, nonce: &[u8; NONCE_LEN], text: &mut [u8]) {
        let start = hash(!key, nonce);
        for (n, chunk) in text.chunks_mut(8).enumerate() {
            let stream = mix(start, n as u64).to_be_bytes();
            chunk.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
        }
    }
}

impl Suite for Toy {
    type Key = u64;

    fn prepare(&self, key: &[u8]) -> u64 {
        hash(1, key)
    }

    fn seal(key: &u64, nonce: &[u8; NONCE_LEN], header: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        Self::cover(*key, nonce, text);
        Self::tag(*key, nonce, header, text)
    }

    fn open(
        key: &u64,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let is_genuine = Self::tag(*key, nonce, header, text) == *tag;
        if is_genuine {
            Self::cover(*key, nonce, text);
        }
        is_genuine
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}
