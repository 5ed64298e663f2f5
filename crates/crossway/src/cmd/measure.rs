//! `crossway measure [PLAN]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use crossway_lab::case::{self, Case};
use crossway_lab::launcher::Launcher;
use crossway_lab::plan::Plan;
use crossway_lab::record::Status;
use crossway_lab::records_io::read_records;
use crossway_lab::run::{self, Folder, Options, RunError, Summary};
use crossway_lab::shutdown;
use crossway_sys::topology::Topology;
use serde::Serialize;

use super::Run;
use super::report::Report;
use crate::progress::Progress;
use crate::ui::{self, Ui};

/// Measures mechanisms as a plan says, and writes records and a report
#[derive(clap::Args)]
pub(crate) struct Measure {
    /// A plan's file, or a preset: quick, full, paced, exchange, fairness, buffers, cores, toshiba, cluster
    #[arg(default_value = "quick")]
    plan: String,
    /// Only cases whose GROUP/CASE matches; * and ? stand for text, | separates alternatives
    #[arg(short, long = "filter", value_name = "PATTERN")]
    filters: Vec<String>,
    /// Print the cases, one a line, and run nothing
    #[arg(long, conflicts_with = "resume")]
    list: bool,
    /// As --list, with what is missing here and the time it would take
    #[arg(long, conflicts_with_all = ["resume", "list"])]
    dry_run: bool,
    /// Go on with an interrupted run; its own plan and filters hold
    #[arg(long, value_name = "DIR", conflicts_with_all = ["filters"])]
    resume: Option<PathBuf>,
    /// Measure between other hosts: for each, the words that run a command there, separated by commas, e.g.
    /// 'ssh a,ssh b'; 'local' is this machine; '=ADDRESS' behind the words says where the others reach it
    #[arg(long, value_name = "PREFIX,PREFIX", conflicts_with = "resume")]
    hosts: Option<String>,
    /// The program that is crossway on those hosts; default: behind ssh the one in the PATH there, else this one's file
    #[arg(long, value_name = "PATH")]
    agent_program: Option<String>,
    /// Share of the source studies' numbers of messages, for plans that state them: 1 takes them all
    #[arg(long, value_name = "FACTOR", conflicts_with = "resume")]
    scale: Option<f64>,
    /// Where to make the run's folder
    #[arg(short, long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What to run and how.
pub(super) struct Job {
    pub(super) filters: Vec<String>,
    pub(super) out: PathBuf,
    pub(super) resume: Option<PathBuf>,
    pub(super) hosts: Option<String>,
    pub(super) agent_program: Option<String>,
    pub(super) json: bool,
}

/// What a run came to, for programs.
#[derive(Serialize)]
struct Told {
    dir: PathBuf,
    interrupted: bool,
    ok: usize,
    degraded: usize,
    failed: usize,
    skipped: usize,
}

impl Run for Measure {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let (mut plan, filters, hosts) = match &self.resume {
            Some(dir) => {
                let info = Folder::info(dir)?;
                (Folder::plan(dir)?, info.filters, info.hosts)
            }
            None => (Plan::load(&self.plan)?, self.filters.clone(), self.hosts.clone()),
        };
        if let Some(scale) = self.scale {
            plan = plan.scaled(&self.plan, scale)?;
        }
        if let Some(hosts) = &self.hosts {
            plan.set_hosts(hosts)?;
        }
        if self.list || self.dry_run {
            return self.show(&plan, ui);
        }
        let Measure { out, resume, agent_program, json, .. } = self;
        measure_and_tell(&plan, Job { filters, out, resume, hosts, agent_program, json }, ui)
    }
}

/// Runs a plan, then says what came of it: the report, or JSON.
pub(super) fn measure_and_tell(plan: &Plan, job: Job, ui: &Ui) -> anyhow::Result<ExitCode> {
    let json = job.json;
    let summary = match measure(plan, job, ui) {
        Err(error) if matches!(error.downcast_ref(), Some(RunError::Interrupted)) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
        }
        other => other?,
    };
    let told = told(&summary);
    if json {
        ui.print_json(&told)?;
    } else {
        if told.ok + told.degraded > 0 {
            Report::page_of(&summary.dir).run(ui)?;
        } else if told.skipped > 0 {
            tell_why_skipped(&summary.dir)?;
        }
        println!(
            "{} ok, {} degraded, {} failed, {} skipped; records: {}",
            told.ok,
            told.degraded,
            told.failed,
            told.skipped,
            summary.dir.display()
        );
    }
    if summary.interrupted {
        let dir = summary.dir.display();
        eprintln!("interrupted; go on with: crossway measure --resume {dir}");
        return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
    }
    Ok(ui::verdict(told.failed == 0))
}

/// Runs a plan with this program as its roles and its reaper.
fn measure(plan: &Plan, job: Job, ui: &Ui) -> anyhow::Result<Summary> {
    let Job { filters, out, resume, hosts, agent_program, json: quiet } = job;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let launcher = Launcher {
        program: program.clone(),
        args: vec!["role".to_owned()],
        interrupt: Some(shutdown::listen()?),
    };
    let reaper = Some((program, vec!["reaper".to_owned()]));
    let options = Options { out, filters, resume, hosts, agent_program, reaper };
    let mut progress = Progress::new(ui, quiet);
    let summary = run::measure(plan, &options, &launcher, |event| progress.show(&event))?;
    progress.finish();
    Ok(summary)
}

fn told(summary: &Summary) -> Told {
    let count = |status| summary.by_status.get(&status).copied().unwrap_or(0);
    Told {
        dir: summary.dir.clone(),
        interrupted: summary.interrupted,
        ok: count(Status::Ok),
        degraded: count(Status::Degraded),
        failed: count(Status::Failed),
        skipped: count(Status::Skipped),
    }
}

/// Where there is no report that would say it: why cases did not run, and what mends it.
fn tell_why_skipped(dir: &Path) -> anyhow::Result<()> {
    let mut cases = BTreeMap::<(String, String), usize>::new();
    for record in read_records(dir)?.records {
        if record.status == Status::Skipped {
            let (why, remedy) = (record.reason, record.remedy);
            *cases.entry((why.unwrap_or_default(), remedy.unwrap_or_default())).or_default() += 1;
        }
    }
    let mut cases: Vec<_> = cases.into_iter().collect();
    cases.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    println!("Nothing was measured:");
    for ((why, remedy), count) in cases {
        println!("  {why} (skipped: {count})\n    -> {remedy}");
    }
    Ok(())
}

impl Measure {
    fn show(&self, plan: &Plan, ui: &Ui) -> anyhow::Result<ExitCode> {
        let topology = Topology::read()?;
        let cases = case::expand(plan, &topology, &self.filters);
        if cases.is_empty() {
            return Err(RunError::Nothing { filters: self.filters.join(", ") }.into());
        }
        if self.json {
            ui.print_json(&cases.iter().map(Case::full_id).collect::<Vec<_>>())?;
            return Ok(ExitCode::SUCCESS);
        }
        self.write_cases(&cases, std::io::stdout().lock()).map_err(ui::output_failed)?;
        Ok(ExitCode::SUCCESS)
    }

    fn write_cases(&self, cases: &[Case], out: impl std::io::Write) -> std::io::Result<()> {
        use std::io::Write;
        let mut out = std::io::BufWriter::new(out);
        for case in cases {
            match &case.excluded {
                Some(why) if self.dry_run => {
                    writeln!(out, "{}  (skipped: {})", case.full_id(), why.why)?;
                }
                _ => writeln!(out, "{}", case.full_id())?,
            }
        }
        if self.dry_run {
            let trials: u64 = cases
                .iter()
                .filter(|c| c.excluded.is_none())
                .map(|c| u64::from(c.inputs.trials))
                .sum();
            let longest_ms: u64 = cases
                .iter()
                .filter(|c| c.excluded.is_none())
                .map(|c| {
                    let i = &c.inputs;
                    u64::from(i.trials) * (i.warmup_ms + i.measure_ms + TRIAL_OVERHEAD_MS)
                })
                .sum();
            writeln!(out, "{} cases, {trials} trials, about {}", cases.len(), human(longest_ms))?;
        }
        out.flush()
    }
}

/// Starting, verifying and closing.
const TRIAL_OVERHEAD_MS: u64 = 40;

fn human(ms: u64) -> String {
    match ms / 1_000 {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s / 60),
        s => format!("{:.1} h", s as f64 / 3_600.0),
    }
}
