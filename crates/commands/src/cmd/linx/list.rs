//! `crossway linx list`.

use std::path::Path;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use crossway_linx::{EndpointInfo, EndpointKind, WaitsFor};
use serde::Serialize;

use crate::ui::Ui;

#[derive(clap::Args)]
pub(super) struct List {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// An endpoint or link in the table; with `--json`, an element of the array.
#[derive(Serialize)]
struct Row {
    spid: u32,
    name: String,
    kind: &'static str,
    pid: Option<u32>,
    uid: Option<u32>,
    state: &'static str,
    filter: Option<String>,
    queued: Option<u64>,
    queued_bytes: Option<u64>,
    sent: Option<u64>,
    received: Option<u64>,
    sent_bytes: Option<u64>,
    received_bytes: Option<u64>,
    sent_remote: Option<u64>,
    received_remote: Option<u64>,
    dropped: Option<u64>,
    attached_from: u32,
    attached_to: u32,
    hunts: u32,
    timeouts: Option<u32>,
    channels: u32,
}

fn filter(waits_for: &WaitsFor) -> Option<String> {
    let numbers =
        |numbers: &[u32]| numbers.iter().map(|n| format!("{n:#x}")).collect::<Vec<_>>().join(" ");
    match waits_for {
        WaitsFor::NotReceiving => None,
        WaitsFor::Any => Some("any".to_owned()),
        WaitsFor::Only(only) => Some(numbers(only)),
        WaitsFor::Except(except) => Some(format!("not {}", numbers(except))),
    }
}

impl From<EndpointInfo> for Row {
    fn from(info: EndpointInfo) -> Row {
        let condition = info.condition.as_ref();
        let traffic = condition.map(|condition| condition.traffic);
        let local = info.kind == EndpointKind::Local;
        let waits_for = condition.and_then(|condition| filter(&condition.waits_for));
        Row {
            spid: info.spid.get(),
            name: info.name,
            kind: match info.kind {
                EndpointKind::Local => "local",
                EndpointKind::Remote => "remote",
                EndpointKind::Link => "link",
            },
            pid: local.then_some(info.pid),
            uid: local.then_some(info.user),
            state: match (local, &waits_for) {
                (false, _) => "-",
                (true, Some(_)) => "receive",
                (true, None) => "run",
            },
            filter: waits_for,
            queued: condition.map(|condition| condition.queued),
            queued_bytes: condition.map(|condition| condition.queued_bytes),
            sent: traffic.map(|traffic| traffic.sent().signals),
            received: traffic.map(|traffic| traffic.received().signals),
            sent_bytes: traffic.map(|traffic| traffic.sent().bytes),
            received_bytes: traffic.map(|traffic| traffic.received().bytes),
            sent_remote: traffic.map(|traffic| traffic.sent_remote.signals),
            received_remote: traffic.map(|traffic| traffic.received_remote.signals),
            dropped: condition.map(|condition| condition.dropped),
            attached_from: info.attached_from,
            attached_to: info.attached_to,
            hunts: info.hunts,
            timeouts: condition.map(|condition| condition.timeouts),
            channels: info.channels,
        }
    }
}

impl List {
    pub(super) fn run(self, dir: &Path, ui: &Ui) -> anyhow::Result<ExitCode> {
        let rows: Vec<Row> = crossway_linx::list(dir)?.into_iter().map(Row::from).collect();
        if self.json {
            ui.print_json(&rows)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header([
            "pid",
            "spid",
            "name",
            "type",
            "state",
            "queue",
            "attach from/to",
            "hunt",
            "tmo",
            "filter",
        ]);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        for row in rows {
            table.add_row([
                or_dash(row.pid.map(|pid| pid.to_string())),
                format!("{:#x}", row.spid),
                row.name,
                row.kind.to_owned(),
                row.state.to_owned(),
                or_dash(row.queued.map(|n| n.to_string())),
                format!("{}/{}", row.attached_from, row.attached_to),
                row.hunts.to_string(),
                or_dash(row.timeouts.map(|n| n.to_string())),
                or_dash(row.filter),
            ]);
        }
        println!("{}", table.trim_fmt());
        Ok(ExitCode::SUCCESS)
    }
}
