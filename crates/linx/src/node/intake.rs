//! Splits a byte stream into units, each with a head and a body. The body of a large unit is read directly into the
//! buffer from which it is sent on.

use crossway_sys::Errno;

use crate::wire::body::{Body, HEADROOM, Landing, Space};

/// Maximum number of bytes per read while units are small.
const MUCH: usize = 64 << 10;

/// Maximum number of bytes per read after a large unit. The next unit is probably large, too, so only a small part of
/// its body should be read together with its head.
const LITTLE: usize = 1 << 10;

/// If at least this many bytes of a body are missing, they are read directly into its buffer.
const DIRECTLY: usize = 8 << 10;

/// The head of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; HEADROOM],
    len: usize,
}

impl Head {
    fn of(bytes: &[u8]) -> Head {
        let mut head = Head { bytes: [0; HEADROOM], len: bytes.len() };
        head.bytes[..bytes.len()].copy_from_slice(bytes);
        head
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A unit whose body is read directly.
struct Large {
    head: Head,
    body: Body,
    /// Number of bytes that are missing.
    left: usize,
}

/// The bytes that were read from a stream and not returned yet.
#[derive(Default)]
pub(super) struct Intake {
    buffer: Vec<u8>,
    start: usize,
    large: Option<Large>,
    /// Whether the last unit was large.
    is_amid_large: bool,
}

impl Intake {
    /// Reads once; returns the number of bytes.
    pub(super) fn fill(
        &mut self,
        read: impl FnOnce(Space<'_>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        if let Some(large) = self.large.as_mut().filter(|large| large.left > 0) {
            let got = large.body.read(large.left, read)?;
            large.left -= got;
            return Ok(got);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let most = if self.is_amid_large { LITTLE } else { MUCH };
        self.buffer.reserve(most);
        read(Space::Behind(&mut self.buffer, most))
    }

    /// Returns the next unit, if it is complete. `measure` returns the lengths of the head (at most [`HEADROOM`]) and
    /// of the body of the unit at the beginning of the bytes, or `None` if there are too few bytes to tell. `land` may
    /// provide another place for a body of a given length that is read directly.
    pub(super) fn next<E>(
        &mut self,
        measure: impl FnOnce(&[u8]) -> Result<Option<(usize, usize)>, E>,
        land: impl FnOnce(&Head, usize) -> Option<Landing>,
    ) -> Result<Option<(Head, Body)>, E> {
        if let Some(large) = self.large.take_if(|large| large.left == 0) {
            return Ok(Some((large.head, large.body)));
        }
        if self.large.is_some() {
            return Ok(None);
        }
        let ready = &self.buffer[self.start..];
        let Some((head_len, body_len)) = measure(ready)? else { return Ok(None) };
        let Some((head, rest)) = ready.split_at_checked(head_len) else { return Ok(None) };
        let head = Head::of(head);
        if let Some(body) = rest.get(..body_len) {
            let body = Body::of(body);
            self.start += head_len + body_len;
            self.is_amid_large = body_len >= DIRECTLY;
            return Ok(Some((head, body)));
        }
        let left = body_len - rest.len();
        if left >= DIRECTLY {
            let mut body = match land(&head, body_len) {
                Some(landing) => Body::landing(landing),
                None => Body::with_capacity(body_len),
            };
            body.append(rest);
            self.start = self.buffer.len();
            self.is_amid_large = true;
            self.large = Some(Large { head, body, left });
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures a unit whose head is the length of its body in two bytes.
    fn measure(bytes: &[u8]) -> Result<Option<(usize, usize)>, ()> {
        Ok(bytes.first_chunk().map(|len| (2, u16::from_be_bytes(*len).into())))
    }

    fn stream(lens: &[u16]) -> Vec<u8> {
        let unit = |(n, len): (usize, &u16)| {
            let mut unit = len.to_be_bytes().to_vec();
            unit.resize(2 + usize::from(*len), n as u8);
            unit
        };
        lens.iter().enumerate().flat_map(unit).collect()
    }

    /// Reads a stream that provides at most `at_once` bytes at a time. Returns the lengths of the bodies, the number of
    /// reads, and the number of bytes that were not read into their final place.
    fn read_all(bytes: &[u8], at_once: usize) -> (Vec<u16>, usize, usize) {
        let (mut intake, mut at, mut reads, mut found) = (Intake::default(), 0, 0, Vec::new());
        let mut moved = 0;
        while at < bytes.len() {
            let read = |space: Space<'_>| {
                let Space::Behind(to, most) = space else { panic!("nothing lands") };
                let n = most.min(at_once).min(bytes.len() - at);
                assert!(to.capacity() - to.len() >= n);
                to.extend_from_slice(&bytes[at..at + n]);
                Ok(n)
            };
            let directly = intake.large.as_ref().is_some_and(|large| large.left > 0);
            let got = intake.fill(read).unwrap();
            moved += if directly { 0 } else { got };
            at += got;
            reads += 1;
            while let Some((head, body)) = intake.next(measure, |_, _| None).unwrap() {
                let len = u16::from_be_bytes(head.bytes().try_into().unwrap());
                assert!(
                    body.len() == usize::from(len) && body.iter().all(|b| *b == found.len() as u8)
                );
                found.push(len);
            }
        }
        (found, reads, moved)
    }

    #[test]
    fn units_of_any_size_arrive_however_the_stream_is_cut() {
        let lens = [1, 0, 9000, 60_000, 8191, 8192, 65_535, 65_535, 3, 30_000, 0, 1];
        let bytes = stream(&lens);
        for at_once in [1, 2, 3, 1000, 8193, 70_000, usize::MAX] {
            assert_eq!(read_all(&bytes, at_once).0, lens, "{at_once}");
        }
    }

    #[test]
    fn a_large_unit_takes_two_reads_and_no_copy_and_small_ones_share_one_read() {
        let (lens, reads, moved) = read_all(&stream(&[65_535; 100]), usize::MAX);
        assert!(lens.len() == 100 && reads <= 200, "{reads} reads");
        // Two reads at the beginning, and then a little before each unit.
        assert!(moved <= 2 * MUCH + 100 * LITTLE, "{moved} bytes moved");
        assert_eq!(read_all(&stream(&[64; 900]), usize::MAX).1, 1);
    }
}
