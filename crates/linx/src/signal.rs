//! Signals, which consist of a number and bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crossway_ring::pool::Block;

use crate::channel::frame::HEADER;
use crate::limits::{LARGEST_SIGNAL, LEAST_SIGNAL};
use crate::{Error, Spid};

/// The number of the signal for a new link; its payload includes the link's name.
pub const NEW_LINK: u32 = 248;
/// The number of the default signal of a time-out.
pub const TIMEOUT: u32 = 249;
/// The number of the default answer to a hunt.
pub const HUNT: u32 = 251;
/// The number of the default signal of an attach.
pub const ATTACH: u32 = 252;

/// The lowest number that programs should use for their own signals; lower ones are reserved for the system.
pub const USER_BASE: u32 = 0x1000_0000;

/// Number of bytes in front of a signal in a buffer of an endpoint. There is room for a header, which a channel then
/// sends together with the signal, and the signal stays aligned.
pub(crate) const HEADROOM: usize = 32;
const _: () = assert!(HEADROOM >= HEADER);

/// A message: a number that identifies its type, and bytes. Sending moves it away from the sender, so that a program
/// cannot access a signal after sending it.
///
/// The buffer starts with the number in the machine's byte order, as in C programs.
#[derive(Debug, PartialEq, Eq)]
pub struct Signal {
    bytes: Bytes,
    sender: Option<Spid>,
    out_of_band: bool,
    /// Whether the signal came over a link.
    remote: bool,
}

/// Number and payload.
enum Bytes {
    /// In memory of this process only; number and payload begin at `start`.
    Own { buffer: Vec<u8>, start: usize },
    /// At the start of a block that is shared with one other endpoint.
    Shared { block: Block, size: usize },
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own { buffer, start } => &buffer[*start..],
            Bytes::Shared { block, size } => &block[..*size],
        }
    }
}

impl DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own { buffer, start } => &mut buffer[*start..],
            Bytes::Shared { block, size } => &mut block[..*size],
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Signal {
    /// Creates a signal with a payload of `payload_len` zero bytes.
    ///
    /// # Errors
    /// [`Error::BadNumber`] for number 0, [`Error::BadSize`] for a size above the maximum.
    pub fn new(number: u32, payload_len: usize) -> Result<Signal, Error> {
        let mut bytes = vec![0; check(number, payload_len)?];
        bytes[..LEAST_SIGNAL].copy_from_slice(&number.to_ne_bytes());
        Ok(Signal::own(bytes))
    }

    /// Creates a signal with a payload.
    ///
    /// # Errors
    /// Those of [`Signal::new`].
    pub fn with_payload(number: u32, payload: &[u8]) -> Result<Signal, Error> {
        let mut bytes = Vec::with_capacity(check(number, payload.len())?);
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.extend_from_slice(payload);
        Ok(Signal::own(bytes))
    }

    /// Creates a signal without payload. The caller must know that the number is not 0.
    pub(crate) fn bare(number: u32) -> Signal {
        Signal::own(number.to_ne_bytes().to_vec())
    }

    fn own(bytes: Vec<u8>) -> Signal {
        Signal::own_from(bytes, 0)
    }

    fn own_from(buffer: Vec<u8>, start: usize) -> Signal {
        let bytes = Bytes::Own { buffer, start };
        Signal { bytes, sender: None, out_of_band: false, remote: false }
    }

    /// Creates a signal in a buffer that has room for a header in front. The caller must have checked number and size.
    #[inline]
    pub(crate) fn with_headroom(number: u32, mut buffer: Vec<u8>) -> Signal {
        buffer[HEADROOM..HEADROOM + LEAST_SIGNAL].copy_from_slice(&number.to_ne_bytes());
        Signal::own_from(buffer, HEADROOM)
    }

    /// Writes a header in front of number and payload, if there is room for it.
    #[inline]
    pub(crate) fn put_header(&mut self, header: &[u8; HEADER]) {
        if let Bytes::Own { buffer, start: HEADROOM } = &mut self.bytes {
            buffer[HEADROOM - HEADER..HEADROOM].copy_from_slice(header);
        }
    }

    /// Returns the header together with number and payload; `None` if there is no room for a header.
    #[inline]
    pub(crate) fn with_header(&self) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Own { buffer, start: HEADROOM } => Some(&buffer[HEADROOM - HEADER..]),
            _ => None,
        }
    }

    /// Creates a signal in a block that is longer than the signal. The caller must have checked number and size.
    pub(crate) fn in_block(number: u32, block: Block, size: usize) -> Signal {
        let bytes = Bytes::Shared { block, size };
        let mut signal = Signal { bytes, sender: None, out_of_band: false, remote: false };
        signal.bytes[..LEAST_SIGNAL].copy_from_slice(&number.to_ne_bytes());
        signal
    }

    /// Creates a signal that was received by reference.
    pub(crate) fn by_reference(block: Block, size: usize, from: Spid, out_of_band: bool) -> Signal {
        let bytes = Bytes::Shared { block, size };
        Signal { bytes, sender: Some(from), out_of_band, remote: false }
    }

    /// Returns the block that contains the signal; `None` if the signal is not shared.
    pub(crate) fn block(&self) -> Option<&Block> {
        match &self.bytes {
            Bytes::Own { .. } => None,
            Bytes::Shared { block, .. } => Some(block),
        }
    }

    /// Gives the block up after a reference to it was passed to the receiver.
    pub(crate) fn lend(self) {
        if let Bytes::Shared { block, .. } = self.bytes {
            block.lend();
        }
    }

    /// Returns the signal's buffer, for further signals; `None` if the signal was shared, in which case its memory is
    /// now free.
    pub(crate) fn into_buffer(self) -> Option<Vec<u8>> {
        match self.bytes {
            Bytes::Own { buffer, .. } => Some(buffer),
            Bytes::Shared { .. } => None,
        }
    }

    /// Creates a received signal from its number and payload.
    pub(crate) fn received(bytes: Vec<u8>, sender: Spid, out_of_band: bool) -> Signal {
        debug_assert!(bytes.len() >= LEAST_SIGNAL);
        Signal { sender: Some(sender), out_of_band, ..Signal::own(bytes) }
    }

    /// Marks the signal as one that came over a link.
    pub(crate) fn over_link(mut self) -> Signal {
        self.remote = true;
        self
    }

    /// Whether the signal came over a link.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    /// Sets another sender.
    pub(crate) fn from(mut self, sender: Spid) -> Signal {
        self.sender = Some(sender);
        self
    }

    /// Creates a signal from number and payload in the layout of C programs: the number comes first, in native byte
    /// order.
    ///
    /// # Errors
    /// Those of [`Signal::new`], and [`Error::BadSize`] if `bytes` is shorter than the number (4 bytes).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Signal, Error> {
        let signal = Signal::own(bytes);
        let len = signal.bytes.len();
        let payload = len.checked_sub(LEAST_SIGNAL).ok_or(Error::BadSize { size: len })?;
        check(signal.number(), payload)?;
        Ok(signal)
    }

    /// Returns the number that identifies the type of the signal.
    pub fn number(&self) -> u32 {
        u32::from_ne_bytes(self.bytes[..LEAST_SIGNAL].try_into().expect("four bytes"))
    }

    /// Returns the size in bytes, including the number, as LINX counts it.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes after the number.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[LEAST_SIGNAL..]
    }

    /// Returns the bytes after the number, for writing.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[LEAST_SIGNAL..]
    }

    /// Whether the signal is in memory shared with another endpoint
    /// ([`Endpoint::alloc_for`](crate::Endpoint::alloc_for)).
    pub fn is_shared(&self) -> bool {
        self.block().is_some()
    }

    /// Returns all of the memory of a shared signal, at least one byte more than its size; `None` for other signals.
    pub fn shared_room(&mut self) -> Option<&mut [u8]> {
        match &mut self.bytes {
            Bytes::Own { .. } => None,
            Bytes::Shared { block, .. } => Some(block),
        }
    }

    /// Changes the size, which includes the number; added bytes are 0. A shared signal that no longer fits into its
    /// memory is copied.
    ///
    /// # Errors
    /// [`Error::BadSize`] if the new size is smaller than the number or above the maximum.
    pub fn set_size(&mut self, size: usize) -> Result<(), Error> {
        if !(LEAST_SIGNAL..=LARGEST_SIGNAL).contains(&size) {
            return Err(Error::BadSize { size });
        }
        match &mut self.bytes {
            Bytes::Own { buffer, start } => buffer.resize(*start + size, 0),
            Bytes::Shared { block, size: of_signal } if size < block.len() => {
                if let Some(added) = block.get_mut(*of_signal..size) {
                    added.fill(0);
                }
                *of_signal = size;
            }
            Bytes::Shared { .. } => {
                let mut bytes = self.bytes.to_vec();
                bytes.resize(size, 0);
                self.bytes = Bytes::Own { buffer: bytes, start: 0 };
            }
        }
        Ok(())
    }

    /// Changes the number and keeps the payload, so that a received signal can be used for the answer.
    ///
    /// # Errors
    /// [`Error::BadNumber`] for number 0.
    pub fn set_number(&mut self, number: u32) -> Result<(), Error> {
        check(number, 0)?;
        self.bytes[..LEAST_SIGNAL].copy_from_slice(&number.to_ne_bytes());
        Ok(())
    }

    /// Returns the sender; `None` for a signal that was not received.
    pub fn sender(&self) -> Option<Spid> {
        self.sender
    }

    /// Whether the signal was sent out of band.
    pub fn is_out_of_band(&self) -> bool {
        self.out_of_band
    }

    /// Returns the signal as C programs see it: its number in native byte order, then the payload.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns number and payload in the layout of C programs. The bytes of a shared signal are copied.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Own { mut buffer, start } => {
                buffer.drain(..start);
                buffer
            }
            Bytes::Shared { .. } => self.bytes.to_vec(),
        }
    }
}

/// Checks the number, and returns the size of a signal with a payload of `payload_len` bytes.
pub(crate) fn check(number: u32, payload_len: usize) -> Result<usize, Error> {
    if number == 0 {
        return Err(Error::BadNumber);
    }
    let size = payload_len.saturating_add(LEAST_SIGNAL);
    if size > LARGEST_SIGNAL { Err(Error::BadSize { size }) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_payload_and_size_are_one_buffer() {
        let mut signal = Signal::with_payload(7, b"abc").unwrap();
        assert_eq!((signal.number(), signal.payload(), signal.size()), (7, &b"abc"[..], 7));
        signal.set_size(5).unwrap();
        signal.set_number(9).unwrap();
        assert_eq!((signal.number(), signal.payload()), (9, &b"a"[..]));
        signal.set_size(7).unwrap();
        assert_eq!(signal.payload(), b"a\0\0");
        assert_eq!(signal.as_bytes()[..4], 9u32.to_ne_bytes());
        assert!(signal.set_size(3).is_err());
        let again = Signal::from_bytes(signal.into_bytes()).unwrap();
        assert_eq!((again.number(), again.sender()), (9, None));
    }

    #[test]
    fn a_signal_with_headroom_is_as_any_other_and_its_header_is_in_front() {
        let mut signal = Signal::with_headroom(7, vec![0xAA; HEADROOM + LEAST_SIGNAL + 3]);
        signal.payload_mut().copy_from_slice(b"abc");
        assert_eq!(signal, Signal::with_payload(7, b"abc").unwrap());
        signal.put_header(&[1; HEADER]);
        let framed = [&[1; HEADER][..], &7u32.to_ne_bytes(), b"abc"].concat();
        assert_eq!(signal.with_header(), Some(&framed[..]));
        signal.set_size(9).unwrap();
        assert_eq!((signal.size(), signal.payload()), (9, &b"abc\0\0"[..]));
        assert_eq!(signal.into_bytes(), [&7u32.to_ne_bytes()[..], b"abc\0\0"].concat());
        let mut without = Signal::with_payload(7, b"abc").unwrap();
        without.put_header(&[1; HEADER]);
        assert_eq!((without.with_header(), without.payload()), (None, &b"abc"[..]));
    }

    #[test]
    fn invalid_signals_are_rejected() {
        assert!(matches!(Signal::new(0, 1), Err(Error::BadNumber)));
        assert!(matches!(Signal::new(1, LARGEST_SIGNAL), Err(Error::BadSize { .. })));
        assert!(matches!(Signal::from_bytes(vec![1, 0, 0]), Err(Error::BadSize { size: 3 })));
        assert!(matches!(Signal::from_bytes(vec![0; 8]), Err(Error::BadNumber)));
    }
}
