//! `crossway compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use crossway_lab::cases::{self, CaseKey};
use crossway_lab::compare::{Comparison, FailOn, Report, Terms, Verdict, compare, parse_percent};
use crossway_lab::env::{Environment, difference};
use crossway_lab::record::Record;
use crossway_lab::records_io::{ENVIRONMENT, read_beside, read_records};
use serde::Serialize;

use super::Run;
use crate::ui::{self, Ui};

/// Compares two runs, or two parts of one run, case by case: is B faster or slower than A?
///
/// Each figure gets a verdict: faster, slower, same, or unclear where the trials do not tell. Two parts of one run:
/// crossway compare RUN --a mechanism=pipe --b mechanism=fifo
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// The run to compare with: its folder or its results.jsonl
    a: PathBuf,
    /// The run in question; left out when two parts of A are compared
    b: Option<PathBuf>,
    /// Take of A only records with these inputs, e.g. mechanism=pipe,size=64
    #[arg(long = "a", value_name = "INPUT=VALUE,..", value_parser = parse_filter)]
    filter_a: Option<Filter>,
    /// Take of B only records with these inputs
    #[arg(long = "b", value_name = "INPUT=VALUE,..", value_parser = parse_filter)]
    filter_b: Option<Filter>,
    /// Exit with 1 if a figure is slower by this much, beyond doubt, e.g. slower:5%
    #[arg(long, value_name = "slower:PERCENT")]
    fail_on: Option<FailOn>,
    /// Differences up to here are "same" even where they are certain
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = percent)]
    same_within: f64,
    /// Where no difference is seen, but one larger than this could hide in the noise, it is "unclear", not "same"
    #[arg(long, value_name = "PERCENT", default_value = "25%", value_parser = percent)]
    unclear_beyond: f64,
    /// Compare although the machines differ
    #[arg(long)]
    across_machines: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show only what is faster or slower
    #[arg(long)]
    changes: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    parse_percent(text).ok_or_else(|| "write a percentage, e.g. 3%".to_owned())
}

#[derive(Clone, Debug, Default)]
struct Filter(Vec<(String, String)>);

fn parse_filter(text: &str) -> Result<Filter, String> {
    text.split(',')
        .map(|part| {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not of the form input=value"))?;
            if !cases::FIELD_NAMES.contains(&name) {
                return Err(format!(
                    "no input is called '{name}'; there are {}",
                    cases::FIELD_NAMES.join(", ")
                ));
            }
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect::<Result<_, _>>()
        .map(Filter)
}

/// Cases of one run only that are listed before their number must do.
const CASES_LISTED: usize = 10;

impl Filter {
    fn of<'a>(&self, records: &'a [Record]) -> Vec<&'a Record> {
        records
            .iter()
            .filter(|r| {
                let key = CaseKey::of(r);
                self.0.iter().all(|(name, value)| key.get(name) == Some(value))
            })
            .collect()
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    report: &'a Report,
    failures: &'a [String],
    failed: bool,
}

impl Run for Compare {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let (filter_a, filter_b) =
            (self.filter_a.clone().unwrap_or_default(), self.filter_b.clone().unwrap_or_default());
        ensure!(
            self.b.is_some() || (self.filter_a.is_some() && self.filter_b.is_some()),
            "there is nothing to compare with: give a second run, or two parts with --a and --b"
        );
        let first = read_records(&self.a)?;
        let second = self.b.as_deref().map(read_records).transpose()?;
        let mut warnings = first.warnings.clone();
        if let (Some(path), Some(loaded)) = (&self.b, &second) {
            warnings.extend(loaded.warnings.clone());
            warnings.extend(self.check_machines(path)?);
        }
        let a = filter_a.of(&first.records);
        let b = filter_b.of(second.as_ref().map_or(&first.records[..], |l| &l.records));
        ensure!(
            !a.is_empty(),
            "no record of A is left to compare; see the inputs with `crossway export {}`",
            self.a.display()
        );
        ensure!(
            !b.is_empty(),
            "no record of B is left to compare; see its inputs with `crossway export`"
        );
        // What both filters name with different values is what is compared.
        let differing: Vec<&str> = filter_a
            .0
            .iter()
            .filter(|(name, value)| filter_b.0.iter().any(|(n, v)| n == name && v != value))
            .map(|(name, _)| name.as_str())
            .collect();
        let mut report = compare(&a, &b, &differing, &self.terms());
        warnings.append(&mut report.warnings);
        report.warnings = warnings;
        let failures = self.fail_on.map_or(Vec::new(), |gate| gate.failures(&report));
        if report.comparisons.is_empty() && failures.is_empty() {
            let example =
                |cases: &[String]| cases.first().map_or("none", String::as_str).to_owned();
            bail!(
                "nothing to compare: no case has figures in both A and B (only in A, {}: {} ...; only in B, {}: {} ...); give two \
                 runs of one plan, or name with --a and --b the input in which the parts are to differ",
                report.only_in_a.len(),
                example(&report.only_in_a),
                report.only_in_b.len(),
                example(&report.only_in_b)
            );
        }
        let failed = !failures.is_empty();
        if self.json {
            ui.print_json(&Answer { report: &report, failures: &failures, failed })?;
        } else {
            self.print(ui, &report, &failures);
        }
        Ok(ui::verdict(!failed))
    }
}

impl Compare {
    fn terms(&self) -> Terms {
        Terms { same_within: self.same_within, unclear_beyond: self.unclear_beyond }
    }

    /// Figures of two machines say nothing of a change of the program.
    fn check_machines(&self, b: &Path) -> anyhow::Result<Vec<String>> {
        let read = |path: &Path| {
            read_beside::<Environment>(path, ENVIRONMENT)
                .with_context(|| format!("the fingerprint beside {} is damaged", path.display()))
        };
        let (Some(env_a), Some(env_b)) = (read(&self.a)?, read(b)?) else {
            return Ok(vec![
                "a run has no env.json beside it: whether both are of one machine is not known"
                    .to_owned(),
            ]);
        };
        if env_a.machine_id == env_b.machine_id {
            return Ok(Vec::new());
        }
        let differences: Vec<String> = difference(&env_a.machine_facts, &env_b.machine_facts)
            .into_iter()
            .map(|(name, a, b)| format!("{name}: {a} | {b}"))
            .collect();
        let what = format!("the runs are of different machines ({})", differences.join("; "));
        ensure!(
            self.across_machines,
            "{what}; their figures differ for that alone. Compare anyway with --across-machines"
        );
        Ok(vec![what])
    }

    fn print(&self, ui: &Ui, report: &Report, failures: &[String]) {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(["case", "figure", "A", "B", "B/A", "95 %", "verdict"]);
        for column in table.column_iter_mut().skip(2).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let shown = report
            .comparisons
            .iter()
            .filter(|c| !self.changes || matches!(c.verdict, Verdict::Faster | Verdict::Slower));
        let mut rows = 0;
        for c in shown {
            rows += 1;
            table.add_row([
                c.case.clone(),
                c.figure.to_string(),
                short(c.a.median),
                short(c.b.median),
                format!("{:.3}", c.ratio),
                format!("{:.3}..{:.3}", c.ratio_interval.low, c.ratio_interval.high),
                verdict(ui, c),
            ]);
        }
        if rows > 0 {
            println!("{table}\n");
        }
        println!(
            "{} figures: {} faster, {} slower, {} same, {} unclear",
            report.comparisons.len(),
            report.count(Verdict::Faster),
            report.count(Verdict::Slower),
            report.count(Verdict::Same),
            report.count(Verdict::Unclear)
        );
        let list = |what: &str, cases: &[String]| {
            for case in cases.iter().take(CASES_LISTED) {
                println!("{} {case}", ui.paint("2", what));
            }
            if let Some(more) = cases.len().checked_sub(CASES_LISTED).filter(|n| *n > 0) {
                println!("{} {more} more; --json lists all", ui.paint("2", what));
            }
        };
        list("only in A:", &report.only_in_a);
        list("only in B:", &report.only_in_b);
        list("fails in B:", &report.failed_in_b);
        for warning in &report.warnings {
            println!("{} {warning}", ui.paint("33", "warning"));
        }
        for failure in failures {
            println!("{} {failure}", ui.paint("31", "FAIL"));
        }
    }
}

fn verdict(ui: &Ui, c: &Comparison) -> String {
    let word = match c.verdict {
        Verdict::Faster => ui.paint("32", "faster"),
        Verdict::Slower => ui.paint("31", "slower"),
        Verdict::Same => format!("same within {:.1} %", c.same_within * 100.0),
        Verdict::Unclear => ui.paint("33", "unclear"),
    };
    match &c.note {
        Some(note) => format!("{word}: {note}"),
        None => word,
    }
}

/// Three to four digits with k, M or G.
fn short(x: f64) -> String {
    match x {
        x if x.abs() >= 1e9 => format!("{:.2}G", x / 1e9),
        x if x.abs() >= 1e6 => format!("{:.2}M", x / 1e6),
        x if x.abs() >= 1e4 => format!("{:.1}k", x / 1e3),
        x if x.abs() >= 100.0 => format!("{x:.0}"),
        x => format!("{x:.1}"),
    }
}
