//! The part of ELF that is needed to convert file offsets to addresses.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Loaded segments of a program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segments {
    /// File offset, size in bytes and address of each segment.
    loaded: Vec<(u64, u64, u64)>,
}

const PT_LOAD: u32 = 1;
const PROGRAM_HEADER_BYTES: usize = 56;

impl Segments {
    /// The segments of a 64-bit little-endian ELF file; `None` if the file is something else.
    pub(super) fn of(path: &Path) -> Option<Segments> {
        let file = File::open(path).ok()?;
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        if head[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let at = u64_at(&head, 32)?;
        let count = u16::from_le_bytes(head[56..58].try_into().ok()?);
        let mut headers = vec![0; PROGRAM_HEADER_BYTES * usize::from(count)];
        file.read_exact_at(&mut headers, at).ok()?;
        let loaded = headers
            .chunks_exact(PROGRAM_HEADER_BYTES)
            .filter(|h| h[..4] == PT_LOAD.to_le_bytes())
            .filter_map(|h| Some((u64_at(h, 8)?, u64_at(h, 32)?, u64_at(h, 16)?)))
            .collect();
        Some(Segments { loaded })
    }

    /// The address at which this file offset is loaded. If no segment contains the offset, returns the offset itself:
    /// for programs at fixed addresses, perf reports addresses instead of offsets.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.loaded
            .iter()
            .find(|(from, bytes, _)| (*from..from + bytes).contains(&offset))
            .map_or(offset, |(from, _, address)| offset - from + address)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_segments_and_a_text_has_none() {
        let own = Segments::of(Path::new("/proc/self/exe")).unwrap();
        assert!(own.loaded.len() >= 2, "{own:?}");
        let (offset, bytes, address) = own.loaded[1];
        assert_eq!(own.address(offset + bytes - 1), address + bytes - 1);
        assert_eq!(own.address(u64::MAX), u64::MAX);
        assert_eq!(Segments::of(Path::new("/proc/self/stat")), None);
    }
}
