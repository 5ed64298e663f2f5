//! Starts unmodified programs with a preloaded library (crates/tipc/preload) that redirects their AF_TIPC calls to a
//! `tipcd`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_sys::program::Missing;
use crossway_sys::{file_caps, program, trust};

use crate::SOCKET_VARIABLE;

/// File name of the preloaded library.
pub const LIBRARY: &str = "libcrossway_tipc_preload.so";

/// The dynamic loader's environment variable for libraries to load before all others.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// How the names of libraries begin that refuse to run unless they are loaded before all others: the run-time libraries of the
/// address sanitizers of gcc and clang. A program into which such a library is linked statically needs nothing.
const FIRST_LIBRARIES: [&str; 4] =
    ["libasan.so", "libhwasan.so", "libclang_rt.asan", "libclang_rt.hwasan"];

/// Maximum depth of nested script interpreters; the kernel's limit is lower.
const SCRIPTS_MAX: usize = 6;

/// Why a program cannot be started with the library.
#[derive(Debug, thiserror::Error)]
pub enum CannotRun {
    /// The library was not found.
    #[error(
        "{library} was not found at {looked}: install it (make install), or pass its path (--library)"
    )]
    NoLibrary {
        /// File name of the library.
        library: String,
        /// Directories that were searched.
        looked: String,
    },
    /// The library's path contains a character that the loader treats as a separator.
    #[error("the library's path {} contains a space or a colon, which {PRELOAD_VARIABLE} treats as a separator: pass \
             a copy with another path (--library)", .path.display())]
    LibraryPath {
        /// Path of the library.
        path: PathBuf,
    },
    /// The program was not found.
    #[error("{}: no such program; check its name and $PATH", .program.display())]
    NotFound {
        /// Program as given by the caller.
        program: PathBuf,
    },
    /// The program exists, but this user may not execute it.
    #[error("{}: permission denied: {why}", .path.display())]
    NotExecutable {
        /// Path of the file.
        path: PathBuf,
        /// What forbids it, and what to do.
        why: &'static str,
    },
    /// The program exists but cannot be read, for a reason other than missing permission.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// Path of the program.
        path: PathBuf,
        /// Why the program could not be read.
        source: std::io::Error,
    },
    /// The program is statically linked, so no loader could load the library.
    #[error(
        "{} is linked statically, so its calls cannot be intercepted: link it dynamically, or write it for Crossway's C library (crossway_tipc.h)",
        .path.display()
    )]
    Static {
        /// Path of the program.
        path: PathBuf,
    },
    /// The program is written in Go: its system calls do not go through the C library.
    #[error(
        "{} is a Go program, which makes its system calls itself, so they cannot be intercepted: use Crossway's C library through cgo \
         (crossway_tipc.h; package in share/doc/crossway/examples/go, or crates/tipc/capi/examples/go in the sources)",
        .path.display()
    )]
    Go {
        /// Path of the program.
        path: PathBuf,
    },
    /// The program was built for a different machine.
    #[error("{} is for another machine: use a build of the program for this one", .path.display())]
    Foreign {
        /// Path of the program.
        path: PathBuf,
    },
    /// The program was linked with musl, another C library than the library's.
    #[error("{} is linked with musl, unlike the library that must be loaded into it: use a build of the program for this \
             machine's C library", .path.display())]
    Musl {
        /// Path of the program.
        path: PathBuf,
    },
    /// The program gains privileges when it is started, so the loader ignores the library.
    #[error(
        "{} gains privileges when started (setuid, setgid or file capabilities), so the loader ignores {PRELOAD_VARIABLE}: start it as its owner",
        .path.display()
    )]
    Privileged {
        /// Path of the program.
        path: PathBuf,
    },
}

/// Finds a library in the directory of the program `own`, or in the `lib` directory next to that
/// directory. One that others may write or replace, such as a stranger's beside a program in
/// `/tmp`, is passed over.
///
/// # Errors
/// [`CannotRun::NoLibrary`], [`CannotRun::LibraryPath`].
pub fn library_named(name: &str, own: &Path) -> Result<PathBuf, CannotRun> {
    let dir = own.parent().unwrap_or(Path::new("/"));
    let mut looked = Vec::new();
    for place in [dir.to_owned(), dir.join("../lib")] {
        match trust::check(&place.join(name)) {
            Ok(()) => return loadable(&place.join(name)),
            Err(why) if why.is_missing() => looked.push(place.display().to_string()),
            Err(why) => looked.push(format!("{} (not used: {why})", place.display())),
        }
    }
    Err(CannotRun::NoLibrary { library: name.to_owned(), looked: looked.join(" or ") })
}

/// Checks that a library's path can be passed to the loader, and makes it absolute.
///
/// # Errors
/// [`CannotRun::NoLibrary`], [`CannotRun::LibraryPath`].
pub fn loadable(path: &Path) -> Result<PathBuf, CannotRun> {
    let path = path.canonicalize().map_err(|_| CannotRun::NoLibrary {
        library: "the library".to_owned(),
        looked: path.display().to_string(),
    })?;
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(CannotRun::LibraryPath { path });
    }
    Ok(path)
}

/// Returns the command that runs a program with the library, connected to the tipcd at `socket`.
///
/// # Errors
/// [`CannotRun`] if the library would not be loaded.
pub fn command(
    library: &Path,
    socket: &Path,
    program: &OsStr,
    arguments: &[OsString],
) -> Result<Command, CannotRun> {
    let mut command = preloading(library, program, arguments)?;
    // Make it absolute, so that it stays valid if the program changes its directory.
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    command.env(SOCKET_VARIABLE, socket);
    Ok(command)
}

/// Returns the command that runs a program with the library.
///
/// # Errors
/// [`CannotRun`] if the library would not be loaded.
pub fn preloading(
    library: &Path,
    program: &OsStr,
    arguments: &[OsString],
) -> Result<Command, CannotRun> {
    let path = find(program)?;
    let mut preload = OsString::new();
    // The loader finds them as it finds any library that a program needs.
    for first in check(&path, SCRIPTS_MAX)? {
        preload.push(first);
        preload.push(":");
    }
    preload.push(library);
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(program);
    command.args(arguments).env(PRELOAD_VARIABLE, preload);
    Ok(command)
}

/// Checks that a library would be loaded into a program.
///
/// # Errors
/// [`CannotRun`] if not.
pub fn loads_libraries(program: &OsStr) -> Result<(), CannotRun> {
    check(&find(program)?, SCRIPTS_MAX).map(drop)
}

/// Finds the file of a program as a shell does.
fn find(name: &OsStr) -> Result<PathBuf, CannotRun> {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    program::find_in(name, &dirs).ok_or_else(|| match program::why_missing(name, &dirs) {
        Missing::NoFile => CannotRun::NotFound { program: PathBuf::from(name) },
        Missing::Directory(path) => {
            CannotRun::NotExecutable { path, why: "it is a directory; name a program" }
        }
        Missing::NotExecutable(path) => CannotRun::NotExecutable {
            path,
            why: "it is not executable for this user; make it executable (chmod +x), or name the program that runs it",
        },
        Missing::Unsearchable(path) => CannotRun::NotExecutable {
            path,
            why: "this user may not enter its folder; run as a user who may",
        },
    })
}

/// Checks that the loader will load the library into a program; for a script, into its interpreter. A file that this
/// user may not read passes. Returns the names of libraries that must be loaded before it ([`FIRST_LIBRARIES`]).
fn check(path: &Path, scripts_left: usize) -> Result<Vec<String>, CannotRun> {
    let unreadable = |source| CannotRun::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        // An executable that cannot be read cannot be checked.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(unreadable(error)),
    };
    let about = file.metadata().map_err(unreadable)?;
    let own = fs::metadata("/proc/self").map_err(unreadable)?;
    let (mode, path) = (about.permissions().mode(), path.to_owned());
    let other_user = mode & 0o4000 != 0 && about.uid() != own.uid();
    if other_user || (mode & 0o2000 != 0 && about.gid() != own.gid()) {
        return Err(CannotRun::Privileged { path });
    }
    // Root gains no additional privileges.
    if own.uid() != 0 && file_caps::has_capabilities(&path) {
        return Err(CannotRun::Privileged { path });
    }
    let mut start = Vec::new();
    (&file).take(4096).read_to_end(&mut start).map_err(unreadable)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|w| !w.is_empty());
        return match words.next() {
            Some(interpreter) if scripts_left > 0 => {
                check(Path::new(OsStr::from_bytes(interpreter)), scripts_left - 1)
            }
            _ => Ok(Vec::new()),
        };
    }
    let Some(program) = Elf::read(&file, &start) else { return Ok(Vec::new()) };
    let of_library = File::open("/proc/self/exe").ok().and_then(|own| {
        let mut start = Vec::new();
        (&own).take(4096).read_to_end(&mut start).ok()?;
        Elf::read(&own, &start)
    });
    if of_library.is_some_and(|own| own.machine != program.machine) {
        return Err(CannotRun::Foreign { path });
    }
    match program.loader {
        _ if program.is_go => Err(CannotRun::Go { path }),
        None => Err(CannotRun::Static { path }),
        Some(loader) if loader.windows(4).any(|part| part == b"musl") => {
            Err(CannotRun::Musl { path })
        }
        Some(_) => Ok(program.first_libraries),
    }
}

/// The parts of an ELF file that determine how it is loaded.
struct Elf {
    /// Class, byte order and machine.
    machine: [u8; 4],
    /// Path of the program's dynamic loader; `None` if it is statically linked.
    loader: Option<Vec<u8>>,
    /// Whether the file contains a note written by Go's linker.
    is_go: bool,
    /// Libraries that the program needs and that must be loaded before all others.
    first_libraries: Vec<String>,
}

impl Elf {
    /// Reads the headers of a file. Returns `None` if it is not an ELF file, or if its headers are invalid when read as
    /// little-endian.
    fn read(file: &File, start: &[u8]) -> Option<Self> {
        const WIDE: u8 = 2;
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
        let long = |raw: &[u8], at: usize| Some(u64::from_le_bytes(*raw.get(at..)?.first_chunk()?));
        let machine = [*start.get(4)?, *start.get(5)?, *start.get(18)?, *start.get(19)?];
        if machine[0] != WIDE {
            // A different word size, so it is for another machine.
            let first_libraries = Vec::new();
            return Some(Self { machine, loader: Some(Vec::new()), is_go: false, first_libraries });
        }
        let (table, len, count) = (long(start, 32)?, half(start, 54)?, half(start, 56)?);
        let (mut loader, mut is_go) = (None, false);
        let (mut loaded, mut dynamic) = (Vec::new(), Vec::new());
        for n in 0..count {
            let mut entry = vec![0; len.max(56)];
            file.read_exact_at(&mut entry, table + (n * len) as u64).ok()?;
            let content = || {
                let mut content = vec![0; usize::try_from(long(&entry, 32)?).ok()?.min(1 << 16)];
                file.read_exact_at(&mut content, long(&entry, 8)?).ok()?;
                Some(content)
            };
            match u32::from_le_bytes(*entry.first_chunk()?) {
                INTERPRETER => loader = Some(content()?),
                LOADED => loaded.push((long(&entry, 16)?, long(&entry, 32)?, long(&entry, 8)?)),
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
fn needed(file: &File, dynamic: &[u8], loaded: &[(u64, u64, u64)]) -> Option<Vec<String>> {
    const NEEDED: u64 = 1;
    const NAMES: u64 = 5;
    /// Longer than the names in question.
    const NAME_MAX: usize = 64;
    let word = |raw: &[u8]| raw.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let entries = || dynamic.chunks_exact(16).map(|entry| (word(entry), word(&entry[8..])));
    let (_, names) = entries().find(|(tag, _)| *tag == NAMES)?;
    let (start, _, place) = loaded
        .iter()
        .find(|(start, len, _)| (*start..start.saturating_add(*len)).contains(&names))?;
    let mut found = Vec::new();
    for (_, offset) in entries().filter(|(tag, _)| *tag == NEEDED) {
        let mut name = [0; NAME_MAX];
        let at = (names - start).checked_add(*place)?.checked_add(offset)?;
        let len = file.read_at(&mut name, at).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(path: &Path) -> Result<Command, CannotRun> {
        command(Path::new("/lib/x.so"), Path::new("tipcd.sock"), path.as_os_str(), &[])
    }

    #[test]
    fn what_cannot_be_preloaded_is_refused_by_its_cause() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, content: &[u8], mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(sh(Path::new("/bin/sh")).is_ok());
        assert!(command(Path::new("/x"), Path::new("/y"), OsStr::new("sh"), &[]).is_ok());
        assert!(matches!(sh(Path::new("/nowhere/x")), Err(CannotRun::NotFound { .. })));
        let plain = at("plain", b"#!/bin/sh\n", 0o644);
        let refused = sh(&plain).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("{}: permission denied", plain.display())),
            "{refused}"
        );
        assert!(refused.contains("chmod +x"), "{refused}");
        assert!(matches!(sh(dir.path()), Err(CannotRun::NotExecutable { .. })), "a directory");
        assert!(sh(&at("script", b"#! /bin/sh -e\n", 0o755)).is_ok());

        // The same file without program headers, so without a loader.
        let mut header = own[..64].to_vec();
        header[56..58].fill(0);
        let fixed = at("static", &header, 0o755);
        assert!(matches!(sh(&fixed), Err(CannotRun::Static { .. })));
        let script = format!("#!{}\n", fixed.display());
        let script = at("by-static", script.as_bytes(), 0o755);
        assert!(matches!(sh(&script), Err(CannotRun::Static { path }) if path == fixed));
        header[18] ^= 1;
        let foreign = at("foreign", &header, 0o755);
        assert!(matches!(sh(&foreign), Err(CannotRun::Foreign { .. })));
        // One program header, with two notes: a foreign one and Go's.
        header[18] ^= 1;
        header[32..40].copy_from_slice(&64_u64.to_le_bytes());
        (header[54], header[56]) = (56, 1);
        let mut go = [&header[..], &[0; 56]].concat();
        let notes =
            b"\x04\0\0\0\x02\0\0\0\x01\0\0\0GNU\0xy\0\0\x04\0\0\0\x01\0\0\0\x04\0\0\0Go\0\0i\0\0\0";
        go[64] = 4;
        go[72..80].copy_from_slice(&120_u64.to_le_bytes());
        go[96..104].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        go.extend(notes);
        let go = at("go", &go, 0o755);
        assert!(matches!(sh(&go), Err(CannotRun::Go { .. })));
        let looped = dir.path().join("looped");
        let text = format!("#!{}\n", looped.display());
        assert!(sh(&at("looped", text.as_bytes(), 0o755)).is_ok(), "the kernel returns ELOOP");
    }

    #[test]
    fn the_library_is_found_beside_the_program_or_in_lib() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir(&lib).unwrap();
        let own = bin.join("crossway");
        let missing = library_named(LIBRARY, &own).unwrap_err().to_string();
        assert!(missing.contains(&bin.display().to_string()), "{missing}");
        fs::write(lib.join(LIBRARY), "").unwrap();
        let real = |path: PathBuf| path.canonicalize().unwrap();
        assert_eq!(library_named(LIBRARY, &own).unwrap(), real(lib.join(LIBRARY)));
        fs::write(bin.join(LIBRARY), "").unwrap();
        assert_eq!(library_named(LIBRARY, &own).unwrap(), real(bin.join(LIBRARY)));
        // Others could have put it there; the other place is not theirs.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(bin.join(LIBRARY), fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(library_named(LIBRARY, &own).unwrap(), real(lib.join(LIBRARY)));
        fs::remove_file(lib.join(LIBRARY)).unwrap();
        let refused = library_named(LIBRARY, &own).unwrap_err().to_string();
        assert!(refused.contains("not used: other users may write to"), "{refused}");
        let spaced = dir.path().join("a b");
        fs::write(&spaced, "").unwrap();
        assert!(matches!(loadable(&spaced), Err(CannotRun::LibraryPath { .. })));
    }

    #[test]
    fn the_environment_names_library_and_tipcd() {
        let command = sh(Path::new("/bin/sh")).unwrap();
        let value = |name: &str| {
            let found = command.get_envs().find(|(key, _)| *key == name);
            found.and_then(|(_, value)| value).unwrap().to_owned()
        };
        assert!(value(PRELOAD_VARIABLE).as_bytes().starts_with(b"/lib/x.so"));
        assert!(Path::new(&value(SOCKET_VARIABLE)).is_absolute());
    }
}
