//! Why an unmodified program cannot be started with a preloaded library.

use std::path::PathBuf;

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
    #[error("the library's path {} contains a space or a colon, which LD_PRELOAD treats as a separator: pass \
             a copy with another path (--library)", .path.display())]
    LibraryPath {
        /// Path of the library.
        path: PathBuf,
    },
    /// The file is no library, or one for another machine, so the loader would ignore it.
    #[error(
        "{} is not a library for this machine, so the loader would ignore it: pass the path of one that belongs to this \
         crossway (--library), or leave the option out",
        .path.display()
    )]
    NotALibrary {
        /// Path of the file.
        path: PathBuf,
    },
    /// The program that a script's first line names does not exist.
    #[error(
        "{} is a script for {interpreter:?}, which does not exist: install that program, or correct the script's first \
         line", .script.display()
    )]
    NoInterpreter {
        /// Path of the script.
        script: PathBuf,
        /// What its first line names.
        interpreter: PathBuf,
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
        "{} gains privileges when started (setuid, setgid or file capabilities), so the loader ignores LD_PRELOAD: start it as its owner",
        .path.display()
    )]
    Privileged {
        /// Path of the program.
        path: PathBuf,
    },
}
