//! `crossway observe`.

mod live;
mod record;
mod show;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossway_observe::map::{Answer, Map, answers};
use crossway_observe::rates::{Rates, between};
use crossway_observe::snapshot::Snapshot;
use crossway_observe::target;
use crossway_report::observed::page_of_map;
use serde::Serialize;

use super::Run;
use crate::args;
use crate::output;
use crate::ui::{Interrupts, Ui, on_screen};

/// Show which processes talk to each other, and by what; record what they exchange
///
/// A target is the number or the name of a process; its descendants are observed, too. The map has every channel of
/// these processes, to each other, to other processes and to other hosts, and says where two processes of this host
/// use a network although they need none. Nothing is attached to the processes, and they do not notice. A user's own
/// processes need no privilege; what cannot be seen is listed with the remedy.
///
/// --record writes each call that moves bytes, with its size and times but without contents, into a folder. It uses
/// eBPF, which needs root, or strace, which slows programs down while it runs. With eBPF and --time, the programs' CPUs are
/// kept from sleeping in the last fifth of the time, at most for a second, by threads of the lowest class. --import makes such a recording from a
/// log of strace, a capture of packets, output of perf or a trace of NetPerfMeter.
#[derive(clap::Args)]
pub(crate) struct Observe {
    /// Numbers or names of processes
    #[arg(value_name = "PID|NAME")]
    targets: Vec<String>,
    /// Observe all processes
    #[arg(long, conflicts_with_all = ["targets", "command"])]
    all: bool,
    /// Show the map again every S seconds, with rates, until interrupted [default: every second]
    // With `=`, since `--watch 4711` could mean a process.
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = args::period)]
    watch: Option<f64>,
    /// Exit after this many maps of --watch
    #[arg(short = 'n', long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// Print the map as JSON; with --watch, one document per line
    #[arg(long)]
    json: bool,
    /// Seconds between the start of COMMAND and its map
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = args::period)]
    after: f64,
    /// Record what the processes exchange into this new folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["watch", "json", "all", "recording"])]
    record: Option<PathBuf>,
    /// Record for so long, e.g. 10s [default: until the processes end or Ctrl-C]
    #[arg(long, value_name = "TIME", requires = "record", value_parser = args::period)]
    time: Option<f64>,
    /// How to record [default: ebpf, or strace where that is not possible]
    #[arg(long, value_enum, requires = "record", conflicts_with = "import")]
    by: Option<live::By>,
    /// Do not keep the programs' CPUs from sleeping in the last fifth of --time, which tells how fast they are then
    #[arg(long, requires = "time")]
    no_awake_part: bool,
    /// Leave names, paths, addresses and process numbers out of the recording
    #[arg(long, requires = "record")]
    anonymous: bool,
    /// Make the recording from this log of strace -f -ttt -T -yy, capture, output of perf, or NetPerfMeter trace; - is
    /// standard input
    #[arg(long, value_name = "LOG", requires = "record", conflicts_with_all = ["targets", "command", "time"])]
    import: Option<PathBuf>,
    /// Summarise a recording
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["targets", "command", "all", "watch", "json"])]
    recording: Option<PathBuf>,
    /// Write the events of a recording to this file as CSV; - is standard output
    #[arg(long, value_name = "FILE", requires = "recording")]
    csv: Option<PathBuf>,
    /// Write the map, or the recording that --recording names, to this file as an HTML page that works offline
    #[arg(long, value_name = "FILE", conflicts_with_all = ["watch", "json", "record", "csv"])]
    page: Option<PathBuf>,
    /// Start this command and observe it
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "targets")]
    command: Vec<OsString>,
}

/// A map as it is printed: with its answers, and the rates since the previous one.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    map: &'a Map,
    answers: Vec<Answer>,
    rates: Option<Rates>,
}

impl Run for Observe {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if let Some(recording) = &self.recording {
            return record::show(ui, recording, self.csv.as_ref(), self.page.as_ref());
        }
        let interrupts = Interrupts::catch()?;
        if let Some((into, log)) = self.record.as_ref().zip(self.import.as_ref()) {
            return record::import(ui, log, into, self.anonymous, &interrupts);
        }
        if self.targets.is_empty() && self.command.is_empty() && !self.all {
            bail!(
                "nothing to observe: name processes by number or name, or use --all, or -- COMMAND"
            );
        }
        if let Some(into) = &self.record {
            return self.record(ui, into, &interrupts);
        }
        let mut child = self.start()?;
        if let Some(child) = &mut child {
            let until = Instant::now() + Duration::from_secs_f64(self.after);
            pause(&interrupts, until);
            if let Some(status) = child.try_wait()? {
                bail!(
                    "{} ended ({status}) before it was observed; use a shorter --after",
                    self.command[0].display()
                );
            }
        }
        let answer = self.maps(ui, &interrupts, child.as_ref());
        if let Some(mut child) = child {
            if answer.is_ok() && !interrupts.any() {
                ui.note("waiting for the command to end");
            }
            await_end(ui, &mut child, &interrupts)?;
        }
        answer.map(|()| ExitCode::SUCCESS)
    }
}

impl Observe {
    /// Starts the command, if there is one. Its output must not mix with JSON.
    fn start(&self) -> anyhow::Result<Option<Child>> {
        let Some((program, args)) = self.command.split_first() else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(args);
        crossway_sys::start::pass_on(&mut command);
        if self.json {
            command.stdout(Stdio::from(std::io::stderr()));
        }
        let child = command.spawn().with_context(|| {
            format!("cannot start {}; name a program that can be executed", program.display())
        })?;
        Ok(Some(child))
    }

    /// Records the targets, or a command from its beginning.
    fn record(&self, ui: &Ui, into: &Path, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
        let order = |pids, child| live::Order {
            pids,
            child,
            into,
            time: self.time.map(Duration::from_secs_f64),
            anonymous: self.anonymous,
            awake_part: !self.no_awake_part,
            by: self.by,
        };
        if self.command.is_empty() {
            let snapshot = Snapshot::take().context("cannot read /proc; mount it")?;
            let chosen = target::select(&snapshot, &self.targets)?;
            return live::live(ui, &order(&chosen, None), interrupts);
        }
        let mut child = live::start_stopped(&self.command)?;
        let chosen = BTreeSet::from([child.id()]);
        let recorded = live::live(ui, &order(&chosen, Some(&child)), interrupts);
        if recorded.is_err() {
            live::abandon(&mut child);
        } else if !interrupts.any() && child.try_wait()?.is_none() {
            ui.note("waiting for the command to end");
        }
        await_end(ui, &mut child, interrupts)?;
        recorded
    }

    /// Prints the map, once or repeatedly.
    fn maps(&self, ui: &Ui, interrupts: &Interrupts, child: Option<&Child>) -> anyhow::Result<()> {
        let live = std::io::stdout().is_terminal() && !self.json;
        let mut before: Option<(Instant, Map)> = None;
        let mut shown = 0;
        loop {
            let at = Instant::now();
            let snapshot = Snapshot::take()
                .context("cannot read /proc; mount it (mount -t proc proc /proc)")?;
            let chosen = match child {
                Some(child) => target::with_descendants(&snapshot, BTreeSet::from([child.id()])),
                None => target::select(&snapshot, &self.targets)?,
            };
            let map = Map::of(&snapshot, |p| self.all || chosen.contains(&p.pid));
            let rates = before.as_ref().map(|(then, old)| between(old, &map, at - *then));
            // The first map of a series has no rates; it is shown at once nevertheless.
            if self.watch.is_none() || !self.json || rates.is_some() {
                let document = Document { answers: answers(&map), map: &map, rates };
                self.print(ui, &document, live)?;
                shown += u64::from(document.rates.is_some() || self.watch.is_none());
            }
            let Some(interval) = self.watch else { return Ok(()) };
            if self.count.is_some_and(|count| shown >= count) {
                return Ok(());
            }
            before = Some((at, map));
            pause(interrupts, at + Duration::from_secs_f64(interval));
            if interrupts.any() {
                return Ok(());
            }
        }
    }

    fn print(&self, ui: &Ui, document: &Document<'_>, live: bool) -> anyhow::Result<()> {
        if let Some(path) = &self.page {
            let text = page_of_map(document.map, &document.answers)?;
            return write_page(ui, path, &text).map(|_| ());
        }
        if self.json && self.watch.is_none() {
            return ui.print_json(document);
        }
        let mut text = Vec::new();
        if self.json {
            serde_json::to_writer(&mut text, document)?;
            text.push(b'\n');
        } else {
            text.extend(show::text(ui, document).into_bytes());
            if live && self.watch.is_some() {
                text = on_screen(&text);
            }
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&text).and_then(|()| out.flush()).map_err(crate::ui::output_failed)
    }
}

/// Writes a page, and says where it is.
fn write_page(ui: &Ui, path: &Path, text: &str) -> anyhow::Result<ExitCode> {
    output::write(
        path,
        "name another file with --page",
        |out| Ok(out.write_all(text.as_bytes())?),
    )?;
    ui.tell(&format!("wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// Waits until a command ends. An interrupt ends only the waiting.
fn await_end(ui: &Ui, child: &mut Child, interrupts: &Interrupts) -> anyhow::Result<()> {
    while child.try_wait().context("cannot wait for the command")?.is_none() {
        if interrupts.any() {
            ui.note(&format!("the command goes on as process {}", child.id()));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sleeps until an instant or an interrupt.
fn pause(interrupts: &Interrupts, until: Instant) {
    while Instant::now() < until && !interrupts.any() {
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
