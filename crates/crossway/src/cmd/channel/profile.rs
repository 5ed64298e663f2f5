//! `crossway channel profile`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use crossway_channel::{Profile, Transport};
use crossway_lab::channel_profile::{self, Measured};
use crossway_lab::env::Environment;
use crossway_lab::records_io::{self, read_records};

use crate::args::{self, RUN};
use crate::output;
use crate::ui::Ui;

/// Arguments of `profile`.
#[derive(clap::Args)]
pub(super) struct Write {
    /// Run to compute the costs from: its folder, its results.jsonl, its name, or `latest`; `crossway measure quick`
    /// makes a suitable run
    #[arg(value_name = RUN, default_value = "latest", add = args::known_runs())]
    run: PathBuf,
    /// Write the profile to this file, for use with --profile or $CROSSWAY_CHANNEL_PROFILE
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the profile as JSON
    #[arg(long)]
    json: bool,
}

impl Write {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let path = args::run(&self.run)?;
        let records = read_records(&path)?.records;
        let measured = channel_profile::of(&records).with_context(|| {
            format!(
                "{} has no throughput cases with at least three message sizes for any transport that channels use; measure them with: crossway measure quick -f 'shm-*|uds-seqpacket*'",
                path.display()
            )
        })?;
        let there = records_io::read_beside::<Environment>(&path, records_io::ENVIRONMENT)?;
        if there.is_some_and(|there| {
            Environment::take().is_ok_and(|here| here.machine_id != there.machine_id)
        }) {
            eprintln!(
                "note: {} was measured on another machine, so the costs may be wrong for this one",
                path.display()
            );
        }
        if let Some(file) = &self.output {
            output::write(file, "name another file with -o", |out| {
                serde_json::to_writer_pretty(&mut *out, &measured.profile)?;
                Ok(out.write_all(b"\n")?)
            })?;
        }
        if self.json {
            ui.print_json(&measured.profile)?;
        } else {
            show(&measured);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(measured: &Measured) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["transport", "ns/message", "ns/byte", "ns/wake-up", "based on"]);
    for (transport, default) in Profile::default().costs {
        let cost = measured.profile.costs.get(&transport).unwrap_or(&default);
        table.add_row([
            transport.to_string(),
            format!("{:.0}", cost.message_ns),
            format!("{:.3}", cost.byte_ns),
            format!("{:.0}", cost.wake_ns),
            origin(measured, transport),
        ]);
    }
    for column in [1, 2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

fn origin(measured: &Measured, transport: Transport) -> String {
    match measured.trials.get(&transport) {
        None => "default costs".to_owned(),
        Some((streams, 0)) => format!(
            "trials: {streams} throughput, 0 ping-pong; the cost of a wake-up is the default"
        ),
        Some((streams, trips)) => format!("trials: {streams} throughput, {trips} ping-pong"),
    }
}
