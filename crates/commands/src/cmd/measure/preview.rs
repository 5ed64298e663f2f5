//! What a run would do, as shown by `--list` and `--dry-run`.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use crossway_lab::case::{self, Case};
use crossway_lab::env::Environment;
use crossway_lab::estimate;
use crossway_lab::plan::Plan;
use crossway_lab::run::{self, RunError};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::count;
use crossway_sys::topology::Topology;
use serde::Serialize;

use crate::progress::announced;
use crate::ui::{self, Ui};

/// What to show of the cases.
pub(super) struct Asked {
    /// Whether to show what would be skipped, and how long the rest takes.
    pub(super) times: bool,
    pub(super) json: bool,
}

/// Shows the cases that `filters` select from a plan; `on_hosts` is whether the plan runs between
/// hosts of the command line.
pub(super) fn show(
    plan: &Plan,
    filters: &[String],
    on_hosts: bool,
    asked: Asked,
    ui: &Ui,
) -> anyhow::Result<ExitCode> {
    let topology = Topology::read()?;
    let cases = case::expand(plan, &topology, filters);
    if cases.is_empty() {
        return Err(RunError::Nothing { filters: filters.join(", "), hosts: on_hosts }.into());
    }
    let preview = asked.times.then(|| Preview::of(&cases)).transpose()?;
    match (asked.json, &preview) {
        (true, None) => ui.print_json(&cases.iter().map(Case::full_id).collect::<Vec<_>>())?,
        (true, Some(preview)) => ui.print_json(preview)?,
        (false, None) => print_cases(&cases).map_err(ui::output_failed)?,
        (false, Some(preview)) => preview.print(ui).map_err(ui::output_failed)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_cases(cases: &[Case]) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    cases.iter().try_for_each(|case| writeln!(out, "{}", case.full_id()))?;
    out.flush()
}

/// What a run would do, as shown by `--dry-run`.
#[derive(Serialize)]
struct Preview {
    cases: Vec<PreviewCase>,
    trials: u64,
    skipped: usize,
    expected_ms: u64,
    /// That the run takes hours, and how to shorten it.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// The trials and the time that they take, in words.
    #[serde(skip)]
    announced: String,
}

#[derive(Serialize)]
struct PreviewCase {
    case: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Preview {
    fn of(cases: &[Case]) -> anyhow::Result<Preview> {
        let obstacles = run::survey(cases);
        let open = || cases.iter().zip(&obstacles).filter(|(_, o)| o.is_none()).map(|(c, _)| c);
        let ms = |c: &Case| u64::from(c.inputs.trials) * estimate::trial_ms(&c.inputs);
        let trials = open().map(|c| u64::from(c.inputs.trials)).sum();
        let expected_ms = match trials {
            0 => 0,
            _ => estimate::START_MS + open().map(ms).sum::<u64>(),
        };
        let announced = match trials {
            0 => "nothing would be measured".to_owned(),
            _ => {
                let findings = run::findings_before(&Environment::take()?, cases);
                let paced = open().any(|c| c.inputs.workload.facts().paced());
                let rates = if paced { " if the offered rates are achieved" } else { "" };
                format!("{}{rates}", announced(trials as usize, expected_ms, &findings))
            }
        };
        Ok(Preview {
            trials,
            skipped: obstacles.iter().flatten().count(),
            expected_ms,
            warning: estimate::warning(expected_ms),
            announced,
            cases: cases
                .iter()
                .zip(obstacles)
                .map(|(case, obstacle)| PreviewCase {
                    case: case.full_id(),
                    skipped: obstacle.as_ref().map(|o| o.why.clone()),
                    remedy: obstacle.map(|o| o.remedy),
                })
                .collect(),
        })
    }

    fn print(&self, ui: &Ui) -> std::io::Result<()> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut reasons: Vec<(String, usize)> = Vec::new();
        for case in &self.cases {
            let Some(why) = &case.skipped else {
                writeln!(out, "{}", case.case)?;
                continue;
            };
            writeln!(out, "{}  {}", case.case, ui.paint("33", "(skipped)"))?;
            let remedy = case.remedy.as_ref().map(|r| format!("; {r}")).unwrap_or_default();
            let reason = format!("{why}{remedy}");
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, cases)) => *cases += 1,
                None => reasons.push((reason, 1)),
            }
        }
        for (reason, cases) in reasons {
            let text = wrap_indented(&format!("{cases} skipped: {reason}"), ui.width, 0, 2);
            writeln!(out, "{text}")?;
        }
        writeln!(
            out,
            "{} ({} skipped); {}",
            count(self.cases.len(), "case", "cases"),
            self.skipped,
            self.announced
        )?;
        if let Some(warning) = &self.warning {
            let text = format!("{}: {warning}", ui.paint("33", "warning"));
            writeln!(out, "{}", wrap_indented(&text, ui.width, 0, 2))?;
        }
        out.flush()
    }
}
