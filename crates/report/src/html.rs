//! The HTML page: one file that contains everything it needs and loads nothing else.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lzma_rust2::LzmaReader;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::answers::Answers;
use crate::blocks;
use crate::blocks::paced::{LATE, LATE_EXPLAINED, SENDER_LATE_EXPLAINED};
use crate::charts::{self, Chart};
use crate::contender::{DASHES, MARKERS, Style};
use crate::ranking::{Metric, Ranking};
use crate::raw::Raw;
use crate::run::Run;
use crate::sections;
use crate::steps::{self, Shapes};
use crate::studies;
use crate::summary::Summary;
use crossway_lab::catalogue::Family;
use crossway_records::rank::WaitClass;
use crossway_records::stats::interval_name;

const TEMPLATE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
/// The chart library, compressed by the build script.
const PACKED_PLOTLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plotly.js.lzma"));

/// Maximum number of lines in a chart that a reader can still distinguish. With more contenders, the charts show a
/// selection at first.
const SELECTED_MAX: usize = 8;

/// Maximum number of blocks of tables on the page; further figures are in the charts and the raw data.
const BLOCKS_MAX: usize = 24;

/// The reason why the page could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// The template does not match its data: a defect of Crossway.
    #[error("cannot render the HTML page: {0}; this is a defect of Crossway, please report it")]
    Template(minijinja::Error),
    /// The chart data could not be serialized: a defect of Crossway.
    #[error(
        "cannot serialize the data of the HTML page: {0}; this is a defect of Crossway, please report it"
    )]
    Data(#[from] serde_json::Error),
    /// The page could not be written to its file.
    #[error("cannot write the HTML page: {0}")]
    Io(#[from] std::io::Error),
}

impl From<minijinja::Error> for HtmlError {
    /// The template engine wraps the errors of the file that it writes to.
    fn from(error: minijinja::Error) -> Self {
        let source = std::error::Error::source(&error);
        match source.and_then(|source| source.downcast_ref::<std::io::Error>()) {
            Some(io) => HtmlError::Io(match io.raw_os_error() {
                Some(errno) => std::io::Error::from_raw_os_error(errno),
                None => std::io::Error::new(io.kind(), io.to_string()),
            }),
            None => HtmlError::Template(error),
        }
    }
}

/// The style in which a contender is drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Drawn {
    /// The contender's name in legends.
    pub label: String,
    /// The name of the contender's family.
    pub family: &'static str,
    /// The contender's wait class.
    pub discipline: WaitClass,
    /// Colours on a light and on a dark background.
    pub colours: (&'static str, &'static str),
    /// Dash style, by its plotly name.
    pub dash: &'static str,
    /// Marker, by its plotly name.
    pub marker: &'static str,
    /// Whether the charts show the contender at first.
    pub selected: bool,
}

/// Returns the styles of all contenders: the hue identifies the family; marker and dash style identify the member.
pub fn drawn(summary: &Summary) -> Vec<Drawn> {
    let selected = selection(summary);
    let mut seen = [0usize; Family::ALL.len()];
    summary
        .contenders
        .iter()
        .enumerate()
        .map(|(index, contender)| {
            let family = contender.family;
            let at = seen[family as usize];
            seen[family as usize] += 1;
            Drawn {
                label: contender.label(),
                family: family.name(),
                discipline: contender.discipline(),
                colours: family.colours(),
                dash: DASHES[at % DASHES.len()],
                // Families begin with different markers, so that two lines never differ by hue alone.
                marker: MARKERS[(family as usize + at) % MARKERS.len()],
                selected: selected.contains(&index),
            }
        })
        .collect()
}

/// Returns the contenders that the charts show at first: all if there are at most [`SELECTED_MAX`]; otherwise up to
/// that many: the best of each wait class, well-known mechanisms, and one contender of each further family.
fn selection(summary: &Summary) -> Vec<usize> {
    let n = summary.contenders.len();
    if n <= SELECTED_MAX {
        return (0..n).collect();
    }
    let mut picked: Vec<usize> = Vec::new();
    let pick = |picked: &mut Vec<usize>, index: usize| {
        if picked.len() < SELECTED_MAX && !picked.contains(&index) {
            picked.push(index);
        }
    };
    let with_figure = |metric: Metric| summary.sizes(|c| c.setting == 0 && metric.of(c).is_some());
    for metric in [Metric::ROUND_TRIP_P50, Metric::BYTE_RATE] {
        let sizes = with_figure(metric);
        let size = if metric == Metric::BYTE_RATE { sizes.last() } else { sizes.first() };
        for class in [WaitClass::Blocking, WaitClass::Spinning, WaitClass::Hybrid, WaitClass::Busy]
        {
            if let Some(ranking) = size.and_then(|s| Ranking::of(summary, metric, 0, *s, class)) {
                pick(&mut picked, ranking.entries[0].contender);
            }
        }
    }
    for usual in ["pipe", "uds-stream", "tcp", "shm-futex"] {
        if let Some(index) = summary.contenders.iter().position(|c| c.label() == usual) {
            pick(&mut picked, index);
        }
    }
    for family in Family::ALL {
        let mut members = (0..n).filter(|i| summary.contenders[*i].family == family);
        if !members.clone().any(|i| picked.contains(&i))
            && picked.len() < SELECTED_MAX
            && let Some(index) = members.next()
        {
            picked.push(index);
        }
    }
    picked
}

#[derive(Serialize)]
struct PageData<'a> {
    contenders: Vec<Drawn>,
    charts: &'a [Chart],
    raw: &'a Raw,
}

/// Writes the page to `out`.
///
/// # Errors
/// See [`HtmlError`].
pub fn write(run: &Run, out: &mut impl Write) -> Result<(), HtmlError> {
    let mut charts = charts::all(&run.summary, &run.limits, &run.histograms);
    let shapes = Shapes::of(run);
    steps::mark(&mut charts, &run.summary, &shapes);
    let studies = studies::all(run, &shapes);
    let leading = studies::headline(run, &studies);
    let studies = studies::section(run, &studies);
    let raw = Raw::of(run);
    let data = PageData { contenders: drawn(&run.summary), charts: &charts, raw: &raw };
    let cards: Vec<_> = charts
        .iter()
        .map(|c| {
            context! {
                id => c.id,
                title => c.title.as_str(),
                findings => c.findings.clone(),
                reading => c.reading.as_str(),
                command => run.command(c.workloads),
            }
        })
        .collect();
    let (blocks, settings_left_out) = blocks::blocks(&run.summary, BLOCKS_MAX);
    let verdict = run.verdict();
    let machine_line = run.machine.line.clone();
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.add_filter("prose", prose);
    environment.add_filter("parts", parts);
    environment.add_filter("breakable", breakable);
    environment.add_function("is_text", is_text);
    environment.add_template("page.html", TEMPLATE)?;
    let title = format!("Crossway report: {}", run.plan_name());
    let mut plotly = String::new();
    LzmaReader::new_mem_limit(PACKED_PLOTLY, u32::MAX, None)?.read_to_string(&mut plotly)?;
    environment.get_template("page.html")?.render_captured_to(
        context! {
            policy => policy(&plotly),
            title,
            style => STYLE,
            machine_line,
            asked_line => run.asked(),
            verdict => context! { headline => verdict.headline, detail => verdict.detail, sentences => verdict.sentences },
            goals => sections::goals::headline(&sections::goals::calls(run)),
            notices => run.all_notices().cloned().collect::<Vec<_>>(),
            answers => Value::from(Serde(Answers::of(&run.summary))),
            has_intervals => run.summary.has_intervals(),
            best => blocks::have_best(&blocks).then_some(blocks::BEST),
            interval => interval_name(run.summary.trials_of_figures()),
            has_noise => blocks::have_noise(&blocks),
            noise => crate::terminal::noise(run),
            late => blocks::have_column(&blocks, LATE).then_some(LATE_EXPLAINED),
            sender_late => SENDER_LATE_EXPLAINED,
            blocks => Value::from(Serde(blocks)),
            settings_left_out,
            leading,
            charts => cards,
            studies => Value::from(Serde(studies)),
            sections => Value::from(Serde(sections::all(run, &shapes))),
            raw_rule => raw.rule.as_str(),
            footer => format!(
                "Generated by Crossway {} from {}. This file contains everything it shows and contacts no other machine. Charts are drawn \
                 by plotly.js (MIT licence).",
                env!("CARGO_PKG_VERSION"),
                run.dir.display()
            ),
            data => script_json(&data)?,
            plotly => plotly.as_str(),
            script => SCRIPT,
        },
        out,
    )?;
    Ok(())
}

/// Escapes prose as HTML and marks text between backticks as code.
pub(crate) fn prose(text: &str) -> Value {
    let mut out = String::with_capacity(text.len() + 16);
    let pieces: Vec<&str> = text.split('`').collect();
    for (at, piece) in pieces.iter().enumerate() {
        let is_code = at % 2 == 1 && at + 1 < pieces.len();
        // An unpaired backtick stays a backtick.
        let lone = at % 2 == 1 && !is_code;
        out.push_str(if is_code {
            "<code>"
        } else if lone {
            "`"
        } else {
            ""
        });
        for word in piece.split_inclusive(' ') {
            // A browser would break the line after the hyphens of an option.
            let is_option = is_code && word.starts_with('-');
            out.push_str(if is_option { "<span class=\"opt\">" } else { "" });
            word.chars().for_each(|letter| escape(&mut out, letter));
            out.push_str(if is_option { "</span>" } else { "" });
        }
        out.push_str(if is_code { "</code>" } else { "" });
    }
    Value::from_safe_string(out)
}

fn escape(out: &mut String, letter: char) {
    match letter {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#x27;"),
        _ => out.push(letter),
    }
}

/// A part of a note. `words` is true if the part is prose, which may be wrapped; other parts are figures, which stay on
/// one line. `unit` is the end of a figure that a narrow page leaves out.
#[derive(Debug, PartialEq, Serialize)]
struct Part {
    text: String,
    unit: String,
    words: bool,
}

/// Returns the comma-separated parts of the note of a cell with the text `figure`; lines may be broken between them.
fn parts(note: &str, figure: &str) -> Value {
    Value::from(Serde(split(note, figure)))
}

fn split(note: &str, figure: &str) -> Vec<Part> {
    // The unit of an interval is that of its figure, unless its ends have units of their own.
    let unit = figure.find(' ').map_or("", |at| &figure[at..]);
    let number = |text: &str| text.chars().all(|c| c.is_ascii_digit() || ".–-".contains(c));
    let part = |part: &str| {
        let text = part.trim();
        let words = text.starts_with(|c: char| c.is_alphabetic()) && !text.contains('=');
        let (end, comma) = text.strip_suffix(',').map_or((text, ""), |end| (end, ","));
        match end.strip_suffix(unit).filter(|range| !unit.is_empty() && number(range)) {
            Some(range) => Part { text: range.to_owned(), unit: format!("{unit}{comma}"), words },
            None => Part { text: text.to_owned(), unit: String::new(), words },
        }
    };
    note.split_inclusive(", ").map(part).collect()
}

/// Returns the text of a cell, escaped, with the places where a narrow page may break it: before the unit of a rate of
/// messages, and between two figures.
fn breakable(text: &str) -> Value {
    let escaped = prose(text).to_string();
    Value::from_safe_string(
        escaped.replace(" msg/s", " <wbr class=\"rate\">msg/s").replace(" / ", " / <wbr>"),
    )
}

/// Returns whether a column of a table holds text, which is aligned left, rather than figures.
fn is_text(table: &Value, column: usize) -> Result<bool, minijinja::Error> {
    for row in table.get_attr("rows")?.try_iter()? {
        let cell = row.get_attr("cells")?.get_item(&Value::from(column))?;
        let text = cell.get_attr("text")?;
        if cell.get_attr("sort")?.is_none() && !matches!(text.as_str(), Some("–" | "") | None) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the content security policy. Nothing may be loaded, and only the page's two scripts may run, which are
/// allowed by their hashes. The browser would therefore refuse a script in a record even if it were not escaped.
fn policy(plotly: &str) -> String {
    let hash = |script: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script)));
    format!(
        "default-src 'none'; script-src {} {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        hash(plotly),
        hash(SCRIPT)
    )
}

/// Serializes JSON so that it cannot close the script element that contains it.
fn script_json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(value)?.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_repeats_the_unit_of_its_figure_only_where_there_is_room() {
        let part = |text: &str, unit: &str, words| Part {
            text: text.to_owned(),
            unit: unit.to_owned(),
            words,
        };
        assert_eq!(
            split("0.9–1.2 M msg/s, n = 7, beyond its limit: one copy", "1.0 M msg/s"),
            [
                part("0.9–1.2", " M msg/s,", false),
                part("n = 7,", "", false),
                part("beyond its limit: one copy", "", true),
            ]
        );
        assert_eq!(split("581 ns–27.7 µs", "600 ns"), [part("581 ns–27.7 µs", "", false)]);
        assert_eq!(split("degraded", "–"), [part("degraded", "", true)]);
    }

    #[test]
    fn words_between_backticks_are_code_and_nothing_else_is_markup() {
        for (text, html) in [
            ("run `crossway doctor` again", "run <code>crossway doctor</code> again"),
            ("<b>`a<b`</b>", "&lt;b&gt;<code>a&lt;b</code>&lt;/b&gt;"),
            ("a lone ` stays", "a lone ` stays"),
            ("`a` and `b", "<code>a</code> and `b"),
        ] {
            assert_eq!(prose(text).to_string(), html, "{text}");
        }
    }
}
