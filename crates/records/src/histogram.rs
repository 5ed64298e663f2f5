//! HDR histograms of nanoseconds: their encoding on the control channel and in files.
//!
//! The histograms have three significant digits and range from 1 ns to an hour. Next to `results.jsonl`, they are
//! stored as HDR interval logs (one line per span, whose name is in the field `Tag=`), which every HDR tool can read.

mod archive;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer, V2Serializer};

use crate::percentile::SAMPLES_BEYOND;
use crate::record::{Latency, Span};

pub use archive::{ARCHIVE, Archive, pack};

const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Creates an empty histogram.
pub fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are constants and valid")
}

/// Encodes a histogram as text for the control channel: HDR V2 in base64.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("writing to memory succeeds");
    BASE64_STANDARD.encode(bytes)
}

/// Decodes the text of [`encode`]; `None` if it is damaged.
pub fn decode(text: &str) -> Option<Histogram<u64>> {
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// Summarises a histogram in the form used in records, which also states `batch` and `file`.
pub fn summary(
    span: Span,
    histogram: &Histogram<u64>,
    batch: u32,
    file: Option<String>,
) -> Latency {
    let n = histogram.len();
    let beyond = |q: f64| n as f64 * (1.0 - q) >= SAMPLES_BEYOND - 1e-9;
    let at = |q: f64| histogram.value_at_quantile(q);
    let given = |q: f64| beyond(q).then(|| at(q));
    Latency {
        span,
        n,
        min: histogram.min(),
        mean: histogram.mean(),
        p50: at(0.5),
        p90: at(0.9),
        p99: given(0.99),
        p999: given(0.999),
        p9999: given(0.9999),
        max: histogram.max(),
        batch,
        histogram: file,
    }
}

/// Writes an interval log: one line per span, values in nanoseconds.
pub fn write_log(
    out: &mut impl Write,
    started_unix_ms: u64,
    wall_ns: u64,
    histograms: &[(Span, Histogram<u64>)],
) -> std::io::Result<()> {
    // Other readers of interval logs expect compressed histograms.
    let mut serializer = V2DeflateSerializer::new();
    let started = UNIX_EPOCH + Duration::from_millis(started_unix_ms);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("Crossway; values in nanoseconds")
        .with_start_time(started)
        .with_max_value_divisor(1.0)
        .begin_log_with(out, &mut serializer)?;
    for (span, histogram) in histograms {
        log.write_histogram(
            histogram,
            Duration::ZERO,
            Duration::from_nanos(wall_ns),
            Tag::new(span.key()),
        )
        .map_err(|e| std::io::Error::other(format!("{e:?}")))?;
    }
    Ok(())
}

/// Stores an interval log in a new file `h/NAME.hlog` in a run's folder, and returns its path within the folder. An
/// existing file is never overwritten, since a record may refer to it: the new file is then `h/NAME-2.hlog` and so on.
/// The file exists, for example, if the run was killed between writing the histograms and the record of a trial.
pub fn store_log(dir: &Path, name: &str, text: &[u8]) -> std::io::Result<String> {
    std::fs::create_dir_all(dir.join("h"))?;
    let mut attempt = 1;
    loop {
        let file = match attempt {
            1 => format!("h/{name}.hlog"),
            n => format!("h/{name}-{n}.hlog"),
        };
        match File::create_new(dir.join(&file)) {
            Ok(mut log) => return log.write_all(text).map(|()| file),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Parses the text written by [`write_log`] into the tag and the histogram of each line. Lines that cannot be parsed
/// are skipped.
pub fn read_log(text: &[u8]) -> Vec<(String, Histogram<u64>)> {
    IntervalLogIterator::new(text)
        .filter_map(|entry| match entry {
            Ok(LogEntry::Interval(line)) => {
                Some((line.tag()?.as_str().to_owned(), decode(line.encoded_histogram())?))
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Histogram<u64> {
        let mut h = empty();
        (1..=1000u64).for_each(|v| h.record(v * 100).unwrap());
        h
    }

    #[test]
    fn text_and_log_give_the_same_histogram_back() {
        let h = filled();
        assert_eq!(decode(&encode(&h)).unwrap(), h);
        let mut log = Vec::new();
        write_log(&mut log, 1_700_000_000_000, 5_000_000, &[(Span::SetUp, h.clone())]).unwrap();
        let read = read_log(&log);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].0, "set-up");
        assert_eq!(read[0].1, h);
        // The cookie of a compressed histogram, which the readers of other languages require.
        let text = String::from_utf8(log).unwrap();
        let encoded = text.lines().last().unwrap().rsplit(',').next().unwrap();
        let bytes = BASE64_STANDARD.decode(encoded).unwrap();
        assert_eq!(bytes[..4], [0x1c, 0x84, 0x93, 0x14]);
        // Logs of earlier versions contain uncompressed ones.
        let old = text.replace(encoded, &encode(&h));
        assert_eq!(read_log(old.as_bytes())[0].1, h);
        assert_eq!(decode("xx"), None);
    }

    #[test]
    fn a_file_with_histograms_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let stored = ["first", "second", "third"]
            .map(|text| store_log(dir.path(), "000007", text.as_bytes()).unwrap());
        assert_eq!(stored, ["h/000007.hlog", "h/000007-2.hlog", "h/000007-3.hlog"]);
        let read = stored.map(|file| std::fs::read_to_string(dir.path().join(file)).unwrap());
        assert_eq!(read, ["first", "second", "third"]);
    }

    #[test]
    fn percentiles_without_ten_samples_beyond_them_are_null() {
        let latency = summary(Span::RoundTrip, &filled(), 1, None);
        assert!(latency.p99.is_some());
        assert_eq!((latency.p999, latency.p9999), (None, None));
        assert_eq!(latency.n, 1000);
    }
}
