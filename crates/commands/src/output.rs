//! Output files that the user names. A regular file is written completely or not at all; anything else, such as a
//! device, is written to but never replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crossway_sys::error::RAISE_FILE_SIZE;
use crossway_sys::{Errno, whole_file};
use serde::Serialize;

/// Writes what `fill` produces to `path`, which the user chose. An error contains `remedy`, the next step for the user.
/// A regular file is either replaced as a whole or stays as it was. A device, a FIFO or `/dev/stdout` is written to,
/// not replaced. A symbolic link stays a link.
pub(crate) fn write(
    path: &Path,
    remedy: &str,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let written = match regular(path) {
        Some(file) => whole(&file, fill),
        None => {
            let opened = OpenOptions::new().write(true).open(path).map_err(anyhow::Error::from);
            opened.and_then(|file| filled(file, fill))
        }
    };
    written.map_err(|error| explained(error, path, remedy))
}

/// Writes what `fill` produces to a file that the user has not chosen, such as the page in a run's
/// folder, like [`write()`]. A link there, which may be a stranger's, is replaced.
pub(crate) fn replace(
    path: &Path,
    remedy: &str,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    whole(path, fill).map_err(|error| explained(error, path, remedy))
}

fn whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    whole_file::write(path, |file| filled(file.try_clone()?, fill))
}

fn filled(
    file: File,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    Ok(out.flush()?)
}

/// Adds what could not be written, and the next step, to an error: `remedy`, unless a limit of this process is the
/// cause, which applies to other files, too.
fn explained(error: anyhow::Error, path: &Path, remedy: &str) -> anyhow::Error {
    let errnos = || error.chain().filter_map(|e| e.downcast_ref::<io::Error>()?.raw_os_error());
    let remedy = if errnos().any(|errno| Errno::from_raw_os_error(errno) == Errno::FBIG) {
        RAISE_FILE_SIZE
    } else {
        remedy
    };
    let text = format!("cannot write {}; {remedy}", path.display());
    error.context(text)
}

/// Writes records as JSON, one per line.
pub(crate) fn write_lines(out: &mut impl Write, records: &[impl Serialize]) -> anyhow::Result<()> {
    for record in records {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Checks that [`write()`] will be able to write a regular file; checks nothing for other paths. To be called before
/// work that takes minutes and whose result would otherwise be lost.
pub(crate) fn check(path: &Path, remedy: &str) -> anyhow::Result<()> {
    let checked = regular(path).map_or(Ok(()), |file| whole_file::check(&file));
    checked.map_err(|error| explained(error.into(), path, remedy))
}

/// Returns the regular file, existing or yet to be created, to which `path` refers; `None` if it is something else or a
/// link whose target does not exist.
fn regular(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(found) => found.is_file().then(|| fs::canonicalize(path).unwrap_or(path.to_owned())),
        // Only the system can follow a link whose target does not exist yet.
        Err(_) => (!path.is_symlink()).then(|| path.to_owned()),
    }
}
