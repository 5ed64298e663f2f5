//! Summarises all scenarios.

use super::Outcome;

/// Regret above this fraction counts as a wrong choice.
const REGRET: f64 = 0.05;

type Figure = fn(&Outcome) -> Option<f64>;

/// Formats the share of `hits` in `of` as a percentage with its 95 % confidence interval (Wilson's).
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

pub(super) fn summarise(outcomes: &[Outcome]) {
    // If no mechanism meets the goals, advise is right to say so.
    let (hopeless, judged): (Vec<&Outcome>, Vec<&Outcome>) =
        outcomes.iter().partition(|o| o.choice.is_none() && o.truth.is_empty());
    let answered: Vec<&Outcome> = judged.iter().copied().filter(|o| o.choice.is_some()).collect();
    // A recommendation that is not truly admissible counts as regret.
    let over = |of: &dyn Fn(&Outcome) -> Option<f64>| {
        let over = answered.iter().filter(|o| of(o).is_none_or(|r| r > REGRET)).count();
        share(over, answered.len())
    };
    println!("scenarios: {}", outcomes.len());
    if !hopeless.is_empty() {
        println!(
            "scenarios without an admissible mechanism, as advise reported: {}",
            hopeless.len()
        );
    }
    println!("abstained: {}", share(judged.len() - answered.len(), judged.len()));
    println!("more than 5 % above the best, by the medians: {}", over(&|o| o.regret));
    println!("the same, by halves: {}", over(&|o| o.by_halves));
    println!("the same, by the lower end of the interval: {}", over(&|o| o.at_least));
    let confidence: Vec<f64> = answered.iter().filter_map(|o| o.confidence).collect();
    if !confidence.is_empty() {
        let mean = confidence.iter().sum::<f64>() / confidence.len() as f64;
        println!("stated confidence, on average: {:.1} %", 100.0 * mean);
    }
    let figures: [(&str, Figure); 2] =
        [("by the medians", |o| o.regret), ("by halves", |o| o.by_halves)];
    for (name, of) in figures {
        let mut regrets: Vec<f64> = answered.iter().copied().filter_map(of).collect();
        regrets.sort_by(f64::total_cmp);
        if !regrets.is_empty() {
            let at = |q: f64| 100.0 * regrets[((regrets.len() - 1) as f64 * q) as usize];
            println!(
                "regret {name}: median {:.1} %, 90th percentile {:.1} %, largest {:.1} %",
                at(0.5),
                at(0.9),
                at(1.0)
            );
        }
    }
    let mut worst = answered;
    let key = |o: &Outcome| o.regret.unwrap_or(f64::INFINITY);
    worst.sort_by(|a, b| key(b).total_cmp(&key(a)));
    println!("largest regrets:");
    for o in worst.iter().take(8).filter(|o| key(o) > 0.0) {
        let best = o.truth.first().map_or("none", |c| c.candidate.as_str());
        println!(
            "  {:.1} % (by halves {:.1} %, at least {:.1} %): {} instead of {best}; {} [{}]",
            100.0 * key(o),
            100.0 * o.by_halves.unwrap_or(f64::INFINITY),
            100.0 * o.at_least.unwrap_or(f64::INFINITY),
            o.choice.as_deref().unwrap_or_default(),
            o.sentence,
            o.scenario
        );
    }
}
