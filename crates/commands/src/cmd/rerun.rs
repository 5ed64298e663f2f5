//! `crossway rerun RECORD`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use crossway_lab::plan::Plan;
use crossway_records::record::Record;
use crossway_records::records_io::ReadError;
use crossway_records::{records_io, runs, shell};

use super::Run;
use super::measure::{self, Job};
use crate::args::{self, AgentArgs};
use crate::ui::Ui;

/// Repeat the case of a record with the same inputs and number of trials
#[derive(clap::Args)]
pub(crate) struct Rerun {
    /// RUN:LINE or RUN:CASE, where RUN is a run's folder, its results.jsonl, its name or `latest`; LINE is a line
    /// number of results.jsonl; CASE is the name of a case, or GROUP/CASE
    record: String,
    /// The hosts to measure between, as for `measure`; needed if the record was measured between
    /// hosts
    #[arg(long, value_name = "PREFIX,PREFIX")]
    hosts: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
    /// Folder in which a folder for the new run is created
    #[arg(short, long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print the outcome as JSON: the folder, and the numbers of trials and goals with each result
    #[arg(long)]
    json: bool,
}

impl Run for Rerun {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let record = find(&self.record)?;
        let spec = record.inputs.testbed_spec.as_ref();
        let recorded = spec.map(|spec| spec.hosts.join(",")).filter(|hosts| !hosts.is_empty());
        let command = format!("crossway rerun {}", shell::word(&self.record));
        args::hosts_again(&self.record, recorded.as_deref(), self.hosts.as_deref(), &command)?;
        let mut plan = Plan::repeating(&record)?;
        if let Some(hosts) = &self.hosts {
            plan.set_hosts(hosts)?;
        }
        let job = Job {
            name: None,
            filters: Vec::new(),
            out: self.out,
            resume: None,
            hosts: self.hosts,
            agent_program: self.agent.program(),
            allow_unclear: false,
            json: self.json,
        };
        measure::measure_and_report(&plan, job, ui)
    }
}

/// Finds the record that `RUN:LINE` or `RUN:CASE` names.
pub(super) fn find(words: &str) -> anyhow::Result<Record> {
    let (run, which) = words.rsplit_once(':').with_context(|| {
        format!("'{words}' does not name a record: give RUN:LINE or RUN:CASE, e.g. latest:12")
    })?;
    let path = &runs::find_run(Path::new(run))?;
    if let Ok(line) = which.parse::<usize>() {
        return records_io::read_line(path, line).map_err(|error| match error {
            ReadError::Bad { .. } => {
                anyhow!(
                    "{error}; name another line, or a case: `crossway export {}` lists them",
                    shell::word(run)
                )
            }
            error => error.into(),
        });
    }
    let loaded = records_io::read_records(path)?;
    let found = loaded
        .records
        .into_iter()
        .find(|r| r.case == which || format!("{}/{}", r.group, r.case) == which);
    found.with_context(|| {
        format!(
            "{run} has no case '{which}'; `crossway export {}` lists its cases",
            shell::word(run)
        )
    })
}
