//! `crossway compare`.

mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use crossway_lab::env::{Environment, difference};
use crossway_lab::other_work::disturbances;
use crossway_records::cases::{self, CaseKey};
use crossway_records::compare::{
    Comparison, ComparisonReport, FailOn, Terms, compare, parse_percent,
};
use crossway_records::record::Record;
use crossway_records::records_io::{ENVIRONMENT, read_beside, read_records};
use crossway_records::shell;
use crossway_records::sorting::SortSmall;
use serde::Serialize;

use super::Run;
use crate::args::{self, Filters};
use crate::ui::{self, Ui};

/// Compare two runs, or two parts of one run, case by case: is B faster or slower than A?
///
/// Each figure gets a verdict: faster, slower, same, or unclear if the trials leave it undecided. If only one run is
/// given, it is compared with the latest run; with both --a and --b, one part of the run is compared with another.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Baseline run: its folder, its results.jsonl, its name, or `latest`
    #[arg(value_name = "RUN_A", add = args::known_runs())]
    a: PathBuf,
    /// Run to judge [default: latest, or RUN_A if --a and --b select parts of it]
    #[arg(value_name = "RUN_B", add = args::known_runs())]
    b: Option<PathBuf>,
    /// Use only records of RUN_A with these inputs, e.g. mechanism=pipe,size=64
    #[arg(long = "a", value_name = "INPUT=VALUE,..", value_parser = parse_filter)]
    filter_a: Option<Filter>,
    /// Use only records of RUN_B with these inputs
    #[arg(long = "b", value_name = "INPUT=VALUE,..", value_parser = parse_filter)]
    filter_b: Option<Filter>,
    #[command(flatten)]
    filters: Filters,
    /// With slower:5%, for example, exit with status 1 if a figure is slower by more than 5 %, if the trials do not
    /// decide that, if a trial of B failed, or if a case of A has figures on one side only; it is an error if all trials
    /// of B are in A, too
    #[arg(long, value_name = "slower:PERCENT")]
    fail_on: Option<FailOn>,
    /// With --fail-on: accept figures that the trials leave undecided, and cases with figures on one side, except cases
    /// of which all trials in B are degraded or most missed their rate
    #[arg(long, requires = "fail_on")]
    allow_unclear: bool,
    /// Call differences up to this percentage "same" even if they are statistically significant
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = percent)]
    same_within: f64,
    /// Call a figure without a visible difference "unclear" instead of "same" if the noise could hide a difference
    /// larger than this percentage
    #[arg(long, value_name = "PERCENT", default_value = "25%", value_parser = percent)]
    unclear_beyond: f64,
    /// Compare the runs even if they are from different machines
    #[arg(long)]
    across_machines: bool,
    /// Only list in which facts the machines of the two runs differ
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    machines: bool,
    /// Show only what is faster or slower
    #[arg(long)]
    changes: bool,
    /// Order of the cases
    #[arg(long, value_enum, default_value_t = Sort::Case)]
    sort: Sort,
    /// Print Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print the comparison and the failures of --fail-on as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// By workload, size and mechanism
    Case,
    /// Largest slowdown first
    Change,
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
                    "no input is called '{name}'; the inputs are {}",
                    cases::FIELD_NAMES.join(", ")
                ));
            }
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect::<Result<_, _>>()
        .map(Filter)
}

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
    report: &'a ComparisonReport,
    failures: &'a [String],
    failed: bool,
}

impl Run for Compare {
    fn run(mut self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.a = args::run(&self.a)?;
        self.b = self.b.as_deref().map(args::run).transpose()?;
        let (filter_a, filter_b) =
            (self.filter_a.clone().unwrap_or_default(), self.filter_b.clone().unwrap_or_default());
        let parts = self.filter_a.is_some() && self.filter_b.is_some();
        let b_path = match &self.b {
            None if !parts => Some(self.latest(ui)?),
            other => other.clone(),
        };
        if self.machines {
            let Some(b) = &b_path else {
                bail!("--machines needs two runs; --a and --b select two parts of one run");
            };
            self.print_machines(b, ui)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut first = read_records(&self.a)?;
        let mut second = b_path.as_deref().map(read_records).transpose()?;
        for loaded in std::iter::once(&mut first).chain(second.as_mut()) {
            loaded.records.retain(|r| self.filters.let_through(&r.group, &r.case));
        }
        let mut warnings = first.warnings.clone();
        if let (Some(path), Some(loaded)) = (&b_path, &second) {
            warnings.extend(loaded.warnings.clone());
            warnings.extend(self.check_machines(path)?);
        }
        warnings.extend(disturbances("A", &self.a, &first.records)?);
        if let (Some(path), Some(loaded)) = (&b_path, &second) {
            warnings.extend(disturbances("B", path, &loaded.records)?);
        }
        let of_b = b_path.as_ref().zip(second.as_ref());
        for (path, loaded) in [(&self.a, &first)].into_iter().chain(of_b) {
            if loaded.records.is_empty() && !self.filters.filters.is_empty() {
                return Err(self.filters.nothing_left(path));
            }
        }
        let a = filter_a.of(&first.records);
        let b = filter_b.of(second.as_ref().map_or(&first.records[..], |l| &l.records));
        ensure!(
            !a.is_empty(),
            "no record of A is selected; check --a against the inputs that `crossway export {}` lists",
            shell::word(&self.a)
        );
        ensure!(
            !b.is_empty(),
            "no record of B is selected; check --b against the inputs that `crossway export {}` lists",
            shell::word(b_path.as_ref().unwrap_or(&self.a))
        );
        // An input that both filters name with different values is the one under comparison.
        let differing: Vec<&str> = filter_a
            .0
            .iter()
            .filter(|(name, value)| filter_b.0.iter().any(|(n, v)| n == name && v != value))
            .map(|(name, _)| name.as_str())
            .collect();
        let mut report = compare(&a, &b, &differing, &self.terms());
        warnings.append(&mut report.warnings);
        report.warnings = warnings;
        for cases in [
            &mut report.only_in_a,
            &mut report.only_in_b,
            &mut report.failed_in_a,
            &mut report.failed_in_b,
            &mut report.degraded_in_a,
            &mut report.degraded_in_b,
            &mut report.without_figures,
            &mut report.not_compared,
        ] {
            cases.sort_by_cached_key(|case| natural(case));
        }
        match self.sort {
            // Numbers in a case are sizes: 64 sorts before 4096.
            Sort::Case => report.comparisons.sort_by_cached_key(|c| natural(&c.case)),
            Sort::Change => {
                // Without an interval no change is shown.
                let open = |c: &Comparison| c.slowdown_interval.is_none();
                report.comparisons.sort_small_by(|x, y| {
                    open(x).cmp(&open(y)).then(y.slowdown.total_cmp(&x.slowdown))
                });
            }
        }
        let failures = self.fail_on.map_or(Vec::new(), |gate| {
            FailOn { allow_unclear: self.allow_unclear, ..gate }.failures(&report)
        });
        let is_worse = !report.failed_in_b.is_empty() || !report.degraded_in_b.is_empty();
        if report.comparisons.is_empty() && (report.matched == 0 || !is_worse) {
            let example = |cases: &[String]| match cases {
                [] => "none".to_owned(),
                [first, ..] => format!("{}, for example {first}", cases.len()),
            };
            let others = [
                ("only in A", &report.only_in_a),
                ("only in B", &report.only_in_b),
                ("degraded in A", &report.degraded_in_a),
                ("without figures", &report.without_figures),
                ("that differ in what they count", &report.not_compared),
            ]
            .into_iter()
            .filter(|(what, cases)| what.starts_with("only") || !cases.is_empty())
            .map(|(what, cases)| format!("cases {what}: {}", example(cases)));
            bail!(
                "nothing to compare: no case has figures in both A and B ({}); give two runs of the same plan, or use \
                 --a and --b to select two parts that differ in one input",
                others.collect::<Vec<_>>().join("; ")
            );
        }
        ensure!(
            self.fail_on.is_none() || report.new_in_b > 0,
            "nothing new to compare: all trials of B are in A, too, as in a run compared with itself or with a copy; \
             measure again, then compare with the new run"
        );
        let failed = !failures.is_empty();
        ui::decide(!failed);
        if self.json {
            ui.print_json(&Answer { report: &report, failures: &failures, failed })?;
        } else {
            self.print(ui, &report, &failures);
        }
        Ok(ui::verdict(!failed))
    }
}

impl Compare {
    /// Returns the most recently started run, with which A is compared. Fails if there is none, or if it is A itself.
    fn latest(&self, ui: &Ui) -> anyhow::Result<PathBuf> {
        args::latest_beside(&self.a, ui)?.with_context(|| {
            format!(
                "there is no run later than {} to compare it with: name a second run, or select two parts of this run \
                 with --a and --b",
                self.a.display()
            )
        })
    }

    fn terms(&self) -> Terms {
        Terms { same_within: self.same_within, unclear_beyond: self.unclear_beyond }
    }

    /// Checks that both runs are from the same machine; otherwise their figures say nothing about a change of the
    /// program. Runs from different machines are an error or, with `--across-machines`, a warning. Returns the
    /// warnings; a run without `env.json` gives a warning, too.
    fn check_machines(&self, b: &Path) -> anyhow::Result<Vec<String>> {
        let (Some(env_a), Some(env_b)) = (environment(&self.a)?, environment(b)?) else {
            return Ok(vec![
                "one of the runs has no env.json, so it is unknown whether both are from the same machine"
                    .to_owned(),
            ]);
        };
        if env_a.machine_id == env_b.machine_id {
            return Ok(Vec::new());
        }
        let differences = difference(&env_a.machine_facts, &env_b.machine_facts);
        let names: Vec<&str> = differences.iter().map(|(name, ..)| name.as_str()).collect();
        let what = format!("the runs are from different machines, which differ in {}", few(&names));
        ensure!(
            self.across_machines,
            "{what}, so their figures may differ for that reason alone; --machines lists the differences, and \
             --across-machines compares the runs anyway"
        );
        Ok(vec![what])
    }

    /// Prints the facts in which the machines of the two runs differ.
    fn print_machines(&self, b: &Path, ui: &Ui) -> anyhow::Result<()> {
        let (Some(a), Some(b)) = (environment(&self.a)?, environment(b)?) else {
            bail!("one of the runs has no {ENVIRONMENT}, so its machine is unknown");
        };
        let differences = difference(&a.machine_facts, &b.machine_facts);
        if differences.is_empty() {
            println!("Both runs are from the same machine.");
            return Ok(());
        }
        for (name, a, b) in differences {
            println!("{}", ui.paint("1", &name));
            ui.print_wrapped(2, &format!("A: {a}"));
            ui.print_wrapped(2, &format!("B: {b}"));
        }
        Ok(())
    }
}

fn environment(run: &Path) -> anyhow::Result<Option<Environment>> {
    read_beside::<Environment>(run, ENVIRONMENT)
        .with_context(|| format!("cannot read {ENVIRONMENT} next to {}", run.display()))
}

/// Lists up to four names, or else the first three and the number of the others.
fn few(names: &[&str]) -> String {
    match names {
        [a, b, c, rest @ ..] if rest.len() > 1 => format!("{a}, {b}, {c} and {} more", rest.len()),
        names => names.join(", "),
    }
}

/// Returns a sort key: the text with its numbers padded, so that they sort by value.
fn natural(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.parse::<u64>() {
        Ok(number) => format!("{number:020}"),
        Err(_) => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}
