//! The header in front of each piece of a signal on a channel.

use crossway_ring::pool::Reference;

use crate::Spid;
use crate::limits::{LARGEST_SIGNAL, LEAST_SIGNAL};

/// Length of a header in bytes.
pub(crate) const HEADER: usize = 20;

/// Flag: the piece is the first of its signal.
pub(crate) const FIRST: u8 = 1;
/// Flag: the signal is out of band.
pub(crate) const OUT_OF_BAND: u8 = 2;
/// Flag: not a signal, but a notice that the endpoint `from` has ended. It answers the receiver's attach with the
/// number in `to`, and follows everything that the endpoint has sent.
pub(crate) const GONE: u8 = 4;
/// Flag: not a signal, but a notice that the incomplete signal from `from` will not be completed.
pub(crate) const ABANDONED: u8 = 8;

/// Flag: the signal itself is in the pool that both ends of the channel share; a reference to it follows.
pub(crate) const BY_REFERENCE: u8 = 16;

/// A header. On a channel between two endpoints, each signal is a single piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Number of bytes that follow the header.
    pub(crate) piece: u32,
    /// Size of the signal in bytes, including its number.
    pub(crate) size: u32,
    pub(crate) from: Spid,
    pub(crate) to: u32,
    pub(crate) flags: u8,
}

impl Header {
    /// Returns the header for a signal of `size` bytes that is a single piece.
    #[inline]
    pub(crate) fn of_signal(size: usize, from: Spid, to: Spid, out_of_band: bool) -> Header {
        let oob = if out_of_band { OUT_OF_BAND } else { 0 };
        Header { piece: size as u32, size: size as u32, from, to: to.get(), flags: FIRST | oob }
    }

    /// Returns the header for the reference to a signal of `size` bytes.
    pub(crate) fn of_reference(size: usize, from: Spid, to: Spid, out_of_band: bool) -> Header {
        let oob = if out_of_band { OUT_OF_BAND } else { 0 };
        Header {
            piece: Reference::LEN as u32,
            size: size as u32,
            from,
            to: to.get(),
            flags: oob | FIRST | BY_REFERENCE,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let words = [self.piece, self.size, self.from.get(), self.to, self.flags.into()];
        let mut bytes = [0; HEADER];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Decodes a header; returns `None` if no correct peer writes it.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Header> {
        let mut words = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        let mut word = || words.next().unwrap_or(0);
        let (piece, size, from, to, flags) = (word(), word(), word(), word(), word());
        let flags = u8::try_from(flags).ok()?;
        let header = Header { piece, size, from: Spid::new(from)?, to, flags };
        let notice = flags & (GONE | ABANDONED) != 0;
        let fits = if notice {
            piece == 0
        } else if flags & BY_REFERENCE != 0 {
            flags & FIRST != 0
                && piece as usize == Reference::LEN
                && (LEAST_SIGNAL..=LARGEST_SIGNAL).contains(&(size as usize))
        } else {
            (LEAST_SIGNAL..=LARGEST_SIGNAL).contains(&(size as usize))
                && piece <= size
                && (flags & FIRST == 0 || piece as usize >= LEAST_SIGNAL)
                && piece > 0
        };
        fits.then_some(header)
    }
}
