//! `crossway list`.

use std::process::ExitCode;

use anyhow::bail;
use crossway_lab::catalogue;
use crossway_lab::similar::did_you_mean;
use crossway_mech::{Boundaries, Caps, Meeting, Obstacle, Probe, Reliability, history};
use crossway_report::terminal::wrap_indented;
use serde::Serialize;

use super::Run;
use crate::ui::Ui;

/// List the mechanisms and contenders, and whether each works here; with names, what these can do
///
/// Of a mechanism that is missing here or cannot be measured, such as kdbus, its name gives the
/// reason and what helps.
#[derive(clap::Args)]
pub(crate) struct List {
    /// Mechanisms and contenders to describe
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    /// List only what works here
    #[arg(long)]
    ready: bool,
}

#[derive(Serialize)]
struct Row {
    id: &'static str,
    about: &'static str,
    /// The mechanism's properties; `None` if it cannot be measured.
    caps: Option<Caps>,
    /// What both ends need to meet, any one of these; `None` if that is not known, as for contenders.
    meets: Option<&'static [Meeting]>,
    probe: Probe,
}

impl Row {
    fn is_ready(&self) -> bool {
        matches!(self.probe, Probe::Ready { .. })
    }

    fn is_contender(&self) -> bool {
        self.caps.is_some() && self.meets.is_none()
    }

    /// Prints what is known of it.
    fn describe(&self, ui: &Ui) {
        println!("{}", ui.paint("1", self.id));
        let line = |word: &str, text: &str| {
            println!("  {word:<9} {}", wrap_indented(text, ui.width, 12, 12));
        };
        line("is", self.about);
        if let Some(caps) = &self.caps {
            line("carries", carries(caps));
            line("can", &abilities(caps));
        }
        if let Some(meets) = self.meets {
            line("meets by", &Meeting::any_of(meets));
        }
        match &self.probe {
            Probe::Ready { version } => line("here", &format!("works, with {version}")),
            Probe::Missing(Obstacle { why, remedy }) => {
                let word = if self.caps.is_some() { "missing" } else { "not measured" };
                line("here", &format!("{word}: {why}"));
                line("remedy", remedy);
            }
        }
    }
}

/// Returns the mechanisms that cannot be measured, which are listed for completeness.
fn unmeasurable() -> impl Iterator<Item = (&'static str, Box<dyn FnOnce() -> Row>)> {
    history::ALL.iter().map(|entry| {
        let row = move || Row {
            id: entry.id,
            about: entry.about,
            caps: None,
            meets: None,
            probe: Probe::Missing(Obstacle::new((entry.why)(), format!("use {}", entry.instead))),
        };
        (entry.id, Box::new(row) as Box<dyn FnOnce() -> Row>)
    })
}

/// Probes what is wanted, in display order.
fn rows(is_wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let known = catalogue::all().map(|e| {
        let row = move || Row {
            id: e.id(),
            about: e.about(),
            caps: Some(e.caps()),
            meets: e.carrier().map(|carrier| carrier.meets),
            probe: e.probe(),
        };
        (e.id(), Box::new(row) as Box<dyn FnOnce() -> Row>)
    });
    known.chain(unmeasurable()).filter(|(id, _)| is_wanted(id)).map(|(_, row)| row()).collect()
}

impl Run for List {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let mut rows = rows(|id| self.names.is_empty() || self.names.iter().any(|name| name == id));
        if let Some(name) = self.names.iter().find(|name| rows.iter().all(|row| row.id != **name)) {
            let unmeasurable = history::ALL.iter().map(|entry| entry.id);
            let all = catalogue::all().map(|entry| entry.id()).chain(unmeasurable);
            let meant = did_you_mean(name, all);
            bail!("there is no mechanism or contender '{name}'; {meant}`crossway list` names them");
        }
        rows.retain(|row| !self.ready || row.is_ready());
        if self.json {
            ui.print_json(&rows)?;
        } else if self.names.is_empty() {
            show_all(&rows, ui);
        } else {
            rows.iter().for_each(|row| row.describe(ui));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a line for each that works here, and the names of the others.
fn show_all(rows: &[Row], ui: &Ui) {
    let width = rows.iter().filter(|row| row.is_ready()).map(|row| row.id.len()).max();
    let width = width.unwrap_or(0);
    for row in rows.iter().filter(|row| row.is_ready()) {
        println!(
            "{:<width$}  {}",
            row.id,
            wrap_indented(row.about, ui.width, width + 2, width + 2)
        );
    }
    let others = |is_of: fn(&Row) -> bool| {
        let ids = rows.iter().filter(|row| !row.is_ready() && is_of(row)).map(|row| row.id);
        ids.collect::<Vec<_>>().join(", ")
    };
    let missing = others(|row| row.caps.is_some() && !row.is_contender());
    let groups = [
        ("missing here", missing),
        ("contenders that are not ready", others(Row::is_contender)),
        ("not measured", others(|row| row.caps.is_none())),
    ];
    println!();
    for (words, ids) in groups.iter().filter(|(_, ids)| !ids.is_empty()) {
        ui.print_noted("33", &format!("{words}:"), ids);
    }
    ui.print_wrapped(0, "what one can do, why it is missing, and what helps: crossway list NAME");
}

fn carries(caps: &Caps) -> &'static str {
    match (caps.boundaries, caps.reliability) {
        (Boundaries::Stream, _) => "bytes",
        (Boundaries::Message, Reliability::Reliable) => "messages",
        (Boundaries::Message, Reliability::Lossy) => "messages, lossy",
    }
}

fn abilities(caps: &Caps) -> String {
    [
        (caps.can_block, "block"),
        (caps.can_spin, "spin"),
        (caps.in_place, "in-place"),
        (caps.waitable_fd, "poll"),
        (caps.reconnects, "reconnect"),
        (caps.fan_in, "fan-in"),
        (caps.fan_out, "fan-out"),
        (caps.crosses_hosts, "hosts"),
    ]
    .iter()
    .filter(|(has, _)| *has)
    .map(|(_, name)| *name)
    .collect::<Vec<_>>()
    .join(" ")
}
