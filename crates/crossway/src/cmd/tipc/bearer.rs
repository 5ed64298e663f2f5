//! `crossway tipc bearer`.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use crossway_tipc_client::admin::{BearerView, Order, Settings};

use super::{SetArguments, Site, ask};

/// The port of TIPC over UDP.
const UDP_PORT: u16 = 6118;

#[derive(clap::Args)]
pub(super) struct Bearer {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The bearers
    List {
        /// Address, limits, remotes and frame counts of each
        #[arg(long)]
        details: bool,
    },
    /// Attaches the node to a medium
    Enable(Enable),
    /// Detaches it; its links end, the peers are told
    Disable {
        /// Name, as `bearer list` has it, with or without the medium
        name: String,
    },
    /// Has a UDP bearer send to one remote more
    Add(Remote),
    /// Takes one remote off a UDP bearer: its link ends and it is not heard; others notice nothing
    Remove(Remote),
    /// Sets what future links of a bearer begin with
    Set {
        /// Name
        name: String,
        #[command(flatten)]
        settings: SetArguments,
    },
    /// Shows what future links of a bearer begin with
    Get {
        /// Name
        name: String,
    },
}

#[derive(clap::Args)]
struct Enable {
    /// `eth:DEVICE` (the tipcd needs root) or `udp:LOCAL-ADDRESS[%DEVICE][,mtu=OCTETS][,REMOTE...]`; `mtu` is the largest packet without IP and UDP headers
    bearer: String,
    /// Name of the interface, up to 15 octets [default: the device's, or udp0 and so on]
    #[arg(long)]
    name: Option<String>,
    /// Silence after which its links fail, 50 to 30000 milliseconds
    #[arg(long, value_name = "MS")]
    tolerance: Option<u32>,
    /// Priority of its links, 1 to 31
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Largest send window of its links, 1 to 8191 packets
    #[arg(long, value_name = "PACKETS")]
    window: Option<u16>,
}

#[derive(clap::Args)]
struct Remote {
    /// Name of the bearer
    name: String,
    /// The remote: IP or IP:PORT, an IPv6 address with port in brackets
    #[arg(long, value_parser = endpoint)]
    remoteip: SocketAddr,
}

fn endpoint(text: &str) -> Result<SocketAddr, String> {
    text.parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, UDP_PORT)))
        .map_err(|_| {
            "expected an IP address, or ADDRESS:PORT with an IPv6 address in brackets".into()
        })
}

impl Bearer {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List { details } => {
                let bearers = ask!(site, Order::Bearers, Bearers);
                site.show(&bearers, |bearers| bearers.iter().for_each(|b| print(b, details)))
            }
            What::Enable(e) => {
                let settings = Settings {
                    tolerance_ms: e.tolerance,
                    priority: e.priority,
                    window_packets: e.window,
                };
                site.carry_out(&Order::EnableBearer { bearer: e.bearer, name: e.name, settings })
            }
            What::Disable { name } => site.carry_out(&Order::DisableBearer { name }),
            What::Add(Remote { name, remoteip }) => {
                site.carry_out(&Order::AddRemote { name, remote: remoteip })
            }
            What::Remove(Remote { name, remoteip }) => {
                site.carry_out(&Order::RemoveRemote { name, remote: remoteip })
            }
            What::Set { name, settings } => {
                site.carry_out(&Order::SetBearer { name, settings: settings.settings() })
            }
            What::Get { name } => {
                let bearers = ask!(site, Order::Bearers, Bearers);
                let is_meant = |b: &&BearerView| {
                    b.name == name || b.name.split_once(':').is_some_and(|(_, n)| n == name)
                };
                let bearer = bearers.iter().find(is_meant).ok_or_else(|| {
                    anyhow::anyhow!("no bearer {name}: see crossway tipc bearer list")
                })?;
                site.show(bearer, |b| {
                    println!(
                        "tolerance:{} ms  priority:{}  window:{} packets  mtu:{}",
                        b.tolerance_ms, b.priority, b.window_packets, b.mtu_octets
                    );
                })
            }
        }
    }
}

fn print(b: &BearerView, details: bool) {
    println!("{}", b.name);
    if !details {
        return;
    }
    println!(
        "  Address:{}  MTU:{}  Priority:{}  Tolerance:{} ms  Window:{} packets",
        b.address, b.mtu_octets, b.priority, b.tolerance_ms, b.window_packets
    );
    let device = b.device.as_deref().unwrap_or("-");
    let buffer = b.receive_buffer_octets.map_or("ring".to_owned(), |n| format!("{n} octets"));
    println!("  State:{}  Device:{device}  Receive buffer:{buffer}", b.state);
    println!(
        "  RX frames:{}  TX frames:{}  Not taken by the medium:{}",
        b.received_frames, b.sent_frames, b.unsent_frames
    );
    if let Some(octets) = b.run_frame_octets_max {
        println!(
            "  RX runs:{}  TX runs:{}  of frames up to {octets} octets",
            b.received_runs, b.sent_runs
        );
    }
    b.remotes.iter().for_each(|remote| println!("  Remote:{remote}"));
    b.removed.iter().for_each(|remote| println!("  Removed:{remote}"));
}
