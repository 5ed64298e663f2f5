//! The operator's view of bearers and their devices.

use crossway_sys::addresses;
use crossway_tipc_client::admin::BearerView;
use crossway_tipc_proto::addr::{BearerId, MediaAddr};
use crossway_tipc_proto::node::BearerReport;

use super::views::text;
use crate::runner::Runner;

pub(crate) fn media(addr: &MediaAddr) -> String {
    match addr {
        MediaAddr::Ethernet(mac) => mac.map(|octet| format!("{octet:02x}")).join(":"),
        MediaAddr::Udp { ip, port } => std::net::SocketAddr::new(*ip, *port).to_string(),
    }
}

pub(super) fn bearer_name(bearer: &BearerReport) -> String {
    let medium = match bearer.addr {
        MediaAddr::Ethernet(_) => "eth",
        MediaAddr::Udp { .. } => "udp",
    };
    format!("{medium}:{}", text(&bearer.name))
}

pub(crate) fn bearer_names(runner: &mut Runner) -> Vec<(BearerId, String)> {
    runner.node().bearers().map(|bearer| (bearer.id, bearer_name(&bearer))).collect()
}

/// Returns the name of a bearer's device, and the device's state according to the system. A switch port that is
/// disabled appears as `no-carrier`.
fn state_of(device: Option<&str>, addr: &MediaAddr) -> (Option<String>, &'static str) {
    let found = match addr {
        // All of 127.0.0.0/8 belongs to one device, whatever addresses it has.
        MediaAddr::Udp { ip, .. } if ip.is_loopback() => Some("lo".to_owned()),
        MediaAddr::Udp { ip, .. } => addresses::interface_of(*ip).ok().flatten(),
        MediaAddr::Ethernet(_) => None,
    };
    let of_udp = matches!(addr, MediaAddr::Udp { .. });
    let Some(device) = found.clone().or_else(|| device.map(str::to_owned)) else {
        return (None, "no-address");
    };
    let place = std::path::Path::new("/sys/class/net").join(&device);
    let state = match std::fs::read_to_string(place.join("carrier")) {
        _ if of_udp && found.is_none() => "no-address",
        // /sys may show the devices of a different network namespace.
        _ if !place.exists() => {
            if of_udp {
                "up"
            } else {
                "gone"
            }
        }
        Ok(text) if text.trim() == "0" => "no-carrier",
        Ok(_) => "up",
        Err(_) => "down",
    };
    (Some(device), state)
}

pub(super) fn bearers(runner: &mut Runner) -> Vec<BearerView> {
    let reports: Vec<_> = runner.node().bearers().collect();
    let attached = |id| runner.bearers().find(|b| b.id == id);
    let view = |report: &BearerReport| {
        let attached = attached(report.id)?;
        let (device, state) = state_of(attached.device.as_deref(), &report.addr);
        Some(BearerView {
            name: bearer_name(report),
            state: state.to_owned(),
            device,
            address: media(&report.addr),
            mtu_bytes: report.mtu as u64,
            priority: report.priority,
            tolerance_ms: report.tolerance.as_millis() as u64,
            window_packets: report.window_max,
            remotes: attached.bearer.remotes().to_vec(),
            removed: report.removed.iter().map(media).collect(),
            received_frames: attached.traffic.frames_received,
            sent_frames: attached.traffic.frames_sent,
            unsent_frames: attached.traffic.frames_unsent,
            receive_buffer_bytes: attached.bearer.receive_buffer().map(|bytes| bytes as u64),
            run_frame_bytes_max: attached.bearer.segment_max().map(|bytes| bytes as u64),
            received_runs: attached.traffic.runs_received,
            sent_runs: attached.traffic.runs_sent,
        })
    };
    reports.iter().filter_map(view).collect()
}

/// Describes the bearers for the log, one line each.
pub(crate) fn bearer_lines(runner: &mut Runner) -> Vec<String> {
    let line = |b: BearerView| match b.remotes.as_slice() {
        [] => format!("bearer {}: {}", b.name, b.address),
        [group] if group.ip().is_multicast() => {
            format!("bearer {}: {}, looks for nodes by multicast to {group}", b.name, b.address)
        }
        remotes => {
            let remotes: Vec<_> = remotes.iter().map(ToString::to_string).collect();
            format!(
                "bearer {}: {}, looks for nodes at {}",
                b.name,
                b.address,
                remotes.join(" and ")
            )
        }
    };
    match bearers(runner) {
        none if none.is_empty() => {
            vec![
                "no bearer: this node serves only this host (`crossway tipc bearer enable` adds a bearer)"
                    .to_owned(),
            ]
        }
        bearers => bearers.into_iter().map(line).collect(),
    }
}
