//! Encryption of frames, as Linux has it since 5.10 (`CONFIG_TIPC_CRYPTO`).
//!
//! A [`Keyring`] stands between a [`Node`](crate::node::Node) and its media: it encrypts the frames that the node sends,
//! decrypts those that arrive, and decides which key each of them uses. Ciphers and unpredictable numbers come from
//! outside, through [`Suite`].
//!
//! An encrypted frame is the header of version 7 ([`Header`]), the encrypted TIPC message, and a tag of 16 bytes. Each
//! node numbers its own keys from 1 to 3; 0 is the master key. A key is for the whole cluster ([`KeyMode::Cluster`]) or
//! for what one node sends ([`KeyMode::Node`]). With a master key, nodes make keys of their own and send them to each other
//! ([`KeyMessage`](crate::wire::KeyMessage)).

mod header;
mod key;
mod keyring;
mod own;
mod peer;
mod replay;
mod suite;

pub use header::{Header, Sender};
pub use key::{ALGORITHM, KeyError, KeyMode, SecretKey};
pub use keyring::{Distribution, KeyOwner, Keyring, Way, Ways};
pub use own::{AttachError, Rekeying};
pub use suite::{NONCE_LEN, Suite, TAG_LEN};

/// Bytes that encryption adds to a frame of a link.
pub const OVERHEAD: usize = header::HEADER_LEN + TAG_LEN;

/// State of a key, as it is shown to an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyState {
    /// The master key, which protects discovery, and everything before there are other keys.
    Master,
    /// In use.
    Active,
    /// Own key: not all peers use it yet. Key of a peer: received, but the peer does not use it yet.
    Pending,
    /// Replaced by a newer key; frames that use it are still accepted for a short time.
    Passive,
}

/// One key, as it is shown to an operator. The key itself is never shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyReport {
    /// Number of the key, 0 for the master key; `None` if its owner has not used it yet.
    pub number: Option<u8>,
    /// What it is used for at present.
    pub state: KeyState,
    /// Whose frames it protects.
    pub mode: KeyMode,
    /// Length of the AES key in bits: 128, 192 or 256.
    pub bits: usize,
    /// Own key: number of peers that use it. Key of a peer: 0.
    pub users: usize,
}
