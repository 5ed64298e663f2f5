//! Measures how much more the recommendations of `crossway advise` cost than the best mechanism on this machine.
//!
//! The scenarios are drawn by a seeded generator (pattern, sizes of messages and replies, rate, placement, load,
//! goal, objective, required properties). For each of them:
//!
//! 1. every admissible mechanism is measured;
//! 2. `advise` decides within its budget, without records, from its own measurements;
//! 3. the recommended mechanism and those that may be the best are measured again; those that are still close to each
//!    other are measured a third time.
//!
//! The measurements made by `advise` are not used for the verdict. The regret is how much more the recommendation costs
//! than the cheapest mechanism, in the measurements of steps 1 and 3. It is stated in three ways:
//!
//! - from the medians of all trials; this is biased upwards, because the lowest of several noisy medians is below the
//!   lowest true median;
//! - by halves: the best mechanism is selected by one half of the trials (every other one) and compared with the
//!   recommendation in the other half, and vice versa. A lucky trial therefore cannot both make a mechanism the best
//!   and count against the recommendation;
//! - as the lower end of the 95 % confidence interval of the first figure: the part of the regret that is certain.
//!
//! `cargo run --release -p crossway-advise --example advice_regret -- OUT [--first 0] [--scenarios 60] [--budget 12] [--minutes 9] [--crossway FILE]`
//!
//! Writes a line to OUT/scenarios.jsonl for each finished scenario; the same command resumes after the last one.

mod drawn;
mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossway_advise::candidate::{Candidate, Known};
use crossway_advise::judge::{Judged, judge};
use crossway_advise::{
    Advice, AdviseError, Bench, Library, Machine, Question, Sources, Trial, admissible, advise,
    survey,
};
use crossway_lab::catalogue;
use crossway_lab::launcher::Launcher;
use crossway_lab::run::{Asker, Options, RunError};
use crossway_lab::shutdown;
use crossway_records::stats;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

type Failure = Box<dyn std::error::Error>;

/// Time limit of advise in seconds; a tenth of the default of `crossway advise`.
const BUDGET_S: u64 = 12;
/// Number of trials of every admissible mechanism before advise runs.
const FIRST_TRIALS: u32 = 5;
/// Rounds of trials after `advise` has run, as (factor, number of trials). Each round measures the recommended
/// candidate, and those with a median of at most `factor` times the lowest median so far.
const LATER_TRIALS: [(f64, u32); 2] = [(1.3, 7), (1.15, 24)];
const RESAMPLES: usize = 1_000;

/// The true cost of a mechanism, nanoseconds per message.
#[derive(Serialize, Deserialize)]
struct Cost {
    candidate: String,
    trials: usize,
    median: f64,
    low: f64,
    high: f64,
}

/// A scenario and its result.
#[derive(Serialize, Deserialize)]
struct Outcome {
    scenario: u64,
    question: String,
    sentence: String,
    choice: Option<String>,
    abstained: Option<String>,
    confidence: Option<f64>,
    advice_s: f64,
    /// Fraction by which the recommendation costs more than the cheapest candidate; null without a recommendation, or
    /// if the measurements show that it is not admissible.
    regret: Option<f64>,
    /// The regret if the best candidate is selected by one half of the trials and compared with the recommendation in
    /// the other half.
    by_halves: Option<f64>,
    /// Lower end of the 95 % interval of `regret`.
    at_least: Option<f64>,
    truth: Vec<Cost>,
}

struct Arguments {
    out: PathBuf,
    /// Number of the first scenario; other numbers give other scenarios.
    first: u64,
    scenarios: u64,
    budget: Duration,
    minutes: u64,
    crossway: PathBuf,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut words = std::env::args().skip(1);
    let mut said = Arguments {
        out: PathBuf::new(),
        first: 0,
        scenarios: 60,
        budget: Duration::from_secs(BUDGET_S),
        minutes: 60,
        crossway: "target/release/crossway".into(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--first" => said.first = value()?.parse()?,
            "--scenarios" => said.scenarios = value()?.parse()?,
            "--budget" => said.budget = Duration::from_secs(value()?.parse()?),
            "--minutes" => said.minutes = value()?.parse()?,
            "--crossway" => said.crossway = value()?.into(),
            out => said.out = out.into(),
        }
    }
    if said.out.as_os_str().is_empty() {
        return Err("name a folder for the measurements".into());
    }
    said.crossway = said.crossway.canonicalize().map_err(|e| {
        format!(
            "{}: {e}; build it with: cargo build --release -p crossway",
            said.crossway.display()
        )
    })?;
    Ok(said)
}

struct Place<'a> {
    known: Known<'a>,
    launcher: &'a Launcher,
    out: &'a Path,
    budget: Duration,
}

impl Place<'_> {
    /// A bench that measures on this machine and stores its runs in the folder `name`.
    fn bench(&self, name: &str) -> Machine<'_> {
        Machine {
            launcher: self.launcher,
            options: Options::new(self.out.join(name), Asker::Advise),
            runs: Vec::new(),
            tell: Box::new(|_| ()),
        }
    }

    fn truth(
        &self,
        question: &Question,
        candidates: &[Candidate],
        trials: u32,
        seed: u64,
    ) -> Result<Vec<Trial>, AdviseError> {
        self.bench("truth").run(&survey::plan(question, candidates, trials, seed)?)
    }

    fn play(&self, scenario: u64) -> Result<Outcome, Failure> {
        let (text, question, candidates) = self.question(scenario)?;
        let mut trials = self.truth(&question, &candidates, FIRST_TRIALS, scenario)?;
        let library = Library::default();
        let sources = Sources {
            known: self.known,
            library: &library,
            folder: self.out,
            budget: Some(self.budget),
        };
        let advice = advise(&question, &sources, &mut self.bench("advice"), &mut |_| {})?;
        for (step, (reach, count)) in LATER_TRIALS.into_iter().enumerate() {
            let near = near(&judged(&question, &candidates, &trials), reach, &advice);
            if near.len() > 1 {
                let seed = scenario + 1_000 * (step as u64 + 1);
                trials.extend(self.truth(&question, &near, count, seed)?);
            }
        }
        let last = judged(&question, &candidates, &trials);
        let regret = advice.choice.as_ref().and_then(|choice| Regret::of(&last, choice));
        let cost = |j: &Judged| Cost {
            candidate: j.candidate.label(),
            trials: j.cost.n,
            median: j.cost.value,
            low: j.cost.low,
            high: j.cost.high,
        };
        Ok(Outcome {
            scenario,
            question: text,
            sentence: format!("{}, {}", question.sentence(), advice.objective_words),
            choice: advice.choice,
            abstained: advice.abstained,
            confidence: advice.confidence,
            advice_s: advice.measured_s,
            regret: regret.as_ref().map(|r| r.by_medians),
            by_halves: regret.as_ref().map(|r| r.by_halves),
            at_least: regret.as_ref().map(|r| r.at_least),
            truth: last.iter().map(cost).collect(),
        })
    }

    /// Draws questions for a scenario until one leaves at least three candidates.
    fn question(&self, scenario: u64) -> Result<(String, Question, Vec<Candidate>), Failure> {
        for attempt in 0..1_000 {
            let text = drawn::drawn(scenario, attempt);
            let name = format!("scenario-{scenario}");
            // Some combinations are invalid, such as latency for fans.
            let Ok(question) = Question::parse(&name, &name, &text) else { continue };
            let field = admissible(&question, &self.known)?;
            if field.candidates.len() >= 3 {
                return Ok((text, question, field.candidates));
            }
        }
        Err(format!("scenario {scenario}: no drawn question leaves three candidates").into())
    }
}

/// The admissible candidates, lowest cost first.
fn judged(question: &Question, candidates: &[Candidate], trials: &[Trial]) -> Vec<Judged> {
    let all = candidates.iter().filter_map(|c| judge(question, c, trials.iter()));
    let mut all: Vec<Judged> = all.filter(Judged::admissible).collect();
    all.sort_by(|a, b| a.cost.value.total_cmp(&b.cost.value));
    all
}

/// Returns the recommended candidate, and those with a median cost of at most `reach` times the lowest.
fn near(judged: &[Judged], reach: f64, advice: &Advice) -> Vec<Candidate> {
    let least = judged.first().map_or(f64::INFINITY, |j| j.cost.value);
    let near =
        |j: &&Judged| j.cost.value <= least * reach || Some(j.candidate.label()) == advice.choice;
    judged.iter().filter(near).map(|j| j.candidate.clone()).collect()
}

/// How much more a recommendation costs than the cheapest candidate, as a fraction of the cheapest one's cost.
struct Regret {
    by_medians: f64,
    by_halves: f64,
    at_least: f64,
}

impl Regret {
    /// Computes the regret of `choice`; `None` if the measurements show that `choice` is not admissible.
    fn of(truth: &[Judged], choice: &str) -> Option<Regret> {
        let own = truth.iter().find(|j| j.candidate.label() == choice)?;
        let best = truth.first()?;
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut draw = |costs: &[f64]| {
            let again: Vec<f64> =
                costs.iter().map(|_| costs[random.random_range(0..costs.len())]).collect();
            stats::median(&again).unwrap_or(f64::NAN)
        };
        let mut ratios: Vec<f64> =
            (0..RESAMPLES).map(|_| draw(&own.costs) / draw(&best.costs) - 1.0).collect();
        ratios.sort_by(f64::total_cmp);
        Some(Regret {
            by_medians: own.cost.value / best.cost.value - 1.0,
            by_halves: (beyond_the_other_half(truth, own, 0)
                * beyond_the_other_half(truth, own, 1))
            .sqrt()
                - 1.0,
            at_least: if own.candidate == best.candidate { 0.0 } else { ratios[RESAMPLES / 40] },
        })
    }
}

/// Compares costs in one half of the trials: returns the recommendation's cost, divided by the cost of the mechanism
/// that is best in the other half.
fn beyond_the_other_half(truth: &[Judged], own: &Judged, half: usize) -> f64 {
    let median = |j: &Judged, half: usize| {
        let costs: Vec<f64> = j.costs.iter().copied().skip(half).step_by(2).collect();
        stats::median(&costs).unwrap_or(f64::NAN)
    };
    let rank = |a: &&Judged, b: &&Judged| median(a, 1 - half).total_cmp(&median(b, 1 - half));
    // Candidates that were dropped as too expensive have too few trials for two halves.
    let enough = |j: &&Judged| 2 * j.costs.len() >= own.costs.len();
    let best = truth.iter().filter(enough).min_by(rank).unwrap_or(own);
    median(own, half) / median(best, half)
}

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    std::fs::create_dir_all(&arguments.out)?;
    let file = arguments.out.join("scenarios.jsonl");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let mut outcomes: Vec<Outcome> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let interrupt = shutdown::listen().map_err(RunError::Os)?;
    let launcher = Launcher::of(arguments.crossway, Some(interrupt));
    let probes: Vec<_> = catalogue::all().map(|entry| (entry.id(), entry.probe())).collect();
    let place = Place {
        known: Known { probes: &probes, faults: &[] },
        launcher: &launcher,
        out: &arguments.out,
        budget: arguments.budget,
    };
    let begun = Instant::now();
    let percent = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{:.1} %", 100.0 * r));
    let mut log = std::fs::File::options().create(true).append(true).open(&file)?;
    for scenario in arguments.first..arguments.first + arguments.scenarios {
        if outcomes.iter().any(|o| o.scenario == scenario) {
            continue;
        }
        if begun.elapsed() >= Duration::from_secs(60 * arguments.minutes) {
            println!("time limit reached; run the same command to continue");
            break;
        }
        let outcome = place.play(scenario)?;
        println!(
            "{scenario}: {} -> {}, regret {} by the medians, {} by halves",
            outcome.sentence,
            outcome.choice.as_deref().unwrap_or("no choice"),
            percent(outcome.regret),
            percent(outcome.by_halves)
        );
        writeln!(log, "{}", serde_json::to_string(&outcome)?)?;
        outcomes.push(outcome);
    }
    summary::summarise(&outcomes);
    Ok(())
}
