//! One file with the histograms of all trials of a run, which takes the place of one file per trial in runs that are
//! kept. It is an interval log like those files; the tag of a line is `FILE:SPAN`, so that the names in the records stay
//! valid.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};

use super::decode;
use crate::record::Span;

/// Name of the file in the run's folder.
pub const ARCHIVE: &str = "histograms.hlog";
/// The folder with one file per trial.
const FOLDER: &str = "h";

/// The histograms of a run, still encoded, by file and span.
#[derive(Clone, Debug, Default)]
pub struct Archive(HashMap<String, String>);

impl Archive {
    /// Reads the archive of a run's folder. It is empty if there is none; lines that cannot be parsed are skipped.
    pub fn read(dir: &Path) -> Archive {
        let text = fs::read(dir.join(ARCHIVE)).unwrap_or_default();
        let lines = IntervalLogIterator::new(&text).filter_map(|entry| match entry {
            Ok(LogEntry::Interval(line)) => {
                Some((line.tag()?.as_str().to_owned(), line.encoded_histogram().to_owned()))
            }
            _ => None,
        });
        Archive(lines.collect())
    }

    /// The histogram of a span in the file that a record names; `None` if the archive does not have it.
    pub fn get(&self, file: &str, span: Span) -> Option<Histogram<u64>> {
        decode(self.0.get(&key(file, span.key()))?)
    }
}

fn key(file: &str, tag: &str) -> String {
    format!("{file}:{tag}")
}

/// Replaces the histogram files of a run's folder by an archive, and returns their number.
///
/// # Errors
/// Fails if there are none, if there is an archive already, or if a file cannot be read or parsed; all files are then
/// left as they were.
pub fn pack(dir: &Path) -> io::Result<usize> {
    let mut files: Vec<String> = fs::read_dir(dir.join(FOLDER))?
        .map(|entry| Ok(format!("{FOLDER}/{}", entry?.file_name().to_string_lossy())))
        .collect::<io::Result<_>>()?;
    files.sort_unstable();
    let bad = |file: &str, why: String| io::Error::other(format!("{file}: {why}"));
    let mut lines: Vec<(Duration, Duration, String, Histogram<u64>)> = Vec::new();
    for file in &files {
        let text = fs::read(dir.join(file))?;
        let mut started = Duration::ZERO;
        for entry in IntervalLogIterator::new(&text) {
            match entry.map_err(|e| bad(file, format!("{e:?}")))? {
                LogEntry::StartTime(at) => started = at,
                LogEntry::BaseTime(_) => {}
                LogEntry::Interval(line) => {
                    let histogram = decode(line.encoded_histogram());
                    let named = line.tag().map(|tag| key(file, tag.as_str())).zip(histogram);
                    let (name, histogram) =
                        named.ok_or_else(|| bad(file, "a line is damaged".to_owned()))?;
                    lines.push((
                        started + line.start_timestamp(),
                        line.duration(),
                        name,
                        histogram,
                    ));
                }
            }
        }
    }
    let base = lines.iter().map(|line| line.0).min();
    let base = base.ok_or_else(|| io::Error::other("there are no histograms"))?;
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("Crossway; values in nanoseconds; Tag=FILE:SPAN")
        .with_start_time(UNIX_EPOCH + base)
        .with_max_value_divisor(1.0)
        .begin_log_with(&mut out, &mut serializer)?;
    for (started, lasted, name, histogram) in &lines {
        let tag = Tag::new(name).ok_or_else(|| bad(name, "is no tag".to_owned()))?;
        log.write_histogram(histogram, *started - base, *lasted, Some(tag))
            .map_err(|e| bad(name, format!("{e:?}")))?;
    }
    let path = dir.join(ARCHIVE);
    io::Write::write_all(&mut fs::File::create_new(&path)?, &out)?;
    let archive = Archive::read(dir);
    let same = |(_, _, name, histogram): &(Duration, Duration, String, Histogram<u64>)| {
        archive.0.get(name).and_then(|text| decode(text)).as_ref() == Some(histogram)
    };
    if !lines.iter().all(same) {
        fs::remove_file(&path)?;
        return Err(io::Error::other("the archive does not give the same histograms back"));
    }
    fs::remove_dir_all(dir.join(FOLDER))?;
    Ok(files.len())
}

#[cfg(test)]
mod tests {
    use super::super::{empty, store_log, write_log};
    use super::*;

    #[test]
    fn an_archive_has_the_histograms_of_all_files_under_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let filled = |ns: u64| {
            let mut histogram = empty();
            histogram.record_n(ns, 7).unwrap();
            histogram
        };
        for (at, name) in ["000001", "000002"].iter().enumerate() {
            let spans = [Span::SetUp, Span::RoundTrip];
            let both = spans.map(|span| (span, filled(1000 * (at as u64 + 1) + span as u64)));
            let mut text = Vec::new();
            write_log(&mut text, 1_700_000_000_000 + at as u64, 5_000_000, &both).unwrap();
            store_log(dir.path(), name, &text).unwrap();
        }
        assert_eq!(pack(dir.path()).unwrap(), 2);
        assert!(!dir.path().join("h").exists());
        let archive = Archive::read(dir.path());
        let found = archive.get("h/000002.hlog", Span::RoundTrip).unwrap();
        assert_eq!(found, filled(2000 + Span::RoundTrip as u64));
        assert!(archive.get("h/000002.hlog", Span::OneWay).is_none());
        assert!(archive.get("h/000003.hlog", Span::RoundTrip).is_none());
        assert!(pack(dir.path()).is_err(), "there is nothing left to pack");
        assert!(Archive::read(dir.path()).get("h/000001.hlog", Span::SetUp).is_some());
    }
}
