//! Charts as data for the page's script, which draws them. A kind of chart for which the run has no data is left out.

mod core_pairs;
mod cost;
mod distribution;
mod exchange;
mod load;
mod pacing;
mod packets;
mod sharing;
mod speed;
mod surface;
mod wire;

use serde::Serialize;

use crate::histograms::Histograms;
use crate::limits::Limits;
use crate::summary::{Case, Summary};
use crate::units;
use crossway_records::stats::Estimate;

/// Maximum number of views of a chart; the figures of further views are only in the raw data.
const VIEWS_MAX: usize = 60;

/// Charts whose figures are all in the tables, too.
const IN_TABLES: [&str; 4] = ["round-trip", "throughput", "trade-off", "cpu"];

/// Message size in bytes of the view that is shown first if a chart has one view per size. Most published figures are
/// for this size.
const USUAL_SIZE: u64 = 64;

/// The type of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// Lines with markers over a numeric axis.
    Lines,
    /// A labelled point per contender.
    Scatter,
    /// A row per contender, with one marker per series.
    Dots,
    /// A row per contender, with stacked bars.
    Bars,
    /// A heat map of a matrix.
    Heat,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Logarithmic, with ticks at powers of two in bytes.
    Size,
    /// Logarithmic, with ticks at decimal values.
    Log,
    /// Linear, starting at zero if it has a unit.
    Linear,
    /// Percentiles by their number of nines: 90 %, 99 %, 99.9 %.
    Nines,
    /// Names in categories instead of numbers.
    Names,
}

/// An axis of a chart.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// The title of the axis.
    pub title: String,
    /// The mapping of values to positions.
    pub scale: Scale,
    /// SI unit of the values, to which the script adds the prefix: `s`, `B/s`, `msg/s`; empty for a bare number.
    pub unit: &'static str,
}

impl Axis {
    fn new(title: &str, scale: Scale, unit: &'static str) -> Axis {
        Axis { title: title.to_owned(), scale, unit }
    }

    fn size() -> Axis {
        Axis::new("Message size", Scale::Size, "B")
    }
}

/// A series of a chart: a line, or one kind of marker.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Index of the contender that is drawn; `None` if the points belong to several contenders (see `who`).
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    pub contender: Option<usize>,
    /// Name of the series; empty if it has a contender's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Index of the contender of each point, if the points belong to several contenders; otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<usize>,
    /// Positions on the numeric axis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub x: Vec<f64>,
    /// Values, in the unit of the axis.
    pub y: Vec<f64>,
    /// Lower ends of the intervals of `y`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lo: Vec<f64>,
    /// Upper ends of the intervals of `y`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hi: Vec<f64>,
    /// Number of trials of each point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<usize>,
    /// Lower ends of the intervals of `x`; empty unless `x` is a measured figure, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xlo: Vec<f64>,
    /// Upper ends of the intervals of `x`; empty unless `x` is a measured figure, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xhi: Vec<f64>,
    /// Indices of the points whose trials are all degraded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<usize>,
}

impl Series {
    fn of_contender(contender: usize) -> Series {
        Series { contender: Some(contender), ..Series::default() }
    }

    fn named(name: &str) -> Series {
        Series { name: name.to_owned(), ..Series::default() }
    }

    fn push(&mut self, x: f64, figure: &Estimate, factor: f64, degraded: bool) {
        self.x.push(x);
        self.push_value(figure, factor, degraded);
    }

    fn push_for(&mut self, who: usize, figure: &Estimate, factor: f64, degraded: bool) {
        self.who.push(who);
        self.push_value(figure, factor, degraded);
    }

    fn push_value(&mut self, figure: &Estimate, factor: f64, degraded: bool) {
        if degraded {
            self.degraded.push(self.y.len());
        }
        self.y.push(compact(figure.value * factor));
        let (low, high) = figure.bar();
        self.lo.push(compact(low * factor));
        self.hi.push(compact(high * factor));
        self.n.push(figure.n);
    }
}

/// A physical limit, drawn as a level across a chart.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// The name of the limit.
    pub name: String,
    /// Positions on the horizontal axis; empty or a single one if the level is a horizontal line.
    pub x: Vec<f64>,
    /// The values, in the unit of the axis.
    pub y: Vec<f64>,
}

/// A step or a knee in a line of a view.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// Index of the line's contender.
    #[serde(rename = "c")]
    pub contender: usize,
    /// Position on the horizontal axis.
    pub x: f64,
    /// Text of the mark, such as `step at 2953 B`.
    pub label: String,
}

/// A matrix with its labels, for a heat map.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Matrix {
    /// Column labels.
    pub columns: Vec<String>,
    /// Row labels.
    pub rows: Vec<String>,
    /// Values by row; `None` where nothing was measured.
    pub z: Vec<Vec<Option<f64>>>,
    /// Lower ends of the intervals.
    pub lo: Vec<Vec<Option<f64>>>,
    /// Upper ends of the intervals.
    pub hi: Vec<Vec<Option<f64>>>,
    /// Number of trials of each cell.
    pub n: Vec<Vec<usize>>,
}

impl Matrix {
    fn new(columns: Vec<String>, rows: Vec<String>) -> Matrix {
        let (c, r) = (columns.len(), rows.len());
        Matrix {
            columns,
            rows,
            z: vec![vec![None; c]; r],
            lo: vec![vec![None; c]; r],
            hi: vec![vec![None; c]; r],
            n: vec![vec![0; c]; r],
        }
    }

    fn set(&mut self, row: usize, column: usize, figure: &Estimate, factor: f64) {
        self.z[row][column] = Some(compact(figure.value * factor));
        let (low, high) = figure.bar();
        self.lo[row][column] = Some(compact(low * factor));
        self.hi[row][column] = Some(compact(high * factor));
        self.n[row][column] = figure.n;
    }
}

/// One of several views of a chart, which the reader selects in a menu.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// The name of the view in the menu.
    pub label: String,
    /// The message size in bytes, if the view shows only one.
    #[serde(skip)]
    pub size_bytes: Option<u64>,
    /// Index of the setting, if the view shows only one.
    #[serde(skip)]
    pub setting: Option<usize>,
    /// Steps and knees in the lines of the view.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// The value axis, if it differs from that of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_axis: Option<Axis>,
    /// The series to draw.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// The physical limits to draw as levels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// The matrix of a heat map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
}

impl View {
    /// Makes a view of one size in one setting, or `None` if there are no series.
    fn of_size(
        summary: &Summary,
        (name, axis): (&str, &Axis),
        (size, setting): (u64, usize),
        series: Vec<Series>,
    ) -> Option<View> {
        (!series.is_empty()).then(|| View {
            label: format!("{name}, {}, {}", units::size(size), summary.settings[setting].label()),
            value_axis: Some(axis.clone()),
            size_bytes: Some(size),
            series,
            ..View::default()
        })
    }
}

/// A chart with its texts.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Anchor of the chart on the page.
    pub id: &'static str,
    /// The heading above the chart.
    pub title: String,
    /// What the chart shows in this run, in sentences; may be empty.
    #[serde(skip)]
    pub findings: Vec<String>,
    /// How to read the chart.
    #[serde(skip)]
    pub reading: String,
    /// The type of the chart.
    pub kind: ChartKind,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis. In charts with a row per contender, it shows the contenders' names.
    pub y: Axis,
    /// The views; at least one.
    pub views: Vec<View>,
    /// Index of the view that is shown first.
    pub initial: usize,
    /// Prefixes of the names of the workloads that the chart shows, as used in case names.
    #[serde(skip)]
    pub workloads: &'static [&'static str],
}

impl Chart {
    /// Returns whether a marker has an error bar: an interval, for which there are enough trials.
    fn has_bars(&self) -> bool {
        let mut series = self.views.iter().flat_map(|view| &view.series);
        self.kind != ChartKind::Bars
            && series.any(|s| s.lo.iter().zip(&s.hi).any(|(lo, hi)| lo < hi))
    }
}

/// Returns all charts for which there is data, in the order of the page.
pub fn all(summary: &Summary, limits: &Limits, histograms: &Histograms) -> Vec<Chart> {
    let mut charts: Vec<Chart> = [
        speed::round_trip(summary, limits),
        speed::throughput(summary, limits),
        cost::trade_off(summary),
        cost::cpu_per_message(summary),
        distribution::percentiles(summary, histograms),
        load::against_idle(summary),
        core_pairs::heat_map(summary, limits),
        surface::heat_map(summary),
        packets::per_message(summary),
        wire::hosts(summary),
        wire::over_time(summary),
        pacing::by_rate(summary),
        exchange::parts(summary),
        sharing::scaling(summary),
        sharing::fairness(summary),
    ]
    .into_iter()
    .flatten()
    .collect();
    for chart in &mut charts {
        for view in &mut chart.views {
            view.series.retain(|s| !s.y.is_empty());
        }
        // A rate at which too few messages were sent for a percentile leaves a view without a point.
        // A chart of a single point shows nothing that is not in the tables, if it is there.
        let points = |view: &View| view.series.iter().map(|s| s.y.len()).sum::<usize>();
        let least = if IN_TABLES.contains(&chart.id) { 2 } else { 1 };
        chart.views.retain(|v| points(v) >= least || v.matrix.is_some());
        chart.views.truncate(VIEWS_MAX);
        chart.initial =
            chart.views.iter().position(|v| v.size_bytes == Some(USUAL_SIZE)).unwrap_or(0);
    }
    charts.retain(|chart| !chart.views.is_empty());
    for chart in charts.iter_mut().filter(|chart| chart.has_bars()) {
        chart.reading.push_str(" A bar through a marker is an interval.");
    }
    charts
}

/// Makes lines over the message size, one per contender, from the cases of one setting.
fn lines_over_size(
    summary: &Summary,
    setting: usize,
    factor: f64,
    figure: impl Fn(&Case) -> Option<Estimate>,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for case in summary.cases.iter().filter(|c| c.setting == setting) {
        let Some(value) = figure(case) else { continue };
        if series.last().is_none_or(|s| s.contender != Some(case.contender)) {
            series.push(Series::of_contender(case.contender));
        }
        if let Some(line) = series.last_mut() {
            line.push(case.size_bytes as f64, &value, factor, case.degraded);
        }
    }
    series
}

/// Returns the settings for which a chart over sizes has a view: at most 16. Each must have at least a quarter as many
/// matching cases as the setting with the most. Sweeps over core pairs and buffer sizes have charts of their own.
fn settings_with(summary: &Summary, wanted: impl Fn(&Case) -> bool) -> Vec<usize> {
    let mut counts = vec![0usize; summary.settings.len()];
    for case in summary.cases.iter().filter(|c| wanted(c)) {
        counts[case.setting] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    (0..counts.len()).filter(|s| counts[*s] > 0 && counts[*s] * 4 >= most).take(16).collect()
}

/// Rounds to five significant digits, which is more than the precision of any figure here and takes a third of the
/// space that all digits would. Infinities and NaN become 0.
pub(crate) fn compact(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    format!("{value:.4e}").parse().unwrap_or(value)
}
