//! Writes capture files for tshark: pcap with nanosecond timestamps.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use crossway_report::units::count;

/// The link type of a capture, which states what its packets begin with.
#[derive(Clone, Copy)]
pub(crate) enum LinkType {
    /// Packets begin with an Ethernet header.
    Ethernet = 1,
    /// LINKTYPE_USER0: packets are decoded by a dissector that the user has registered.
    User0 = 147,
}

/// Returns the file header of a capture.
fn file_header(link: LinkType) -> Vec<u8> {
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

/// Size in bytes at which a batch of packets is written. A batch contains only whole packets.
const BATCH_BYTES: usize = 1 << 20;

/// A trace that is being written, in batches.
pub(crate) struct Capture<'a> {
    file: &'a Path,
    /// What a packet of it is called, and several.
    words: [&'static str; 2],
    out: Output,
    batch: Vec<u8>,
    /// Number of packets so far.
    pub(crate) written: u64,
}

impl<'a> Capture<'a> {
    /// Creates the file; `-` is standard output.
    pub(crate) fn create(
        file: &'a Path,
        link: LinkType,
        words: [&'static str; 2],
    ) -> anyhow::Result<Self> {
        let mut out = Output::create(file)?;
        out.write(&file_header(link), 0)?;
        Ok(Self { file, words, out, batch: Vec::new(), written: 0 })
    }

    /// Takes a packet, which `append` appends to what it is passed.
    pub(crate) fn take(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> anyhow::Result<()> {
        append(&mut self.batch);
        self.written += 1;
        if self.batch.len() < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    /// Whether everything has been written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.batch.is_empty()
    }

    /// Writes what has been taken.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.out.write(&self.batch, self.written)?;
        self.batch.clear();
        Ok(())
    }

    /// Whether it is written to standard output.
    pub(crate) fn is_on_stdout(&self) -> bool {
        self.file == Path::new("-")
    }

    /// A number of packets, in words.
    pub(crate) fn counted(&self, packets: u64) -> String {
        count(packets as usize, self.words[0], self.words[1])
    }

    /// How much has been written to where, in words.
    pub(crate) fn so_far(&self) -> String {
        format!("{} written to {}", self.counted(self.written), self.out.name)
    }

    /// Says how much was written, and how much was lost.
    pub(crate) fn tell(&self, lost: u64) {
        eprintln!("{}", self.so_far());
        if lost > 0 {
            eprintln!("{} lost: the output could not be written fast enough", self.counted(lost));
        }
    }
}

/// The file or stream to which the capture is written.
struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    /// Creates the file; `-` is standard output.
    fn create(path: &Path) -> anyhow::Result<Self> {
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
    fn write(&mut self, bytes: &[u8], count: u64) -> anyhow::Result<()> {
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
