//! `crossway channel top`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use crossway_channel::{Directory, Status};

use super::{ANSWER, Place};
use crate::args;
use crate::ui::Ui;
use crossway_records::sorting::{CollectTree, SortSmall};

/// Arguments of `top`.
#[derive(clap::Args)]
pub(super) struct Top {
    /// Show only channels of this name
    name: Option<String>,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = args::number)]
    interval_s: f64,
    /// Print one update and exit; its rates cover one interval
    #[arg(long)]
    once: bool,
    /// Print each update as a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

impl Top {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let directory = self.place.directory();
        let interval = Duration::try_from_secs_f64(self.interval_s).map_err(|_| {
            anyhow::anyhow!(
                "--interval-s: the number is too large; give a smaller number of seconds"
            )
        })?;
        let look = || crossway_channel::status(&directory, self.name.as_deref(), ANSWER);
        let mut last = (Instant::now(), look()?);
        loop {
            if self.json {
                ui.print_json(&last.1)?;
            }
            if self.json && self.once {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(interval);
            let now = (Instant::now(), look()?);
            if !self.json {
                if std::io::stdout().is_terminal() && !self.once {
                    print!("\x1b[H\x1b[2J");
                }
                let seconds = (now.0 - last.0).as_secs_f64();
                show(&last.1, &now.1, seconds, &directory, self.name.as_deref());
                std::io::stdout().flush()?;
            }
            if self.once {
                return Ok(ExitCode::SUCCESS);
            }
            last = now;
        }
    }
}

/// Returns the transport and address of a peer on another host, or the process id of a peer on this host.
fn peer(status: &Status) -> String {
    status.peer_host.clone().unwrap_or_else(|| status.peer_pid.to_string())
}

fn show(
    before: &[Status],
    now: &[Status],
    seconds: f64,
    directory: &Directory,
    name: Option<&str>,
) {
    if now.is_empty() {
        let place = directory.path().display();
        match name {
            Some(name) => println!("No channel '{name}' is open in {place}."),
            None => println!("No channel is open in {place}."),
        }
        return;
    }
    let before: BTreeMap<u64, &Status> =
        before.iter().map(|status| (status.id, status)).collect_tree();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "channel",
        "pid",
        "peer",
        "transport",
        "switches",
        "sent/s",
        "received/s",
        "lost/s",
        "mean bytes",
    ]);
    for status in now {
        let zero = (0, 0, 0, 0);
        let (sent, received, lost, bytes) = before.get(&status.id).map_or(zero, |was| {
            (
                status.sent_msgs.saturating_sub(was.sent_msgs),
                status.received_msgs.saturating_sub(was.received_msgs),
                status.lost_msgs.saturating_sub(was.lost_msgs),
                (status.sent_bytes + status.received_bytes)
                    .saturating_sub(was.sent_bytes + was.received_bytes),
            )
        });
        let rate = |count: u64| format!("{:.0}", count as f64 / seconds.max(1e-3));
        let transport = status.switching_to.map_or_else(
            || status.transport.to_string(),
            |to| format!("{} -> {to}", status.transport),
        );
        table.add_row([
            status.name.clone(),
            status.pid.to_string(),
            peer(status),
            transport,
            status.epoch.to_string(),
            rate(sent),
            rate(received),
            rate(lost),
            (bytes / (sent + received).max(1)).to_string(),
        ]);
    }
    for column in [1, 2, 4, 5, 6, 7, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    let mut events: Vec<_> = now.iter().flat_map(|status| &status.log).collect();
    events.sort_small_by_key(|event| event.at_unix_ms);
    println!();
    for event in events.iter().rev().take(10).rev() {
        println!("{event}");
    }
}
