//! What the caller provides: a cipher, and numbers that nobody can guess.

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 12;
/// Length of an authentication tag in bytes.
pub const TAG_LEN: usize = 16;

/// An AEAD (authenticated encryption with associated data) and a source of random numbers. In a cluster with kernels, the
/// AEAD is AES-GCM.
pub trait Suite {
    /// A key that is ready for use, with everything that can be computed in advance.
    type Key: core::fmt::Debug;

    /// Prepares a key of 16, 24 or 32 bytes.
    fn prepare(&self, key: &[u8]) -> Self::Key;

    /// Encrypts `text` in place and returns the tag, which also covers `header`.
    fn seal(
        key: &Self::Key,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN];

    /// Decrypts `text` in place and returns true if the tag is that of the header and the text. Otherwise leaves the text
    /// as it is and returns false.
    fn open(
        key: &Self::Key,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool;

    /// Fills `bytes` with random numbers that are good enough for keys.
    fn fill(&mut self, bytes: &mut [u8]);
}
