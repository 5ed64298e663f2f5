//! `crossway measure [PLAN]`.

mod outcome;
mod preview;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use crossway_lab::agent::AgentProgram;
use crossway_lab::plan::{self, Plan};
use crossway_lab::replay::{AS_FAST_AS_POSSIBLE, Channels};
use crossway_lab::run::{self, Asker, Folder, Options, RunError, Summary};
use crossway_records::record::Status;
use crossway_records::records_io::{read_records, records_so_far};
use crossway_records::sorting::CollectTree;
use crossway_records::{runs, shell};

use super::Run;
use super::aside;
use super::faults;
use super::report::Report;
use crate::args::{self, AgentArgs, Filters, RUN};
use crate::own;
use crate::progress::Progress;
use crate::ui::{self, Ui};
use outcome::{GoalCounts, outcome, print_why_skipped};
use preview::Asked;

/// Measure the mechanisms that a plan selects; write records and a report
///
/// Exits with 1 if a trial failed, nothing could be measured, or the trials do not show that every goal of the plan
/// (`require`) is met; with 130 if interrupted. A trial that the machine disturbed is recorded and reported, but does not
/// count for a goal; one that did not reach its rate counts, and if most did not, the goal is missed.
#[derive(clap::Args)]
pub(crate) struct Measure {
    #[arg(default_value = "quick", help = args::plan_help(), add = args::plans())]
    plan: String,
    /// Replay this recording of `crossway observe --record` instead of a plan: its sizes, pauses and causes, with every
    /// mechanism that can
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["plan", "resume", "scale"])]
    replay: Option<PathBuf>,
    /// The channels to replay: a number, several with commas, or all between recorded processes;
    /// `crossway observe --recording FOLDER` lists them [default: the busiest one]
    #[arg(long, value_name = "N,...|all", alias = "channels", requires = "replay",
          value_parser = args::replay_channels)]
    channel: Option<Channels>,
    /// Replay at this multiple of the recorded speed, e.g. 2
    #[arg(long, value_name = "FACTOR", requires = "replay", value_parser = args::replay_speed)]
    speed: Option<u32>,
    /// Replay without pauses
    #[arg(long, requires = "replay", conflicts_with = "speed")]
    as_fast_as_possible: bool,
    #[command(flatten)]
    filters: Filters,
    /// List the cases, one per line, and measure nothing
    #[arg(long, conflicts_with = "resume")]
    list: bool,
    /// Like --list, but also show what would be skipped here and why, and how long the rest would take
    #[arg(long, conflicts_with_all = ["resume", "list"])]
    dry_run: bool,
    /// Continue an interrupted run, with the plan and the filters that it was started with
    #[arg(long, value_name = RUN, conflicts_with_all = ["plan", "filters", "name"], add = args::known_runs())]
    resume: Option<PathBuf>,
    /// Name by which compare, report and other commands find the run; an earlier run of this name loses it. Names are
    /// looked up in the folder `out`: with another --out, write DIR/NAME
    #[arg(long, value_name = "NAME", value_parser = runs::check_name)]
    name: Option<String>,
    /// Number of trials per case, instead of the plan's; confidence intervals need at least 5
    #[arg(
        long,
        value_name = "N",
        value_parser = args::trials,
        conflicts_with = "resume",
        allow_negative_numbers = true
    )]
    trials: Option<u64>,
    /// Measured time of each trial in milliseconds, instead of the plan's
    #[arg(long, value_name = "MS", conflicts_with = "resume", allow_negative_numbers = true)]
    measure_ms: Option<u64>,
    /// Longest warm-up of each trial in milliseconds, instead of the plan's
    #[arg(long, value_name = "MS", conflicts_with = "resume", allow_negative_numbers = true)]
    warmup_ms: Option<u64>,
    /// Measure between hosts. For each host, give the command prefix that runs a command there, separated by commas,
    /// e.g. 'ssh a,ssh b'; 'local' is this machine. Append '=ADDRESS' to a prefix to state the address at which the
    /// other hosts reach that host
    #[arg(long, value_name = "PREFIX,PREFIX")]
    hosts: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
    /// Fraction of the study's number of messages to send, for plans that repeat a study; 1 sends them all
    #[arg(long, value_name = "FACTOR", conflicts_with = "resume")]
    scale: Option<f64>,
    /// Exit with 0 even if the trials leave a goal undecided
    #[arg(long)]
    allow_unclear: bool,
    /// Folder in which a folder for the run is created
    #[arg(short, long, value_name = "DIR", default_value = runs::OUT)]
    out: PathBuf,
    /// Print the outcome (the folder, and the numbers of trials and goals with each result) as JSON; with --list or
    /// --dry-run, the cases
    #[arg(long)]
    json: bool,
}

/// What to run, and where to put the results.
pub(super) struct Job {
    pub(super) name: Option<String>,
    pub(super) filters: Vec<String>,
    pub(super) out: PathBuf,
    pub(super) resume: Option<PathBuf>,
    pub(super) hosts: Option<String>,
    pub(super) agent_program: AgentProgram,
    pub(super) allow_unclear: bool,
    pub(super) json: bool,
}

impl Run for Measure {
    fn run(mut self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.resume = self.resume.as_deref().map(args::run).transpose()?;
        let (mut plan, filters, hosts) = match &self.resume {
            Some(dir) => {
                let info = Folder::info(dir)?;
                self.check_hosts(dir, info.hosts.as_deref())?;
                (Folder::plan(dir)?, info.filters, info.hosts)
            }
            None => (self.load()?, self.filters.filters.clone(), self.hosts.clone()),
        };
        for remark in self.replay.iter().flat_map(|_| plan.replay_remarks()) {
            ui.note(&remark);
        }
        if let Some(scale) = self.scale {
            plan = plan.scaled(&self.plan, scale)?;
        }
        let overrides: Vec<(&str, u64)> = plan::OVERRIDES
            .into_iter()
            .zip(self.overrides())
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        if !overrides.is_empty() {
            plan = plan.overridden(&self.plan, &overrides)?;
        }
        if let Some(hosts) = &self.hosts {
            plan.set_hosts(hosts)?;
        }
        if self.list || self.dry_run {
            let asked = Asked { times: self.dry_run, json: self.json };
            return preview::show(&plan, &self.filters.filters, self.hosts.is_some(), asked, ui);
        }
        let Measure { name, out, resume, agent, allow_unclear, json, .. } = self;
        let agent_program = agent.program();
        let job = Job { name, filters, out, resume, hosts, agent_program, allow_unclear, json };
        measure_and_report(&plan, job, ui)
    }
}

/// Runs a plan, then prints the outcome: the report, or JSON. Returns the exit code.
pub(super) fn measure_and_report(plan: &Plan, job: Job, ui: &Ui) -> anyhow::Result<ExitCode> {
    let (json, allow_unclear, resumed) = (job.json, job.allow_unclear, job.resume.is_some());
    let hosts = job
        .hosts
        .as_deref()
        .map_or_else(String::new, |hosts| format!(" --hosts {}", shell::word(hosts)));
    let summary = match measure(plan, job, ui) {
        Err(error) if matches!(error.downcast_ref(), Some(RunError::Interrupted)) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
        }
        other => other?,
    };
    let mut summary = summary;
    if plan.faults && !summary.interrupted {
        let records = read_records(&summary.dir)?.records;
        let ran = records.iter().filter(|r| r.status == Status::Ok).map(|r| r.mechanism.clone());
        let mechanisms: BTreeSet<String> = ran.collect_tree();
        summary.interrupted = !faults::take_beside(&summary.dir, mechanisms.into_iter().collect())?;
    }
    if plan.moves && !summary.interrupted {
        summary.interrupted = !aside::moves(&summary.dir, plan.most_trials())?;
    }
    if plan.mpi && !summary.interrupted {
        summary.interrupted = !aside::mpi(&summary.dir, plan.most_trials())?;
    }
    if resumed {
        if summary.by_status.is_empty() && !summary.interrupted {
            eprintln!("The run was complete; nothing was left to measure.");
        }
        // After a resumed run, all of its trials decide, not only those since it was resumed.
        summary.by_status.clear();
        for record in records_so_far(&summary.dir)?.records {
            *summary.by_status.entry(record.status).or_default() += 1;
        }
    }
    let outcome = outcome(plan, &summary)?;
    let measured = outcome.failed == 0 && outcome.ok + outcome.degraded > 0;
    let good = measured && outcome.goals.pass(allow_unclear);
    ui::decide(good);
    if json {
        ui.print_json(&outcome)?;
    } else {
        if outcome.ok + outcome.degraded > 0 {
            // It has the goals, too.
            Report::page_of(&summary.dir).run(ui)?;
        } else {
            if outcome.skipped > 0 {
                print_why_skipped(&summary.dir, ui)?;
            }
            let GoalCounts { met, missed, undecided } = outcome.goals;
            if met + missed + undecided > 0 {
                println!("goals: {met} met, {missed} missed, {undecided} undecided");
            }
        }
        let counts = format!(
            "{} ok, {} degraded, {} failed, {} skipped; records: {}",
            outcome.ok,
            outcome.degraded,
            outcome.failed,
            outcome.skipped,
            summary.dir.display()
        );
        ui.print_wrapped(0, &counts);
    }
    if summary.interrupted {
        let dir = shell::word(&summary.dir);
        eprintln!("interrupted; continue with: crossway measure --resume {dir}{hosts}");
        return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
    }
    Ok(ui::verdict(good))
}

/// Runs a plan. The roles and the reaper are further processes that run this program.
fn measure(plan: &Plan, job: Job, ui: &Ui) -> anyhow::Result<Summary> {
    let Job { name, filters, out, resume, hosts, agent_program, json: quiet, .. } = job;
    let launcher = own::launcher()?;
    let options = Options {
        name,
        out,
        filters,
        resume,
        repeat_disturbed: true,
        asker: Asker::Measure,
        hosts,
        agent_program,
    };
    let mut progress = Progress::new(ui, quiet);
    let summary = run::measure(plan, &options, &launcher, |event| progress.show(&event))?;
    progress.finish();
    Ok(summary)
}

impl Measure {
    /// Checks that a run is continued between the hosts with which it was started, and that the
    /// command line names them.
    fn check_hosts(&self, dir: &Path, recorded: Option<&str>) -> anyhow::Result<()> {
        let (run, given) = (dir.display().to_string(), self.hosts.as_deref());
        let command = format!("crossway measure --resume {}", shell::word(dir));
        args::hosts_again(&run, recorded, given, &command)?;
        match (recorded, given) {
            (None, Some(_)) => bail!("{run} was not measured between hosts: omit --hosts"),
            (Some(recorded), Some(given)) if recorded != given => bail!(
                "{run} was measured between other hosts; continue it with: {command} --hosts {}",
                shell::word(recorded)
            ),
            _ => Ok(()),
        }
    }

    /// The plan, or the one that replays a recording.
    fn load(&self) -> anyhow::Result<Plan> {
        let Some(recording) = &self.replay else { return Ok(Plan::load(&self.plan)?) };
        let speed =
            if self.as_fast_as_possible { AS_FAST_AS_POSSIBLE } else { self.speed.unwrap_or(100) };
        let channels = self.channel.as_ref().unwrap_or(&Channels::Busiest);
        Ok(Plan::replaying(recording, channels, speed)?)
    }

    /// Returns the values that override those of the plan, in the order of [`plan::OVERRIDES`].
    fn overrides(&self) -> [Option<u64>; 3] {
        [self.trials, self.warmup_ms, self.measure_ms]
    }
}
