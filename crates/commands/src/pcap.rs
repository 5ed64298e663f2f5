//! Writes capture files for tshark: pcap with nanosecond timestamps.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// The link type of a capture, which states what its packets begin with.
#[derive(Clone, Copy)]
pub(crate) enum LinkType {
    /// Packets begin with an Ethernet header.
    Ethernet = 1,
    /// LINKTYPE_USER0: packets are decoded by a dissector that the user has registered.
    User0 = 147,
}

/// Returns the file header of a capture.
pub(crate) fn file_header(link: LinkType) -> Vec<u8> {
    // Magic number of nanosecond captures, version 2.4, time zone and accuracy unset, maximum record length.
    let mut header = 0xa1b2_3c4d_u32.to_ne_bytes().to_vec();
    header.extend([2u16, 4].into_iter().flat_map(u16::to_ne_bytes));
    header.extend([0u32, 0, 262_144, link as u32].into_iter().flat_map(u32::to_ne_bytes));
    header
}

/// Appends a packet; `whole_len` is its length in bytes before it was truncated.
pub(crate) fn append(at_ns: u64, packet: &[u8], whole_len: usize, out: &mut Vec<u8>) {
    let at = Duration::from_nanos(at_ns);
    let words = [at.as_secs() as u32, at.subsec_nanos(), packet.len() as u32, whole_len as u32];
    out.extend(words.into_iter().flat_map(u32::to_ne_bytes));
    out.extend_from_slice(packet);
}

/// The file or stream to which the capture is written.
pub(crate) struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    /// Creates the file; `-` is standard output.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                to: Box::new(std::io::stdout()),
                name: "standard output".to_owned(),
            });
        }
        let name = path.display().to_string();
        let file = File::create(path).with_context(|| {
            format!("cannot create {name}; name a file in a directory that you may write to")
        })?;
        Ok(Self { to: Box::new(file), name })
    }

    /// Writes whole records. `count` is the number of records so far, including these; an error reports it.
    pub(crate) fn write(&mut self, bytes: &[u8], count: u64) -> anyhow::Result<()> {
        self.to.write_all(bytes).and_then(|()| self.to.flush()).map_err(|error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::StorageFull => {
                    "the disk is full: free some space or name a file elsewhere"
                }
                std::io::ErrorKind::BrokenPipe => "the reader has closed the pipe",
                _ => "name another file",
            };
            anyhow::anyhow!(
                "cannot write to {}: {error}; {remedy}; the trace ended after packet {count}, and the last packets up \
                 to it may be missing",
                self.name
            )
        })
    }
}
