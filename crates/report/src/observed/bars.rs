//! Histograms of sizes and gaps as bars.

use std::fmt::Write as _;

use crossway_observe::recording::{Direction, Histograms, Magnitudes, Recording, Summary};
use serde::Serialize;

use crate::units::{Quantity, count, size};

/// Maximum number of channels and directions with histograms: those with the most messages.
const SHOWN_MAX: usize = 24;

/// The histograms of a channel in one direction.
#[derive(Serialize)]
pub(super) struct Distribution {
    title: String,
    messages: String,
    sizes: String,
    gaps: Option<String>,
}

/// The histograms of a recording.
pub(super) fn all(recording: &Recording, summary: &Summary) -> Vec<Distribution> {
    let histograms = Histograms::of(recording);
    let shown = summary.directions.iter().take(SHOWN_MAX);
    shown
        .filter_map(|d| {
            let found = histograms.get(&(d.channel, d.direction))?;
            let channel = &recording.head.channels[d.channel as usize];
            let (from, to) = match d.direction {
                Direction::Forward => (&channel.from, &channel.to),
                Direction::Backward => (&channel.to, &channel.from),
            };
            let name = |indices: &std::collections::BTreeSet<u32>| match indices.first() {
                None => "not recorded".to_owned(),
                Some(first) => recording.process(*first),
            };
            Some(Distribution {
                title: format!("{}: {} → {}", d.channel, name(from), name(to)),
                messages: count(d.messages as usize, "message", "messages"),
                sizes: bars(&found.sizes, size, "Sizes"),
                gaps: d
                    .gap_ns
                    .map(|_| bars(&found.gaps, |ns| Quantity::Duration.show(ns as f64), "Gaps")),
            })
        })
        .collect()
}

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 130.0;
const BASE: f64 = 104.0;

/// Draws bars by powers of two, from the first to the last that has values.
fn bars(magnitudes: &Magnitudes, label: impl Fn(u64) -> String, what: &str) -> String {
    let counts = &magnitudes.counts;
    let first = counts.iter().position(|n| *n > 0).unwrap_or(0);
    let shown = &counts[first..];
    let most = shown.iter().copied().max().unwrap_or(1).max(1);
    let all: u64 = shown.iter().sum();
    // Few bars are not wider than this.
    let step = (WIDTH / shown.len() as f64).min(60.0);
    // A label needs about this much room.
    let every = (64.0 / step).ceil() as usize;
    let mut out = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{what} by powers of two\">"
    );
    for (at, number) in shown.iter().enumerate() {
        let x = at as f64 * step;
        let height = 84.0 * *number as f64 / most as f64;
        let low = Magnitudes::from(first + at);
        let share = Quantity::Share.show(*number as f64 / all.max(1) as f64);
        let _ = write!(
            out,
            "<g><title>{} to below {}: {number} ({share})</title><rect class=\"room\" x=\"{x:.1}\" y=\"0\" \
             width=\"{step:.1}\" height=\"{BASE}\"/><rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
             height=\"{:.1}\"/></g>",
            label(low),
            label(Magnitudes::from(first + at + 1)),
            x + 1.0,
            BASE - height.max(if *number > 0 { 1.0 } else { 0.0 }),
            (step - 2.0).max(1.0),
            height.max(if *number > 0 { 1.0 } else { 0.0 }),
        );
        if at % every == 0 {
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 1.0,
                BASE + 16.0,
                label(low)
            );
        }
    }
    let _ = write!(
        out,
        "<path class=\"base\" d=\"M0 {BASE}H{:.1}\"/></svg>",
        step * shown.len() as f64
    );
    out
}
