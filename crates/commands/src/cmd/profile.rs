//! `crossway profile`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use crossway_lab::catalogue;
use crossway_lab::plan::Plan;
use crossway_lab::profile::{Profile as Profiled, ProfileError, profile};
use crossway_lab::similar::did_you_mean;
use crossway_report::profile as shown;
use crossway_report::sheet::Sheet;
use crossway_sys::lease;
use crossway_sys::topology::Topology;

use super::Run;
use super::limits::warn_of_others;
use super::rerun;
use crate::args;
use crate::output;
use crate::own;
use crate::table::{Align, Grid};
use crate::ui::{self, Ui};

/// Number of source lines and functions printed for each case.
const HOT_PLACES: usize = 10;
/// Number of columns of a terminal from which source lines are printed.
const WIDE_ENOUGH: u16 = 120;

/// Show where a case spends its time: copying, wake-ups, system calls, protocol and so on
///
/// Runs the case once while perf samples both ends and any process between them. Two cases are shown side by side, with
/// the difference between these two runs; use `crossway compare` to find out which is faster. A case is a mechanism or contender, which runs as the options say, or a case of an earlier run:
/// RUN:CASE, or RUN:LINE, where LINE is a line number of the run's results.jsonl. An HTML page with flame graphs is
/// written, too. If perf is missing or not permitted, only the kernel's own counters are shown, and a note says so.
#[derive(clap::Args)]
pub(crate) struct Profile {
    /// One or two cases: a mechanism or contender, RUN:LINE or RUN:CASE
    #[arg(value_name = "CASE", required = true, num_args = 1..=2, add = args::mechanisms())]
    cases: Vec<String>,
    /// Workload, if the case is a mechanism or contender
    #[arg(long, value_enum, default_value_t = Kind::Throughput)]
    workload: Kind,
    /// Message size, if the case is a mechanism or contender, e.g. 64 or 4KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::bytes)]
    size: u64,
    /// Placement of the two ends on CPUs, if the case is a mechanism or contender: other-core, same-core, smt-sibling,
    /// shared-cache, cross-socket or unpinned
    #[arg(long, value_name = "PLACEMENT", default_value = "other-core")]
    placement: String,
    /// Sampling time in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    measure_ms: u64,
    /// HTML page to write
    #[arg(short, long, value_name = "FILE", default_value = "profile.html")]
    out: PathBuf,
    /// Print the profiles as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Throughput,
    PingPong,
}

impl Run for Profile {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let plans: Vec<Plan> =
            self.cases.iter().map(|case| self.plan(case)).collect::<anyhow::Result<_>>()?;
        output::check(&self.out, "name another file with --out")?;
        warn_of_others(Topology::read()?.allowed(), ui)?;
        let launcher = own::launcher()?;
        let run = lease::Run::begin(Some(launcher.reaper()))?;
        let mut profiles = Vec::new();
        for plan in &plans {
            match profile(plan, &launcher, &run) {
                Ok(profiled) => profiles.push(profiled),
                Err(ProfileError::Interrupted) => {
                    eprintln!("interrupted");
                    return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let page = shown::page(&profiles)?;
        output::write(&self.out, "name another file with --out", |out| {
            Ok(out.write_all(page.as_bytes())?)
        })?;
        if self.json {
            ui.print_json(&profiles)?;
        } else {
            print(ui, &profiles);
            println!("\nHTML page: {}", self.out.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Profile {
    /// Makes a plan that contains only `case`.
    fn plan(&self, case: &str) -> anyhow::Result<Plan> {
        if case.contains(':') {
            let mut record = rerun::find(case)?;
            record.inputs.measure_ms = self.measure_ms;
            // A limit on the number of messages could end the window before there are enough samples.
            record.inputs.messages = None;
            record.inputs.study_messages = None;
            record.inputs.trials = 1;
            return Ok(Plan::repeating(&record)?);
        }
        if catalogue::find(case).is_none() {
            let meant = did_you_mean(case, catalogue::all().map(|entry| entry.id()));
            bail!(
                "there is no mechanism or contender '{case}'; {meant}`crossway list` lists them; to profile a record, give \
                 RUN:LINE or RUN:CASE"
            );
        }
        let workload = match self.workload {
            Kind::Throughput => "throughput",
            Kind::PingPong => "ping-pong",
        };
        let placement = toml_text(&self.placement);
        let text = format!(
            "[group.profile]\nmechanisms = \"{case}\"\nworkload = \"{workload}\"\nsize_bytes = {}\nplacement = {placement}\n\
             trials = 1\nwarmup_ms = 200\nmeasure_ms = {}\n",
            self.size, self.measure_ms
        );
        Ok(Plan::parse("profile", "profile", &text)?)
    }
}

/// Quotes a string for TOML.
fn toml_text(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}

fn print(ui: &Ui, profiles: &[Profiled]) {
    for profile in profiles {
        ui.print_wrapped(0, &shown::case_line(profile));
    }
    for sentence in shown::sentences(profiles) {
        ui.print_noted("1", "", &sentence);
    }
    if let Some(parts) = shown::parts(profiles) {
        show(ui, &parts);
    }
    show(ui, &shown::counted(profiles));
    for profile in profiles.iter().filter(|p| p.sampling.event.is_some()) {
        let mut hot = shown::hot(profile, HOT_PLACES);
        if ui.width < WIDE_ENOUGH {
            // The last columns, the binary and the source line, would leave too little room for the others.
            hot.heads.truncate(4);
            hot.rows.iter_mut().for_each(|row| row.cells.truncate(4));
            hot.notes.push(
                "the HTML page and --json have the binaries and source lines, too".to_owned(),
            );
        }
        show(ui, &hot);
    }
}

fn show(ui: &Ui, sheet: &Sheet) {
    println!("\n{}", ui.paint("1", &sheet.title));
    let figures = |at: usize| sheet.rows.iter().any(|row| row.cells[at].sort.is_some());
    let align = |at| if figures(at) { Align::Right } else { Align::Left };
    let mut grid =
        Grid::new(sheet.heads.iter().enumerate().map(|(at, head)| (head.as_str(), align(at))));
    for row in &sheet.rows {
        grid.row(row.cells.iter().map(|cell| match &cell.note {
            Some(note) => format!("{} ({note})", cell.text),
            None => cell.text.clone(),
        }));
    }
    println!("{}", grid.text(ui));
    for note in &sheet.notes {
        ui.print_noted("33", "note:", note);
    }
}
