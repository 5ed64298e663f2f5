//! The layout of a ring and the meaning of its header words.

/// An end is running, or spinning.
pub const AWAKE: u32 = 0;
/// An end sleeps, or is about to; whichever end changes this to [`AWAKE`] must wake it.
pub const ASLEEP: u32 = 1;
/// An end is closed permanently.
pub const CLOSED: u32 = 2;

/// Size of a header word in bytes.
pub const HEADER: usize = 8;
/// Records with at least this payload length in bytes end one header before a cache line, so that in a stream of large
/// messages each payload starts on a line; smaller ones are packed densely, which moves fewer lines.
pub const ALIGN_FROM: usize = 512;
/// Size of a cache line in bytes.
pub const LINE: usize = 64;
/// Size in bytes of the pair of lines that processors fetch together.
pub const PAIR: usize = 2 * LINE;
/// Longest payload in bytes that a header can state.
pub const MAX_PAYLOAD: usize = 1 << 30;

const VALID: u64 = 1 << 63;
const ALONE: u64 = 1 << 62;
const LAST: u64 = 1 << 61;
const SEQUENCE_SHIFT: u32 = 32;
const SEQUENCE_BITS: u64 = 29;

/// Where the record after another one starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Immediately behind it, see [`ALIGN_FROM`].
    #[default]
    Behind,
    /// At the next pair of lines, so that no two records share one. Processors fetch lines in pairs: with two records
    /// in a pair, an end that waits for the one takes away what the other end writes for the other.
    AtPair,
    /// At the start of the ring: the rest of it is left out.
    AtStart,
}

/// What a header says about its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Length of the payload in bytes.
    pub len: usize,
    /// Where the next record starts.
    pub next: Next,
}

impl Stated {
    /// A record that the next one follows immediately.
    #[inline]
    pub const fn packed(len: usize) -> Self {
        Stated { len, next: Next::Behind }
    }

    /// The distance in bytes from the start of this record, at `offset` in a ring of `capacity` bytes, to the start of
    /// the next one.
    #[inline]
    pub const fn record_len(self, offset: usize, capacity: usize) -> usize {
        let len = HEADER + self.len;
        match self.next {
            Next::Behind if self.len >= ALIGN_FROM => {
                (offset + len + HEADER).next_multiple_of(LINE) - HEADER - offset
            }
            Next::Behind => len.next_multiple_of(HEADER),
            Next::AtPair => (offset + len).next_multiple_of(PAIR) - offset,
            Next::AtStart => capacity.saturating_sub(offset),
        }
    }

    /// As [`Stated::record_len`], for a header that the other end has written; `None` if no correct end writes it,
    /// because the payload is longer than `max_message`, or the record does not fit where it says.
    #[inline]
    pub const fn checked_len(
        self,
        offset: usize,
        capacity: usize,
        max_message: usize,
    ) -> Option<usize> {
        if self.len > max_message {
            return None;
        }
        let size = self.record_len(offset, capacity);
        if HEADER + self.len <= size && size <= capacity { Some(size) } else { None }
    }

    /// The header word of the `sequence`-th record. Never 0, which means that nothing is published.
    #[inline]
    pub const fn header(self, sequence: u64) -> u64 {
        let next = match self.next {
            Next::Behind => 0,
            Next::AtPair => ALONE,
            Next::AtStart => LAST,
        };
        VALID | next | (sequence & SEQUENCE_MASK) << SEQUENCE_SHIFT | self.len as u64
    }

    /// What the header word of any record says; `None` if the word is not a header.
    #[inline]
    pub const fn read(word: u64) -> Option<Stated> {
        let next = match word & (VALID | ALONE | LAST) {
            VALID => Next::Behind,
            of if of == VALID | ALONE => Next::AtPair,
            of if of == VALID | LAST => Next::AtStart,
            _ => return None,
        };
        Some(Stated { len: (word & 0xffff_ffff) as usize, next })
    }

    /// What the header word of the `sequence`-th record says; `None` if the word is not a header of that record.
    #[inline]
    pub const fn read_nth(word: u64, sequence: u64) -> Option<Stated> {
        let packed = Stated::packed((word & 0xffff_ffff) as usize);
        if word == packed.header(sequence) {
            return Some(packed);
        }
        match Stated::read(word) {
            Some(stated) if word == stated.header(sequence) => Some(stated),
            _ => None,
        }
    }
}

const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// The smallest capacity in which a message of `max_message` bytes always fits once the ring is empty: its record and
/// the next header. A multiple of the page size, since the ring is mapped twice.
pub fn least_capacity(max_message: usize, page: usize) -> usize {
    (HEADER + max_message + LINE + HEADER).next_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back() {
        for sequence in [0, 1, SEQUENCE_MASK, SEQUENCE_MASK + 1, u64::MAX] {
            for len in [0, 1, 64, MAX_PAYLOAD] {
                for next in [Next::Behind, Next::AtPair, Next::AtStart] {
                    let stated = Stated { len, next };
                    let word = stated.header(sequence);
                    assert_ne!(word, 0);
                    assert_eq!(Stated::read_nth(word, sequence), Some(stated));
                    assert_eq!(Stated::read(word), Some(stated));
                    assert_eq!(Stated::read_nth(word, sequence.wrapping_add(1)), None);
                }
            }
        }
    }

    #[test]
    fn payload_that_looks_like_text_or_a_counter_is_no_header() {
        for word in [1, 64, u64::from_ne_bytes(*b"messages"), u64::MAX] {
            assert_eq!(Stated::read_nth(word, 1), None, "{word:#x}");
        }
    }

    #[test]
    fn records_keep_headers_aligned_and_large_ones_make_the_next_payload_start_on_a_line() {
        let capacity = 1 << 20;
        for offset in (0..256).step_by(8) {
            for payload in [0, 1, 7, 8, 64, 511, 512, 4096, 65_537] {
                let end = offset + Stated::packed(payload).record_len(offset, capacity);
                assert!(end >= offset + HEADER + payload);
                assert!(end + HEADER - offset <= least_capacity(payload, 1));
                assert_eq!(end % HEADER, 0);
                assert!(payload < ALIGN_FROM || (end + HEADER).is_multiple_of(LINE));
                let alone = Stated { len: payload, next: Next::AtPair };
                let end = offset + alone.record_len(offset, capacity);
                assert!(end >= offset + HEADER + payload && end.is_multiple_of(PAIR));
                let last = Stated { len: payload, next: Next::AtStart };
                assert_eq!(offset + last.record_len(offset, capacity), capacity);
            }
        }
    }

    #[test]
    fn a_header_that_no_correct_end_writes_is_refused() {
        let (capacity, max) = (4096, 4096 - 2 * HEADER - LINE);
        let check = |len, next, offset| Stated { len, next }.checked_len(offset, capacity, max);
        assert_eq!(check(64, Next::Behind, capacity - 8), Some(72));
        assert_eq!(check(max + 1, Next::Behind, 0), None);
        assert_eq!(check(64, Next::AtStart, capacity - 72), Some(72));
        assert_eq!(check(64, Next::AtStart, capacity - 64), None, "it crosses the end");
        assert_eq!(check(64, Next::AtPair, 0), Some(PAIR));
        assert_eq!(check(max, Next::AtPair, 80), None, "more than the ring");
    }
}
