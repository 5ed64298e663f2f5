//! What the advice of `crossway advise` costs beyond the best on this machine.
//!
//! For each of the scenarios, which a seeded generator draws (pattern, size, rate, placement, what is minimised, required
//! properties):
//!
//! 1. every admissible mechanism is measured;
//! 2. `advise` decides by itself within its budget: it has no records, and measures for itself;
//! 3. the mechanisms that may be the best, and the one that was chosen, are measured again at length.
//!
//! The regret is what the choice costs in the measurements of 1 and 3 beyond the least there. Because the least of several noisy
//! medians lies below the least of the true ones, it is a little too large. Beside it stands the lower end of its interval.
//!
//! `cargo run --release -p crossway-lab --example advice_regret -- OUT [--scenarios 60] [--minutes 9] [--crossway FILE]`
//!
//! Every finished scenario is a line of OUT/scenarios.jsonl; the same command goes on where the last one ended.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossway_lab::advise::candidate::{Candidate, Known};
use crossway_lab::advise::judge::{Judged, judge};
use crossway_lab::advise::{
    AdviseError, Bench, Library, Machine, Question, Sources, Trial, admissible, advise, survey,
};
use crossway_lab::catalogue;
use crossway_lab::launcher::Launcher;
use crossway_lab::run::{Options, RunError};
use crossway_lab::{shutdown, stats};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

type Failure = Box<dyn std::error::Error>;

/// Time in which the advice must be found.
const BUDGET: Duration = Duration::from_secs(8);
/// Trials of every admissible mechanism before the advice.
const FIRST_TRIALS: u32 = 5;
/// Trials afterwards, of those that may be the best.
const LAST_TRIALS: u32 = 15;
/// Whose median is so much above the least one is not the best.
const OUT_OF_REACH: f64 = 1.3;
/// More costs than this are regretted.
const REGRET: f64 = 0.05;
const RESAMPLES: usize = 1_000;

/// What a mechanism costs in truth, nanoseconds per message.
#[derive(Serialize, Deserialize)]
struct Cost {
    candidate: String,
    trials: usize,
    median: f64,
    low: f64,
    high: f64,
}

/// A scenario and what became of it.
#[derive(Serialize, Deserialize)]
struct Outcome {
    scenario: u64,
    question: String,
    sentence: String,
    choice: Option<String>,
    abstained: Option<String>,
    confidence: Option<f64>,
    advice_s: f64,
    /// Share by which the choice costs more than the least; null where none was made, or where it is not admissible in truth.
    regret: Option<f64>,
    /// Lower end of its 95 % interval.
    at_least: Option<f64>,
    truth: Vec<Cost>,
}

struct Arguments {
    out: PathBuf,
    scenarios: u64,
    minutes: u64,
    crossway: PathBuf,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut words = std::env::args().skip(1);
    let mut said = Arguments {
        out: PathBuf::new(),
        scenarios: 60,
        minutes: 60,
        crossway: "target/release/crossway".into(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--scenarios" => said.scenarios = value()?.parse()?,
            "--minutes" => said.minutes = value()?.parse()?,
            "--crossway" => said.crossway = value()?.into(),
            out => said.out = out.into(),
        }
    }
    if said.out.as_os_str().is_empty() {
        return Err("name a folder for what is measured".into());
    }
    said.crossway = said.crossway.canonicalize().map_err(|e| {
        format!(
            "{}: {e}; build it with: cargo build --release -p crossway",
            said.crossway.display()
        )
    })?;
    Ok(said)
}

/// The question of a scenario.
fn drawn(scenario: u64, attempt: u64) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(scenario * 1_000 + attempt);
    let mut one = |of: &[&str]| (*of.choose(&mut random).expect("not empty")).to_owned();
    let pattern = one(&[
        "request-reply",
        "request-reply",
        "request-reply",
        "stream",
        "stream",
        "stream at a rate",
        "request-reply at a rate",
        "connect-per-exchange",
        "fan-in",
    ]);
    let (word, paced) = match pattern.strip_suffix(" at a rate") {
        Some(word) => (word, true),
        None => (pattern.as_str(), false),
    };
    let size = one(&["16", "64", "256", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB"]);
    let placement = one(&["other-core", "other-core", "same-core"]);
    let mut text =
        format!("pattern = \"{word}\"\nsize_bytes = \"{size}\"\nplacement = \"{placement}\"\n");
    if paced {
        text += &format!("rate_per_s = {}\n", one(&["500", "1000", "2000"]));
    } else if one(&["yes", "no", "no", "no"]) == "yes" {
        text += "optimise = \"cpu\"\n";
    }
    text += "[properties]\norder = \"require\"\ndelivery = \"require\"\n";
    text += &one(&[
        "boundaries = \"require\"\n",
        "pollable = \"require\"\n",
        "crosses-hosts = \"require\"\n",
        "zero-copy = \"require\"\n",
        "zero-copy = \"prohibit\"\n",
        "crosses-hosts = \"prohibit\"\n",
        "boundaries = \"prohibit\"\n",
        "spinning = \"no-preference\"\nzero-copy = \"require\"\n",
        "boundaries = \"require\"\npollable = \"require\"\n",
    ]);
    text
}

struct Place<'a> {
    known: Known<'a>,
    launcher: &'a Launcher,
    out: &'a Path,
}

impl Place<'_> {
    /// The machine, measuring into a folder of its own.
    fn bench(&self, name: &str) -> Machine<'_> {
        let out = self.out.join(name);
        let program = self.launcher.program.clone();
        Machine {
            launcher: self.launcher,
            options: Box::new(move || Options {
                out: out.clone(),
                filters: Vec::new(),
                name: None,
                resume: None,
                hosts: None,
                agent_program: None,
                reaper: Some((program.clone(), vec!["reaper".to_owned()])),
            }),
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
            budget: Some(BUDGET),
        };
        let advice = advise(&question, &sources, &mut self.bench("advice"), &mut |_| {})?;
        let first = judged(&question, &candidates, &trials);
        let least = first.iter().map(|j| j.cost.median).fold(f64::INFINITY, f64::min);
        let near = |j: &&Judged| {
            j.cost.median <= least * OUT_OF_REACH || Some(j.candidate.label()) == advice.choice
        };
        let near: Vec<Candidate> = first.iter().filter(near).map(|j| j.candidate.clone()).collect();
        trials.extend(self.truth(&question, &near, LAST_TRIALS, scenario + 1)?);
        let last = judged(&question, &candidates, &trials);
        let (regret, at_least) = match advice.choice.as_ref() {
            Some(choice) => regret(&last, choice),
            None => (None, None),
        };
        let cost = |j: &Judged| Cost {
            candidate: j.candidate.label(),
            trials: j.cost.n,
            median: j.cost.median,
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
            regret,
            at_least,
            truth: last.iter().map(cost).collect(),
        })
    }

    /// The first draw of a scenario that leaves a choice.
    fn question(&self, scenario: u64) -> Result<(String, Question, Vec<Candidate>), Failure> {
        for attempt in 0..1_000 {
            let text = drawn(scenario, attempt);
            let name = format!("scenario-{scenario}");
            // Fans cannot be asked for latency, and the like.
            let Ok(question) = Question::parse(&name, &name, &text) else { continue };
            let field = admissible(&question, &self.known)?;
            if field.candidates.len() >= 3 {
                return Ok((text, question, field.candidates));
            }
        }
        Err(format!("scenario {scenario}: no draw leaves three mechanisms").into())
    }
}

/// The admissible ones, the least cost first.
fn judged(question: &Question, candidates: &[Candidate], trials: &[Trial]) -> Vec<Judged> {
    let all = candidates.iter().filter_map(|c| judge(question, c, trials.iter()));
    let mut all: Vec<Judged> = all.filter(Judged::admissible).collect();
    all.sort_by(|a, b| a.cost.median.total_cmp(&b.cost.median));
    all
}

/// What the choice costs beyond the least, and at least so.
fn regret(truth: &[Judged], choice: &str) -> (Option<f64>, Option<f64>) {
    let own = truth.iter().find(|j| j.candidate.label() == choice);
    let (Some(own), Some(best)) = (own, truth.first()) else { return (None, None) };
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut draw = |costs: &[f64]| {
        let again: Vec<f64> =
            costs.iter().map(|_| costs[random.random_range(0..costs.len())]).collect();
        stats::median(&again).unwrap_or(f64::NAN)
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| draw(&own.costs) / draw(&best.costs) - 1.0).collect();
    ratios.sort_by(f64::total_cmp);
    let at_least = if own.candidate == best.candidate { 0.0 } else { ratios[RESAMPLES / 40] };
    (Some(own.cost.median / best.cost.median - 1.0), Some(at_least))
}

/// A share with its 95 % interval (Wilson's).
fn share(hits: usize, of: usize) -> String {
    if of == 0 {
        return "none".to_owned();
    }
    let (n, p, z) = (of as f64, hits as f64 / of as f64, 1.96_f64);
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let percent = |x: f64| 100.0 * x.clamp(0.0, 1.0);
    format!(
        "{hits} of {of}, {:.1} % ({:.1} to {:.1})",
        percent(p),
        percent(middle - half),
        percent(middle + half)
    )
}

fn summarise(outcomes: &[Outcome]) {
    let answered: Vec<&Outcome> = outcomes.iter().filter(|o| o.choice.is_some()).collect();
    let over = |figure: Option<f64>| figure.is_none_or(|r| r > REGRET);
    let regretted = answered.iter().filter(|o| over(o.regret)).count();
    let shown = answered.iter().filter(|o| over(o.at_least)).count();
    let mut regrets: Vec<f64> = answered.iter().filter_map(|o| o.regret).collect();
    regrets.sort_by(f64::total_cmp);
    println!("scenarios: {}", outcomes.len());
    println!("abstained: {}", share(outcomes.len() - answered.len(), outcomes.len()));
    println!("more than 5 % above the least, by the medians: {}", share(regretted, answered.len()));
    println!("the same, by the lower end of the interval: {}", share(shown, answered.len()));
    if !regrets.is_empty() {
        let at = |q: f64| 100.0 * regrets[((regrets.len() - 1) as f64 * q) as usize];
        println!("regret: median {:.1} %, 90th percentile {:.1} %", at(0.5), at(0.9));
    }
    let mut worst = answered;
    let key = |o: &Outcome| o.regret.unwrap_or(f64::INFINITY);
    worst.sort_by(|a, b| key(b).total_cmp(&key(a)));
    println!("the worst:");
    for o in worst.iter().take(8).filter(|o| key(o) > 0.0) {
        let best = o.truth.first().map_or("none", |c| c.candidate.as_str());
        println!(
            "  {:.1} % (at least {:.1} %): {} instead of {best}; {} [{}]",
            100.0 * key(o),
            100.0 * o.at_least.unwrap_or(f64::INFINITY),
            o.choice.as_deref().unwrap_or_default(),
            o.sentence,
            o.scenario
        );
    }
}

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    std::fs::create_dir_all(&arguments.out)?;
    let file = arguments.out.join("scenarios.jsonl");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let mut outcomes: Vec<Outcome> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let launcher = Launcher {
        program: arguments.crossway,
        args: vec!["role".to_owned()],
        interrupt: Some(shutdown::listen().map_err(RunError::Os)?),
    };
    let probes: Vec<_> = catalogue::all().map(|entry| (entry.id(), entry.probe())).collect();
    let place = Place {
        known: Known { probes: &probes, faults: &[] },
        launcher: &launcher,
        out: &arguments.out,
    };
    let begun = Instant::now();
    let mut log = std::fs::File::options().create(true).append(true).open(&file)?;
    for scenario in 0..arguments.scenarios {
        if outcomes.iter().any(|o| o.scenario == scenario) {
            continue;
        }
        if begun.elapsed() >= Duration::from_secs(60 * arguments.minutes) {
            println!("time is over; the same command goes on");
            break;
        }
        let outcome = place.play(scenario)?;
        println!(
            "{scenario}: {} -> {}, regret {}",
            outcome.sentence,
            outcome.choice.as_deref().unwrap_or("no choice"),
            outcome.regret.map_or("-".to_owned(), |r| format!("{:.1} %", 100.0 * r))
        );
        writeln!(log, "{}", serde_json::to_string(&outcome)?)?;
        outcomes.push(outcome);
    }
    summarise(&outcomes);
    Ok(())
}
