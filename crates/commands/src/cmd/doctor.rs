//! `crossway doctor`.

use std::process::ExitCode;

use crossway_lab::doctor::{self, CheckKind, Item};

use super::Run;
use crate::table::Grid;
use crate::ui::Ui;

/// Check whether every mechanism and tool works here, and print the commands that provide what is missing
#[derive(clap::Args)]
pub(crate) struct Doctor {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
    /// Show only what is missing
    #[arg(long)]
    missing: bool,
}

impl Run for Doctor {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let mut items = doctor::examine();
        let all = items.len();
        if self.missing {
            items.retain(|item| !item.ready);
        }
        if self.json {
            ui.print_json(&items)?;
            return Ok(ExitCode::SUCCESS);
        }
        for (kind, heading) in [
            (CheckKind::Mechanism, "Mechanisms"),
            (CheckKind::Contender, "Contenders"),
            (CheckKind::Facility, "This machine"),
            (CheckKind::Tool, "Tools"),
        ] {
            let of_kind: Vec<_> = items.iter().filter(|item| item.kind == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            println!("{}", ui.paint("1", heading));
            let (in_brief, in_rows): (Vec<_>, Vec<_>) =
                of_kind.into_iter().partition(|item| item.ready && is_one_of_many(kind));
            if !in_brief.is_empty() {
                let names: Vec<_> = in_brief.iter().map(|item| item.name.as_str()).collect();
                ui.print_wrapped(1, &format!("ready: {}", names.join(", ")));
            }
            if !in_rows.is_empty() {
                println!("{}", rows(&in_rows).text(ui));
            }
            println!();
        }
        let missing = items.iter().filter(|item| !item.ready).count();
        if missing == 0 {
            println!("{}", ui.paint("32", "Everything is ready."));
        } else {
            let text = format!(
                "Missing: {missing} of {all}. Cases that need what is missing are skipped, and the report says why."
            );
            ui.print_wrapped(0, &text);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether the ready ones of this kind are only named, because there are many and their versions
/// say little.
fn is_one_of_many(kind: CheckKind) -> bool {
    matches!(kind, CheckKind::Mechanism | CheckKind::Contender)
}

/// A row for each item; a reason that was given before is not repeated.
fn rows(items: &[&Item]) -> Grid {
    let mut grid = Grid::of_text(["", "", ""]);
    for (at, item) in items.iter().enumerate() {
        let state = if item.ready { "ready" } else { "missing" };
        let same = |before: &&&Item| (&before.why, &before.remedy) == (&item.why, &item.remedy);
        let detail = match (&item.version, &item.why, &item.remedy) {
            (Some(version), ..) => version.clone(),
            (_, Some(why), Some(remedy)) => match items[..at].iter().find(same) {
                Some(before) => format!("as {}", before.name),
                None => format!("{why}\n-> {remedy}"),
            },
            _ => String::new(),
        };
        grid.row([item.name.clone(), state.to_owned(), detail]);
    }
    grid
}
