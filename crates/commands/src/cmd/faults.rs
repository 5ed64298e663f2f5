//! `crossway faults`, and the hidden worker that it starts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crossway_lab::faults::{
    self, FAULTS, Fault, FaultEvent, FaultRecord, FaultSummary, MatrixError, Options, Outcome,
    Remover, Summary, read_faults,
};
use crossway_lab::shutdown;
use crossway_records::record::Status;
use crossway_records::runs::{self, FindError};
use crossway_report::units::count;

use super::Run;
use crate::args;
use crate::output;
use crate::own;
use crate::progress::Steps;
use crate::table::{Align, Grid, Tone};
use crate::ui::{self, Ui};

/// Kill, stop and starve one end of each mechanism and contender, and record what the other end observes
///
/// Each mechanism, and each contender that is built, is tested with real processes. They are killed (idle, sending,
/// receiving, with a full channel, or while they hold a slot in shared memory), stopped, made to write garbage and
/// wrong lengths, and deprived of buffer space, descriptors, disk, /dev/shm or locked memory. The records state how and
/// how soon the survivor is notified, whether it hangs, what it receives that was never sent, which sent messages are
/// lost, and which objects are left behind. All this takes about 2 minutes on two CPUs; an upper bound is printed
/// first.
#[derive(clap::Args)]
pub(crate) struct Faults {
    /// Mechanisms and contenders to test [default: all]
    #[arg(value_name = "MECHANISM", add = args::mechanisms())]
    mechanisms: Vec<String>,
    /// Print the records, one JSON object per line
    #[arg(long)]
    json: bool,
    /// Write the records to PATH or, if PATH is a folder, a run's name or `latest`, to faults.jsonl
    /// in it: `crossway report` finds them in the folder of a run, `crossway advise` also in the
    /// folder of all runs. The file's records of other mechanisms and machines are kept
    #[arg(long, value_name = "PATH")]
    save: Option<PathBuf>,
    /// Milliseconds of silence after which a survivor counts as hung
    #[arg(long, value_name = "MS", default_value_t = WATCH_MS, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    watch_ms: u64,
}

impl Run for Faults {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let save = self.save.map(place_of).transpose()?;
        if let Some(file) = &save {
            output::check(file, "name another file with --save")?;
        }
        let mut kept = match &save {
            Some(file) if file.is_file() => read_faults(file)?,
            _ => Vec::new(),
        };
        let options = options(self.mechanisms, Duration::from_millis(self.watch_ms))?;
        let records = match taken(&options) {
            Err(error) if matches!(error, MatrixError::Interrupted) => {
                eprintln!("{error}");
                return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
            }
            other => other?,
        };
        if let Some(file) = &save {
            let is_same = |old: &FaultRecord, new: &FaultRecord| {
                new.mechanism == old.mechanism && new.environment == old.environment
            };
            kept.retain(|old| !records.iter().any(|new| is_same(old, new)));
            output::write(file, "name another file with --save", |out| {
                output::write_lines(out, &kept)?;
                output::write_lines(out, &records)
            })?;
        }
        if self.json {
            output::write_lines(&mut std::io::stdout().lock(), &records)
                .map_err(ui::output_failed)?;
        } else {
            print(ui, &records);
        }
        let failed = records.iter().any(|r| r.status == Status::Failed);
        let tested = records.iter().any(|r| r.status == Status::Ok);
        Ok(ui::verdict(tested && !failed))
    }
}

/// Default time of silence after which a survivor counts as hung, milliseconds.
const WATCH_MS: u64 = 1000;

/// The file in which the records are kept if the command line names `word`.
fn place_of(word: PathBuf) -> Result<PathBuf, FindError> {
    match runs::find_run(&word) {
        Ok(folder) if folder.is_dir() => Ok(folder.join(FAULTS)),
        Ok(_) | Err(FindError::Unknown { .. }) => Ok(word),
        Err(error) => Err(error),
    }
}

fn options(mechanisms: Vec<String>, watch: Duration) -> anyhow::Result<Options> {
    Ok(Options {
        mechanisms,
        watch,
        program: own::program()?,
        worker: vec!["fault-worker".to_owned()],
        role: vec!["role".to_owned()],
        interrupt: Some(shutdown::listen()?),
    })
}

/// Runs the fault matrix for these mechanisms and stores its records in a run's folder. Returns false, and stores
/// nothing, if it was interrupted.
pub(super) fn take_beside(dir: &Path, mechanisms: Vec<String>) -> anyhow::Result<bool> {
    if mechanisms.is_empty() {
        return Ok(true);
    }
    match taken(&options(mechanisms, Duration::from_millis(WATCH_MS))?) {
        Err(MatrixError::Interrupted) => Ok(false),
        records => {
            let records = records?;
            output::replace(&dir.join(FAULTS), "choose another folder with --out", |out| {
                output::write_lines(out, &records)
            })?;
            Ok(true)
        }
    }
}

/// Runs the fault matrix and shows its progress.
fn taken(options: &Options) -> Result<Vec<FaultRecord>, MatrixError> {
    let mut progress = Steps::of("faults");
    faults::run(options, |event| match event {
        FaultEvent::Begin { entries, at_most } => {
            let entries = count(entries, "mechanism", "mechanisms and contenders");
            let at_most = duration(at_most);
            progress.note(&format!(
                "injecting faults into {entries}; this takes at most about {at_most}"
            ));
        }
        FaultEvent::NoPrivatePlaces { why } => progress
            .note(&format!("note: cannot create private file systems and IPC namespaces: {why}")),
        FaultEvent::Record { record, done, of } => {
            progress.show(done as u64, of as u64, &record.mechanism);
        }
    })
}

/// The rows of each mechanism in the table, each with the faults that it summarises.
const FAULT_KINDS: [(&str, &[Fault]); 8] = [
    ("killed", &[Fault::Kill]),
    ("stopped", &[Fault::Stop]),
    ("garbage", &[Fault::Garbage]),
    ("wrong length", &[Fault::WrongLength]),
    ("full queue", &[Fault::FullQueue]),
    ("full disk, /dev/shm", &[Fault::FullDisk, Fault::FullShm]),
    ("no descriptor", &[Fault::FullDescriptorTable]),
    ("no locked memory", &[Fault::LockedMemory]),
];

fn print(ui: &Ui, records: &[FaultRecord]) {
    let rows = faults::summaries(records);
    let (measured, missing): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.faults.values().any(|fault| fault.attempts > 0));
    if measured.is_empty() {
        println!("{}", ui.paint("1", "Nothing was tested."));
    } else {
        println!("{}\n", table(&measured).text(ui));
        ui.print_wrapped(
        0,
        &format!(
            "Each row shows the worst outcome of all attempts, and the median and longest time from the fault to the \
             survivor's error. A full queue is reported at the send's deadline, after 50 ms. Lost: messages that a \
             send call accepted but that were never received, including one that a killed process had sent in part. \
             Not sent: messages that were received although nobody had sent them. Faults that were not tried are not \
             listed. {}; --json prints them.",
            count(records.len(), "record", "records")
        ),
    );
    }
    for row in missing {
        let reason = row.faults.values().find_map(|f| f.reason.clone()).unwrap_or_default();
        ui.print_wrapped(0, &format!("not tested: {}: {reason}", row.mechanism));
    }
    for record in records.iter().filter(|r| r.status == Status::Failed) {
        let text = format!(
            "{} {:?} {:?} ({:?}): {}",
            record.mechanism,
            record.fault,
            record.state,
            record.affected,
            record.reason.as_deref().unwrap_or_default()
        );
        ui.print_noted("31", "failed", &text);
    }
}

/// Makes the table: one block of rows per mechanism, one row per kind of fault.
fn table(measured: &[&Summary]) -> Grid {
    let texts = ["mechanism", "fault", "outcome"].map(|head| (head, Align::Left));
    let figures = ["median", "longest", "lost", "not sent"].map(|head| (head, Align::Right));
    let mut grid = Grid::new(texts.into_iter().chain(figures));
    for row in measured {
        let mut name = row.mechanism.clone();
        for (fault, faults) in FAULT_KINDS {
            let of_it: Vec<_> = faults.iter().filter_map(|f| row.faults.get(f)).collect();
            let Some([outcome, figures @ ..]) = cells(&of_it) else { continue };
            let texts = [std::mem::take(&mut name), fault.to_owned()];
            let texts = texts.map(|text| (text, Tone::Plain));
            grid.toned_row(texts.into_iter().chain([outcome]).chain(figures));
        }
        for (at, what) in left_behind(row).into_iter().enumerate() {
            let head = if at == 0 { "left behind" } else { "" };
            let cells = [std::mem::take(&mut name), head.to_owned(), what];
            grid.row(cells.into_iter().chain(["", "", "", ""].map(str::to_owned)));
        }
    }
    grid
}

/// The outcome of these faults, the median and longest time to the survivor's error, and the numbers of messages that
/// were lost and that nobody had sent; `None` if none of the faults was tried.
fn cells(faults: &[&FaultSummary]) -> Option<[(String, Tone); 5]> {
    let worst = faults.iter().filter_map(|f| f.worst).max()?;
    let (tone, word) = match worst {
        Outcome::Unaffected => (Tone::Good, "unaffected"),
        Outcome::Resumed => (Tone::Good, "resumed"),
        Outcome::Detected => (Tone::Good, "detected"),
        Outcome::Unnoticed => (Tone::Unsure, "unnoticed"),
        Outcome::Hung => (Tone::Bad, "hung"),
        Outcome::Deceived => (Tone::Bad, "deceived"),
        Outcome::Died => (Tone::Bad, "died"),
    };
    let hung: usize = faults.iter().map(|f| f.hung).sum();
    let attempts: usize = faults.iter().map(|f| f.attempts).sum();
    let word = match hung {
        1.. if hung < attempts => format!("{word} {hung} of {attempts}"),
        _ => word.to_owned(),
    };
    let longest = faults.iter().filter_map(|f| f.detected_after_ns_max).max();
    let median = faults.iter().filter_map(|f| f.detected_after_ns_median).reduce(f64::max);
    let number = |n: u64| if n == 0 { String::new() } else { n.to_string() };
    let plain = |text: String| (text, Tone::Plain);
    Some([
        (word, tone),
        plain(median.map_or_else(String::new, time)),
        plain(longest.map_or_else(String::new, |ns| time(ns as f64))),
        plain(number(faults.iter().map(|f| f.sent_lost).sum())),
        plain(number(faults.iter().map(|f| f.received_not_sent).sum())),
    ])
}

fn left_behind(row: &Summary) -> Vec<String> {
    if !row.looked_for_leftovers {
        return vec!["not checked".to_owned()];
    }
    if row.left_behind.is_empty() {
        return vec!["nothing".to_owned()];
    }
    let remover = |remover| match remover {
        Remover::Survivor => "the survivor",
        Remover::LeaseSweep => "crossway's leases",
        Remover::ByHand => "manual clean-up",
    };
    row.left_behind.iter().map(|l| format!("{:?}: {}", l.kind, remover(l.remover))).collect()
}

/// Formats a duration, rounded up to a multiple of 10 seconds.
fn duration(time: Duration) -> String {
    match time.as_secs().div_ceil(10) * 10 {
        s if s < 120 => format!("{s} s"),
        s => format!("{} min {} s", s / 60, s % 60),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// Run the faults of one mechanism as a worker process of `crossway faults`
#[derive(clap::Args)]
pub(crate) struct FaultWorker {
    /// The task, in JSON
    task: String,
}

impl Run for FaultWorker {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        faults::work(&self.task)?;
        Ok(ExitCode::SUCCESS)
    }
}
