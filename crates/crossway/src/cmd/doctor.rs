//! `crossway doctor`.

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use crossway_lab::doctor::{self, Kind};

use super::Run;
use crate::ui::Ui;

/// Tries every mechanism and looks for every tool; what is missing comes with the line that mends it
#[derive(clap::Args)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show only what is missing
    #[arg(long)]
    missing: bool,
}

impl Run for Doctor {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let mut items = doctor::examine();
        if self.missing {
            items.retain(|item| !item.ready);
        }
        if self.json {
            ui.print_json(&items)?;
            return Ok(ExitCode::SUCCESS);
        }
        for (kind, heading) in [
            (Kind::Mechanism, "Mechanisms"),
            (Kind::Facility, "This machine"),
            (Kind::Tool, "Tools"),
        ] {
            let of_kind: Vec<_> = items.iter().filter(|item| item.kind == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            println!("{}", ui.paint("1", heading));
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
            for item in of_kind {
                let state = if item.ready { "ready" } else { "missing" };
                let told = match (&item.version, &item.why, &item.remedy) {
                    (Some(version), ..) => version.clone(),
                    (_, Some(why), Some(remedy)) => format!("{why}\n-> {remedy}"),
                    _ => String::new(),
                };
                table.add_row([item.name.clone(), state.to_owned(), told]);
            }
            println!("{table}\n");
        }
        let missing = items.iter().filter(|item| !item.ready).count();
        if missing == 0 {
            println!("{}", ui.paint("32", "Everything is ready."));
        } else {
            println!(
                "{missing} of {} missing; cases that need them are skipped with this reason.",
                items.len()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
