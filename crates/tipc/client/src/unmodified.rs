//! Starts unmodified programs with a preloaded library (crates/tipc/preload) that redirects their AF_TIPC calls to a
//! `tipcd`.

mod cannot_run;
mod elf;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_sys::program::Missing;
use crossway_sys::{file_caps, program, trust};

use crate::SOCKET_VARIABLE;
pub use cannot_run::CannotRun;
use elf::{Elf, beginning};

/// File name of the preloaded library.
pub const LIBRARY: &str = "libcrossway_tipc_preload.so";

/// The dynamic loader's environment variable for libraries to load before all others.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Maximum depth of nested script interpreters; the kernel's limit is lower.
const SCRIPTS_MAX: usize = 6;

/// Finds a library in the directory of the program `own`, or in the `lib` directory next to that
/// directory. One that others may write or replace, such as a stranger's beside a program in
/// `/tmp`, is passed over.
///
/// # Errors
/// [`CannotRun::NoLibrary`], and those of [`loadable`].
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

/// Checks that the loader will take a library by its path, and makes it absolute.
///
/// # Errors
/// [`CannotRun::NoLibrary`], [`CannotRun::LibraryPath`], [`CannotRun::NotALibrary`].
pub fn loadable(path: &Path) -> Result<PathBuf, CannotRun> {
    let path = path.canonicalize().map_err(|_| CannotRun::NoLibrary {
        library: "the library".to_owned(),
        looked: path.display().to_string(),
    })?;
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(CannotRun::LibraryPath { path });
    }
    // What cannot be read cannot be checked.
    let readable = Elf::open(&path);
    let fits = |elf: Elf| Elf::own().is_none_or(|own| own.machine == elf.machine);
    if readable.is_ok_and(|elf| !elf.is_some_and(fits)) {
        return Err(CannotRun::NotALibrary { path });
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
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
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
    let start = beginning(&file).map_err(unreadable)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|w| !w.is_empty());
        return match words.next() {
            Some(interpreter) if scripts_left > 0 => {
                let interpreter = Path::new(OsStr::from_bytes(interpreter));
                if fs::metadata(interpreter).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
                    let interpreter = interpreter.to_owned();
                    return Err(CannotRun::NoInterpreter { script: path, interpreter });
                }
                check(interpreter, scripts_left - 1)
            }
            _ => Ok(Vec::new()),
        };
    }
    let Some(program) = Elf::read(&file, &start) else { return Ok(Vec::new()) };
    if Elf::own().is_some_and(|own| own.machine != program.machine) {
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
        // Written on a machine whose lines end otherwise.
        let script = at("script-for-none", b"#!/bin/sh\r\necho\r\n", 0o755);
        let refused = sh(&script).unwrap_err().to_string();
        let expected =
            format!("{} is a script for \"/bin/sh\\r\", which does not exist: ", script.display());
        assert!(refused.starts_with(&expected), "{refused}");

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
        fs::write(lib.join(LIBRARY), "no library").unwrap();
        let refused = library_named(LIBRARY, &own).unwrap_err().to_string();
        assert!(refused.contains("is not a library for this machine"), "{refused}");
        // Without program headers, which a file of this length does not have.
        let mut header = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        header[56..58].fill(0);
        fs::write(lib.join(LIBRARY), &header).unwrap();
        let real = |path: PathBuf| path.canonicalize().unwrap();
        assert_eq!(library_named(LIBRARY, &own).unwrap(), real(lib.join(LIBRARY)));
        fs::write(bin.join(LIBRARY), &header).unwrap();
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
