//! Writes random bytes to everything in a process that belongs to a channel: its descriptors and its shared memory.
//! Whatever existed before the channel was opened is not touched.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::Duration;

use crossway_loops::payload::next_random;
use crossway_records::sorting::CollectTree;
use crossway_sys::proc;

use super::observation::NoObservation;

/// Bytes written to each descriptor: more than a message, so that a byte stream yields at least one message.
const INTO_DESCRIPTOR: usize = 8192;

/// Maximum number of bytes written to one mapping.
const INTO_MAPPING: usize = 4 << 20;

/// A descriptor that accepts nothing for this long counts as full.
const PATIENCE: Duration = Duration::from_millis(50);

/// The descriptors and mappings of a process before the channel was opened.
#[derive(Debug)]
pub(super) struct Vandal {
    pid: u32,
    descriptors: BTreeSet<(RawFd, String)>,
    mappings: BTreeSet<(u64, u64)>,
}

/// Extent of the damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// Number of descriptors that accepted random bytes.
    pub(super) descriptors: usize,
    /// Number of bytes of shared memory that were overwritten.
    pub(super) shared_bytes: usize,
}

impl Damage {
    /// What was damaged, in words.
    pub(super) fn words(self) -> String {
        let Damage { descriptors, shared_bytes } = self;
        format!(
            "random bytes were written to {descriptors} of the channel's descriptors and over {shared_bytes} bytes of its \
             shared memory"
        )
    }
}

impl Vandal {
    /// Lists the current descriptors and mappings of a process.
    pub(super) fn before(pid: u32) -> Vandal {
        Vandal { pid, descriptors: descriptors(pid), mappings: shared_mappings(pid) }
    }

    /// Overwrites what the process has acquired since [`Vandal::before`].
    ///
    /// # Errors
    /// It has acquired nothing that can be overwritten.
    pub(super) fn strike(&self) -> Result<Damage, NoObservation> {
        let mut state = 0x7641;
        let mut damage = Damage::default();
        let memory = fs::OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.pid));
        for &(begin, end) in shared_mappings(self.pid).difference(&self.mappings) {
            let bytes = noise(&mut state, ((end - begin) as usize).min(INTO_MAPPING));
            if memory.as_ref().is_ok_and(|memory| memory.write_all_at(&bytes, begin).is_ok()) {
                damage.shared_bytes += bytes.len();
            }
        }
        for (number, target) in descriptors(self.pid).difference(&self.descriptors) {
            let bytes = match target.as_str() {
                // A few spurious wake-ups; more at the same time would have no further effect.
                "anon_inode:[eventfd]" => 3u64.to_ne_bytes().to_vec(),
                t if t.starts_with("anon_inode:") => continue,
                _ => noise(&mut state, INTO_DESCRIPTOR),
            };
            let Ok(descriptor) = proc::descriptor_of(self.pid, *number) else { continue };
            // In a thread, because a write to a full channel would block.
            let (done, wrote) = mpsc::channel();
            std::thread::spawn(move || {
                let _ = done.send(File::from(descriptor).write(&bytes).is_ok_and(|n| n > 0));
            });
            damage.descriptors += usize::from(wrote.recv_timeout(PATIENCE).unwrap_or(false));
        }
        if damage == Damage::default() {
            return Err(NoObservation::skipped(
                "the end has neither shared memory nor a descriptor of the channel that accepts arbitrary bytes, so \
                 it cannot write garbage",
            ));
        }
        Ok(damage)
    }
}

fn noise(state: &mut u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    for word in bytes.as_chunks_mut::<8>().0 {
        *word = next_random(state).to_le_bytes();
    }
    bytes.truncate(len);
    bytes
}

fn descriptors(pid: u32) -> BTreeSet<(RawFd, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?.display().to_string();
            Some((number, target))
        })
        .collect_tree()
}

/// The shared and writable mappings of a process, except those of a kernel facility such as io_uring.
fn shared_mappings(pid: u32) -> BTreeSet<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines()
        .filter(|line| !line.contains("anon_inode:"))
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (begin, end) = range.split_once('-')?;
            let shared = rest.starts_with("rw") && rest.as_bytes().get(3) == Some(&b's');
            let number = |text| u64::from_str_radix(text, 16).ok();
            shared.then_some((number(begin)?, number(end)?))
        })
        .collect_tree()
}
