//! The answer of `crossway advise` as an HTML page: one file that works offline.

use crossway_advise::{Advice, Compared, Flip};
use crossway_records::awake::busy_explained;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::Estimate;
use crossway_records::stats::{TRIALS_AT_LEAST, interval_name};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use crate::html::HtmlError;
use crate::units::{Quantity, count};

const TEMPLATE: &str = include_str!("../assets/advice.html");
const STYLE: &str = include_str!("../assets/page.css");

#[derive(Serialize)]
struct Row {
    candidate: String,
    figure: String,
    interval: String,
    cpu: String,
    trials: usize,
    class: &'static str,
    verdict: String,
    goals: String,
}

#[derive(Serialize)]
struct Variation {
    title: String,
    bars: Vec<Bar>,
}

/// A candidate's row in the bar chart. `to` is the end of the bar, `low` and `width` are the start and the width of the
/// interval; all are in per cent of the chart's width.
#[derive(Serialize)]
struct Bar {
    candidate: String,
    figure: String,
    to: String,
    low: String,
    width: String,
}

/// Renders an answer as an HTML page.
///
/// # Errors
/// Fails only if the template does not match its data, which is a defect of Crossway.
pub fn page(advice: &Advice) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("advice", TEMPLATE)?;
    let page = environment.get_template("advice")?.render(context! {
        a => Value::from(Serde(advice)),
        style => STYLE,
        confidence => advice.confidence.map(self::confidence),
        rows => Value::from(Serde(advice.compared.iter().map(row).collect::<Vec<_>>())),
        reasons => Value::from(Serde(advice.reasons())),
        standing => standing(advice),
        not_pursued => not_pursued(advice),
        looking => looking(advice),
        caveat => caveat(advice),
        among_equals => AMONG_EQUALS,
        best_of => best_of(advice),
        no_confidence => no_confidence(advice),
        interval => interval_name(advice.compared.iter().map(|c| c.cost_ns.n)),
        awake => awake_of(advice),
        flips => Value::from(Serde(variations(advice))),
    })?;
    Ok(page)
}

/// Returns what the heading of a choice must add if the trials leave some of the choice's goals undecided, or if there
/// is no evidence about a required property; otherwise an empty text.
pub fn caveat(advice: &Advice) -> String {
    let own = advice.compared.iter().find(|c| c.verdict == "chosen");
    let goals = own.is_some_and(leaves_open);
    let goals = goals.then(|| "the trials do not decide whether it meets every goal".to_owned());
    let open = &advice.open_requirements;
    let open = (!open.is_empty())
        .then(|| format!("no evidence here shows whether it has {}", open.join(" and ")));
    let parts: Vec<String> = goals.into_iter().chain(open).collect();
    if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", and ")) }
}

fn leaves_open(c: &Compared) -> bool {
    c.open_rate.is_some() || c.goals.iter().any(|goal| goal.met.is_none())
}

/// Explains how one of several equal candidates is chosen.
pub const AMONG_EQUALS: &str = "Among equals, a candidate that meets all its goals comes before one with undecided \
    goals; then your preferences decide, then how little your programs have to change, then simplicity, by the first of these points in which the candidates differ: \
    no privilege or kernel module, no outside program, no additional process, no spinning, a pollable descriptor, no \
    shared memory, the order of `crossway list`";

/// Explains why no confidence is stated for a choice.
pub fn no_confidence(advice: &Advice) -> &str {
    advice.no_confidence.as_deref().unwrap_or(NO_CONFIDENCE)
}

const NO_CONFIDENCE: &str = "No confidence is stated, because the choice is the only candidate that was measured \
    to the end and misses no requirement";

/// Describes the candidate with which the choice was compared: the best of all, or of those that were measured to the
/// end.
pub fn best_of(advice: &Advice) -> &'static str {
    if advice.compared.iter().any(|c| c.verdict == "not pursued") {
        "the best candidate that was measured to the end"
    } else {
        "the best candidate"
    }
}

/// Formats the verdict on a candidate, with the word "busy" if its ends hardly slept.
pub fn verdict(c: &Compared) -> String {
    if c.kept_awake { format!("{}, busy", c.verdict) } else { c.verdict.to_owned() }
}

/// Returns the footnote that explains the word "busy"; `None` if no candidate has it.
fn awake_of(advice: &Advice) -> Option<String> {
    let busy = advice.compared.iter().any(|c| c.kept_awake);
    busy.then(|| format!("{}.", busy_explained()))
}

/// Returns the rows of a short table, in the order of `advice.compared`. The choice, its equals and the runner-up are
/// always among them. Other candidates fill the table up to `most` rows, those that fail a requirement only if no
/// others are left.
pub fn shortlist(advice: &Advice, most: usize) -> Vec<&Compared> {
    let named = |c: &Compared| {
        matches!(c.verdict, "chosen" | "equal") || advice.runner_up.as_ref() == Some(&c.candidate)
    };
    let mut order: Vec<usize> = (0..advice.compared.len()).collect();
    order.sort_small_by_key(|&at| {
        let c = &advice.compared[at];
        (!named(c), c.verdict == "fails", at)
    });
    order.truncate(most.max(advice.compared.iter().filter(|c| named(c)).count()));
    order.sort_unstable();
    order.into_iter().map(|at| &advice.compared[at]).collect()
}

/// Says what is quicker if its ends look before they sleep, without a full stop; `None` if nothing is.
pub fn looking(advice: &Advice) -> Option<String> {
    let looking = advice.looking.as_ref()?;
    let show = |figure: &Estimate| Quantity::Duration.show_two(figure.value);
    let cpu = match (&looking.cpu_ns, advice.objective.percentile()) {
        (Some(cpu), Some(_)) => format!(", CPU time per message {}", show(cpu)),
        _ => String::new(),
    };
    let as_they_are = match looking.mechanism.starts_with("uds-") {
        true => ". `crossway run` does this for programs as they are",
        false => "",
    };
    Some(format!(
        "{}, if its ends look for up to {} µs before they sleep: {} {}{cpu}, while answers come that soon{as_they_are}",
        looking.mechanism,
        looking.look_us,
        advice.objective_words,
        show(&looking.cost_ns),
    ))
}

/// Describes how the choice's figure compares with those of the candidates that were measured for as long as the
/// choice; `None` without a choice.
pub fn standing(advice: &Advice) -> Option<String> {
    let rivals: Vec<&Compared> = advice.compared.iter().filter(|c| c.is_pursued()).collect();
    let own = rivals.iter().find(|c| c.verdict == "chosen")?;
    let lowest = rivals.iter().all(|c| c.cost_ns.value >= own.cost_ns.value);
    let what = &advice.objective_words;
    let rank = match lowest {
        _ if rivals.len() == 1 => "It is".to_owned(),
        true => format!("It has the lowest {what} of"),
        false => format!("The trials do not distinguish its {what} from the lowest of"),
    };
    let open = !advice.open_requirements.is_empty() || rivals.iter().any(|c| leaves_open(c));
    let of = match (rivals.len(), open) {
        (1, true) => {
            "the only candidate that was measured to the end and misses no requirement".to_owned()
        }
        (1, false) => {
            "the only candidate that was measured to the end and meets every requirement".to_owned()
        }
        (n, true) => {
            format!("the {n} candidates that were measured to the end and miss no requirement")
        }
        (n, false) => {
            format!("the {n} candidates that were measured to the end and meet every requirement")
        }
    };
    Some(format!("{rank} {of}"))
}

/// Says how many candidates are not among those of [`standing`], because they were not measured to
/// the end; `None` if all are.
pub fn not_pursued(advice: &Advice) -> Option<String> {
    match advice.compared.iter().filter(|c| c.verdict == "not pursued").count() {
        0 => None,
        n => Some(format!(
            "{} not measured to the end",
            count(n, "other candidate was", "other candidates were")
        )),
    }
}

fn ns(x: f64) -> String {
    Quantity::Duration.show(x)
}

fn row(c: &Compared) -> Row {
    let goals = c.goals.iter().map(|g| format!("{}: {}", g.goal, g.words()));
    let rate = c.open_rate.iter().map(|why| format!("rate: {why}"));
    let goals: Vec<String> = c.why.iter().cloned().chain(rate).chain(goals).collect();
    Row {
        candidate: c.candidate.clone(),
        figure: ns(c.cost_ns.value),
        interval: if c.cost_ns.n < TRIALS_AT_LEAST {
            "too few trials".to_owned()
        } else {
            format!("{} to {}", ns(c.cost_ns.low), ns(c.cost_ns.high))
        },
        cpu: c.cpu_ns.map_or("–".to_owned(), |f| ns(f.value)),
        trials: c.cost_ns.n,
        class: c.verdict,
        verdict: verdict(c),
        goals: goals.join("; "),
    }
}

fn variations(advice: &Advice) -> Vec<Variation> {
    let variation = |flip: &Flip| {
        let then = flip.outcome(advice.choice.as_deref());
        Variation { title: format!("{}: {then}", flip.variation), bars: bars(&flip.costs_ns) }
    };
    advice.flips.iter().map(variation).collect()
}

/// Returns the candidates' bars with their intervals, on a logarithmic scale from a fifth of the lowest end of an
/// interval to the highest end.
fn bars(costs: &[(String, Estimate)]) -> Vec<Bar> {
    let low = costs.iter().map(|(_, f)| f.low).fold(f64::INFINITY, f64::min) / 5.0;
    let high = costs.iter().map(|(_, f)| f.high).fold(0.0, f64::max);
    if !(low > 0.0 && high > low) {
        return Vec::new();
    }
    let percent = |ns: f64| 100.0 * (ns / low).ln() / (high / low).ln();
    let bar = |(name, figure): &(String, Estimate)| Bar {
        candidate: name.clone(),
        figure: ns(figure.value),
        to: format!("{:.1}", percent(figure.value)),
        low: format!("{:.1}", percent(figure.low)),
        width: format!("{:.1}", percent(figure.high) - percent(figure.low)),
    };
    costs.iter().map(bar).collect()
}

/// Formats a confidence as a percentage. Trials never make anything certain, so it never shows 100 %.
pub fn confidence(share: f64) -> String {
    if share > 0.99 { "over 99 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}
