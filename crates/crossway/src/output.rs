//! Output files named by the user: written completely or not at all; something other than a regular file is never replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Writes what `fill` produces to `path`, which was given with the option `option`. A regular file is replaced as a whole or
/// stays as it was; a device, a FIFO or standard output by its path (`/dev/stdout`) is written to, not replaced; a symbolic link
/// stays a link.
pub(crate) fn write(
    path: &Path,
    option: &str,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}; name another file with {option}", path.display());
    let Some(file) = regular(path) else {
        let attempt = || -> anyhow::Result<()> {
            let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
            fill(&mut out)?;
            Ok(out.flush()?)
        };
        return attempt().with_context(cannot);
    };
    let attempt = |part: &Path| -> anyhow::Result<()> {
        let mut out = BufWriter::new(File::create(part)?);
        fill(&mut out)?;
        out.flush()?;
        Ok(fs::rename(part, &file)?)
    };
    let part = part_of(&file).with_context(cannot)?;
    attempt(&part).with_context(cannot).inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// Checks that [`write()`] will be able to write: call it before work that takes minutes and whose result could otherwise not be stored.
pub(crate) fn check(path: &Path, option: &str) -> anyhow::Result<()> {
    let attempt = || -> anyhow::Result<()> {
        if let Some(file) = regular(path) {
            let part = part_of(&file)?;
            File::create(&part)?;
            fs::remove_file(&part)?;
        }
        Ok(())
    };
    attempt().with_context(|| {
        format!("cannot write {}; name another file with {option}", path.display())
    })
}

/// The regular file, existing or to be created, that `path` refers to; `None` if it is something else.
fn regular(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(found) => found.is_file().then(|| fs::canonicalize(path).unwrap_or(path.to_owned())),
        // Only the system can follow a link whose target does not exist yet.
        Err(_) => (!path.is_symlink()).then(|| path.to_owned()),
    }
}

/// A temporary file in the same directory, so that one rename puts it in place.
fn part_of(file: &Path) -> anyhow::Result<PathBuf> {
    let mut name = file.file_name().context("the output path has no file name")?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    Ok(file.with_file_name(name))
}
