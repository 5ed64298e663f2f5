//! What was observed, a map or a recording, as an HTML page that works offline: the processes and their channels as a
//! picture and as a list, and how large and how far apart the messages of a recording were.

mod bars;
mod layout;
mod picture;
mod scene;

use crossway_observe::map::{Answer, Map};
use crossway_observe::recording::{Recording, Summary};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use crate::html::{HtmlError, prose};
use crate::units::{about, count};
use bars::Distribution;
use scene::{Kind, Scene};

const TEMPLATE: &str = include_str!("../assets/observed.html");
const STYLE: &str = include_str!("../assets/page.css");

/// Maximum number of rows in the list; the other ones are counted. A browser shows this many at once.
const ROWS_MAX: usize = 500;

/// Number of rows that are shown at first; the reader unfolds the other ones. Rows are ordered by
/// how busy they are.
const ROWS_OPEN: usize = 10;
/// Number of channels and directions whose histograms are shown at first.
const PAIRS_OPEN: usize = 4;

/// What differs between the page of a map and that of a recording.
struct Words {
    title: String,
    eyebrow: String,
    /// Why widths may be missing.
    widths: &'static str,
    sentences: Vec<String>,
    notes: Vec<String>,
}

/// The page of a map.
///
/// # Errors
/// Fails only if the template does not match its data, which is a defect of Crossway.
pub fn page_of_map(map: &Map, answers: &[Answer]) -> Result<String, HtmlError> {
    let scene = Scene::of_map(map);
    let within = map.within_one_process;
    let mut notes = Vec::new();
    if within > 0 {
        notes.push(format!(
            "{} within one process, such as pipes between its threads, not shown.",
            count(within, "channel is", "channels are")
        ));
    }
    let gaps = map.gaps.iter();
    notes.extend(gaps.map(|gap| format!("Not seen: {}. To see it, {}.", gap.what, gap.remedy)));
    let words = Words {
        title: format!(
            "{} with {}",
            count(map.observed.len(), "process", "processes"),
            count(map.channels.len(), "channel", "channels")
        ),
        eyebrow: "Crossway observe: a map".to_owned(),
        widths: "The kernel counts the bytes of TCP since a connection began, and those of no other channel; a recording \
                 counts all. Arrows without known bytes are thin and dashed.",
        sentences: answers.iter().map(|answer| answer.text.clone()).collect(),
        notes,
    };
    render(scene, words, &[])
}

/// The page of a recording.
///
/// # Errors
/// Fails only if the template does not match its data, which is a defect of Crossway.
pub fn page_of_recording(recording: &Recording, name: &str) -> Result<String, HtmlError> {
    let summary = Summary::of(recording);
    let scene = Scene::of_recording(recording, &summary);
    let (sentences, notes) = scene::about(recording, &summary);
    let words = Words {
        title: format!(
            "{} on {}",
            about(recording.events.len(), "call", "calls"),
            count(recording.head.channels.len(), "channel", "channels")
        ),
        eyebrow: format!("Crossway observe: the recording {name}"),
        widths: "Bytes are those that were recorded in this direction.",
        sentences,
        notes,
    };
    render(scene, words, &bars::all(recording, &summary))
}

#[derive(Serialize)]
struct Legend {
    class: &'static str,
    name: &'static str,
}

fn render(scene: Scene, words: Words, distributions: &[Distribution]) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("prose", prose);
    environment.add_template("observed", TEMPLATE)?;
    let legend: Vec<Legend> = Kind::ALL
        .into_iter()
        .filter(|kind| scene.links.iter().any(|link| link.kind == *kind))
        .map(|kind| Legend { class: kind.class(), name: kind.name() })
        .collect();
    let shown = &scene.rows[..scene.rows.len().min(ROWS_MAX)];
    Ok(environment.get_template("observed")?.render(context! {
        style => STYLE,
        title => words.title,
        eyebrow => words.eyebrow,
        widths => words.widths,
        sentences => words.sentences,
        notes => words.notes,
        legend => Value::from(Serde(legend)),
        wide => picture::svg(&scene, layout::Axis::Across),
        narrow => picture::svg(&scene, layout::Axis::Down),
        hidden => scene.hidden,
        heads => scene.heads,
        rows => Value::from(Serde(shown)),
        rows_left_out => scene.rows.len() - shown.len(),
        rows_open => ROWS_OPEN,
        pairs_open => PAIRS_OPEN,
        distributions => Value::from(Serde(distributions)),
        version => env!("CARGO_PKG_VERSION"),
    })?)
}

#[cfg(test)]
mod tests {
    use super::scene::{Link, Node};
    use super::*;

    /// Fifty connections with many bytes in one direction, as a benchmark makes them.
    fn fifty() -> Scene {
        let node = |name: &str| Node {
            name: name.to_owned(),
            detail: "process 32185".to_owned(),
            observed: true,
        };
        let link = Link {
            from: 0,
            to: 1,
            kind: Kind::Local,
            carrier: "TCP on this host",
            channels: 50,
            two_ways: true,
            forward_bytes: Some(268_000_000),
            backward_bytes: Some(5_000),
        };
        Scene {
            nodes: vec![node("redis-benchmark"), node("redis-server")],
            links: vec![link],
            hidden: 0,
            heads: Vec::new(),
            rows: Vec::new(),
        }
    }

    #[test]
    fn the_widest_arrow_has_its_label() {
        // Where the picture is narrow, there is room for the bytes only; the colour says what
        // carries them.
        let name = ">50 × TCP on this host<";
        for (axis, name) in [(layout::Axis::Across, name), (layout::Axis::Down, ">")] {
            let picture = picture::svg(&fifty(), axis).unwrap();
            let (_, labels) = picture.split_once("on-arrow").unwrap();
            for label in [name, ">268 MB<", ">5.00 kB<"] {
                assert!(labels.contains(label), "{axis:?}: {label}: {picture}");
            }
        }
    }

    #[test]
    fn commands_are_code() {
        let words = Words {
            title: String::new(),
            eyebrow: String::new(),
            widths: "",
            sentences: vec!["Try `crossway run -- <it>`.".to_owned()],
            notes: vec!["To see it, `modprobe unix_diag`.".to_owned()],
        };
        let page = render(fifty(), words, &[]).unwrap();
        let (_, body) = page.split_once("<body>").unwrap();
        assert!(!body.contains('`'), "{body}");
        assert!(body.contains("<code>crossway run"), "{body}");
        assert!(body.contains("&lt;it&gt;") && body.contains("<code>modprobe unix_diag</code>"));
    }
}
