//! `crossway doctor`.

use std::process::ExitCode;

use crossway_lab::doctor::{self, CheckKind};

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
            let mut grid = Grid::of_text(["", "", ""]);
            for item in of_kind {
                let state = if item.ready { "ready" } else { "missing" };
                let detail = match (&item.version, &item.why, &item.remedy) {
                    (Some(version), ..) => version.clone(),
                    (_, Some(why), Some(remedy)) => format!("{why}\n-> {remedy}"),
                    _ => String::new(),
                };
                grid.row([item.name.clone(), state.to_owned(), detail]);
            }
            println!("{}\n", grid.text(ui));
        }
        let missing = items.iter().filter(|item| !item.ready).count();
        if missing == 0 {
            println!("{}", ui.paint("32", "Everything is ready."));
        } else {
            println!(
                "Missing: {missing} of {all}. Cases that need what is missing are skipped, and the report says why."
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
