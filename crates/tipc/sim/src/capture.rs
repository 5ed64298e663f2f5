//! Writes the frames of a run to a capture file, to find out why the run failed.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crossway_tipc_proto::addr::MediaAddr;
use crossway_tipc_proto::time::Nanos;

/// EtherType of TIPC.
const TIPC: u16 = 0x88ca;

thread_local! {
    /// This thread's capture file, if one is open. Networks that are created while it is open write every frame that
    /// they send to it.
    static OPEN: RefCell<Option<BufWriter<File>>> = const { RefCell::new(None) };
}

/// Opens a capture file: pcap with nanosecond timestamps, Ethernet.
pub(crate) fn begin(path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&0xa1b2_3c4d_u32.to_ne_bytes())?;
    for half in [2u16, 4] {
        file.write_all(&half.to_ne_bytes())?;
    }
    for word in [0u32, 0, 262_144, 1] {
        file.write_all(&word.to_ne_bytes())?;
    }
    OPEN.with_borrow_mut(|open| *open = Some(file));
    Ok(())
}

/// Closes the capture file.
pub(crate) fn end() -> io::Result<()> {
    OPEN.with_borrow_mut(Option::take).map_or(Ok(()), |mut file| file.flush())
}

pub(crate) fn is_open() -> bool {
    OPEN.with_borrow(Option::is_some)
}

/// Writes a frame as its sender passed it to the medium, whatever the medium then does with it. `to` is the
/// destination; `None` means all stations.
pub(crate) fn add(at: Nanos, from: MediaAddr, to: Option<MediaAddr>, frame: &[u8]) {
    let hardware = |addr| match addr {
        MediaAddr::Ethernet(address) => address,
        _ => [0; 6],
    };
    OPEN.with_borrow_mut(|open| {
        let Some(file) = open else { return };
        let len = (14 + frame.len()) as u32;
        let (seconds, nanos) = ((at.0 / 1_000_000_000) as u32, (at.0 % 1_000_000_000) as u32);
        let mut record = Vec::with_capacity(16 + len as usize);
        record.extend([seconds, nanos, len, len].into_iter().flat_map(u32::to_ne_bytes));
        record.extend(to.map_or([0xff; 6], hardware));
        record.extend(hardware(from));
        record.extend(TIPC.to_be_bytes());
        record.extend(frame);
        // If the disk is full, the rest of the capture is lost, but the run that it should explain goes on.
        if file.write_all(&record).is_err() {
            *open = None;
        }
    });
}
