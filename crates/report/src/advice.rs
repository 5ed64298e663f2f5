//! The answer of `crossway advise` as an HTML page: one file that works offline.

use crossway_lab::advise::figure::Figure;
use crossway_lab::advise::{Advice, Compared, Flip};
use crossway_lab::stats::TRIALS_AT_LEAST;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use crate::html::HtmlError;
use crate::units::{Quantity, three_digits};

const TEMPLATE: &str = include_str!("../assets/advice.html");
const STYLE: &str = include_str!("../assets/page.css");

#[derive(Serialize)]
struct Row {
    candidate: String,
    figure: String,
    interval: String,
    cpu: String,
    trials: usize,
    verdict: &'static str,
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
        flips => Value::from(Serde(variations(advice))),
    })?;
    Ok(page)
}

fn ns(x: f64) -> String {
    Quantity::Duration.show(x)
}

fn row(c: &Compared) -> Row {
    let goals: Vec<String> = c
        .goals
        .iter()
        .map(|g| {
            let word = match g.met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "undecided",
            };
            let measured = g
                .measured
                .map_or(String::new(), |f| format!(" ({} {})", three_digits(f.median), g.unit));
            format!("{} {word}{measured}", g.goal)
        })
        .collect();
    Row {
        candidate: c.candidate.clone(),
        figure: ns(c.cost_ns.median),
        interval: if c.cost_ns.n < TRIALS_AT_LEAST {
            "too few trials".to_owned()
        } else {
            format!("{} to {}", ns(c.cost_ns.low), ns(c.cost_ns.high))
        },
        cpu: c.cpu_ns.map_or("–".to_owned(), |f| ns(f.median)),
        trials: c.cost_ns.n,
        verdict: c.verdict,
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

/// Returns the candidates' bars with their intervals, on a logarithmic scale from a fifth of the smallest figure to the
/// largest.
fn bars(costs: &[(String, Figure)]) -> Vec<Bar> {
    let low = costs.iter().map(|(_, f)| f.low).fold(f64::INFINITY, f64::min) / 5.0;
    let high = costs.iter().map(|(_, f)| f.high).fold(0.0, f64::max);
    if !(low > 0.0 && high > low) {
        return Vec::new();
    }
    let percent = |ns: f64| 100.0 * (ns / low).ln() / (high / low).ln();
    let bar = |(name, figure): &(String, Figure)| Bar {
        candidate: name.clone(),
        figure: ns(figure.median),
        to: format!("{:.1}", percent(figure.median)),
        low: format!("{:.1}", percent(figure.low)),
        width: format!("{:.1}", percent(figure.high) - percent(figure.low)),
    };
    costs.iter().map(bar).collect()
}

/// Formats a confidence as a percentage. Trials never make anything certain, so it never shows 100 %.
pub fn confidence(share: f64) -> String {
    if share > 0.99 { "over 99 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}
