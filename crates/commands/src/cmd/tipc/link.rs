//! `crossway tipc link`.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use crossway_tipc_client::admin::{BroadcastView, CounterView, LinkView, MulticastWay, Order};
use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::monitor::Monitor;
use super::words::Words;
use super::{SetArguments, Site, ask};

/// Name of the broadcast link, as in the kernel.
const BROADCAST_LINK: &str = "broadcast-link";

#[derive(clap::Args)]
pub(super) struct Link {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the links, and show whether each is up
    List,
    /// Show or reset the counters of all links or of one; the name of the broadcast link is `broadcast-link`
    #[command(visible_alias = "stat")]
    Statistics(Statistics),
    /// Show tolerance, priority or window of a link, or how multicasts are sent
    Get {
        /// Name of the link, or `broadcast-link`; or, in iproute2's syntax: { priority | tolerance | window } link
        /// LINK, or broadcast
        #[arg(required = true, value_name = "LINK | KEYWORDS")]
        words: Vec<String>,
    },
    /// Show and configure which nodes monitor which; in a large cluster, each node monitors only some of the others
    #[command(visible_alias = "mon")]
    Monitor(Monitor),
    /// Set tolerance or priority of a link at both ends (a new priority makes the link reconnect), the link's window at
    /// this end, or how multicasts are sent
    Set {
        /// Name of the link, with at least one of the options below; or, in iproute2's syntax: { priority | tolerance |
        /// window } VALUE link LINK, or broadcast { BROADCAST | REPLICAST | AUTOSELECT [ratio PERCENT] }
        #[arg(required = true, value_name = "LINK | KEYWORDS")]
        words: Vec<String>,
        #[command(flatten)]
        settings: SetArguments,
    },
    /// Set how multicasts are sent, except those of sockets that choose a method themselves
    SetBroadcast(SetBroadcast),
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Statistics {
    #[command(subcommand)]
    what: Option<OfStatistics>,
    /// Name of the link, as `link list` shows it; or, in iproute2's syntax: link LINK [default: all links]
    #[arg(value_name = "LINK")]
    words: Vec<String>,
}

#[derive(clap::Subcommand)]
enum OfStatistics {
    /// Show the counters (the default without a subcommand)
    Show {
        /// Name of the link; or, in iproute2's syntax: link LINK [default: all links]
        #[arg(value_name = "LINK")]
        words: Vec<String>,
    },
    /// Reset the counters of all links or of one
    Reset {
        /// Name of the link; or, in iproute2's syntax: link LINK [default: all links]
        #[arg(value_name = "LINK")]
        words: Vec<String>,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct SetBroadcast {
    /// How to send: autoselect chooses by the number of nodes, broadcast always uses the broadcast link, replicast
    /// always sends one copy to each node
    #[arg(long, value_enum)]
    method: Option<Method>,
    /// With autoselect: send separate copies if the destination nodes number at most 1 + PERCENT % of the peers;
    /// otherwise use the broadcast link
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(..=100))]
    ratio: Option<u8>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Method {
    Autoselect,
    Broadcast,
    Replicast,
}

impl From<Method> for MulticastWay {
    fn from(method: Method) -> Self {
        match method {
            Method::Autoselect => MulticastWay::Autoselect,
            Method::Broadcast => MulticastWay::Broadcast,
            Method::Replicast => MulticastWay::Replicast,
        }
    }
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
            What::Statistics(Statistics { what: Some(OfStatistics::Reset { words }), .. }) => {
                site.carry_out(&Order::ResetStatistics { name: link_of(Words::new(words))? })
            }
            What::Statistics(Statistics { what, words }) => {
                let words = match what {
                    Some(OfStatistics::Show { words }) => words,
                    _ => words,
                };
                statistics(site, link_of(Words::new(words))?.as_deref())
            }
            What::Get { words } => get(site, Words::new(words)),
            What::Monitor(monitor) => monitor.run(site),
            What::Set { words, settings } => set(site, Words::new(words), &settings),
            What::SetBroadcast(SetBroadcast { method, ratio }) => {
                let method = method.map(MulticastWay::from);
                site.carry_out(&Order::SetMulticasts { method, replicast_percent: ratio })
            }
        }
    }
}

/// Describes in error messages how to name a link.
const LINK: &str = "the link's name, or `link LINK`";

/// Returns the name of the link that `words` give; `None` if they are empty. All other keywords must have been removed
/// from `words` before.
fn link_of(mut words: Words) -> anyhow::Result<Option<String>> {
    match words.text("link")? {
        Some(link) => words.end(LINK).map(|()| Some(link)),
        None => words.rest(LINK),
    }
}

fn get(site: &Site<'_>, mut words: Words) -> anyhow::Result<ExitCode> {
    let property = words.property(&["priority", "tolerance", "window"]);
    let broadcast = words.flag("broadcast");
    let link = link_of(words)?;
    if broadcast || link.as_deref() == Some(BROADCAST_LINK) {
        let link = ask!(site, Order::Broadcast, Broadcast);
        match property {
            Some("window") => {
                let window = link.window_packets;
                return site
                    .show(&serde_json::json!({ "window": window }), |_| println!("{window}"));
            }
            Some(other) => anyhow::bail!(
                "the broadcast link has no {other}; it has method, ratio and window: crossway tipc link get broadcast"
            ),
            None => {}
        }
        return site.show(&*link, |link| {
            println!(
                "method:{}  ratio:{}%  window:{} packets",
                way(link),
                link.replicast_percent,
                link.window_packets
            );
        });
    }
    let link = link.with_context(|| format!("no link is named; give {LINK}"))?;
    let link = one(site, &link)?;
    let Some(property) = property else {
        return site.show(&link, |link| {
            println!(
                "tolerance:{} ms  priority:{}  window:{} packets",
                link.tolerance_ms, link.priority, link.window_packets
            );
        });
    };
    let value = match property {
        "priority" => u64::from(link.priority),
        "tolerance" => link.tolerance_ms,
        _ => u64::from(link.window_packets),
    };
    site.show(&serde_json::json!({ property: value }), |_| println!("{value}"))
}

fn set(site: &Site<'_>, mut words: Words, settings: &SetArguments) -> anyhow::Result<ExitCode> {
    if let Some(method) = words.text("broadcast")? {
        let replicast_percent = words.value("ratio")?;
        words.end("broadcast { BROADCAST | REPLICAST | AUTOSELECT [ratio PERCENT] }")?;
        let method = Method::from_str(&method, true).map_err(|_| {
            anyhow::anyhow!(
                "'{method}' is not a multicast method; use BROADCAST, REPLICAST or AUTOSELECT"
            )
        })?;
        return site
            .carry_out(&Order::SetMulticasts { method: Some(method.into()), replicast_percent });
    }
    let settings = settings.or(words.settings()?)?;
    let name = link_of(words)?.with_context(|| format!("no link is named; give {LINK}"))?;
    ensure!(
        name != BROADCAST_LINK,
        "tolerance, priority and window of {BROADCAST_LINK} cannot be set on a tipcd; to set how multicasts are sent: \
         crossway tipc link set broadcast BROADCAST|REPLICAST|AUTOSELECT"
    );
    site.carry_out(&Order::SetLink { name, settings })
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

/// All links: first the broadcast link, then the others, in the order of the JSON output.
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
    found.ok_or_else(|| {
        anyhow::anyhow!("there is no link {name}; list the links with: crossway tipc link list")
    })
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
        link.mtu_bytes, link.priority, link.tolerance_ms, link.window_packets
    );
    let round_trip = link.round_trip_us.map_or("-".to_owned(), |us| format!("{us} us"));
    println!(
        "  Plane:{}  Remote:{}  Round trip:{round_trip}  Window now:{} packets",
        link.plane, link.remote, link.window_now_packets
    );
    let c = &link.counters;
    print_packets(c);
    println!("  RX bytes:{}", c.received_bytes);
    println!("  TX bytes:{}", c.sent_bytes);
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
        link.mtu_bytes, link.window_packets, link.listeners
    );
    let c = &link.counters;
    print_packets(c);
    println!("  RX bytes:{}", c.received_bytes);
    println!("  TX bytes:{}", c.sent_bytes);
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

/// Prints the shares of messages by size class, with the labels of the kernel's tool. Every message is counted, not
/// only a sample.
fn print_profile(c: &CounterView) {
    const CLASSES: [&str; 7] = ["0-64", "-256", "-1024", "-4096", "-16384", "-32768", "-66000"];
    let all = c.profile_messages.max(1);
    println!(
        "  TX profile sample:{} packets average:{} bytes",
        c.profile_messages,
        c.profile_bytes / all
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
