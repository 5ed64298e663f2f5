//! The header in front of each signal that C programs hold, and filters in the form that C programs pass.

use crossway_linx::{Filter, Numbers, Signal, Spid};

/// Marks a buffer that was allocated by this library and not freed.
pub(crate) const LIVE: u32 = 0x4c49_4e58;
/// The byte after each signal, which detects overruns.
pub(crate) const END_MARK: u8 = 0xee;

/// The header in front of a signal's bytes.
#[repr(C, align(16))]
pub(crate) struct Head {
    pub(crate) live: u32,
    /// Current size in bytes, including the signal number.
    pub(crate) size: u32,
    /// Size in bytes with which the signal was allocated.
    pub(crate) room: u32,
    /// The sender's number, 0 if the signal was not received.
    pub(crate) sender: u32,
    pub(crate) out_of_band: u32,
    /// The address of the endpoint that the signal belongs to.
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

/// Converts a filter from C, which is a count followed by signal numbers. A positive count accepts only these numbers,
/// a negative one accepts all except these, and 0 accepts any number.
pub(crate) fn filter<'a>(count: i32, numbers: &'a [u32], from: Option<Spid>) -> Filter<'a> {
    let numbers = match count {
        0 => Numbers::Any,
        1.. => Numbers::Only(numbers),
        _ => Numbers::Except(numbers),
    };
    Filter { numbers, from }
}
