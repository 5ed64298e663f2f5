//! Secret keys, and where the nonces of frames come from.

use super::header::Header;
use super::suite::{NONCE_LEN, Suite};
use crate::addr::NodeAddr;
use arrayvec::ArrayVec;

/// Name of the only cipher, in the kernel's terms.
pub const ALGORITHM: &str = "gcm(aes)";

/// Length of the salt at the end of a key, in bytes.
const SALT_LEN: usize = 4;
/// Length of the longest key with its salt, in bytes.
const KEY_LEN_MAX: usize = 32 + SALT_LEN;

/// Whose frames a key protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMode {
    /// Those of all nodes of the cluster.
    Cluster,
    /// Those that one node sends.
    Node,
}

impl KeyMode {
    /// The mode's number in a key message.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Cluster => 1,
            Self::Node => 2,
        }
    }

    pub(crate) const fn from_number(n: u32) -> Option<Self> {
        match n {
            1 => Some(Self::Cluster),
            2 => Some(Self::Node),
            _ => None,
        }
    }
}

/// Why bytes are not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyError {
    /// Number of bytes.
    pub len: usize,
}

impl core::fmt::Display for KeyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let len = self.len;
        write!(
            f,
            "a key has 20, 28 or 36 bytes (AES-128, -192 or -256 with a salt of 4 bytes), not {len}"
        )
    }
}

impl core::error::Error for KeyError {}

/// An AES key with its salt. Its contents are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(ArrayVec<u8, KEY_LEN_MAX>);

impl core::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SecretKey({} bytes)", self.0.len())
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        // The compiler must not leave this out as unused.
        self.0.fill(0);
        core::hint::black_box(&mut self.0);
    }
}

impl SecretKey {
    /// Takes a key of 16, 24 or 32 bytes followed by a salt of 4 bytes.
    ///
    /// # Errors
    /// [`KeyError`] for any other length.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        match bytes.len() {
            20 | 28 | 36 => Ok(Self(bytes.iter().copied().collect())),
            len => Err(KeyError { len }),
        }
    }

    /// The key, followed by the salt.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Length of the AES key in bits.
    pub fn bits(&self) -> usize {
        (self.0.len() - SALT_LEN) * 8
    }

    /// A random key of the same length.
    pub(super) fn renewed(&self, suite: &mut impl Suite) -> Self {
        let mut key = self.clone();
        suite.fill(&mut key.0);
        key
    }
}

/// A key that is ready for use.
#[derive(Debug)]
pub(super) struct Loaded<K> {
    pub(super) secret: SecretKey,
    pub(super) mode: KeyMode,
    key: K,
    salt: [u8; SALT_LEN],
}

impl<K> Loaded<K> {
    pub(super) fn new<S: Suite<Key = K>>(suite: &S, secret: SecretKey, mode: KeyMode) -> Self {
        let (key, end) = secret.bytes().split_at(secret.bytes().len() - SALT_LEN);
        let mut salt = [0; SALT_LEN];
        salt.copy_from_slice(end);
        Self { key: suite.prepare(key), salt, secret, mode }
    }

    pub(super) const fn key(&self) -> &K {
        &self.key
    }

    /// The nonce of a frame with this header: the salt, changed by the sender or the destination, and the frame's number.
    /// `dest` is the destination, if the header says that the sender knew it.
    ///
    /// The kernel combines the salt and the address as numbers of the machine, and nearly all machines are little-endian.
    pub(super) fn nonce(&self, header: &Header, dest: Option<NodeAddr>) -> [u8; NONCE_LEN] {
        let change = match (self.mode, dest) {
            (KeyMode::Cluster, _) => header.sender_word(),
            (KeyMode::Node, Some(dest)) if header.destined => dest.0,
            (KeyMode::Node, _) => 0,
        };
        let change = change.to_le_bytes();
        let mut nonce = [0; NONCE_LEN];
        let (start, number) = nonce.split_at_mut(SALT_LEN);
        for ((byte, salt), change) in start.iter_mut().zip(self.salt).zip(change) {
            *byte = salt ^ change;
        }
        number.copy_from_slice(&header.number.to_be_bytes());
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn keys_have_three_lengths_and_are_never_printed() {
        for (len, bits) in [(20, 128), (28, 192), (36, 256)] {
            let key = SecretKey::new(&[0x5a; 36][..len]).unwrap();
            assert_eq!(key.bits(), bits);
            assert_eq!(format!("{key:?}"), format!("SecretKey({len} bytes)"));
        }
        for len in [0, 16, 19, 21, 35] {
            let error = SecretKey::new(&[0; 64][..len]).unwrap_err();
            assert!(error.to_string().ends_with(&format!("not {len}")), "{error}");
        }
        assert_eq!(SecretKey::new(&[0; 64]), Err(KeyError { len: 64 }));
    }
}
