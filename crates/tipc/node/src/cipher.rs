//! The cipher of encrypted frames: AES-GCM, with the processor's instructions for it if there are any.

use aes_gcm::aead::array::Array;
use aes_gcm::aead::consts::U12;
use aes_gcm::aes::Aes192;
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, AesGcm, KeyInit};
use crossway_sys::{OsError, random};
use crossway_tipc_proto::crypto::{NONCE_LEN, Suite, TAG_LEN};

/// AES-GCM and the kernel's random numbers.
#[derive(Debug)]
pub struct Gcm(());

impl Gcm {
    /// Checks that the kernel gives random numbers.
    ///
    /// # Errors
    /// [`OsError`] of getrandom.
    pub fn new() -> Result<Self, OsError> {
        random::fill(&mut [0; 8])?;
        Ok(Self(()))
    }
}

/// A key with its schedule.
pub enum GcmKey {
    /// Of 16 bytes.
    Aes128(Box<Aes128Gcm>),
    /// Of 24 bytes.
    Aes192(Box<AesGcm<Aes192, U12>>),
    /// Of 32 bytes.
    Aes256(Box<Aes256Gcm>),
}

impl std::fmt::Debug for GcmKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GcmKey")
    }
}

/// Copies a key of up to `N` bytes; a shorter one is followed by zeros.
fn sized<const N: usize>(key: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    out
}

impl Suite for Gcm {
    type Key = GcmKey;

    fn prepare(&self, key: &[u8]) -> GcmKey {
        match key.len() {
            16 => GcmKey::Aes128(Box::new(Aes128Gcm::new(&Array(sized(key))))),
            24 => GcmKey::Aes192(Box::new(AesGcm::new(&Array(sized(key))))),
            _ => GcmKey::Aes256(Box::new(Aes256Gcm::new(&Array(sized(key))))),
        }
    }

    fn seal(
        key: &GcmKey,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let nonce = Array(*nonce);
        let tag = match key {
            GcmKey::Aes128(key) => key.encrypt_inout_detached(&nonce, header, text.into()),
            GcmKey::Aes192(key) => key.encrypt_inout_detached(&nonce, header, text.into()),
            GcmKey::Aes256(key) => key.encrypt_inout_detached(&nonce, header, text.into()),
        };
        // It fails for texts of 64 GiB and more, and no frame is as long.
        tag.map_or([0; TAG_LEN], |tag| tag.0)
    }

    fn open(
        key: &GcmKey,
        nonce: &[u8; NONCE_LEN],
        header: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let (nonce, tag) = (Array(*nonce), Array(*tag));
        match key {
            GcmKey::Aes128(key) => key.decrypt_inout_detached(&nonce, header, text.into(), &tag),
            GcmKey::Aes192(key) => key.decrypt_inout_detached(&nonce, header, text.into(), &tag),
            GcmKey::Aes256(key) => key.decrypt_inout_detached(&nonce, header, text.into(), &tag),
        }
        .is_ok()
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        // They came when this was created, so that only a signal can interrupt it.
        while random::fill(bytes).is_err() {}
    }
}
