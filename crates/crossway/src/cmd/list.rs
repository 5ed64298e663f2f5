//! `crossway list`.

use std::process::ExitCode;

use crossway_lab::catalogue;
use crossway_mech::{Boundaries, Caps, Meeting, Obstacle, Probe, Reliability, history};
use serde::Serialize;

use super::Run;
use crate::table::Grid;
use crate::ui::Ui;

/// List the mechanisms and contenders, what they can do, and whether each works here
///
/// Mechanisms that cannot be measured, such as Binder, are listed last, each with the reason and what to use instead.
#[derive(clap::Args)]
pub(crate) struct List {
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

/// Returns the mechanisms that cannot be measured, which are listed for completeness.
fn unmeasurable() -> impl Iterator<Item = Row> {
    history::ALL.iter().map(|entry| Row {
        id: entry.id,
        about: entry.about,
        caps: None,
        meets: None,
        probe: Probe::Missing(Obstacle::new((entry.why)(), format!("use {}", entry.instead))),
    })
}

impl Run for List {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let rows: Vec<Row> = catalogue::all()
            .map(|e| Row {
                id: e.id(),
                about: e.about(),
                caps: Some(e.caps()),
                meets: e.carrier().map(|carrier| carrier.meets),
                probe: e.probe(),
            })
            .chain(unmeasurable())
            .filter(|row| !self.ready || matches!(row.probe, Probe::Ready { .. }))
            .collect();
        if self.json {
            ui.print_json(&rows)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut grid = Grid::of_text(["mechanism", "carries", "can", "meets by", "what it is"]);
        for row in rows.iter().filter(|row| matches!(row.probe, Probe::Ready { .. })) {
            let (carries, can) =
                row.caps.as_ref().map(|caps| (carries(caps), abilities(caps))).unwrap_or_default();
            let names = row.meets.unwrap_or_default().iter().map(|way| way.name());
            let meets = names.collect::<Vec<_>>().join(" or ");
            grid.row([row.id, carries, &can, &meets, row.about]);
        }
        println!("{}", grid.text(ui));
        println!("Both ends need to meet by:");
        for way in Meeting::ALL {
            ui.print_wrapped(2, &format!("{}: {}", way.name(), way.words()));
        }
        for row in &rows {
            if let Probe::Missing(Obstacle { why, remedy }) = &row.probe {
                let word = if row.caps.is_some() { "missing" } else { "not measured" };
                ui.print_noted("33", word, &format!("{}: {why}; {remedy}", row.id));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
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
