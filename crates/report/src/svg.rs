//! Charts as static SVG pictures for documents: round trip, throughput or CPU time by message size. A picture has light
//! or dark colours according to the reader's system.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::charts::{self, Chart, ChartKind, Level, Mark, Series};
use crate::html::{Drawn, drawn};
use crate::run::Run;
use crate::steps::{self, Shapes};
use crate::units::{Quantity, size};
use crossway_records::sorting::{CollectTree, SortSmall};

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 470.0;
/// Margins around the plot. The left margin has room for the tick labels, the right one for the names of the lines.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 48.0;

/// Ids of the charts that are available as SVG.
pub const CHARTS: [&str; 3] = ["round-trip", "throughput", "cpu"];

/// Draws the first view of the named chart, with the contenders that the page selects at first; `None` if the run has
/// no such chart.
pub fn chart(run: &Run, id: &str) -> Option<String> {
    let mut charts = charts::all(&run.summary, &run.limits, &run.histograms);
    steps::mark(&mut charts, &run.summary, &Shapes::of(run));
    let chart = charts.iter().find(|c| c.id == id && c.kind == ChartKind::Lines)?;
    let view = chart.views.first()?;
    let contenders = drawn(&run.summary);
    let lines: Vec<(&Series, &Drawn)> = view
        .series
        .iter()
        .filter_map(|s| Some((s, &contenders[s.contender?])))
        .filter(|(s, d)| d.selected && !s.x.is_empty())
        .collect();
    let frame = Frame::around(&lines, &view.levels)?;
    let axis = view.value_axis.as_ref().unwrap_or(&chart.y);
    let mut out = String::new();
    open(&mut out, chart, &view.label, run, &contenders);
    grid(&mut out, &frame, &lines, axis.unit);
    for (series, how) in &lines {
        draw_line(&mut out, &frame, series, how);
    }
    // After the lines, so that no line covers a label.
    for level in &view.levels {
        draw_level(&mut out, &frame, &lines, level, axis.unit);
    }
    for mark in &view.marks {
        if let Some((_, how)) = lines.iter().find(|(s, _)| s.contender == Some(mark.contender)) {
            draw_mark(&mut out, &frame, mark, how);
        }
    }
    names(&mut out, &frame, &lines);
    let all = view.series.iter().filter(|s| s.contender.is_some() && !s.x.is_empty()).count();
    if lines.len() < all {
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{} of {all} contenders</text>",
            WIDTH - 20.0,
            HEIGHT - 10.0,
            lines.len()
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">Message size</text></svg>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0
    );
    Some(out)
}

/// The ranges of data that the plot shows; both axes are logarithmic.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn around(lines: &[(&Series, &Drawn)], levels: &[Level]) -> Option<Frame> {
        let bounds = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(|v| *v > 0.0).fold(None, |found: Option<(f64, f64)>, v| {
                Some(found.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
            })
        };
        let xs = bounds(&mut lines.iter().flat_map(|(s, _)| s.x.iter().copied()))?;
        let flat = levels.iter().filter(|l| l.x.is_empty()).flat_map(|l| l.y.iter().copied());
        let ys = bounds(
            &mut lines.iter().flat_map(|(s, _)| s.lo.iter().chain(&s.hi).copied()).chain(flat),
        )?;
        let pad = |(low, high): (f64, f64), share: f64| {
            let (low, high) = (low.log10(), high.log10());
            let room = ((high - low) * share).max(0.05);
            (low - room, high + room)
        };
        Some(Frame { x: pad(xs, 0.03), y: pad(ys, 0.06) })
    }

    fn left(&self, x: f64) -> f64 {
        LEFT + (x.log10() - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn down(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (y.log10() - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn holds(&self, y: f64) -> bool {
        (self.y.0..=self.y.1).contains(&y.log10())
    }
}

fn open(out: &mut String, chart: &Chart, view: &str, run: &Run, contenders: &[Drawn]) {
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&format!("{}: {view}. {}", chart.title, run.verdict().headline))
    );
    let colours: BTreeSet<_> = contenders.iter().map(|c| c.colours).collect_tree();
    let class = |dark: bool| {
        colours.iter().fold(String::new(), |mut css, (on_light, on_dark)| {
            let colour = if dark { on_dark } else { on_light };
            let class = class_of(on_light);
            let _ = write!(css, ".{class}{{stroke:{colour};fill:{colour}}}");
            css
        })
    };
    let _ = writeln!(
        out,
        "<style>text{{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1b1f24;stroke:none}}\
         .title{{font-size:17px;font-weight:600}}.soft{{fill:#55606d}}.card{{fill:#fff;stroke:#dfdcd4}}.grid{{stroke:#e7e4dd}}\
         .level{{stroke:#6b7683;stroke-width:1.5;stroke-dasharray:2 4;fill:none}}.label{{paint-order:stroke;stroke:#fff;stroke-width:4px}}.line{{stroke-width:2}}{}\
         @media(prefers-color-scheme:dark){{text{{fill:#e8e6e1}}.soft{{fill:#a9b2bd}}.card{{fill:#1b1f25;stroke:#30363f}}.label{{stroke:#1b1f25}}\
         .grid{{stroke:#2b3038}}{}}}</style>",
        class(false),
        class(true)
    );
    let _ = writeln!(
        out,
        "<rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\
         <text class=\"title\" x=\"20\" y=\"30\">{}</text><text class=\"soft\" x=\"20\" y=\"50\">{}</text>",
        WIDTH - 1.0,
        HEIGHT - 1.0,
        escape(&chart.title),
        escape(&subtitle(view, run))
    );
}

fn subtitle(view: &str, run: &Run) -> String {
    let text = if run.machine.line.is_empty() {
        view.to_owned()
    } else {
        format!("{view} · {}", run.machine.line)
    };
    const FITS: usize = 125;
    if text.chars().count() <= FITS {
        return text;
    }
    text.chars().take(FITS - 1).chain(['…']).collect()
}

/// Returns the CSS class name of a colour.
fn class_of(colour: &str) -> String {
    format!("c{}", colour.trim_start_matches('#'))
}

fn grid(out: &mut String, frame: &Frame, lines: &[(&Series, &Drawn)], unit: &str) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let decades = frame.y.1 - frame.y.0;
    let digits: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    for exponent in frame.y.0.floor() as i32..=frame.y.1.ceil() as i32 {
        for value in digits.iter().map(|d| d * 10f64.powi(exponent)).filter(|v| frame.holds(*v)) {
            let y = frame.down(value);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                tick(value, unit)
            );
        }
    }
    let mut sizes: Vec<f64> = lines.iter().flat_map(|(s, _)| s.x.iter().copied()).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    sizes.dedup();
    let mut last = f64::NEG_INFINITY;
    for bytes in sizes {
        let x = frame.left(bytes);
        if x - last < 52.0 {
            continue;
        }
        last = x;
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            size(bytes as u64)
        );
    }
}

fn tick(value: f64, unit: &str) -> String {
    let text = match unit {
        "s" => Quantity::Duration.show(value * 1e9),
        "B/s" => Quantity::ByteRate.show(value),
        "msg/s" => Quantity::MessageRate.show(value),
        "bit/s" => Quantity::BitRate.show(value),
        _ => Quantity::Number.show(value),
    };
    // Ticks are round numbers: show 10.0 µs as 10 µs.
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

fn draw_level(
    out: &mut String,
    frame: &Frame,
    lines: &[(&Series, &Drawn)],
    level: &Level,
    unit: &str,
) {
    let right = WIDTH - RIGHT;
    if level.x.is_empty() {
        let Some(value) = level.y.first().copied().filter(|y| frame.holds(*y)) else { return };
        let y = frame.down(value);
        let _ = writeln!(
            out,
            "<path class=\"level\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"soft label\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}, {}</text>",
            right - 6.0,
            if is_crowded_above(frame, lines, y) { y + 14.0 } else { y - 5.0 },
            escape(&level.name),
            tick(value, unit)
        );
        return;
    }
    let points: Vec<(f64, f64)> = level
        .x
        .iter()
        .zip(&level.y)
        .filter(|(x, y)| (frame.x.0..=frame.x.1).contains(&x.log10()) && frame.holds(**y))
        .map(|(x, y)| (frame.left(*x), frame.down(*y)))
        .collect();
    let Some((x, y)) = points.last() else { return };
    let _ = writeln!(
        out,
        "<path class=\"level\" d=\"{}\"/>\
         <text class=\"soft label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        path(&points),
        x,
        y - 5.0,
        escape(&level.name)
    );
}

/// Returns whether more points lie closely above a height than closely below it, so that a label is easier to read
/// below.
fn is_crowded_above(frame: &Frame, lines: &[(&Series, &Drawn)], height: f64) -> bool {
    const LABEL: f64 = 22.0;
    let down = |y: &f64| frame.down(*y) - height;
    let offsets: Vec<f64> = lines.iter().flat_map(|(s, _)| s.y.iter().map(down)).collect();
    let above = offsets.iter().filter(|o| (-LABEL..0.0).contains(*o)).count();
    let below = offsets.iter().filter(|o| (0.0..LABEL).contains(*o)).count();
    above > below
}

fn path(points: &[(f64, f64)]) -> String {
    points.iter().enumerate().fold(String::new(), |mut d, (at, (x, y))| {
        let _ = write!(d, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
        d
    })
}

/// Draws a step or a knee as a short stroke on the horizontal axis, with its name.
fn draw_mark(out: &mut String, frame: &Frame, mark: &Mark, how: &Drawn) {
    let (x, foot) = (frame.left(mark.x), HEIGHT - BOTTOM);
    let class = class_of(how.colours.0);
    let _ = writeln!(
        out,
        "<path class=\"{class}\" stroke-dasharray=\"2 3\" d=\"M{x:.1} {foot:.1}V{:.1}\"/><text class=\"soft\" x=\"{:.1}\" \
         y=\"{:.1}\" style=\"font-size:10px\">{}</text>",
        foot - 60.0,
        x + 3.0,
        foot - 52.0,
        escape(&mark.label)
    );
}

fn draw_line(out: &mut String, frame: &Frame, series: &Series, how: &Drawn) {
    let class = class_of(how.colours.0);
    let dash = match how.dash {
        "dash" => "9 5",
        "dot" => "2 4",
        "dashdot" => "9 4 2 4",
        "longdash" => "15 5",
        _ => "none",
    };
    let points: Vec<(f64, f64)> =
        series.x.iter().zip(&series.y).map(|(x, y)| (frame.left(*x), frame.down(*y))).collect();
    let _ = writeln!(
        out,
        "<path class=\"line {class}\" style=\"fill:none\" stroke-dasharray=\"{dash}\" d=\"{}\"/>",
        path(&points)
    );
    for (at, (x, y)) in points.iter().enumerate() {
        if let (Some(low), Some(high)) = (series.lo.get(at), series.hi.get(at))
            && *low > 0.0
        {
            let _ = writeln!(
                out,
                "<path class=\"{class}\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                frame.down(*low),
                frame.down(*high)
            );
        }
        let _ = writeln!(
            out,
            "<path class=\"{class}\" transform=\"translate({x:.1} {y:.1})\" d=\"{}\"/>",
            marker(how.marker)
        );
    }
}

/// Returns the shape of one of the page's markers, by its plotly name.
fn marker(name: &str) -> &'static str {
    match name {
        "square" => "M-3.5-3.5H3.5V3.5H-3.5Z",
        "diamond" => "M0-5L5 0L0 5L-5 0Z",
        "triangle-up" => "M0-4.5L4.5 3.5H-4.5Z",
        "triangle-down" => "M0 4.5L4.5-3.5H-4.5Z",
        "x" => "M-4-2.2L-2.2-4L0-1.8L2.2-4L4-2.2L1.8 0L4 2.2L2.2 4L0 1.8L-2.2 4L-4 2.2L-1.8 0Z",
        "cross" => "M-1.3-4.5H1.3V-1.3H4.5V1.3H1.3V4.5H-1.3V1.3H-4.5V-1.3H-1.3Z",
        "star" => "M0-5L1.4-1.6L5-1.5L2.2 .8L3.1 4.3L0 2.3L-3.1 4.3L-2.2 .8L-5-1.5L-1.4-1.6Z",
        _ => "M0-4A4 4 0 1 1 0 4A4 4 0 1 1 0-4Z",
    }
}

/// Draws names at the ends of the lines, moved apart where they would overlap.
fn names(out: &mut String, frame: &Frame, lines: &[(&Series, &Drawn)]) {
    const APART: f64 = 15.0;
    let mut ends: Vec<(f64, &Drawn)> =
        lines.iter().filter_map(|(s, how)| Some((frame.down(*s.y.last()?), *how))).collect();
    ends.sort_small_by(|a, b| a.0.total_cmp(&b.0));
    let mut last = f64::NEG_INFINITY;
    for end in &mut ends {
        end.0 = end.0.max(last + APART);
        last = end.0;
    }
    // Names pushed below the plot are moved up again, together with the names that they would then overlap.
    let mut limit = HEIGHT - BOTTOM;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(limit);
        limit = end.0 - APART;
    }
    for (y, how) in ends {
        let _ = writeln!(
            out,
            "<text class=\"name {}\" style=\"stroke:none\" x=\"{}\" y=\"{:.1}\">{}</text>",
            class_of(how.colours.0),
            WIDTH - RIGHT + 8.0,
            y + 4.0,
            escape(&how.label)
        );
    }
}

/// Text for an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, letter| {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        out
    })
}
