//! `crossway observe --import` and `--recording`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use crossway_observe::import::{Assembly, Format};
use crossway_observe::recording::{
    Direction, DirectionSummary, Head, Method, Recorder, Recording, Spread, Summary, Totals,
    write_csv,
};
use crossway_records::shell;
use crossway_report::observed;
use crossway_report::units::Quantity;
use crossway_sys::kernel;

use crate::output;
use crate::table::{Align, Grid};
use crate::ui::{Interrupts, Ui};

/// Maximum number of channels in a table.
const ROWS: usize = 40;

pub(super) fn head(method: Method, here: bool) -> Head {
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cpus = std::thread::available_parallelism().ok().map(|n| n.get() as u32);
    Head {
        kernel: here.then(kernel::release),
        cpus: cpus.filter(|_| here),
        ..Head::new(
            &format!("crossway {}", env!("CARGO_PKG_VERSION")),
            u64::try_from(began.as_millis()).unwrap_or(u64::MAX),
            method,
        )
    }
}

/// Bytes from which the format of a file is recognised.
const BEGINNING: usize = 64 * 1024;

/// Imports a file of a format that is recognised by its beginning.
pub(super) fn import(
    ui: &Ui,
    log: &Path,
    into: &Path,
    anonymous: bool,
    interrupts: &Interrupts,
) -> anyhow::Result<ExitCode> {
    let source: Box<dyn Read + Send> = if log == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let file = File::open(log)
            .with_context(|| format!("cannot open {}; name {IMPORTED}", log.display()))?;
        Box::new(file)
    };
    let mut file = BufReader::with_capacity(BEGINNING, source);
    let beginning = file
        .fill_buf()
        .with_context(|| format!("cannot read {}; name {IMPORTED}", log.display()))?;
    let Some(format) = Format::of(beginning) else {
        bail!("{} is of an unknown format; name {IMPORTED}", log.display());
    };
    let method = Method {
        name: format.name().to_owned(),
        cost_ns_per_call: None,
        cost_note: format.cost_note().to_owned(),
        blind_to: format.blind_to().to_owned(),
    };
    let mut assembly = Assembly::new(Recorder::create(into, head(method, false), anonymous)?);
    format.read(file, &mut assembly, || !interrupts.any())?;
    let totals = assembly.finish()?;
    if totals.events == 0 {
        ui.note("the file has nothing that moves bytes between processes");
    }
    tell(ui, into, &totals);
    Ok(ExitCode::SUCCESS)
}

/// What can be imported.
const IMPORTED: &str = "a log of strace -f -ttt -T -yy, a capture (pcap, pcapng), output of perf trace or perf script, \
     or a NetPerfMeter trace";

pub(super) fn tell(ui: &Ui, into: &Path, totals: &Totals) {
    let Totals { events, span_ns, lost } = totals;
    println!(
        "{events} events in {} in {}; `crossway observe --recording {}` summarises them",
        Quantity::Duration.show(*span_ns as f64),
        into.display(),
        shell::word(into)
    );
    if let Some(lost) = lost.sentence() {
        ui.note(&lost);
    }
}

/// Prints what a recording says, or exports it as CSV.
pub(super) fn show(
    ui: &Ui,
    folder: &Path,
    csv: Option<&PathBuf>,
    page: Option<&PathBuf>,
) -> anyhow::Result<ExitCode> {
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
    if let Some(path) = page {
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy();
        let text = observed::page_of_recording(&recording, &name)?;
        return super::write_page(ui, path, &text);
    }
    let summary = Summary::of_groups(&recording);
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
    let (table, left_out) = table(&recording, &summary)
        .fitted(ui, &["recv", "send", "think", "gap", "off CPU", "size"]);
    println!("\n{}", table.text(ui));
    if let Some(sentence) = left_out.sentence() {
        ui.print_wrapped(0, &sentence);
    }
    ui.print_wrapped(0, COLUMNS);
    if summary.directions.iter().any(|direction| direction.channels > 1) {
        ui.print_wrapped(0, GROUPED);
    }
    if summary.directions.len() > ROWS {
        println!("{} more are in the CSV file (--csv)", summary.directions.len() - ROWS);
    }
    for share in &summary.processes {
        let of = |ns: u64| Quantity::Share.show(ns as f64 / summary.span_ns.max(1) as f64);
        ui.print_wrapped(
            0,
            &format!(
                "{}: {}{} of the time in sends and receives, {} in waits (all threads together)",
                recording.process(share.process),
                share.cpu_ns.map_or(String::new(), |ns| format!("{} of a CPU, ", of(ns))),
                of(share.in_channels_ns),
                of(share.in_waits_ns)
            ),
        );
    }
    if let Some(sentence) = awake(&recording, &summary) {
        ui.print_noted("33", "note:", &sentence);
    }
    ui.print_noted("33", "note:", &format!("not seen: {}", recording.head.method.blind_to));
    if let Some(lost) = recording.head.totals.as_ref().and_then(|totals| totals.lost.sentence()) {
        ui.print_noted("33", "note:", &lost);
    }
    Ok(ExitCode::SUCCESS)
}

/// What the channel with the most messages did while CPUs were kept from sleeping.
fn awake(recording: &Recording, summary: &Summary) -> Option<String> {
    let busiest = summary.directions.first()?;
    let part = Summary::of_groups(&recording.awake_part()?);
    let same =
        |d: &&DirectionSummary| (d.channel, d.direction) == (busiest.channel, busiest.direction);
    let there = part.directions.iter().find(same)?;
    // A call of another thread may have begun long before, and returned only then.
    let last = recording.awake.last()?;
    let ended_ns = last.at_ns.saturating_add_unsigned(last.call_ns);
    let span_ns = ended_ns.saturating_sub(recording.head.awake_from_ns?);
    let gap = |d: &DirectionSummary| Some(Quantity::Duration.show(d.gap_ns?.p50 as f64));
    Some(format!(
        "on CPUs kept from sleeping, channel {} carries a message every {} instead of {} (the last {})",
        busiest.channel,
        gap(there)?,
        gap(busiest)?,
        Quantity::Duration.show(span_ns as f64)
    ))
}

/// What the columns of the table are.
const COLUMNS: &str = "no.: the channel; count: messages; size: median, and 99th percentile if it differs; gap: from one \
    message to the next; think: from receiving what a send waits for until it; send, recv: in these calls, per message; off CPU: of both, \
    blocked or waiting for a CPU\n";

/// How channels are grouped.
const GROUPED: &str = "channels of the same kind between the same processes are in one row, with the number of the busiest; \
    --page and --csv have each\n";

fn table(recording: &Recording, summary: &Summary) -> Grid {
    let mut grid = Grid::new([
        ("no.", Align::Right),
        ("from", Align::Left),
        ("to", Align::Left),
        ("by", Align::Left),
        ("count", Align::Right),
        ("size", Align::Right),
        ("gap", Align::Right),
        ("think", Align::Right),
        ("send", Align::Right),
        ("recv", Align::Right),
        ("off CPU", Align::Right),
    ]);
    let names = |indices: &BTreeSet<u32>| match indices.len() {
        0 => "not recorded".to_owned(),
        n => {
            let first = indices.first().map(|i| recording.process(*i)).unwrap_or_default();
            if n == 1 { first } else { format!("{first}, {} more", n - 1) }
        }
    };
    let sizes = |Spread { p50, p99, .. }| match p50 == p99 {
        true => format!("{p50} B"),
        false => format!("{p50}..{p99} B"),
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
            match direction.channels {
                1 => channel.carrier.clone(),
                several => format!("{} ({several} channels)", channel.carrier),
            },
            direction.messages.to_string(),
            sizes(direction.size_bytes),
            median(direction.gap_ns),
            median(direction.think_ns),
            each(direction.send_ns),
            each(direction.receive_ns),
            direction.off_cpu_share().map_or("-".to_owned(), |part| Quantity::Share.show(part)),
        ]);
    }
    grid
}
