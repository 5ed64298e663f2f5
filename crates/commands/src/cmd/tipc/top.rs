//! `crossway tipc top`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossway_tipc_client::admin::{LinkView, NodeView, Order, SocketView};
use serde::Serialize;

use super::{Site, ask, socket};
use crate::args;
use crate::ui::{Interrupts, on_screen};
use crossway_records::sorting::{CollectTree, SortSmall};

#[derive(clap::Args)]
pub(super) struct Top {
    /// Seconds between updates
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = args::period)]
    interval: f64,
    /// Exit after this many updates [default: run until interrupted]
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Number of sockets to show, the busiest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    sockets: usize,
}

/// Snapshot of the node, links and sockets.
struct Look {
    at: Instant,
    node: NodeView,
    links: Vec<LinkView>,
    sockets: Vec<SocketView>,
}

/// Rates between two snapshots.
#[derive(Serialize)]
struct Rates {
    identity: Option<String>,
    address: Option<String>,
    peers_up: u64,
    elapsed_s: f64,
    local_msgs_per_s: f64,
    local_bytes_per_s: f64,
    links: Vec<LinkRates>,
    sockets: Vec<SocketRates>,
}

#[derive(Serialize)]
struct LinkRates {
    name: String,
    up: bool,
    active: bool,
    window_now_packets: u16,
    round_trip_us: Option<u64>,
    received_packets_per_s: f64,
    sent_packets_per_s: f64,
    received_bytes_per_s: f64,
    sent_bytes_per_s: f64,
    resent_packets_per_s: f64,
}

#[derive(Serialize)]
struct SocketRates {
    port: u32,
    kind: String,
    pid: Option<u32>,
    command: Option<String>,
    received_msgs_per_s: f64,
    sent_msgs_per_s: f64,
    queued_messages: u64,
    #[serde(skip)]
    owner: String,
}

impl Top {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        let interrupts = Interrupts::catch()?;
        let live = std::io::stdout().is_terminal() && !site.json;
        let mut before = look(site)?;
        let mut shown = 0;
        while self.count.is_none_or(|count| shown < count) {
            let next = before.at + Duration::from_secs_f64(self.interval);
            while Instant::now() < next && !interrupts.any() {
                let left = next.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            if interrupts.any() {
                break;
            }
            let now = look(site)?;
            let rates = rates(&before, &now, self.sockets);
            let mut text = Vec::new();
            if site.json {
                // One document per line, so that a program can read the stream.
                serde_json::to_writer(&mut text, &rates)?;
                text.push(b'\n');
            } else {
                if live {
                    print(&mut text, &rates)?;
                    text = on_screen(&text);
                } else {
                    print(&mut text, &rates)?;
                }
            }
            let mut out = std::io::stdout().lock();
            match out.write_all(&text).and_then(|()| out.flush()) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
                other => other?,
            }
            before = now;
            shown += 1;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn look(site: &Site<'_>) -> anyhow::Result<Look> {
    let node = *ask!(site, Order::Node, Node);
    let links = ask!(site, Order::Links, Links);
    let sockets = ask!(site, Order::Sockets, Sockets);
    Ok(Look { at: Instant::now(), node, links, sockets })
}

fn rates(before: &Look, now: &Look, most: usize) -> Rates {
    let elapsed_s = now.at.duration_since(before.at).as_secs_f64().max(1e-6);
    // A counter that has decreased belongs to a new object of the same name.
    let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / elapsed_s;
    let old_links: BTreeMap<_, _> = before.links.iter().map(|l| (&l.name, l)).collect_tree();
    let old_sockets: BTreeMap<_, _> = before.sockets.iter().map(|s| (s.port, s)).collect_tree();
    let links = now.links.iter().map(|new| {
        let old = old_links.get(&new.name);
        let of = |count: fn(&LinkView) -> u64| rate(old.map_or(0, |old| count(old)), count(new));
        LinkRates {
            name: new.name.clone(),
            up: new.up,
            active: new.active,
            window_now_packets: new.window_now_packets,
            round_trip_us: new.round_trip_us,
            received_packets_per_s: of(|l| l.counters.received_packets),
            sent_packets_per_s: of(|l| l.counters.sent_packets),
            received_bytes_per_s: of(|l| l.counters.received_bytes),
            sent_bytes_per_s: of(|l| l.counters.sent_bytes),
            resent_packets_per_s: of(|l| l.counters.resent_packets),
        }
    });
    let links = links.collect();
    let sockets = now.sockets.iter().map(|new| {
        let old = old_sockets.get(&new.port);
        let of = |count: fn(&SocketView) -> u64| rate(old.map_or(0, |old| count(old)), count(new));
        SocketRates {
            port: new.port,
            kind: new.kind.clone(),
            pid: new.pid,
            command: new.command.clone(),
            received_msgs_per_s: of(|s| s.received.messages),
            sent_msgs_per_s: of(|s| s.sent.messages),
            queued_messages: new.queued_messages,
            owner: socket::owner(new),
        }
    });
    let mut sockets: Vec<_> = sockets.collect();
    let busy = |s: &SocketRates| s.received_msgs_per_s + s.sent_msgs_per_s;
    sockets.sort_small_by(|a, b| busy(b).total_cmp(&busy(a)).then(a.port.cmp(&b.port)));
    sockets.truncate(most);
    Rates {
        identity: now.node.identity.clone(),
        address: now.node.address.clone(),
        peers_up: now.node.peers_up,
        elapsed_s,
        local_msgs_per_s: rate(before.node.local.messages, now.node.local.messages),
        local_bytes_per_s: rate(before.node.local.bytes, now.node.local.bytes),
        links,
        sockets,
    }
}

fn print(out: &mut impl Write, r: &Rates) -> std::io::Result<()> {
    let none = || "-".to_owned();
    writeln!(
        out,
        "node {} <{}>  peers up {}  node-local {:.0} msgs/s {:.0} bytes/s",
        r.identity.clone().unwrap_or_else(none),
        r.address.clone().unwrap_or_else(none),
        r.peers_up,
        r.local_msgs_per_s,
        r.local_bytes_per_s
    )?;
    writeln!(
        out,
        "\n{:>10} {:>10} {:>12} {:>12} {:>9} {:>7} {:>9} {:<8} Link",
        "RX pkt/s",
        "TX pkt/s",
        "RX bytes/s",
        "TX bytes/s",
        "Retrans/s",
        "Window",
        "RTT us",
        "State"
    )?;
    for l in &r.links {
        let state = match (l.up, l.active) {
            (true, true) => "ACTIVE",
            (true, false) => "STANDBY",
            (false, _) => "DEFUNCT",
        };
        writeln!(
            out,
            "{:>10.0} {:>10.0} {:>12.0} {:>12.0} {:>9.0} {:>7} {:>9} {state:<8} {}",
            l.received_packets_per_s,
            l.sent_packets_per_s,
            l.received_bytes_per_s,
            l.sent_bytes_per_s,
            l.resent_packets_per_s,
            l.window_now_packets,
            l.round_trip_us.map_or_else(none, |us| us.to_string()),
            l.name
        )?;
    }
    writeln!(
        out,
        "\n{:>10} {:>10} {:>9} {:<10} {:<10} Process",
        "RX msgs/s", "TX msgs/s", "Queued", "Type", "Port"
    )?;
    for s in &r.sockets {
        writeln!(
            out,
            "{:>10.0} {:>10.0} {:>9} {:<10} {:<10} {}",
            s.received_msgs_per_s, s.sent_msgs_per_s, s.queued_messages, s.kind, s.port, s.owner
        )?;
    }
    writeln!(out)
}
