//! `MSG_CRYPTO`: a node sends one of its keys to another node.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::NodeAddr;
use crate::crypto::{ALGORITHM, KeyMode, SecretKey};
use alloc::vec::Vec;

/// Length of the field for the cipher's name, in bytes.
const NAME_LEN: usize = 32;

/// A key of the sending node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyMessage {
    /// The node that the key is for.
    pub dest: NodeAddr,
    /// Number that the sender's keys have in common with nothing else; it rises by one with each of them.
    pub generation: u16,
    /// Whose frames the key protects.
    pub mode: KeyMode,
    /// The key.
    pub key: SecretKey,
}

impl KeyMessage {
    /// Decodes the message.
    ///
    /// # Errors
    /// If the header is not 40 bytes long, the type or the cipher is not known, or the key does not fill the rest of the
    /// message exactly.
    pub fn decode(view: &View<'_>) -> Result<Self, WireError> {
        view.check_header_len()?;
        if view.msg_type() != 0 {
            return Err(WireError::Type(view.msg_type() as u8));
        }
        let (name, rest) =
            view.data().split_first_chunk::<NAME_LEN>().ok_or(WireError::Truncated)?;
        let (len, key) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
        if !name.starts_with(ALGORITHM.as_bytes()) || name[ALGORITHM.len()] != 0 {
            return Err(WireError::Field("cipher"));
        }
        if u32::from_be_bytes(*len) as usize != key.len() {
            return Err(WireError::Field("key length"));
        }
        Ok(Self {
            dest: NodeAddr(view.word(7)),
            generation: view.bits(4, 16, 0xffff) as u16,
            mode: KeyMode::from_number(view.bits(4, 0, 15)).ok_or(WireError::Field("key mode"))?,
            key: SecretKey::new(key).map_err(|_| WireError::Field("key length"))?,
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let mut h = HeaderWords::new(User::Crypto, 0, super::NAMED_HEADER_LEN);
        h.set(4, 16, 0xffff, self.generation.into()).set(4, 0, 15, self.mode.number());
        h.set_word(6, link.sender.0).set_word(7, self.dest.0);
        link.write(&mut h);
        let mut name = [0; NAME_LEN];
        name[..ALGORITHM.len()].copy_from_slice(ALGORITHM.as_bytes());
        let key = self.key.bytes();
        h.write(&[&name, &(key.len() as u32).to_be_bytes(), key], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, Message};

    #[test]
    fn keys_come_back_from_their_messages_and_wrong_lengths_are_refused() {
        for len in [20, 28, 36] {
            let key = SecretKey::new(&[7; 36][..len]).unwrap();
            let message =
                KeyMessage { dest: NodeAddr(2), generation: 0xfffe, mode: KeyMode::Node, key };
            let link = LinkFields { sender: NodeAddr(1), ..LinkFields::default() };
            let mut bytes = Vec::new();
            message.encode(&link, &mut bytes);
            assert_eq!(
                Frame::decode(&bytes),
                Ok(Frame::Sequenced(link, Message::Key(message.clone())))
            );
            // CVE-2021-43267: a length that says more, or less, than there is.
            for wrong in [0, 1, 19, len as u32 - 1, len as u32 + 1, 2_000, u32::MAX] {
                let mut forged = bytes.clone();
                forged[72..76].copy_from_slice(&wrong.to_be_bytes());
                let refused = Err(WireError::Field("key length"));
                assert_eq!(Frame::decode(&forged).map(drop), refused, "{wrong}");
            }
            // A cipher's name without an end, of which a kernel printed what follows (2026).
            for name in [[b'x'; NAME_LEN], *b"gcm(aes)gcm(aes)gcm(aes)gcm(aes)"] {
                let mut forged = bytes.clone();
                forged[40..40 + NAME_LEN].copy_from_slice(&name);
                assert_eq!(Frame::decode(&forged).map(drop), Err(WireError::Field("cipher")));
            }
            for at in [40, 48, 50] {
                let mut forged = bytes.clone();
                forged[at] ^= 1;
                assert_eq!(
                    Frame::decode(&forged).is_ok(),
                    at == 50,
                    "only the cipher's name counts"
                );
            }
        }
    }
}
