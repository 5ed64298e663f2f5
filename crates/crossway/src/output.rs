//! Files that a user names for a result: written whole or not at all, and never in place of what is no file.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Writes what `fill` gives into `path`, which the option `option` named. A regular file is there whole or as it was; a device, a FIFO
/// or standard output by its path (`/dev/stdout`) is written to, not replaced; a symbolic link stays one.
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

/// Whether [`write()`] can begin: asked before minutes of work whose result would have no place.
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

/// The regular file, there or to be made, that `path` means; `None` where something else is.
fn regular(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(found) => found.is_file().then(|| fs::canonicalize(path).unwrap_or(path.to_owned())),
        // A link to a file that is still to be made has to be followed by the system.
        Err(_) => (!path.is_symlink()).then(|| path.to_owned()),
    }
}

/// Beside the file, so that renaming it is one step.
fn part_of(file: &Path) -> anyhow::Result<PathBuf> {
    let mut name = file.file_name().context("the output needs a file name")?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    Ok(file.with_file_name(name))
}
