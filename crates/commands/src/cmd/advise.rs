//! `crossway advise [QUESTION]`.

mod asked;
mod code;
mod measuring;
mod observed;
mod show;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use crossway_advise::candidate::Known;
use crossway_advise::observed::gain::Gain;
use crossway_advise::ready::READY;
use crossway_advise::starter::Languages;
use crossway_advise::{
    Advice, AdviseError, Library, NoBench, Question, Sources, admissible, advise, least_time,
};
use crossway_lab::env::Environment;
use crossway_lab::faults::{FAULTS, FaultRecord, read_faults};
use crossway_lab::launcher;
use crossway_lab::run::RunError;
use crossway_records::runs::{self, FindError};
use crossway_sys::{lease, text_file};
use serde::Serialize;
use toml::Table;

use asked::Asked;
use measuring::{Place, probes};
use observed::{Observed, Predicted};

use super::Run;
use crate::args;
use crate::output;
use crate::own;
use crate::ui::{self, Ui};

/// Recommend a mechanism for a use case, with reasons
///
/// Describe the use case by a file, by the name of a ready-made question (--ready lists them) or by options; options
/// override the file. The command uses earlier records of this machine and measures what they do not cover. It prints
/// the recommended mechanism, the runner-up, which candidates were ruled out and why, and what would change the answer.
///
/// Exit status: 0 if a mechanism is recommended, 1 if none can be, 2 if the question cannot be used, 130 if
/// interrupted.
#[derive(clap::Args)]
pub(crate) struct Advise {
    /// Question file, or the name of a ready-made question
    #[arg(add = args::questions())]
    question: Option<String>,
    /// List the ready-made questions
    #[arg(long)]
    ready: bool,
    /// Print the question's file, for you to copy and adapt; if options change the question, print the changed
    /// question, without the file's comments
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    observed: observed::Options,
    #[command(flatten)]
    asked: Box<Asked>,
    /// Time limit for measuring, e.g. 60s or 5min [default: 2min, or longer if the question needs more]
    #[arg(long, value_name = "TIME", value_parser = answer_time)]
    time: Option<Duration>,
    /// Use existing records only; measure nothing
    #[arg(long)]
    no_measure: bool,
    /// Folder with the records of earlier runs, a run's name, or `latest` (may be repeated); new measurements go to the
    /// first one or, if that is a run, beside it
    #[arg(long, value_name = "DIR", default_value = runs::OUT, add = args::known_runs())]
    records: Vec<PathBuf>,
    /// Show all candidates with their rates and the verdict on each goal, and all reasons for ruling mechanisms out
    #[arg(long)]
    explain: bool,
    /// Write the answer to this file as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a small server and client that use the recommended mechanism, in c, rust or python, or in two languages,
    /// e.g. python,c for a client in Python and a server in C
    #[arg(long, value_name = "LANGUAGE")]
    code: Option<Languages>,
    /// Folder for the two programs [default: named after the question]
    #[arg(long, value_name = "DIR", requires = "code")]
    code_dir: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// What to do if the page cannot be written.
const ANOTHER_PAGE: &str = "name another file with --html";

/// Time limit for measuring unless `--time` is given.
const USUAL_TIME: Duration = Duration::from_secs(120);

/// Parses the time that the whole answer may take.
fn answer_time(text: &str) -> Result<Duration, String> {
    let seconds = args::seconds(text)?;
    if !(1.0..=86_400.0).contains(&seconds) {
        return Err("the time must be from 1s to 1440min".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Returns the folder that a word means: an existing path, the run of this name, `latest`, or, unless `must_exist` is
/// set, a new folder.
fn records_folder(word: &Path, must_exist: bool) -> anyhow::Result<PathBuf> {
    match runs::find(word) {
        Ok(folder) => Ok(folder),
        Err(error @ (FindError::NoRuns { .. } | FindError::Shadowed { .. })) => Err(error.into()),
        Err(FindError::Unknown { .. }) if must_exist => bail!(
            "the folder {} does not exist, and no run has this name; name the folder of the records with --records, or \
             omit --no-measure",
            word.display()
        ),
        Err(FindError::Unknown { .. }) => Ok(word.to_owned()),
    }
}

impl Run for Advise {
    fn run(mut self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if self.ready {
            return show::ready(self.json, ui);
        }
        let observed = self.observed.open(ui)?;
        if let Some(observed) = observed.as_ref().filter(|o| !o.instead.is_empty() && !self.print) {
            return self.only_gain(observed, ui);
        }
        let (name, file, mut table) = match &observed {
            Some(observed) => observed.question(),
            None => self.load()?,
        };
        let in_file = table.clone();
        self.asked.enter(&mut table)?;
        let question = Question::from_table(&name, &file, &table)?;
        if self.print {
            match table == in_file && observed.is_none() {
                true => print!("{}", self.text_of_question()?),
                false => print!("{table}"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        for folder in &mut self.records {
            *folder = records_folder(folder, self.no_measure)?;
        }
        // Not after measuring for minutes.
        if let Some(path) = &self.html {
            output::check(path, ANOTHER_PAGE)?;
        }
        let environment = Environment::take()?;
        let library = Library::read(&self.records, &environment.machine_id, &question);
        let faults = self.faults(&environment.machine_id)?;
        // Probes create sockets and FIFOs; anything they leave behind is removed with this lease.
        let program = own::program()?;
        let reaper = lease::Reaper { program: &program, args: launcher::REAPER };
        let leases = lease::Run::begin(Some(reaper))?;
        let probes = probes(self.no_measure);
        drop(leases);
        let mut sources = Sources {
            known: Known { probes: &probes, faults: &faults },
            library: &library,
            folder: self.records.first().map_or(Path::new("out"), PathBuf::as_path),
            budget: None,
        };
        if !self.no_measure {
            sources.budget = Some(self.budget(least_time(&question, &sources)?)?);
        }
        self.check_starters(&question, &admissible(&question, &sources.known)?.candidates, ui)?;
        let place = Place::of(self.folder(), &question);
        let quiet = self.json;
        if let Some(observed) = &observed {
            observed.tell(&question, ui);
        }
        if !quiet {
            show::question(&question, ui);
        }
        let advice = if self.no_measure {
            advise(&question, &sources, &mut NoBench, &mut |_| {})
        } else {
            self.measured(&question, &sources, &place, ui, quiet)
        };
        let advice = match advice {
            Err(
                error @ (AdviseError::Interrupted { .. } | AdviseError::Run(RunError::Interrupted)),
            ) => {
                eprintln!("{error}");
                return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
            }
            other => other?,
        };
        if let Some(path) = &self.html {
            let page = crossway_report::advice::page(&advice)?;
            output::write(path, ANOTHER_PAGE, |out| Ok(out.write_all(page.as_bytes())?))?;
        }
        ui::decide(advice.choice.is_some());
        // Predicting the gain takes another while, and may be interrupted.
        if !self.json {
            show::print(&advice, self.explain, ui);
            if let Some(path) = &self.html {
                println!("\nThe answer as an HTML page: {}", path.display());
            }
        }
        let gain = match observed.as_ref().filter(|_| !self.no_measure) {
            Some(observed) => {
                place.begin()?;
                let best = advice.mechanism.as_deref();
                observed.gain(best, &place.dir, ui, quiet).inspect_err(|_| place.end())?
            }
            None => Predicted::Nothing,
        };
        place.end();
        if self.json {
            ui.print_json(&Document { advice: &advice, gain: gain.gain() })?;
        } else if let Some(observed) = &observed {
            observed.show(&gain, ui);
        }
        self.write_starter(&advice, &question, ui)?;
        Ok(gain.exit_code(advice.choice.is_some()))
    }
}

/// The answer as it is printed with `--json`.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
    /// What the recorded program would gain; missing without a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    gain: Option<&'a Gain>,
}

impl Advise {
    /// Predicts what a recorded program would gain from the mechanisms that the user names.
    fn only_gain(&mut self, observed: &Observed, ui: &Ui) -> anyhow::Result<ExitCode> {
        for folder in &mut self.records {
            *folder = records_folder(folder, false)?;
        }
        let predicted = observed.gain(None, &self.folder(), ui, self.json)?;
        let good = predicted.gain().is_some_and(|gain| !gain.with.is_empty());
        ui::decide(good);
        match predicted.gain() {
            Some(gain) if self.json => ui.print_json(gain)?,
            _ => observed.show(&predicted, ui),
        }
        Ok(predicted.exit_code(good))
    }

    /// Reads the question. Returns its name, the words with which error messages refer to it, and its keys.
    fn load(&self) -> anyhow::Result<(String, String, Table)> {
        let Some(given) = &self.question else {
            if self.asked.size.is_none() {
                bail!(
                    "no question given: name a question file or a ready-made question ({}), or give at least --size",
                    READY.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
                );
            }
            return Ok(("command-line".to_owned(), "the command line".to_owned(), Table::new()));
        };
        let text = self.text_of_question()?;
        let name = Path::new(given).file_stem().map_or("question".into(), |s| s.to_string_lossy());
        // If the file is not valid TOML, let the question's own parser report it.
        Question::parse(&name, given, &text)?;
        Ok((name.into_owned(), given.clone(), toml::from_str(&text)?))
    }

    /// Returns the time limit for measuring: `--time` if it is given, else the longer of [`USUAL_TIME`] and `least`,
    /// the shortest time in which the candidates can be measured. Refuses a `--time` shorter than `least`.
    fn budget(&self, least: Duration) -> anyhow::Result<Duration> {
        let least = Duration::from_secs(least.as_secs_f64().ceil() as u64);
        match self.time {
            Some(time) if time < least => bail!(
                "--time {:?} is too short: measuring the candidates takes at least about {:?}; allow more time, rule \
                 out candidates by requiring more properties, or use existing records only (--no-measure)",
                time,
                least
            ),
            Some(time) => Ok(time),
            None => Ok(USUAL_TIME.max(least)),
        }
    }

    fn text_of_question(&self) -> anyhow::Result<String> {
        let given = self.question.as_deref().unwrap_or_default();
        if let Some((_, text)) = READY.iter().find(|(name, _)| *name == given) {
            return Ok((*text).to_owned());
        }
        text_file::read(given).with_context(|| {
            let names: Vec<_> = READY.iter().map(|(name, _)| *name).collect();
            format!(
                "'{given}' is neither a ready-made question ({}) nor a file that can be read",
                names.join(", ")
            )
        })
    }

    /// Returns this machine's fault records from the folders in `records` and from the runs in those folders.
    fn faults(&self, machine_id: &str) -> anyhow::Result<Vec<FaultRecord>> {
        let mut faults = Vec::new();
        for folder in &self.records {
            let runs = std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .filter_map(|e| Some(e.ok()?.path()));
            for place in std::iter::once(folder.clone()).chain(runs) {
                if place.join(FAULTS).is_file() {
                    faults.extend(read_faults(&place)?);
                }
            }
        }
        faults.retain(|f| f.environment == machine_id);
        Ok(faults)
    }
}
