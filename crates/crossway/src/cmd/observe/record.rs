//! `crossway observe --record`, `--import` and `--recording`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use crossway_observe::import::{Assembly, BLIND_TO, read_strace};
use crossway_observe::live::{Tracer, measured_cost_ns};
use crossway_observe::recording::{
    Direction, Head, Lost, Method, Recorder, Recording, Spread, Summary, Totals, VERSION, write_csv,
};
use crossway_report::units::Quantity;
use crossway_sys::processes::ProcessFiles;
use crossway_sys::{kernel, proc};

use super::Observe;
use crate::output;
use crate::table::{Align, Grid};
use crate::ui::{Interrupts, Ui};

/// Maximum number of channels in a table.
const ROWS: usize = 40;

fn head(method: Method, here: bool) -> Head {
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cpus = std::thread::available_parallelism().ok().map(|n| n.get() as u32);
    Head {
        version: VERSION,
        written_by: format!("crossway {}", env!("CARGO_PKG_VERSION")),
        began_unix_ms: u64::try_from(began.as_millis()).unwrap_or(u64::MAX),
        kernel: here.then(kernel::release),
        cpus: cpus.filter(|_| here),
        anonymous: false,
        method,
        totals: None,
        processes: Vec::new(),
        threads: Vec::new(),
        channels: Vec::new(),
    }
}

/// Imports a log of strace.
pub(super) fn import(
    ui: &Ui,
    log: &Path,
    into: &Path,
    anonymous: bool,
    interrupts: &Interrupts,
) -> anyhow::Result<ExitCode> {
    let file: Box<dyn BufRead> = if log == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let file = File::open(log).with_context(|| {
            format!("cannot open {}; name a log of strace -f -ttt -T -yy", log.display())
        })?;
        Box::new(BufReader::new(file))
    };
    let method = Method {
        name: "import of an strace log".to_owned(),
        cost_ns_per_call: None,
        cost_note: "a log does not say what strace cost".to_owned(),
        blind_to: BLIND_TO.to_owned(),
    };
    let mut assembly = Assembly::new(Recorder::create(into, head(method, false), anonymous)?);
    read_strace(file, &mut assembly, || !interrupts.any())?;
    let totals = assembly.finish()?;
    if totals.events == 0 {
        ui.note(
            "the log has no calls that move bytes between processes; it must be made with strace -f -ttt -T -yy",
        );
    }
    tell(ui, into, &totals);
    Ok(ExitCode::SUCCESS)
}

/// Records processes for a time, or until an interrupt, or until they end.
pub(super) fn live(
    ui: &Ui,
    pids: &BTreeSet<u32>,
    child: Option<&Child>,
    into: &Path,
    options: &Observe,
    interrupts: &Interrupts,
) -> anyhow::Result<ExitCode> {
    let time = options.time.map(Duration::from_secs_f64);
    let pids: Vec<u32> = pids.iter().copied().collect();
    let cost = measured_cost_ns()?;
    let method = Method {
        name: "strace".to_owned(),
        cost_ns_per_call: Some(cost),
        cost_note: "measured just before the recording with dd, which copied single bytes with and without strace"
            .to_owned(),
        blind_to: BLIND_TO.to_owned(),
    };
    let recorder = Recorder::create(into, head(method, true), options.anonymous)?;
    let (tracer, log) = match Tracer::attach(&pids) {
        Ok(attached) => attached,
        Err(error) => {
            // Nothing was recorded: leave nothing behind.
            drop(recorder);
            let _ = std::fs::remove_dir_all(into);
            return Err(error.into());
        }
    };
    let mut assembly = Assembly::new(recorder);
    name_processes(&mut assembly, &pids);
    if let Some(child) = child {
        // It waits for this before it executes the command.
        proc::resume(child.id());
    }
    ui.note(&format!(
        "recording with strace, which adds about {} to each call{}",
        Quantity::Duration.show(cost as f64),
        if time.is_some() { "" } else { "; Ctrl-C ends the recording, not the programs" }
    ));
    let (done, strace) = (AtomicBool::new(false), tracer.pid());
    let deadline = time.and_then(|time| Instant::now().checked_add(time));
    let read = std::thread::scope(|scope| {
        scope.spawn(|| {
            let due = || deadline.is_some_and(|at| Instant::now() >= at);
            while !done.load(Ordering::Relaxed) {
                if interrupts.any() || due() {
                    // It detaches, and its log ends.
                    proc::terminate(strace);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let read = read_strace(log, &mut assembly, || true);
        done.store(true, Ordering::Relaxed);
        read
    });
    drop(tracer);
    read?;
    let totals = assembly.finish()?;
    tell(ui, into, &totals);
    Ok(ExitCode::SUCCESS)
}

/// Starts a command that stops before it is executed, so that nothing of it is missed.
///
/// # Errors
/// There is no shell, or it does not stop.
pub(super) fn start_stopped(command: &[OsString]) -> anyhow::Result<Child> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "kill -STOP $$; exec \"$@\"", "sh"])
        .args(command)
        .spawn()
        .context("cannot start /bin/sh, which starts the command")?;
    let files = ProcessFiles::new();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match files.identity(child.id()) {
            Ok(identity) if identity.state == 'T' => return Ok(child),
            Ok(identity) if !identity.is_zombie() && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("/bin/sh did not stop before it executed the command; record by its number");
            }
        }
    }
}

/// Gives the threads that run already their processes, and these their names.
fn name_processes(assembly: &mut Assembly, pids: &[u32]) {
    let files = ProcessFiles::new();
    for pid in pids {
        if let Ok(identity) = files.identity(*pid) {
            assembly.rename(*pid, &identity.name);
        }
        for thread in files.threads(*pid).unwrap_or_default() {
            if thread != *pid {
                assembly.started(*pid, thread, true);
            }
        }
    }
}

fn tell(ui: &Ui, into: &Path, totals: &Totals) {
    let Totals { events, span_ns, lost } = totals;
    println!(
        "{events} events in {} in {}; `crossway observe --recording {}` summarises them",
        Quantity::Duration.show(*span_ns as f64),
        into.display(),
        into.display()
    );
    if let Some(lost) = losses(lost) {
        ui.note(&lost);
    }
}

/// What was lost, as a sentence.
fn losses(lost: &Lost) -> Option<String> {
    let parts: Vec<String> = [
        (lost.overrun, "events for which the recorder was too slow"),
        (lost.not_a_channel, "calls on files and other things that are no channels"),
        (lost.not_understood, "lines that were not understood"),
        (lost.clock_backwards, "times at which the clock went backwards"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!parts.is_empty()).then(|| format!("not recorded: {}", parts.join(", ")))
}

/// Prints what a recording says, or exports it as CSV.
pub(super) fn show(ui: &Ui, folder: &Path, csv: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let recording = Recording::read(folder)?;
    for defect in &recording.defects {
        ui.note(defect);
    }
    if let Some(path) = csv {
        if path.as_path() == Path::new("-") {
            let mut text = Vec::new();
            write_csv(&recording, &mut text)?;
            std::io::stdout().lock().write_all(&text).map_err(crate::ui::output_failed)?;
        } else {
            output::write(path, "name another file with --csv", |out| {
                Ok(write_csv(&recording, out)?)
            })?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if recording.events.is_empty() {
        bail!("{} has no events; record for longer, or other processes", folder.display());
    }
    let summary = Summary::of(&recording);
    println!(
        "{} events in {}, recorded by {}{}",
        recording.events.len(),
        Quantity::Duration.show(summary.span_ns as f64),
        recording.head.method.name,
        recording.head.method.cost_ns_per_call.map_or(String::new(), |cost| format!(
            ", which added about {} to each call",
            Quantity::Duration.show(cost as f64)
        ))
    );
    println!("\n{}", table(&recording, &summary).text(ui));
    if summary.directions.len() > ROWS {
        println!("{} more are in the CSV file (--csv)", summary.directions.len() - ROWS);
    }
    for share in &summary.processes {
        let of = |ns: u64| Quantity::Share.show(ns as f64 / summary.span_ns.max(1) as f64);
        ui.print_wrapped(
            0,
            &format!(
                "{}: {} of the time in sends and receives, {} in waits (all threads together)",
                recording.process(share.process),
                of(share.in_channels_ns),
                of(share.in_waits_ns)
            ),
        );
    }
    ui.print_noted("33", "note:", &format!("not seen: {}", recording.head.method.blind_to));
    if let Some(lost) = recording.head.totals.as_ref().and_then(|totals| losses(&totals.lost)) {
        ui.print_noted("33", "note:", &lost);
    }
    Ok(ExitCode::SUCCESS)
}

fn table(recording: &Recording, summary: &Summary) -> Grid {
    let mut grid = Grid::new([
        ("channel", Align::Right),
        ("from", Align::Left),
        ("to", Align::Left),
        ("by", Align::Left),
        ("messages", Align::Right),
        ("size p50", Align::Right),
        ("p99", Align::Right),
        ("gap p50", Align::Right),
        ("think p50", Align::Right),
        ("in send", Align::Right),
        ("in receive", Align::Right),
    ]);
    let names = |indices: &BTreeSet<u32>| match indices.len() {
        0 => "not recorded".to_owned(),
        n => {
            let first = indices.first().map(|i| recording.process(*i)).unwrap_or_default();
            if n == 1 { first } else { format!("{first}, {} more", n - 1) }
        }
    };
    let median = |spread: Option<Spread>| {
        spread.map_or("-".to_owned(), |s| Quantity::Duration.show(s.p50 as f64))
    };
    for direction in summary.directions.iter().take(ROWS) {
        let channel = &recording.head.channels[direction.channel as usize];
        let (from, to) = match direction.direction {
            Direction::Forward => (&channel.from, &channel.to),
            Direction::Backward => (&channel.to, &channel.from),
        };
        let each = |ns: u64| Quantity::Duration.show(ns as f64 / direction.messages.max(1) as f64);
        grid.row([
            direction.channel.to_string(),
            names(from),
            names(to),
            channel.carrier.clone(),
            direction.messages.to_string(),
            format!("{} B", direction.size_bytes.p50),
            format!("{} B", direction.size_bytes.p99),
            median(direction.gap_ns),
            median(direction.think_ns),
            each(direction.send_ns),
            each(direction.receive_ns),
        ]);
    }
    grid
}
