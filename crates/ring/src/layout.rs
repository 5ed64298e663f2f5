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
/// Longest payload in bytes that a header can state.
pub const MAX_PAYLOAD: usize = 1 << 30;

const VALID: u64 = 1 << 63;
const SEQUENCE_BITS: u64 = 31;

/// The distance in bytes from the start of a record at `offset` to the start of the next one.
#[inline]
pub fn record_len(offset: usize, payload: usize) -> usize {
    let len = HEADER + payload;
    if payload >= ALIGN_FROM {
        (offset + len + HEADER).next_multiple_of(LINE) - HEADER - offset
    } else {
        len.next_multiple_of(HEADER)
    }
}

/// The smallest capacity in which a message of `max_message` bytes always fits once the ring is empty: its record and
/// the next header. A multiple of the page size, since the ring is mapped twice.
pub fn least_capacity(max_message: usize, page: usize) -> usize {
    (HEADER + max_message + LINE + HEADER).next_multiple_of(page)
}

/// The header word of the `sequence`-th record. Never 0, which means that nothing is published.
#[inline]
pub fn header(sequence: u64, payload: usize) -> u64 {
    VALID | (sequence & ((1 << SEQUENCE_BITS) - 1)) << 32 | payload as u64
}

/// The payload length in the header word of the `sequence`-th record; `None` if the word is not a header of that
/// record.
#[inline]
pub fn payload_len(word: u64, sequence: u64) -> Option<usize> {
    let payload = (word & 0xffff_ffff) as usize;
    (word == header(sequence, payload)).then_some(payload)
}

/// The payload length in a header word of any record; `None` if the word is not a header.
#[inline]
pub fn stated_len(word: u64) -> Option<usize> {
    (word & VALID != 0).then_some((word & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back() {
        for sequence in [0, 1, (1 << 31) - 1, 1 << 31, u64::MAX] {
            for payload in [0, 1, 64, MAX_PAYLOAD] {
                let word = header(sequence, payload);
                assert_ne!(word, 0);
                assert_eq!(payload_len(word, sequence), Some(payload));
                assert_eq!(stated_len(word), Some(payload));
                assert_eq!(payload_len(word, sequence.wrapping_add(1)), None);
            }
        }
    }

    #[test]
    fn payload_that_looks_like_text_or_a_counter_is_no_header() {
        for word in [1, 64, u64::from_ne_bytes(*b"messages"), u64::MAX] {
            assert_eq!(payload_len(word, 1), None, "{word:#x}");
        }
    }

    #[test]
    fn records_keep_headers_aligned_and_large_ones_make_the_next_payload_start_on_a_line() {
        for offset in (0..256).step_by(8) {
            for payload in [0, 1, 7, 8, 64, 511, 512, 4096, 65_537] {
                let end = offset + record_len(offset, payload);
                assert!(end >= offset + HEADER + payload);
                assert!(end + HEADER - offset <= least_capacity(payload, 1));
                assert_eq!(end % HEADER, 0);
                assert!(payload < ALIGN_FROM || (end + HEADER).is_multiple_of(LINE));
            }
        }
    }
}
