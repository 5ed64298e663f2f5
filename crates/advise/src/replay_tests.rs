//! Simulated scenarios in which every candidate's true cost is known. `advise` sees noisy trials and has a limited
//! budget. Its regret is how much more its choice costs than the best admissible candidate.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::candidate::Known;
use super::question::Question;
use super::*;
use crossway_lab::case;
use crossway_records::samples;

const SCENARIOS: u64 = 60;
/// Simulated time of a trial.
const TRIAL: Duration = Duration::from_millis(150);
/// The default budget of `crossway advise`.
const BUDGET: Duration = Duration::from_secs(120);
/// Regret up to this fraction is ignored.
const REGRET: f64 = 0.05;

/// A machine whose mechanisms have random start-up costs, costs per byte and noise, drawn from a seed.
struct Simulated {
    seed: u64,
    noise: f64,
    random: Pcg64Mcg,
    /// The simulated time; the real time would make the trials depend on the speed of the machine that runs the tests.
    now: Instant,
    /// Whether all mechanisms have the same costs: 20 us and 10 ns per byte.
    tied: bool,
    /// Number of round trips per millisecond; if set, trials with few of them lack a p99, and the maximum of every fourth is
    /// 50 times its median.
    per_ms: Option<f64>,
    /// What a round trip takes if the ends look before they sleep, as a share of what it takes otherwise.
    looking: f64,
    /// Whether every candidate becomes a hundred times as slow in the first stage at length.
    collapse: bool,
    /// The candidates of that stage.
    collapsed: Vec<String>,
}

impl Simulated {
    fn new(seed: u64) -> Simulated {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        Simulated {
            seed,
            noise: random.random_range(0.01..0.25),
            random,
            now: Instant::now(),
            tied: false,
            per_ms: None,
            looking: 1.0,
            collapse: false,
            collapsed: Vec::new(),
        }
    }

    /// The median round trip of a mechanism, nanoseconds.
    fn truth_ns(&self, mechanism: &str, bytes: u64) -> f64 {
        let name =
            mechanism.bytes().fold(self.seed, |h, b| h.wrapping_mul(1_000_003) ^ u64::from(b));
        let mut own = Pcg64Mcg::seed_from_u64(name);
        if self.tied {
            return 20_000.0 + 10.0 * bytes as f64;
        }
        let startup = own.random_range(3_000.0..60_000.0);
        let per_byte = own.random_range(0.05..2.0);
        startup + per_byte * bytes as f64
    }
}

impl Bench for Simulated {
    fn run(&mut self, plan: &Plan) -> Result<Vec<Trial>, AdviseError> {
        let topology = crossway_sys::topology::Topology::default();
        let mut trials = Vec::new();
        let cases = case::expand(plan, &topology, &[]);
        let is_last = cases.iter().all(|case| case.group.starts_with("last-"));
        if self.collapse && self.collapsed.is_empty() && is_last {
            self.collapsed = cases.iter().map(|case| case.mechanism.to_owned()).collect();
        }
        for case in cases {
            for trial in 0..case.inputs.trials {
                self.now += TRIAL.max(Duration::from_millis(case.inputs.measure_ms + 70));
                let truth = self.truth_ns(case.mechanism, case.inputs.size_bytes);
                // Right-skewed like real latencies: occasionally a trial is disturbed by other work.
                let disturbed = if self.random.random_range(0.0..1.0) < 0.1 { 1.5 } else { 1.0 };
                let spread = 1.0 + self.noise * (self.random.random_range(0.0..1.0) - 0.5);
                let is_slow = self.collapsed.iter().any(|slow| slow == case.mechanism);
                let slow = if is_slow { 100.0 } else { 1.0 };
                let looks = matches!(case.inputs.wait, crossway_mech::Wait::Hybrid { .. });
                let looking = if looks { self.looking } else { 1.0 };
                let p50 = (truth * spread * disturbed * slow * looking) as u64;
                let mut record =
                    samples::ping_pong(case.mechanism, case.inputs.size_bytes, trial, p50, truth);
                record.inputs = case.inputs.clone();
                for l in record.latency_ns.iter_mut().filter(|_| self.per_ms.is_some()) {
                    l.n = (self.per_ms.unwrap_or_default() * case.inputs.measure_ms as f64) as u64;
                    // Outliers that leave it open whether the p99 is below them.
                    let largest = if trial % 4 == 0 { p50 * 50 } else { p50 * 2 };
                    (l.p99, l.max) = ((l.n >= 1_000).then_some(p50 * 2), largest);
                }
                record.group.clone_from(&case.group);
                trials.push(Trial::of(&record));
            }
        }
        Ok(trials)
    }

    fn now(&self) -> Instant {
        self.now
    }
}

/// A machine on which no case can be measured, such as one with a single CPU for a question about two cores.
struct Unable;

impl Bench for Unable {
    fn run(&mut self, _: &Plan) -> Result<Vec<Trial>, AdviseError> {
        Ok(Vec::new())
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

fn answer(question: &Question, bench: &mut dyn Bench) -> Advice {
    answer_in_stages(question, bench, BUDGET).0
}

/// Returns the answer and the purposes of the stages that were measured for it.
fn answer_in_stages(
    question: &Question,
    bench: &mut dyn Bench,
    budget: Duration,
) -> (Advice, Vec<String>) {
    answer_beside(&Library::default(), question, bench, budget)
}

/// Returns the same as [`answer_in_stages`] on a machine with trials of earlier runs.
fn answer_beside(
    library: &Library,
    question: &Question,
    bench: &mut dyn Bench,
    budget: Duration,
) -> (Advice, Vec<String>) {
    let mut stages = Vec::new();
    let sources = Sources {
        known: Known { probes: &[], faults: &[] },
        library,
        folder: std::path::Path::new("out"),
        budget: Some(budget),
    };
    let advice = advise(question, &sources, bench, &mut |stage| stages.push(stage.purpose.clone()));
    (advice.expect("an answer"), stages)
}

#[test]
fn a_machine_that_can_measure_no_candidate_gets_a_reason() {
    let question = Question::parse("scenario", "scenario", "size_bytes = 512").expect("a question");
    let advice = answer(&question, &mut Unable);
    assert_eq!(advice.choice, None);
    assert!(advice.abstained.is_some_and(|why| !why.is_empty()));
}

#[test]
fn no_candidate_between_hosts_is_dropped_after_a_single_trial() {
    let text = "size_bytes = 512\nwhere = \"other-host\"\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let advice = answer(&question, &mut Simulated::new(1));
    assert!(advice.compared.len() > 4, "{:?}", advice.compared);
    for row in &advice.compared {
        assert!(row.cost_ns.n >= 3, "{} had {} trials", row.candidate, row.cost_ns.n);
    }
}

#[test]
fn variations_include_the_choice_even_if_equals_have_lower_medians() {
    for seed in 0..6 {
        let text =
            "size_bytes = 512\nplacement = \"unpinned\"\n[properties]\ndelivery = \"require\"";
        let question = Question::parse("scenario", "scenario", text).expect("a question");
        let advice = answer(&question, &mut Simulated { tied: true, ..Simulated::new(seed) });
        let choice = advice.choice.expect("a choice");
        assert!(!advice.flips.is_empty());
        for flip in &advice.flips {
            let measured = flip.costs_ns.iter().any(|(name, _)| *name == choice);
            assert!(measured, "seed {seed}: {choice} is missing in {flip:?}");
        }
    }
}

#[test]
fn the_best_get_trials_long_enough_for_the_percentiles_of_the_goals() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\n[goal]\np99_us = 200\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let slow = |per_ms| Simulated { tied: true, per_ms: Some(per_ms), ..Simulated::new(1) };
    let (advice, stages) = answer_in_stages(&question, &mut slow(3.0), BUDGET);
    let goal = |advice: &Advice| {
        let chosen = advice.compared.iter().find(|c| c.verdict == "chosen");
        chosen.map(|c| c.goals[0].clone()).expect("a choice")
    };
    assert!(stages.iter().any(|s| s.contains("long enough")), "{stages:?}");
    assert_eq!(goal(&advice).met, Some(true), "{:?}", goal(&advice));
    // Longer trials do not fit in the time. The answer says how long they would have to be.
    let (advice, stages) = answer_in_stages(&question, &mut slow(1.5), BUDGET / 4);
    assert!(!stages.iter().any(|s| s.contains("long enough")), "{stages:?}");
    let words = goal(&advice).words();
    assert!(words.contains("with more --time") && words.contains("--measure-ms "), "{words}");
}

#[test]
fn candidates_that_were_dropped_return_if_the_others_fail() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\n[goal]\nmax_us = 3000\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let mut bench = Simulated { collapse: true, ..Simulated::new(3) };
    let (advice, stages) = answer_in_stages(&question, &mut bench, BUDGET);
    assert!(!bench.collapsed.is_empty(), "{stages:?}");
    let chosen = advice.compared.iter().find(|c| c.verdict == "chosen");
    let chosen = chosen.unwrap_or_else(|| panic!("{:?}: {stages:?}", advice.abstained));
    assert!(!bench.collapsed.contains(&chosen.mechanism), "{chosen:?}");
    assert!(chosen.cost_ns.n >= crossway_records::stats::TRIALS_AT_LEAST, "{chosen:?}");
}

/// Earlier trials of a mechanism for the scenarios' question, in the run `earlier`.
fn earlier(mechanism: &str, p50_ns: u64) -> Vec<Trial> {
    let mut records = samples::trials(mechanism, 512, &[p50_ns; 7], 900.0);
    for r in &mut records {
        r.inputs.placement = crossway_records::inputs::Placement::Unpinned;
        r.run = "earlier".to_owned();
    }
    records.iter().map(Trial::of).collect()
}

#[test]
fn candidates_that_only_earlier_runs_measured_win_only_after_they_are_measured_now() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\n[goal]\nmax_us = 3000\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let all = answer(&question, &mut Simulated::new(3)).compared;
    let own = || all.iter().flat_map(|c| earlier(&c.mechanism, 20_000)).collect();
    let library = Library { own: own(), ..Library::default() };
    // Those that are measured now fail, and are slower than they were.
    let mut bench = Simulated { collapse: true, ..Simulated::new(3) };
    let (advice, stages) = answer_beside(&library, &question, &mut bench, BUDGET);
    let chosen = advice.compared.iter().find(|c| c.verdict == "chosen");
    let chosen = chosen.unwrap_or_else(|| panic!("{:?}: {stages:?}", advice.abstained));
    assert!(!bench.collapsed.contains(&chosen.mechanism), "{chosen:?}");
    assert!(!chosen.runs.iter().any(|run| run == "earlier"), "{chosen:?}");
    // Without the time for that, there is no choice.
    let mut bench = Simulated { collapse: true, ..Simulated::new(3) };
    let (advice, stages) = answer_beside(&library, &question, &mut bench, TRIAL);
    assert_eq!(advice.no_choice, Some(NoChoice::MeasuredLess), "{stages:?}");
}

#[test]
fn earlier_trials_that_speak_against_the_choice_are_named() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\n[goal]\nmax_us = 3000\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let told = |advice: &Advice| {
        advice.warnings.iter().find(|w| w.starts_with("earlier trials of ")).cloned()
    };
    let first = answer(&question, &mut Simulated::new(3));
    assert_eq!(told(&first), None, "{:?}", first.choice);
    // On a machine that was a thousand times as slow at the time of those trials.
    let slow = |c: &Compared| earlier(&c.mechanism, 60_000_000);
    let library =
        Library { own: first.compared.iter().flat_map(slow).collect(), ..Library::default() };
    let (advice, _) = answer_beside(&library, &question, &mut Simulated::new(3), BUDGET);
    let choice = advice.choice.clone().expect("a choice");
    let note = told(&advice).unwrap_or_else(|| panic!("{choice}: {:?}", advice.warnings));
    assert!(note.contains(&format!("of {choice} speak")) && note.contains("in earlier"), "{note}");
}

#[test]
fn what_is_quicker_if_ends_look_before_they_sleep_is_said_unless_they_must_not() {
    let answer = |text: &str, looking: f64| {
        let question = Question::parse("scenario", "scenario", text).expect("a question");
        let mut bench = Simulated { looking, noise: 0.01, ..Simulated::new(3) };
        answer_in_stages(&question, &mut bench, BUDGET)
    };
    let looks = |stages: &[String]| stages.iter().any(|stage| stage.starts_with("ends that look"));
    let (advice, stages) = answer("size_bytes = 64", 0.2);
    let looking = advice.looking.expect("quicker ends");
    assert!(looks(&stages) && looking.look_us == looking::LOOK_US, "{stages:?}");
    let own = advice.compared.iter().find(|c| c.verdict == "chosen").expect("a choice");
    assert!(looking.cost_ns.high < own.cost_ns.low, "{looking:?} {own:?}");
    // Nothing is gained.
    let (advice, stages) = answer("size_bytes = 64", 1.0);
    assert!(looks(&stages) && advice.choice.is_some() && advice.looking.is_none(), "{stages:?}");
    // Ends must sleep, or nobody waits for an answer.
    for text in [
        "size_bytes = 64\n[properties]\nspinning = \"prohibit\"",
        "size_bytes = 64\npattern = \"stream\"",
    ] {
        let (advice, stages) = answer(text, 0.2);
        assert!(!looks(&stages) && advice.looking.is_none(), "{text}: {stages:?}");
    }
}

#[test]
fn nothing_is_varied_without_a_choice() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\n[goal]\np50_us = 0.1\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let (advice, stages) = answer_in_stages(&question, &mut Simulated::new(1), BUDGET);
    assert_eq!(advice.choice, None);
    assert!(!stages.iter().any(|s| s.starts_with("variation")), "{stages:?}");
}

#[test]
fn another_rate_of_a_fan_is_judged_by_the_figures_at_full_speed() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\npattern = \"fan-in\"\npeers = 2\nrate_per_s = 10\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let (advice, stages) = answer_in_stages(&question, &mut Simulated::new(1), BUDGET);
    assert!(!stages.iter().any(|s| s.contains("per second")), "{stages:?}");
    let rate =
        advice.flips.iter().find(|f| f.variation == "40 messages per second").expect("a rate");
    assert!(!rate.differs && rate.costs_ns.len() <= 3, "{rate:?}");
}

#[test]
fn a_variation_in_which_no_candidate_meets_the_goals_is_a_change() {
    let text = "size_bytes = 512\nplacement = \"unpinned\"\n[goal]\np50_us = 40\n[properties]\ndelivery = \"require\"";
    let question = Question::parse("scenario", "scenario", text).expect("a question");
    let advice = answer(&question, &mut Simulated { tied: true, ..Simulated::new(1) });
    let at = |name: &str| advice.flips.iter().find(|f| f.variation.ends_with(name)).expect(name);
    let (large, small) = (at(" 4 KiB"), at(" 64 B"));
    assert!(large.differs && large.choice.is_none(), "{large:?}");
    let told = large.outcome(advice.choice.as_deref());
    assert!(
        told.contains("no candidate meets every requirement [") && told.contains("p50"),
        "{told}"
    );
    assert!(!small.differs && small.choice.is_some(), "{small:?}");
}

#[test]
fn advice_costs_little_more_than_the_best_and_seldom_abstains() {
    let (mut abstained, mut regretted, mut worst) = (0, 0, Vec::new());
    for seed in 0..SCENARIOS {
        let size = 1u64 << (seed % 17);
        let text = format!(
            "size_bytes = {size}\nplacement = \"unpinned\"\n[properties]\norder = \"require\"\ndelivery = \"require\""
        );
        let question = Question::parse("scenario", "scenario", &text).expect("a question");
        let mut bench = Simulated::new(seed);
        let advice = answer(&question, &mut bench);
        let best = advice
            .compared
            .iter()
            .map(|c| bench.truth_ns(&c.mechanism, size))
            .fold(f64::INFINITY, f64::min);
        let Some(mechanism) = &advice.mechanism else {
            abstained += 1;
            continue;
        };
        let regret = bench.truth_ns(mechanism, size) / best - 1.0;
        if regret > REGRET {
            regretted += 1;
            worst.push((regret, seed, mechanism.clone()));
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    let answered = SCENARIOS as usize - abstained;
    eprintln!("{abstained} abstained, {regretted} of {answered} above 5 %, the worst: {worst:?}");
    assert!(abstained * 5 <= SCENARIOS as usize, "{abstained} abstained");
    assert!(regretted * 20 <= answered, "{regretted} of {answered}: {worst:?}");
}
