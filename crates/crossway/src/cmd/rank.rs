//! `crossway rank`.

use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use crossway_lab::rank::{By, Entry, Ranking, Speed, moved_explained, rank};
use crossway_lab::records_io::read_records;

use super::Run;
use crate::ui::Ui;

/// Ranks the mechanisms of a run, by speed and by CPU time, within what is comparable
///
/// Spinning and blocking ends never share a ranking. Mechanisms whose intervals overlap share a place.
#[derive(clap::Args)]
pub(crate) struct Rank {
    /// The run: its folder or its results.jsonl
    run: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for Rank {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let loaded = read_records(&self.run)?;
        let rankings = rank(&loaded.records);
        if self.json {
            ui.print_json(&rankings)?;
            return Ok(ExitCode::SUCCESS);
        }
        for warning in &loaded.warnings {
            println!("{} {warning}", ui.paint("33", "warning"));
        }
        for ranking in &rankings.rankings {
            print(ui, ranking);
        }
        if rankings.rankings.is_empty() {
            println!(
                "No two mechanisms were measured in the same setting: there is nothing to rank."
            );
        }
        for reversal in &rankings.reversals {
            let by = match reversal.by {
                By::Speed => "speed",
                By::BitsPerCpuS => "bits per CPU-second",
            };
            println!(
                "{} {}: {} is ahead when idle, {} under load {} (by {by})",
                ui.paint("1", "reversal"),
                reversal.setting,
                reversal.better_idle,
                reversal.better_loaded,
                reversal.load
            );
        }
        if rankings.rankings.iter().any(|r| r.by_speed.iter().any(|e| e.cores_moved)) {
            println!("* {}", moved_explained());
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(ui: &Ui, ranking: &Ranking) {
    println!("{}", ui.paint("1", &ranking.setting));
    let speed = match ranking.speed {
        Speed::MsgsPerS => "messages/s",
        Speed::RoundTripP50Ns => "round trip p50, ns",
        Speed::OneWayP99Ns => "one way p99, ns",
        Speed::WholeExchangeNs => "whole exchange p50, ns",
    };
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["", "by speed", speed, "95 %", "", "by CPU time", "Mbit/CPU-s", "95 %"]);
    for at in [0, 2, 3, 4, 6, 7] {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let rows = ranking.by_speed.len().max(ranking.by_bits_per_cpu_s.len());
    for at in 0..rows {
        let mut row = cells(ranking.by_speed.get(at), 1.0);
        row.extend(cells(ranking.by_bits_per_cpu_s.get(at), 1e-6));
        table.add_row(row);
    }
    println!("{table}\n");
}

fn cells(entry: Option<&Entry>, factor: f64) -> Vec<String> {
    let Some(entry) = entry else { return vec![String::new(); 4] };
    let figure = |x: f64| {
        let x = x * factor;
        if x.abs() >= 1000.0 { format!("{x:.0}") } else { format!("{x:.1}") }
    };
    let wait =
        if entry.wait.starts_with("hybrid") { format!(" {}", entry.wait) } else { String::new() };
    let mark = if entry.cores_moved { "*" } else { "" };
    let interval = &entry.figure.interval;
    vec![
        entry.rank.to_string(),
        format!("{}{wait}{mark}", entry.mechanism),
        figure(entry.figure.median),
        format!("{}..{}", figure(interval.low), figure(interval.high)),
    ]
}
