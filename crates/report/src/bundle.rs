//! A run as one archive to attach to an issue: records, plan, machine and page.
//!
//! Unless asked otherwise, every text passes [`Redaction`] on its way into the archive, which replaces the names of hosts
//! and users and all addresses. The page is made from the texts that have passed, so it cannot contain more than they do.

mod identity;
mod names;
mod redaction;
mod strings;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crossway_lab::faults::FAULTS;
use crossway_lab::moves::MOVES;
use crossway_lab::mpi::MPI;
use crossway_records::record::Record;
use crossway_records::records_io::{self, ENVIRONMENT, LIMITS, PREFLIGHT, RESULTS};
use crossway_records::run_info::{RUN, RunInfo};
use flate2::Compression;
use flate2::write::GzEncoder;

pub use identity::Identity;
pub use redaction::{Redaction, Replaced};

use crate::html::{self, HtmlError};
use crate::run::{Run, RunError};

/// The file with the run's plan.
const PLAN: &str = "plan.toml";
/// The run's page.
const PAGE: &str = "report.html";
/// The folder of a run's histograms. They are compressed numbers, which contain no names.
const HISTOGRAMS: &str = "h";
/// Files that consist of JSON, whole or one value per line.
const JSON: [&str; 8] = [RESULTS, ENVIRONMENT, RUN, PREFLIGHT, LIMITS, FAULTS, MOVES, MPI];

/// The reason why a bundle cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The run cannot be reported.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The page cannot be made.
    #[error(transparent)]
    Page(#[from] HtmlError),
    /// A file of the run cannot be read, or the archive cannot be written.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// Writes the run in the folder `dir` to `out` as a compressed tar archive of one folder, named like the run. Names and
/// addresses are replaced by `redaction`; without one, files are copied as they are. Files that are not part of a run are
/// left out. Returns what was replaced.
///
/// # Errors
/// See [`BundleError`].
pub fn write(
    dir: &Path,
    mut redaction: Option<Redaction>,
    out: &mut impl Write,
) -> Result<Replaced, BundleError> {
    let name = redact(&mut redaction, &name_of(dir));
    // Private to this user; in it, the run is made again from what may be shown.
    let place = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
    let copy = place.path().join(&name);
    copy_run(dir, &copy, &mut redaction)?;
    let page = page(&copy, place.path())?;
    fs::write(copy.join(PAGE), page).map_err(at(&copy))?;
    archive(&copy, &name, out)?;
    Ok(redaction.map(Redaction::replaced).unwrap_or_default())
}

/// The name of the run in its folder.
fn name_of(dir: &Path) -> String {
    let of_folder = || fs::canonicalize(dir).ok()?.file_name()?.to_str().map(str::to_owned);
    RunInfo::read(dir).ok().map(|info| info.run).or_else(of_folder).unwrap_or("run".to_owned())
}

/// Adds to what must not be shown the names of the run's hosts, and of users whose home folders its texts name.
///
/// # Errors
/// The records cannot be read.
pub fn names_in(dir: &Path, mut identity: Identity) -> Result<Redaction, BundleError> {
    let records = records_io::read_records(dir).map_err(RunError::from)?.records;
    if let Some(hosts) = RunInfo::read(dir).ok().and_then(|info| info.hosts) {
        identity.add_hosts(&hosts);
    }
    for host in records.iter().flat_map(|r| &r.hosts) {
        identity.add_host(&host.name);
    }
    let mut meant: BTreeSet<String> = records.iter().flat_map(vocabulary).collect();
    meant.extend(crossway_mech::registry::ALL.iter().map(|entry| entry.id.to_owned()));
    let mut redaction = Redaction::new(identity, &meant);
    for file in JSON.into_iter().chain([PLAN]) {
        redaction.learn_homes(&fs::read_to_string(dir.join(file)).unwrap_or_default());
    }
    Ok(redaction)
}

/// The words by which a record is identified. Replacing one of them would make the record useless.
fn vocabulary(record: &Record) -> Vec<String> {
    let words = record.case.split('/').chain([
        record.mechanism.as_str(),
        record.group.as_str(),
        record.plan.as_str(),
    ]);
    words.map(str::to_owned).collect()
}

fn redact(redaction: &mut Option<Redaction>, text: &str) -> String {
    redaction.as_mut().map_or_else(|| text.to_owned(), |r| r.text(text))
}

/// Copies the files of a run, each through the redaction.
fn copy_run(dir: &Path, copy: &Path, redaction: &mut Option<Redaction>) -> Result<(), BundleError> {
    fs::create_dir_all(copy.join(HISTOGRAMS)).map_err(at(copy))?;
    for file in JSON.into_iter().chain([PLAN]) {
        let from = dir.join(file);
        let text = match fs::read(&from) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(BundleError::Io { path: from, cause }),
        };
        let shown = match redaction {
            None => text,
            Some(redaction) if file == PLAN => redaction.text(&text),
            Some(redaction) => strings::map(&text, |string| redaction.text(string)),
        };
        fs::write(copy.join(file), shown).map_err(at(copy))?;
    }
    let from = dir.join(HISTOGRAMS);
    for entry in fs::read_dir(&from).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "hlog") {
            let to = copy.join(HISTOGRAMS).join(entry.file_name());
            fs::copy(&path, to).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// The page of the copy. The temporary folder `place`, whose path may contain a name, is not mentioned on it.
fn page(copy: &Path, place: &Path) -> Result<Vec<u8>, BundleError> {
    let mut run = Run::read(copy)?;
    let place = format!("{}/", place.display());
    for notice in run.before.iter_mut().chain(&mut run.notices) {
        *notice = notice.replace(&place, "");
    }
    run.dir = copy.file_name().map(PathBuf::from).unwrap_or_default();
    let mut page = Vec::new();
    html::write(&run, &mut page)?;
    Ok(page)
}

/// Packs the copy. Owners, and times other than that of the run, are not part of the archive.
fn archive(copy: &Path, name: &str, out: &mut impl Write) -> Result<(), BundleError> {
    let written = at(Path::new("the archive"));
    let begun = RunInfo::read(copy).map_or(0, |info| info.started_unix_ms / 1000);
    let mut tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    let mut files = Vec::new();
    for folder in [copy.to_owned(), copy.join(HISTOGRAMS)] {
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            files.push(entry.map_err(at(&folder))?.path());
        }
    }
    files.sort_unstable();
    for file in files.iter().filter(|file| file.is_file()) {
        let opened = fs::File::open(file).map_err(at(file))?;
        let mut header = tar::Header::new_gnu();
        header.set_size(opened.metadata().map_err(at(file))?.len());
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(begun);
        let path = Path::new(name).join(file.strip_prefix(copy).unwrap_or(file));
        // Almost always the disk of the archive is full.
        tar.append_data(&mut header, path, opened).map_err(written)?;
    }
    tar.into_inner().and_then(GzEncoder::finish).map_err(written)?;
    Ok(())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BundleError + Copy + '_ {
    move |cause| BundleError::Io { path: path.to_owned(), cause }
}
