//! What a run would do: `crossway measure --list` and `--dry-run`.

use std::io::{BufWriter, Write};

use crossway_lab::case::Case;
use crossway_lab::env::Environment;
use crossway_lab::{estimate, run};
use crossway_report::terminal::wrap_indented;
use crossway_report::units::count;
use serde::Serialize;

use crate::progress::announced;
use crate::ui::Ui;

/// Prints the cases, one per line.
pub(super) fn print_cases(cases: &[Case]) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    cases.iter().try_for_each(|case| writeln!(out, "{}", case.full_id()))?;
    out.flush()
}

/// What a run would do, as shown by `--dry-run`.
#[derive(Serialize)]
pub(super) struct Preview {
    cases: Vec<PreviewCase>,
    trials: u64,
    skipped: usize,
    expected_ms: u64,
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
    pub(super) fn of(cases: &[Case]) -> anyhow::Result<Preview> {
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

    pub(super) fn print(&self, ui: &Ui) -> std::io::Result<()> {
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
        out.flush()
    }
}
