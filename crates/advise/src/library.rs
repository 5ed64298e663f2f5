//! Reads earlier trials quickly: a folder of runs may contain 100,000 of them.
//!
//! A question concerns only a few of the trials. The fields of a record are always in the same order, so workload and
//! size are next to each other and near the beginning of a line. A line whose workload or size is not one of the
//! question's is skipped without parsing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::question::Question;
use super::survey::{FOR_ADVISE, about};
use super::trials::Trial;
use crossway_lab::env::RunEnvironment;
use crossway_lab::run::PLAN;
use crossway_records::record::Status;
use crossway_records::records_io::{self, RESULTS};
use crossway_records::runs;
use crossway_records::sorting::SortSmall;

/// Files are read in parts of this many bytes, in parallel by one thread per CPU, but at most 16.
const PART_BYTES: u64 = 8 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// The trials found in folders of runs.
#[derive(Debug, Default)]
pub struct Library {
    /// Trials on this machine.
    pub own: Vec<Trial>,
    /// Trials on other machines, or on unidentified ones.
    pub foreign: Vec<Trial>,
    /// The folder of each run that trials are from, by the run's name in the records.
    pub run_dirs: BTreeMap<String, PathBuf>,
    /// Those of the given folders that contain no run.
    pub empty: Vec<PathBuf>,
    /// Warnings, e.g. about skipped lines.
    pub warnings: Vec<String>,
    /// Number of lines read.
    pub lines: usize,
    /// Number of lines that were parsed because they may answer the question.
    pub parsed: usize,
}

/// A part of a file of records. A line belongs to the part in which the line begins.
struct Part {
    run: usize,
    from: u64,
    to: u64,
}

#[derive(Default)]
struct Found {
    trials: Vec<Trial>,
    bad: usize,
    lines: usize,
    parsed: usize,
}

impl Library {
    /// Reads the trials that may answer the question from the given folders, each of which is a run or a folder of
    /// runs. Unreadable files are skipped with a warning, because advice can use the rest.
    pub fn read(folders: &[PathBuf], machine_id: &str, question: &Question) -> Library {
        let mut library = Library::default();
        let mut runs = Vec::new();
        let mut places = BTreeSet::new();
        for folder in folders {
            let found = runs_of(folder);
            if found.is_empty() {
                library.empty.push(folder.clone());
            }
            // A folder may be named twice, or a link may lead to it.
            let place = |run: &PathBuf| run.canonicalize().unwrap_or_else(|_| run.clone());
            runs.extend(found.into_iter().filter(|run| places.insert(place(run))));
        }
        let mut parts = Vec::new();
        for (run, dir) in runs.iter().enumerate() {
            let bytes = dir.join(RESULTS).metadata().map_or(0, |m| m.len());
            parts.extend((0..bytes.div_ceil(PART_BYTES)).map(|n| Part {
                run,
                from: n * PART_BYTES,
                to: (n + 1) * PART_BYTES,
            }));
        }
        let found = in_parallel(&parts, |part| {
            read_part(&runs[part.run].join(RESULTS), part, &Wanted::of(question))
        });
        let mut parts = parts.iter().zip(found).peekable();
        for (number, dir) in runs.into_iter().enumerate() {
            let mut all = Found::default();
            while let Some((_, found)) = parts.next_if(|(part, _)| part.run == number) {
                match found {
                    Ok(found) => all.add(found),
                    Err(error) => library
                        .warnings
                        .push(format!("cannot read {}: {error}", dir.join(RESULTS).display())),
                }
            }
            if !all.trials.is_empty() && is_of_other_question(&dir, question) {
                all.trials.iter_mut().for_each(|trial| trial.of_other_question = true);
            }
            library.enter(dir, all, machine_id);
        }
        library.leave_out_copies();
        library
    }

    /// Leaves out trials that occur several times, as in a copy of a run. Trials of this machine take precedence.
    fn leave_out_copies(&mut self) {
        let mut seen = HashSet::new();
        let before = self.own.len() + self.foreign.len();
        for trials in [&mut self.own, &mut self.foreign] {
            trials.retain(|trial| seen.insert(trial.identity()));
        }
        let copies = before - self.own.len() - self.foreign.len();
        if copies > 0 {
            let trials = if copies == 1 {
                "1 trial is a copy"
            } else {
                &format!("{copies} trials are copies")
            };
            self.warnings
                .push(format!("{trials} of others (as in a copy of a run); copies do not count"));
        }
    }

    fn enter(&mut self, dir: PathBuf, found: Found, machine_id: &str) {
        let own = match records_io::read_beside::<RunEnvironment>(&dir, records_io::ENVIRONMENT) {
            Ok(environment) => environment.is_some_and(|e| e.here.machine_id == machine_id),
            Err(error) => {
                self.warnings
                    .push(format!("{error}; the run is treated as one from another machine"));
                false
            }
        };
        self.lines += found.lines;
        self.parsed += found.parsed;
        if found.bad > 0 {
            let file = dir.join(RESULTS);
            let lines = if found.bad == 1 {
                "1 line that is not a record"
            } else {
                &format!("{} lines that are not records", found.bad)
            };
            self.warnings.push(format!("{}: skipped {lines}", file.display()));
        }
        for trial in &found.trials {
            if !self.run_dirs.contains_key(&trial.run) {
                self.run_dirs.insert(trial.run.clone(), dir.clone());
            }
        }
        if own {
            self.own.extend(found.trials);
        } else {
            self.foreign.extend(found.trials);
        }
    }
}

impl Found {
    fn add(&mut self, other: Found) {
        self.trials.extend(other.trials);
        self.bad += other.bad;
        self.lines += other.lines;
        self.parsed += other.parsed;
    }
}

fn runs_of(folder: &Path) -> Vec<PathBuf> {
    if folder.join(RESULTS).is_file() {
        return vec![folder.to_owned()];
    }
    runs::folders(folder)
}

/// Processes all items with one thread per CPU, but at most 16; the results are in the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(items.len()))
            .map(|_| {
                scope.spawn(move || {
                    let take = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    std::iter::repeat_with(take)
                        .map_while(|at| Some((at, work(items.get(at)?))))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let join = |w: std::thread::ScopedJoinHandle<'_, _>| {
            w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    all.sort_small_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Whether the run in this folder was measured by a survey for another question, or by one of an earlier version.
fn is_of_other_question(dir: &Path, question: &Question) -> bool {
    let text = std::fs::read_to_string(dir.join(PLAN)).unwrap_or_default();
    let plan: toml::Table = text.parse().unwrap_or_default();
    let of_survey = plan.get("about").and_then(toml::Value::as_str);
    of_survey.is_some_and(|of| of.starts_with(FOR_ADVISE) && of != about(question))
}

fn read_part(file: &Path, part: &Part, wanted: &Wanted) -> std::io::Result<Found> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(file)?);
    let mut at = part.from;
    if at > 0 {
        // A line that begins before the part belongs to the previous part; one that begins exactly at it does not.
        reader.seek(SeekFrom::Start(at - 1))?;
        at = at - 1 + reader.skip_until(b'\n')? as u64;
    }
    let (mut found, mut line) = (Found::default(), Vec::new());
    while at < part.to {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        at += read as u64;
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        found.lines += 1;
        if !wanted.may_be(line) {
            continue;
        }
        found.parsed += 1;
        match serde_json::from_slice::<Trial>(line) {
            Err(_) => found.bad += 1,
            Ok(trial) if trial.lacks_counts() => found.bad += 1,
            Ok(trial) if matches!(trial.status, Status::Ok | Status::Degraded | Status::Failed) => {
                found.trials.push(trial);
            }
            Ok(_) => {}
        }
    }
    Ok(found)
}

/// The workloads and sizes of the question, as they are written in records.
struct Wanted {
    stated: Vec<Vec<u8>>,
}

const WORKLOAD: &[u8] = b"\"workload\":";
const SIZE: &[u8] = b",\"size_bytes\":";
/// Number of bytes at the beginning of a line in which workload and size are searched for.
const WITHIN: usize = 4_096;
const LONGEST: usize = 160;

impl Wanted {
    fn of(question: &Question) -> Wanted {
        let stated = question.sizes.iter().filter_map(|share| {
            let mut text = serde_json::to_vec(&question.workload(share.bytes)).ok()?;
            text.extend_from_slice(SIZE);
            text.extend_from_slice(share.bytes.to_string().as_bytes());
            Some(text)
        });
        Wanted { stated: stated.collect() }
    }

    /// Whether the line may answer the question: its workload and size match, or were not found where expected.
    fn may_be(&self, line: &[u8]) -> bool {
        let head = &line[..line.len().min(WITHIN)];
        let Some(at) = find(head, WORKLOAD) else { return true };
        let value = &head[at + WORKLOAD.len()..];
        let value = &value[..value.len().min(LONGEST)];
        let Some(size) = find(value, SIZE) else { return true };
        let digits = value[size + SIZE.len()..].iter().take_while(|b| b.is_ascii_digit()).count();
        let stated = &value[..size + SIZE.len() + digits];
        digits == 0 || stated.contains(&b' ') || self.stated.iter().any(|wanted| wanted == stated)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_belongs_to_one_part_wherever_the_parts_begin() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(RESULTS);
        let lines: Vec<String> = (0..40).map(|n| "x".repeat(n % 7 + 1)).collect();
        std::fs::write(&file, lines.join("\n")).expect("written");
        let bytes = file.metadata().expect("a file").len();
        let wanted = Wanted { stated: Vec::new() };
        for length in 1..20 {
            let part = |n| Part { run: 0, from: n * length, to: (n + 1) * length };
            let found = (0..bytes.div_ceil(length)).map(|n| read_part(&file, &part(n), &wanted));
            let lines: usize = found.map(|f| f.expect("read").lines).sum();
            assert_eq!(lines, 40, "parts of {length} bytes");
        }
    }
}
