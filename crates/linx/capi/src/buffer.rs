//! What stands before a signal that C programs hold, and how they pass filters.

use crossway_linx::{Filter, Numbers, Signal, Spid};

/// Says that a buffer is one of this library's, and not freed.
pub(crate) const LIVE: u32 = 0x4c49_4e58;
/// Stands behind each signal.
pub(crate) const END_MARK: u8 = 0xee;

/// Before a signal's bytes.
#[repr(C, align(16))]
pub(crate) struct Head {
    pub(crate) live: u32,
    /// Bytes now, with the number.
    pub(crate) size: u32,
    /// Bytes when it was made.
    pub(crate) room: u32,
    /// 0: it was not received.
    pub(crate) sender: u32,
    pub(crate) out_of_band: u32,
    /// The endpoint that it belongs to.
    pub(crate) owner: usize,
}

impl Head {
    pub(crate) fn new(signal: &Signal, owner: usize) -> Head {
        let size = signal.size() as u32;
        Head {
            live: LIVE,
            size,
            room: size,
            sender: signal.sender().map_or(0, Spid::get),
            out_of_band: signal.is_out_of_band().into(),
            owner,
        }
    }
}

/// A filter of C: a count, and so many numbers; a negative count excludes them.
pub(crate) fn filter<'a>(count: i32, numbers: &'a [u32], from: Option<Spid>) -> Filter<'a> {
    let numbers = match count {
        0 => Numbers::Any,
        1.. => Numbers::Only(numbers),
        _ => Numbers::Except(numbers),
    };
    Filter { numbers, from }
}
