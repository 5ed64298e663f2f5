//! `crossway tipc link`.

use std::process::ExitCode;

use crossway_tipc_client::admin::{BroadcastView, CounterView, LinkView, MulticastWay, Order};
use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::monitor::Monitor;
use super::{SetArguments, Site, ask};

/// What the kernel calls it.
const BROADCAST_LINK: &str = "broadcast-link";

#[derive(clap::Args)]
pub(super) struct Link {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The links and whether each is up
    List,
    /// Counters of all links, or of one; the broadcast link is `broadcast-link`
    #[command(visible_alias = "stat")]
    Statistics(Statistics),
    /// Shows tolerance, priority and window of a link
    Get {
        /// The link's name; of `broadcast-link` it is how multicasts travel
        link: String,
    },
    /// Who watches whom in a cluster too large for everybody to watch everybody
    #[command(visible_alias = "mon")]
    Monitor(Monitor),
    /// Sets a link, and with it the peer's end; a new priority has it come up anew
    Set {
        /// The link's name
        link: String,
        #[command(flatten)]
        settings: SetArguments,
    },
    /// Sets how multicasts travel whose sockets leave it to the node, from now on
    SetBroadcast(SetBroadcast),
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Statistics {
    #[command(subcommand)]
    what: Option<OfStatistics>,
    /// The link's name, as `link list` has it
    link: Option<String>,
}

#[derive(clap::Subcommand)]
enum OfStatistics {
    /// Shows them, which is also what happens without this word
    Show {
        /// The link's name
        link: Option<String>,
    },
    /// Begins the counters of all links, or of one, anew
    Reset {
        /// The link's name
        link: Option<String>,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct SetBroadcast {
    /// The way: as the number of nodes suggests, always by the broadcast link, or always one copy to each node
    #[arg(long, value_enum)]
    method: Option<Method>,
    /// With autoselect: the share of the peers, in percent, up to which each gets a copy of its own
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(..=100))]
    ratio: Option<u8>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Method {
    Autoselect,
    Broadcast,
    Replicast,
}

impl Link {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List => {
                let all = All::of(site)?;
                site.show(&all, |all| {
                    let broadcast = (&all.0.name, all.0.up);
                    for (name, up) in
                        std::iter::once(broadcast).chain(all.1.iter().map(|l| (&l.name, l.up)))
                    {
                        println!("{name}: {}", if up { "up" } else { "down" });
                    }
                })
            }
            What::Statistics(Statistics { what: Some(OfStatistics::Reset { link }), .. }) => {
                site.carry_out(&Order::ResetStatistics { name: link })
            }
            What::Statistics(Statistics { what, link }) => {
                let link = match what {
                    Some(OfStatistics::Show { link }) => link,
                    _ => link,
                };
                statistics(site, link.as_deref())
            }
            What::Get { link } if link == BROADCAST_LINK => {
                site.show(&*ask!(site, Order::Broadcast, Broadcast), |link| {
                    println!(
                        "method:{}  ratio:{}%  window:{} packets",
                        way(link),
                        link.replicast_percent,
                        link.window_packets
                    );
                })
            }
            What::Get { link } => site.show(&one(site, &link)?, |link| {
                println!(
                    "tolerance:{} ms  priority:{}  window:{} packets",
                    link.tolerance_ms, link.priority, link.window_packets
                );
            }),
            What::Monitor(monitor) => monitor.run(site),
            What::Set { link, settings } => {
                site.carry_out(&Order::SetLink { name: link, settings: settings.settings() })
            }
            What::SetBroadcast(SetBroadcast { method, ratio }) => {
                let method = method.map(|method| match method {
                    Method::Autoselect => MulticastWay::Autoselect,
                    Method::Broadcast => MulticastWay::Broadcast,
                    Method::Replicast => MulticastWay::Replicast,
                });
                site.carry_out(&Order::SetMulticasts { method, replicast_percent: ratio })
            }
        }
    }
}

fn statistics(site: &Site<'_>, link: Option<&str>) -> anyhow::Result<ExitCode> {
    match link {
        None => site.show(&All::of(site)?, |all| {
            print_broadcast(&all.0);
            all.1.iter().for_each(print_statistics);
        }),
        Some(BROADCAST_LINK) => {
            site.show(&*ask!(site, Order::Broadcast, Broadcast), print_broadcast)
        }
        Some(name) => site.show(&one(site, name)?, print_statistics),
    }
}

const fn way(link: &BroadcastView) -> &'static str {
    match link.method {
        MulticastWay::Autoselect => "autoselect",
        MulticastWay::Broadcast => "broadcast",
        MulticastWay::Replicast => "replicast",
    }
}

/// The broadcast link and the others, which is also their order in JSON.
struct All(Box<BroadcastView>, Vec<LinkView>);

impl All {
    fn of(site: &Site<'_>) -> anyhow::Result<Self> {
        Ok(Self(ask!(site, Order::Broadcast, Broadcast), ask!(site, Order::Links, Links)))
    }
}

impl Serialize for All {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.1.len() + 1))?;
        list.serialize_element(&self.0)?;
        for link in &self.1 {
            list.serialize_element(link)?;
        }
        list.end()
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
    let c = &link.counters;
    print_packets(c);
    println!("  RX octets:{}", c.received_octets);
    println!("  TX octets:{}", c.sent_octets);
    print_profile(c);
    println!(
        "  RX states:{} probes:{} naks:{} defs:{} dups:{}",
        c.received_states, c.received_probes, c.received_naks, c.early_packets, c.duplicate_packets
    );
    println!(
        "  TX states:{} probes:{} naks:{} acks:{} retrans:{}",
        c.sent_states, c.sent_probes, c.sent_naks, c.sent_acks, c.resent_packets
    );
    print_congestion(c);
    println!("  Came up:{}", link.ups);
    println!();
}

fn print_broadcast(link: &BroadcastView) {
    println!("Link <{}>", link.name);
    println!(
        "  MTU:{}  Window:{} packets  Listeners:{}",
        link.mtu_octets, link.window_packets, link.listeners
    );
    let c = &link.counters;
    print_packets(c);
    println!("  RX octets:{}", c.received_octets);
    println!("  TX octets:{}", c.sent_octets);
    print_profile(c);
    println!("  RX naks:{} defs:{} dups:{}", c.received_naks, c.early_packets, c.duplicate_packets);
    println!("  TX naks:{} acks:{} retrans:{}", c.sent_naks, c.sent_acks, c.resent_packets);
    print_congestion(c);
    println!();
}

fn print_packets(c: &CounterView) {
    let line = |way: &str, packets, fragments: [u64; 2], bundles: [u64; 2]| {
        println!(
            "  {way} packets:{packets} fragments:{}/{} bundles:{}/{}",
            fragments[0], fragments[1], bundles[0], bundles[1]
        );
    };
    let fragments = [c.received_fragments, c.received_fragmented];
    line("RX", c.received_packets, fragments, [c.received_bundles, c.received_bundled]);
    let fragments = [c.sent_fragments, c.sent_fragmented];
    line("TX", c.sent_packets, fragments, [c.sent_bundles, c.sent_bundled]);
}

/// The classes as the kernel's tool names them; every message is counted, not one in a while.
fn print_profile(c: &CounterView) {
    const CLASSES: [&str; 7] = ["0-64", "-256", "-1024", "-4096", "-16384", "-32768", "-66000"];
    let all = c.profile_messages.max(1);
    println!(
        "  TX profile sample:{} packets average:{} octets",
        c.profile_messages,
        c.profile_octets / all
    );
    let share = |(name, count): (&str, u64)| format!("{name}:{}%", count * 100 / all);
    let shares: Vec<String> = CLASSES.into_iter().zip(c.profile).map(share).collect();
    println!("  {}", shares.join(" "));
}

fn print_congestion(c: &CounterView) {
    println!(
        "  Congestion link:{}  Send queue max:{} avg:{}",
        c.congestions, c.queue_max_packets, c.queue_average_packets
    );
}
