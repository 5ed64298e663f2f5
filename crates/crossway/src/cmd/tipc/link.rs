//! `crossway tipc link`.

use std::process::ExitCode;

use crossway_tipc_client::admin::{LinkView, Order};

use super::{SetArguments, Site, ask};

#[derive(clap::Args)]
pub(super) struct Link {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The links and whether each is up
    List,
    /// Counters of all links, or of one
    #[command(visible_alias = "stat")]
    Statistics {
        /// The link's name, as `link list` has it
        link: Option<String>,
    },
    /// Shows tolerance, priority and window of a link
    Get {
        /// The link's name
        link: String,
    },
    /// Sets a link, and with it the peer's end; a new priority has it come up anew
    Set {
        /// The link's name
        link: String,
        #[command(flatten)]
        settings: SetArguments,
    },
}

impl Link {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List => {
                let links = ask!(site, Order::Links, Links);
                site.show(&links, |links| {
                    for link in links {
                        println!("{}: {}", link.name, if link.up { "up" } else { "down" });
                    }
                })
            }
            What::Statistics { link: None } => {
                let links = ask!(site, Order::Links, Links);
                site.show(&links, |links| links.iter().for_each(print_statistics))
            }
            What::Statistics { link: Some(name) } => {
                site.show(&one(site, &name)?, print_statistics)
            }
            What::Get { link } => site.show(&one(site, &link)?, |link| {
                println!(
                    "tolerance:{} ms  priority:{}  window:{} packets",
                    link.tolerance_ms, link.priority, link.window_packets
                );
            }),
            What::Set { link, settings } => {
                site.carry_out(&Order::SetLink { name: link, settings: settings.settings() })
            }
        }
    }
}

fn one(site: &Site<'_>, name: &str) -> anyhow::Result<LinkView> {
    let links = ask!(site, Order::Links, Links);
    let found = links.into_iter().find(|link| link.name == name);
    found.ok_or_else(|| anyhow::anyhow!("no link {name}: see crossway tipc link list"))
}

fn print_statistics(link: &LinkView) {
    let state = match (link.up, link.active) {
        (true, true) => "ACTIVE",
        (true, false) => "STANDBY",
        (false, _) => "DEFUNCT",
    };
    println!("Link <{}>", link.name);
    println!(
        "  {state}  MTU:{}  Priority:{}  Tolerance:{} ms  Window:{} packets",
        link.mtu_octets, link.priority, link.tolerance_ms, link.window_packets
    );
    let round_trip = link.round_trip_us.map_or("-".to_owned(), |us| format!("{us} us"));
    println!(
        "  Plane:{}  Remote:{}  Round trip:{round_trip}  Window now:{} packets",
        link.plane, link.remote, link.window_now_packets
    );
    println!("  RX packets:{} octets:{}", link.received_packets, link.received_octets);
    println!("  TX packets:{} octets:{}", link.sent_packets, link.sent_octets);
    println!(
        "  RX states:{} naks:{} defs:{} dups:{}",
        link.received_states, link.received_naks, link.early_packets, link.duplicate_packets
    );
    println!(
        "  TX states:{} probes:{} naks:{} retrans:{}",
        link.sent_states, link.sent_probes, link.sent_naks, link.resent_packets
    );
    println!("  Came up:{}", link.ups);
    println!();
}
