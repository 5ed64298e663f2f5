//! Wording of metrics, factors, plurals and lists.

use crossway_records::figure::Figure;

use crate::ranking::Metric;
use crate::units::three_digits;

/// The phrases by which sentences compare contenders by a metric.
pub(super) struct Wording {
    /// The name of the metric in a sentence about a single mechanism, such as `median round trip`.
    pub(super) name: String,
    /// What the best contender has, in the headline, such as `shortest round trip`.
    pub(super) superlative: String,
    /// The predicate of the best contender, such as `has the shortest median round trip`.
    pub(super) has: String,
    /// The verb of the next contender, such as `takes`, if lower is better; `None` if the adverbs alone express the
    /// comparison.
    pub(super) next: Option<&'static str>,
    /// The adverbs after a percentage and after a factor, such as `longer` and `as long`.
    pub(super) adverbs: [&'static str; 2],
}

pub(super) fn wording(metric: Metric) -> Wording {
    match metric.figure {
        Figure::Latency(_, percentile) | Figure::WholeExchange(percentile) => {
            let (shortest, what) = match metric.is_paced() {
                true => ("lowest", "latency"),
                false => ("shortest", "round trip"),
            };
            let name = format!("{} {what}", percentile.words().replace(' ', "-"));
            let superlative = match metric {
                Metric::ROUND_TRIP_P50 => "shortest round trip".to_owned(),
                _ => format!("{shortest} {name}"),
            };
            let has = format!("has the {shortest} {name}");
            Wording { name, superlative, has, next: Some("takes"), adverbs: ["longer", "as long"] }
        }
        Figure::ByteRate => carries("throughput", "bytes"),
        Figure::MessageRate => carries("message rate", "messages"),
        figure @ Figure::Cpu(_) => {
            let (name, superlative) = (figure.title(), "lowest CPU time".to_owned());
            let has = format!("costs the least {name}");
            Wording { name, superlative, has, next: Some("costs"), adverbs: ["more", "as much"] }
        }
    }
}

fn carries(name: &str, what: &str) -> Wording {
    Wording {
        name: name.to_owned(),
        superlative: "highest throughput".to_owned(),
        has: format!("carries the most {what}"),
        next: None,
        adverbs: ["more than", "as many as"],
    }
}

/// Formats a range such as `1.2 to 1.4`, or one figure if both ends are equal as text. The ends are rounded outwards,
/// so that the range never claims more than the intervals allow.
pub(super) fn range(least: f64, most: f64) -> String {
    let (least, most) = (rounded(least, f64::floor), rounded(most, f64::ceil));
    if least == most { least } else { format!("{least} to {most}") }
}

/// Formats by how much one figure exceeds another, given the range of their ratio: `18 to 48 %` or `2 to 2.4 times`,
/// each followed by its adverb.
pub(super) fn times(least: f64, most: f64, [percent, factor]: [&str; 2]) -> String {
    if most < 2.0 {
        // Below a factor of two, a percentage reads better and hides nothing.
        let (least, most) = (((least - 1.0) * 100.0).floor(), ((most - 1.0) * 100.0).ceil());
        return if least < 1.0 {
            format!("up to {most} % {percent}")
        } else {
            format!("{least} to {most} % {percent}")
        };
    }
    format!("{} times {factor}", range(least, most))
}

/// Rounds to three significant digits in the given direction. With two, a reader who divides the figures of the
/// sentence would get a different factor.
fn rounded(value: f64, direction: fn(f64) -> f64) -> String {
    let step = 10f64.powf(value.log10().floor() - 2.0);
    let text = three_digits(direction(value / step) * step);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

pub(crate) fn plural<'a>(n: usize, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

/// Formats a list: `a`, `a and b`, `a, b and c`. Of more than six items, the first five are named and the others
/// counted.
pub(crate) fn list(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.collect();
    if items.len() > 6 {
        let rest = items.len() - 5;
        items.truncate(5);
        items.push(format!("{rest} more"));
    }
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
