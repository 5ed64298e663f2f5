//! `crossway advise --observed RECORDING`: the question comes from a recording, and the answer says what the whole
//! program would gain.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use crossway_advise::Question;
use crossway_advise::observed::gain::{Gain, NOT_WORTH};
use crossway_advise::observed::{Flow, flows};
use crossway_lab::catalogue;
use crossway_lab::run::{self, Asker, Options as RunOptions, RunError};
use crossway_lab::similar::did_you_mean;
use crossway_observe::recording::{Kinship, Recording};
use crossway_records::records_io::read_records;
use crossway_records::shell;
use crossway_records::stats::Interval;
use crossway_report::units::Quantity;
use crossway_run::wishes::LONGEST_LOOK;
use toml::Table;

use crate::args;
use crate::own;
use crate::progress::Progress;
use crate::ui::{self, Ui};

/// What programs usually offer instead of a network within a host.
const USUAL_ALTERNATIVE: &str = "uds-stream";
/// How `--instead` names `crossway run`.
const RUN: &str = "run";
/// How programs get what [`With::unmodified`](crossway_advise::observed::gain::With::unmodified) says.
const BY_RUN: &str = "crossway run --cpu-budget 100%, for both programs as they are";
/// Number of flows in the list of those that were not asked about.
const LISTED: usize = 8;

/// The options about a recording.
#[derive(clap::Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct Options {
    /// Take the question from this recording of `crossway observe --record`, and predict what the whole program would
    /// gain
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["question", "ready"])]
    observed: Option<PathBuf>,
    /// Ask about the processes and the kind of channel that this channel of the recording belongs to [default: those
    /// that took the most time]
    #[arg(long, value_name = "N", requires = "observed")]
    channel: Option<u32>,
    /// Only predict the gain from this mechanism, or from `crossway run` (`run`), without looking for the best one (may be
    /// repeated)
    #[arg(long, value_name = "MECHANISM", requires = "observed", add = args::mechanisms())]
    instead: Vec<String>,
    /// The mechanism that the program uses now [default: the one that works like the recorded channel]
    #[arg(long, value_name = "MECHANISM", requires = "observed", add = args::mechanisms())]
    now: Option<String>,
    /// How many exchanges per second the program makes when nobody records it; makes the prediction more exact if the
    /// recorder slowed the program down
    #[arg(long, value_name = "PER_S", requires = "observed", value_parser = args::number)]
    real_rate: Option<f64>,
}

/// A recording that is asked about.
pub(super) struct Observed {
    file: PathBuf,
    recording: Recording,
    flows: Vec<Flow>,
    chosen: usize,
    now: Option<String>,
    pub(super) instead: Vec<String>,
    real_rate: Option<f64>,
}

/// What came of the prediction.
pub(super) enum Predicted {
    Gain(Gain),
    /// Nothing can be or was to be predicted.
    Nothing,
    /// The user did not wait for it.
    Interrupted,
}

impl Predicted {
    pub(super) fn gain(&self) -> Option<&Gain> {
        match self {
            Predicted::Gain(gain) => Some(gain),
            Predicted::Nothing | Predicted::Interrupted => None,
        }
    }

    /// How the command ends; `good`: it has an answer.
    pub(super) fn exit_code(&self, good: bool) -> ExitCode {
        match self {
            Predicted::Interrupted => ExitCode::from(ui::EXIT_INTERRUPTED),
            Predicted::Gain(_) | Predicted::Nothing => ui::verdict(good),
        }
    }
}

impl Options {
    /// Whether a recording was named.
    pub(super) fn is_given(&self) -> bool {
        self.observed.is_some()
    }

    /// Reads the recording, if one was named.
    pub(super) fn open(&self, ui: &Ui) -> anyhow::Result<Option<Observed>> {
        let Some(file) = &self.observed else { return Ok(None) };
        let recording = Recording::read(file)?;
        for remark in recording.remarks() {
            ui.note(&remark);
        }
        let mut flows = flows(&recording);
        let named = file.display();
        let chosen = match self.channel {
            Some(channel) => flows.iter().position(|f| f.channels.contains(&channel)).with_context(|| {
                format!(
                    "{named} has no channel {channel} that carried a message; `crossway observe --recording {}` lists \
                     its channels",
                    shell::word(file)
                )
            })?,
            None if flows.is_empty() => {
                bail!("{named} has no channel that carried a message; record while the programs work")
            }
            None => 0,
        };
        flows[chosen].compare_awake(&recording);
        let real_rate = self.real_rate.filter(|rate| *rate > 0.0);
        let (now, instead) = (self.now.clone(), self.instead.clone());
        for id in instead.iter().filter(|id| *id != RUN).chain(&now) {
            if catalogue::find(id).is_none() {
                let meant = did_you_mean(id, catalogue::all().map(|entry| entry.id()));
                bail!("there is no mechanism '{id}'; {meant}`crossway list` names them");
            }
        }
        let file = file.clone();
        Ok(Some(Observed { file, recording, flows, chosen, now, instead, real_rate }))
    }
}

impl Observed {
    fn flow(&self) -> &Flow {
        &self.flows[self.chosen]
    }

    /// The name of the question, the words with which errors refer to it, and its keys.
    pub(super) fn question(&self) -> (String, String, Table) {
        let file = format!("the recording {}", self.file.display());
        let mut question = self.flow().question();
        if let Some(now) = &self.now {
            question.insert("now".into(), now.clone().into());
        }
        ("observed".to_owned(), file, question)
    }

    /// Says what the question takes for granted because the recording does not say it.
    pub(super) fn tell(&self, question: &Question, ui: &Ui) {
        if self.flow().kinship == Kinship::Unknown && question.apart {
            ui.note(&format!(
                "{}, so only mechanisms that need no common parent are candidates; if one starts the other, or one program \
                 starts both, say so: --started together",
                Kinship::Unknown.words()
            ));
        }
    }

    /// Predicts the gain from `best` and from what programs usually offer, or from what was asked for. Says with a note
    /// if the recorded channel is of a kind that Crossway does not measure.
    pub(super) fn gain(
        &self,
        best: Option<&str>,
        out: &Path,
        ui: &Ui,
        quiet: bool,
    ) -> anyhow::Result<Predicted> {
        let flow = self.flow();
        let Some(now) = self.now.as_deref().or(flow.mechanism()) else {
            ui.note(&format!(
                "Crossway does not measure channels of the kind {}, so no gain is predicted; if the program's channel \
                 works like one of its mechanisms, name that one with --now",
                flow.carrier
            ));
            return Ok(Predicted::Nothing);
        };
        let mut others = self.instead.clone();
        if others.is_empty() {
            others.extend(best.map(str::to_owned));
            others.extend([USUAL_ALTERNATIVE.to_owned(), RUN.to_owned()]);
        }
        let look_us = others.iter().any(|id| id == RUN).then_some(LONGEST_LOOK.as_micros() as u64);
        others.retain(|id| id != now && id != RUN);
        others.dedup();
        if others.is_empty() && look_us.is_none() {
            return Ok(Predicted::Nothing);
        }
        let plan = flow.gain_plan(now, &others, look_us, &self.file)?;
        let launcher = own::launcher()?;
        // Not before an interrupt is heard.
        if !quiet {
            eprintln!("Comparing {now} with {} for {}", others.join(", "), flow.words());
        }
        let options =
            RunOptions { repeat_disturbed: true, ..RunOptions::new(out.to_owned(), Asker::Advise) };
        let mut progress = Progress::new(ui, quiet);
        let summary = match run::measure(&plan, &options, &launcher, |event| progress.show(&event))
        {
            Err(RunError::Interrupted) => return Ok(Predicted::Interrupted),
            other => other?,
        };
        progress.finish();
        if summary.interrupted {
            return Ok(Predicted::Interrupted);
        }
        let records = read_records(&summary.dir)?.records;
        let cost_ns = self.recording.head.method.cost_ns_per_call;
        Ok(Predicted::Gain(flow.gain(now, &records, cost_ns, self.real_rate)))
    }

    /// Prints the gain, and what the other flows could gain at most.
    pub(super) fn show(&self, predicted: &Predicted, ui: &Ui) {
        match predicted {
            Predicted::Gain(gain) => self.show_gain(gain, ui),
            Predicted::Interrupted => {
                eprintln!("interrupted: no gain is predicted");
                return;
            }
            Predicted::Nothing => {}
        }
        let others = self.flows.iter().enumerate().filter(|(at, _)| *at != self.chosen);
        let others: Vec<&Flow> = others.map(|(_, flow)| flow).collect();
        if others.is_empty() {
            return;
        }
        println!("\nOther channels of the recording:");
        for flow in others.iter().take(LISTED) {
            let share = flow.share_of_time();
            let verdict = match share < NOT_WORTH {
                true => "leave it".to_owned(),
                false => format!("ask with --channel {}", flow.channels[0]),
            };
            ui.print_wrapped(
                2,
                &format!(
                    "{}: at most {} of the time went into its calls: {verdict}",
                    flow.words(),
                    Quantity::Share.show(share)
                ),
            );
        }
        if others.len() > LISTED {
            println!("  {} more", others.len() - LISTED);
        }
    }

    fn show_gain(&self, gain: &Gain, ui: &Ui) {
        let flow = self.flow();
        println!("\nWhat the whole program would gain:");
        let duration = |of: Interval| span_words(of, |ns| Quantity::Duration.show(ns));
        ui.print_wrapped(
            2,
            &format!(
                "{}: an exchange takes {}, of which the calls took {} of the first program's time and {} of the \
                 other's while they were recorded.",
                flow.words(),
                duration(gain.exchange_ns),
                Quantity::Share.show(gain.share_of_time[0]),
                Quantity::Share.show(gain.share_of_time[1])
            ),
        );
        for with in &gain.with {
            let cpu = with.cpu_saved_ns.map_or(String::new(), |saved| {
                let middle = (saved.low + saved.high) / 2.0;
                let (ns, word) = if middle < 0.0 { (-middle, "more") } else { (middle, "less") };
                format!(
                    "; {} {word} CPU time of both programs in each exchange",
                    Quantity::Duration.show(ns)
                )
            });
            let text = match with.unmodified {
                true => format!("{BY_RUN}: {}{cpu}", with.verdict),
                false => {
                    format!("{} instead of {}: {}{cpu}", with.mechanism, gain.now, with.verdict)
                }
            };
            ui.print_wrapped(2, &text);
        }
        if gain.run_is_enough {
            ui.print_wrapped(
                2,
                &format!(
                    "Change nothing: {BY_RUN} gives that gain, or nearly that of the best of these."
                ),
            );
        }
        for remark in &gain.remarks {
            ui.print_noted("33", "note:", remark);
        }
    }
}

/// An interval in words: one value if both ends look the same.
fn span_words(of: Interval, show: impl Fn(f64) -> String) -> String {
    let (low, high) = (show(of.low), show(of.high));
    if low == high { low } else { format!("{low} to {high}") }
}
