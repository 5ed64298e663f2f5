//! Where things lie in a ring, and what a header word says.

/// An end is running, or spinning.
pub const AWAKE: u32 = 0;
/// An end sleeps, or is about to; who changes this to [`AWAKE`] must wake it.
pub const ASLEEP: u32 = 1;
/// An end is closed, for good.
pub const CLOSED: u32 = 2;

/// Bytes of a header word.
pub const HEADER: usize = 8;
/// Records from this payload length on end at a multiple of [`LINE`], so that streams of large messages are copied
/// between aligned addresses; smaller ones are packed densely, since fewer lines then move.
pub const ALIGN_FROM: usize = 512;
/// A cache line.
pub const LINE: usize = 64;
/// Longest payload that a header can state.
pub const MAX_PAYLOAD: usize = 1 << 30;

const VALID: u64 = 1 << 63;
const PADDING: u64 = 1 << 62;
const SEQUENCE_BITS: u64 = 30;

/// Bytes from the start of a record at `offset` to the start of the next.
#[inline]
pub fn record_len(offset: usize, payload: usize) -> usize {
    let align = if payload >= ALIGN_FROM { LINE } else { HEADER };
    (offset + HEADER + payload).next_multiple_of(align) - offset
}

/// The smallest capacity in which a message of `max_message` bytes always finds room once the ring is empty: its record,
/// the padding before it, and the next header.
pub fn least_capacity(max_message: usize) -> usize {
    (2 * (HEADER + max_message + LINE) + 2 * HEADER).next_multiple_of(LINE)
}

/// What a header word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Not published yet.
    Nothing,
    /// A message of so many bytes.
    Message(usize),
    /// Nothing up to the end of the ring; the next record is at its start.
    Padding,
}

/// The word for the `sequence`-th record.
#[inline]
pub fn message_header(sequence: u64, payload: usize) -> u64 {
    VALID | sequence_field(sequence) | payload as u64
}

/// The word for padding as the `sequence`-th record.
#[inline]
pub fn padding_header(sequence: u64) -> u64 {
    VALID | PADDING | sequence_field(sequence)
}

#[inline]
fn sequence_field(sequence: u64) -> u64 {
    (sequence & ((1 << SEQUENCE_BITS) - 1)) << 32
}

/// Reads a word; `None` if it is not the header of the `sequence`-th record.
#[inline]
pub fn parse_header(word: u64, sequence: u64) -> Option<Header> {
    if word == 0 {
        return Some(Header::Nothing);
    }
    let payload = word & 0xffff_ffff;
    if word == message_header(sequence, payload as usize) {
        Some(Header::Message(payload as usize))
    } else if word == padding_header(sequence) {
        Some(Header::Padding)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back() {
        for sequence in [0, 1, (1 << 30) - 1, 1 << 30, u64::MAX] {
            for payload in [0, 1, 64, MAX_PAYLOAD] {
                let word = message_header(sequence, payload);
                assert_eq!(parse_header(word, sequence), Some(Header::Message(payload)));
                assert_eq!(parse_header(word, sequence.wrapping_add(1)), None);
            }
            assert_eq!(parse_header(padding_header(sequence), sequence), Some(Header::Padding));
        }
        assert_eq!(parse_header(0, 9), Some(Header::Nothing));
    }

    #[test]
    fn payload_that_looks_like_text_or_a_counter_is_no_header() {
        for word in [1, 64, u64::from_ne_bytes(*b"messages"), u64::MAX] {
            assert_eq!(parse_header(word, 1), None, "{word:#x}");
        }
    }

    #[test]
    fn records_keep_headers_aligned_and_large_ones_end_on_a_line() {
        for offset in (0..256).step_by(8) {
            for payload in [0, 1, 7, 8, 64, 511, 512, 4096, 65_537] {
                let end = offset + record_len(offset, payload);
                assert!(end >= offset + HEADER + payload);
                assert_eq!(end % if payload >= ALIGN_FROM { LINE } else { HEADER }, 0);
            }
        }
    }
}
