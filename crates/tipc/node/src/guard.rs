//! The place where frames can be protected: between the protocol and the media.
//!
//! Every frame that a node sends passes through its [`Guard`] on the way to a bearer, and every received frame before
//! it reaches the protocol. The protocol is not aware of this and announces nothing to peers. [`Plain`] is for peers
//! without keys, including kernels. The choice is made at compile time, so an unguarded node has no overhead.

/// Protects a node's frames on all its media, for example with an AEAD. The implementation holds the keys and counters.
pub trait Guard {
    /// Number of bytes that protection adds to a frame. The packet size of links is reduced by this number.
    const OVERHEAD: usize;

    /// Encrypts a frame in place. Returns false if the frame must not be sent because the nonces are used up.
    fn seal(&mut self, frame: &mut Vec<u8>) -> bool;

    /// Decrypts a received packet into a frame. Returns `None` if the packet is not authentic.
    fn open<'a>(&'a mut self, packet: &'a mut [u8]) -> Option<&'a [u8]>;
}

/// No protection: frames are sent as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plain;

impl Guard for Plain {
    const OVERHEAD: usize = 0;

    fn seal(&mut self, _frame: &mut Vec<u8>) -> bool {
        true
    }

    fn open<'a>(&'a mut self, packet: &'a mut [u8]) -> Option<&'a [u8]> {
        Some(packet)
    }
}
