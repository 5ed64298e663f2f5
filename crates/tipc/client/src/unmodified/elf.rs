//! What the headers of a program or library say about how it is loaded.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How the names of libraries begin that refuse to run unless they are loaded before all others: the run-time libraries of the
/// address sanitizers of gcc and clang. A program into which such a library is linked statically needs nothing.
const FIRST_LIBRARIES: [&str; 4] =
    ["libasan.so", "libhwasan.so", "libclang_rt.asan", "libclang_rt.hwasan"];

/// Bytes in a word of this processor's, of which most fields of its ELF files are.
const WORD: usize = size_of::<usize>();
/// The class of ELF files with such words.
const CLASS: u8 = if WORD == 8 { 2 } else { 1 };

/// The word at a place.
fn word(raw: &[u8], at: usize) -> Option<usize> {
    Some(usize::from_le_bytes(*raw.get(at..)?.first_chunk()?))
}

/// The first bytes of a file: the headers of a program, or the first line of a script.
pub(super) fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(4096).read_to_end(&mut start)?;
    Ok(start)
}

/// The parts of an ELF file that determine how it is loaded.
pub(super) struct Elf {
    /// Class, byte order and machine.
    pub(super) machine: [u8; 4],
    /// Path of the program's dynamic loader; `None` if it is statically linked.
    pub(super) loader: Option<Vec<u8>>,
    /// Whether the file contains a note written by Go's linker.
    pub(super) is_go: bool,
    /// Libraries that the program needs and that must be loaded before all others.
    pub(super) first_libraries: Vec<String>,
}

impl Elf {
    /// That of this program, whose machine the library's must be.
    pub(super) fn own() -> Option<Self> {
        Self::open(Path::new("/proc/self/exe")).ok()?
    }

    /// Reads the headers of a file; see [`Elf::read`].
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let start = beginning(&file)?;
        Ok(Self::read(&file, &start))
    }

    /// Reads the headers of a file. Returns `None` if it is not an ELF file, or if its headers are invalid when read as
    /// little-endian.
    pub(super) fn read(file: &File, start: &[u8]) -> Option<Self> {
        const LOADED: u32 = 1;
        const DYNAMIC: u32 = 2;
        const INTERPRETER: u32 = 3;
        const NOTES: u32 = 4;
        if !start.starts_with(b"\x7fELF") {
            return None;
        }
        let half = |raw: &[u8], at: usize| {
            Some(usize::from(u16::from_le_bytes(*raw.get(at..)?.first_chunk()?)))
        };
        let machine = [*start.get(4)?, *start.get(5)?, *start.get(18)?, *start.get(19)?];
        if machine[0] != CLASS {
            // A different word size, so it is for another machine.
            let first_libraries = Vec::new();
            return Some(Self { machine, loader: Some(Vec::new()), is_go: false, first_libraries });
        }
        let table = word(start, 24 + WORD)?;
        let (len, count) = (half(start, 30 + 3 * WORD)?, half(start, 32 + 3 * WORD)?);
        let (mut loader, mut is_go) = (None, false);
        let (mut loaded, mut dynamic) = (Vec::new(), Vec::new());
        for n in 0..count {
            let mut entry = vec![0; len.max(5 * WORD)];
            let at = table as u64 + n as u64 * len as u64;
            file.read_exact_at(&mut entry, at).ok()?;
            let [place, address, bytes] = [1, 2, 4].map(|nth| word(&entry, nth * WORD));
            let (place, address, bytes) = (place?, address?, bytes?);
            let content = || {
                let mut content = vec![0; bytes.min(1 << 16)];
                file.read_exact_at(&mut content, place as u64).ok()?;
                Some(content)
            };
            match u32::from_le_bytes(*entry.first_chunk()?) {
                INTERPRETER => loader = Some(content()?),
                LOADED => loaded.push((address, bytes, place)),
                DYNAMIC => dynamic = content()?,
                NOTES => is_go |= has_note_of_go(&content()?),
                _ => {}
            }
        }
        let first_libraries = needed(file, &dynamic, &loaded).unwrap_or_default();
        Some(Self { machine, loader, is_go, first_libraries })
    }
}

/// Which of [`FIRST_LIBRARIES`] a program needs, judged by its dynamic section. `loaded` has the address, length and place in the
/// file of each part that is loaded. Returns `None` if the file cannot be read in this way.
fn needed(file: &File, dynamic: &[u8], loaded: &[(usize, usize, usize)]) -> Option<Vec<String>> {
    const NEEDED: usize = 1;
    const NAMES: usize = 5;
    /// Longer than the names in question.
    const NAME_MAX: usize = 64;
    let entries = || {
        let entries = dynamic.chunks_exact(2 * WORD);
        entries.filter_map(|entry| Some((word(entry, 0)?, word(entry, WORD)?)))
    };
    let (_, names) = entries().find(|(tag, _)| *tag == NAMES)?;
    let (start, _, place) = loaded
        .iter()
        .find(|(start, len, _)| (*start..start.saturating_add(*len)).contains(&names))?;
    let mut found = Vec::new();
    for (_, offset) in entries().filter(|(tag, _)| *tag == NEEDED) {
        let mut name = [0; NAME_MAX];
        let at = (names - start).checked_add(*place)?.checked_add(offset)?;
        let len = file.read_at(&mut name, at as u64).ok()?;
        let name = name[..len].split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        if FIRST_LIBRARIES.iter().any(|first| name.starts_with(first)) {
            found.push(name.into_owned());
        }
    }
    Some(found)
}

/// Whether one of a segment's notes is the build ID written by Go's linker.
fn has_note_of_go(mut notes: &[u8]) -> bool {
    const BUILD_ID: u32 = 4;
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| head[at..].first_chunk().map_or(0, |w| u32::from_le_bytes(*w));
        let padded = |len: u32| (len as usize).next_multiple_of(4);
        let (name, content) = (padded(word(0)), padded(word(4)));
        if word(8) == BUILD_ID && rest.starts_with(b"Go\0\0") {
            return true;
        }
        notes = rest.get(name + content..).unwrap_or_default();
    }
    false
}
