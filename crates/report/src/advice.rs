//! The answer of `crossway advise` as a page: one file that works offline.

use std::fmt::Write;

use crossway_lab::advise::judge::Figure;
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
    svg: String,
}

/// The page of an answer.
///
/// # Errors
/// The template and its data do not fit, which is a defect of Crossway.
pub fn page(advice: &Advice) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("advice", TEMPLATE)?;
    let page = environment.get_template("advice")?.render(context! {
        a => Value::from(Serde(advice)),
        style => STYLE,
        confidence => advice.confidence.map(|c| format!("{:.0} %", c * 100.0)),
        rows => Value::from(Serde(advice.compared.iter().map(row).collect::<Vec<_>>())),
        flips => Value::from(Serde(advice.flips.iter().map(variation).collect::<Vec<_>>())),
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
                Some(true) => "kept",
                Some(false) => "missed",
                None => "not decided",
            };
            let measured =
                g.measured.map_or(String::new(), |f| format!(", {}", three_digits(f.median)));
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

fn variation(flip: &Flip) -> Variation {
    let then = match (&flip.choice, flip.differs) {
        (Some(other), true) => format!("{other} is better"),
        (None, true) => "no candidate keeps the goals".to_owned(),
        (_, false) => "no change".to_owned(),
    };
    Variation { title: format!("{}: {then}", flip.variation), svg: bars(&flip.costs_ns) }
}

const BAR_HEIGHT: f64 = 22.0;
const LABEL_WIDTH: f64 = 190.0;
const PLOT_WIDTH: f64 = 430.0;
const FIGURE_WIDTH: f64 = 100.0;

/// Horizontal bars with intervals, from a fifth of the least to the largest figure.
fn bars(costs: &[(String, Figure)]) -> String {
    let low = costs.iter().map(|(_, f)| f.low).fold(f64::INFINITY, f64::min) / 5.0;
    let high = costs.iter().map(|(_, f)| f.high).fold(0.0, f64::max);
    if !(low > 0.0 && high > low) {
        return String::new();
    }
    let x = |ns: f64| LABEL_WIDTH + PLOT_WIDTH * (ns / low).ln() / (high / low).ln();
    let width = LABEL_WIDTH + PLOT_WIDTH + FIGURE_WIDTH;
    let height = BAR_HEIGHT * costs.len() as f64 + 4.0;
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" width=\"100%\">");
    for (at, (name, figure)) in costs.iter().enumerate() {
        let y = BAR_HEIGHT * at as f64 + 4.0;
        let middle = y + 8.0;
        let (end, from, to) = (x(figure.median), x(figure.low), x(figure.high));
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"16\" fill=\"var(--tone-0)\" opacity=\".75\"/>\
             <path d=\"M{from:.1} {middle:.1}H{to:.1}\" stroke=\"var(--ink)\" stroke-width=\"2\"/>\
             <text class=\"soft\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            LABEL_WIDTH - 8.0,
            y + 12.0,
            minijinja::HtmlEscape(name),
            end - LABEL_WIDTH,
            to.max(end) + 8.0,
            y + 12.0,
            ns(figure.median)
        );
    }
    svg + "</svg>"
}
