//! Where frames can be protected: between the protocol and the media.
//!
//! Everything a node sends passes through its [`Guard`] on the way to a bearer, and everything that comes in passes through it before the
//! protocol sees an octet. The protocol itself knows nothing of it and announces nothing. [`Plain`] is what peers without keys speak, kernels
//! included. The choice is made at compile time, so that an unguarded node pays nothing for the place.

/// Protects a node's frames on all its media: an AEAD with its keys and counters.
pub trait Guard {
    /// Octets that protection adds to a frame. The links' packets become so much smaller.
    const OVERHEAD: usize;

    /// Turns a frame in place into what goes onto the medium; false when it must not go out, because its numbers are used up.
    fn seal(&mut self, frame: &mut Vec<u8>) -> bool;

    /// Turns what came from a medium back into a frame; `None` when it is not genuine.
    fn open<'a>(&'a mut self, packet: &'a mut [u8]) -> Option<&'a [u8]>;
}

/// No protection: frames go out as they are.
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
