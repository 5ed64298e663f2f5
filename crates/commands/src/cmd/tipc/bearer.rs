//! `crossway tipc bearer`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use crossway_tipc_client::admin::{BearerView, Order, Settings};
use serde_json::json;

use super::words::{Words, bearer_to_enable, endpoint};
use super::{SetArguments, Site, ask};

#[derive(clap::Args)]
pub(super) struct Bearer {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the bearers
    List {
        /// Also show each bearer's address, limits, remote addresses, and counts of frames and of runs (a run is
        /// several frames that are passed to or from the system as one message)
        #[arg(long)]
        details: bool,
    },
    /// Enable a bearer, which attaches the node to a medium
    Enable(Enable),
    /// Disable a bearer; its links go down, and the peers are notified
    Disable(Meant),
    /// Add a remote address to a UDP bearer
    Add(Remote),
    /// Remove a remote address from a UDP bearer; the link to it goes down, other links are not affected
    Remove(Remote),
    /// Set a bearer's defaults for future links
    Set {
        /// Name of the bearer, with at least one of the options below; or, in iproute2's syntax: { priority | tolerance
        /// | window } VALUE media { eth device DEVICE | udp name NAME }
        #[arg(required = true, value_name = "BEARER | KEYWORDS")]
        words: Vec<String>,
        #[command(flatten)]
        settings: SetArguments,
    },
    /// Show a bearer's defaults for future links
    Get {
        /// Name of the bearer; or, in iproute2's syntax: [priority | tolerance | window | mtu | localip | remoteip]
        /// media { eth device DEVICE | udp name NAME }
        #[arg(required = true, value_name = "BEARER | KEYWORDS")]
        words: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Meant {
    /// Name of the bearer, as `bearer list` shows it, with or without the medium; or, in iproute2's syntax: media { eth
    /// device DEVICE | udp name NAME }
    #[arg(required = true, value_name = "BEARER | KEYWORDS")]
    words: Vec<String>,
}

#[derive(clap::Args)]
struct Enable {
    /// `eth:DEVICE` (the tipcd needs CAP_NET_RAW) or `udp:LOCAL-ADDRESS[%DEVICE][,mtu=BYTES][,REMOTE...]`, where `mtu`
    /// is the size of the largest packet, not counting IP and UDP headers; or, in iproute2's syntax: [priority
    /// PRIORITY] media { eth device DEVICE | udp name NAME localip ADDRESS [localport PORT] [remoteip ADDRESS]
    /// [remoteport PORT] }
    #[arg(required = true, value_name = "BEARER | KEYWORDS")]
    words: Vec<String>,
    /// Name of the bearer's interface, up to 15 bytes [default: the device's name, or udp0, udp1 ...]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    settings: SetArguments,
}

#[derive(clap::Args)]
struct Remote {
    /// Name of the bearer, with --remoteip; or, in iproute2's syntax: media udp name NAME remoteip ADDRESS
    #[arg(required = true, value_name = "BEARER | KEYWORDS")]
    words: Vec<String>,
    /// Remote address: IP or IP:PORT; an IPv6 address with a port needs brackets
    #[arg(long, value_parser = endpoint)]
    remoteip: Option<SocketAddr>,
}

/// Describes in error messages how to name a bearer.
const BEARER: &str = "the bearer's name, or `media eth device DEVICE`, or `media udp name NAME`";

/// Returns the name of the bearer that `words` give. All other keywords must have been removed from `words` before.
fn name_of(mut words: Words) -> anyhow::Result<String> {
    match words.bearer()? {
        Some(name) => words.end(BEARER).map(|()| name),
        None => words.rest(BEARER)?.with_context(|| format!("no bearer is named; give {BEARER}")),
    }
}

impl Remote {
    fn take(self) -> anyhow::Result<(String, SocketAddr)> {
        let mut words = Words::new(self.words);
        let remote = match words.text("remoteip")? {
            Some(text) => {
                let mut remote =
                    endpoint(&text).map_err(|why| anyhow::anyhow!("remoteip {text}: {why}"))?;
                if let Some(port) = words.value("remoteport")? {
                    remote.set_port(port);
                }
                Some(remote)
            }
            None => self.remoteip,
        };
        let remote = remote.context("no remote address is given; add `--remoteip ADDRESS`")?;
        Ok((name_of(words)?, remote))
    }
}

impl Bearer {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List { details } => {
                let bearers = ask!(site, Order::Bearers, Bearers);
                site.show(&bearers, |bearers| bearers.iter().for_each(|b| print(b, details)))
            }
            What::Enable(e) => site.carry_out(&e.order()?),
            What::Disable(Meant { words }) => {
                site.carry_out(&Order::DisableBearer { name: name_of(Words::new(words))? })
            }
            What::Add(remote) => {
                let (name, remote) = remote.take()?;
                site.carry_out(&Order::AddRemote { name, remote })
            }
            What::Remove(remote) => {
                let (name, remote) = remote.take()?;
                site.carry_out(&Order::RemoveRemote { name, remote })
            }
            What::Set { words, settings } => {
                let mut words = Words::new(words);
                let settings = settings.or(words.settings()?)?;
                site.carry_out(&Order::SetBearer { name: name_of(words)?, settings })
            }
            What::Get { words } => get(site, Words::new(words)),
        }
    }
}

impl Enable {
    fn order(self) -> anyhow::Result<Order> {
        let mut words = Words::new(self.words);
        let with = words.settings()?;
        let settings = Settings {
            tolerance_ms: self.settings.tolerance.or(with.tolerance_ms),
            priority: self.settings.priority.or(with.priority),
            window_packets: self.settings.window.or(with.window_packets),
        };
        if let Some(domain) = words.text("domain")? {
            anyhow::ensure!(
                domain.trim_matches(['0', '.', '<', '>']).is_empty(),
                "domain {domain}: the discovery domain of a tipcd is always the whole cluster; omit 'domain'"
            );
        }
        let (bearer, name) = match bearer_to_enable(&mut words)? {
            Some(found) => {
                words.end("`media eth device DEVICE`, or `media udp name NAME localip ADDRESS`")?;
                found
            }
            None => {
                let bearer = words.rest("eth:DEVICE or udp:LOCAL-ADDRESS")?;
                (bearer.context("no bearer is named; give eth:DEVICE or udp:LOCAL-ADDRESS")?, None)
            }
        };
        Ok(Order::EnableBearer { bearer, name: self.name.or(name), settings })
    }
}

fn get(site: &Site<'_>, mut words: Words) -> anyhow::Result<ExitCode> {
    let properties = ["priority", "tolerance", "window", "mtu", "localip", "remoteip"];
    let property = words.property(&properties);
    let name = name_of(words)?;
    let bearers = ask!(site, Order::Bearers, Bearers);
    let is_meant =
        |b: &&BearerView| b.name == name || b.name.split_once(':').is_some_and(|(_, n)| n == name);
    let bearer = bearers.iter().find(is_meant).ok_or_else(|| {
        anyhow::anyhow!(
            "there is no bearer {name}; list the bearers with: crossway tipc bearer list"
        )
    })?;
    let Some(property) = property else {
        return site.show(bearer, |b| {
            println!(
                "tolerance:{} ms  priority:{}  window:{} packets  mtu:{}",
                b.tolerance_ms, b.priority, b.window_packets, b.mtu_bytes
            );
        });
    };
    let value = match property {
        "priority" => bearer.priority.to_string(),
        "tolerance" => bearer.tolerance_ms.to_string(),
        "window" => bearer.window_packets.to_string(),
        "mtu" => bearer.mtu_bytes.to_string(),
        "localip" => bearer.address.clone(),
        _ => bearer.remotes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    };
    site.show(&json!({ property: value }), |_| println!("{value}"))
}

fn print(b: &BearerView, details: bool) {
    println!("{}", b.name);
    if !details {
        return;
    }
    println!(
        "  Address:{}  MTU:{}  Priority:{}  Tolerance:{} ms  Window:{} packets",
        b.address, b.mtu_bytes, b.priority, b.tolerance_ms, b.window_packets
    );
    let device = b.device.as_deref().unwrap_or("-");
    let buffer = b.receive_buffer_bytes.map_or("ring".to_owned(), |n| format!("{n} bytes"));
    println!("  State:{}  Device:{device}  Receive buffer:{buffer}", b.state);
    println!(
        "  RX frames:{}  TX frames:{}  Not accepted by the medium:{}",
        b.received_frames, b.sent_frames, b.unsent_frames
    );
    if let Some(bytes) = b.run_frame_bytes_max {
        println!(
            "  RX runs:{}  TX runs:{}  Maximum frame in a run:{bytes} bytes",
            b.received_runs, b.sent_runs
        );
    }
    b.remotes.iter().for_each(|remote| println!("  Remote:{remote}"));
    b.removed.iter().for_each(|remote| println!("  Removed:{remote}"));
}
