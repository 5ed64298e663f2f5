//! `crossway tipc node`.

use std::process::ExitCode;

use std::path::Path;

use crossway_tipc_client::admin::{
    EncryptionView, KEY_USAGE, KeyView, NodeView, Order, PeerView, key_order, read_key_file,
};

use super::{Site, ask};

#[derive(clap::Args)]
pub(super) struct Node {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// List this node and the others: identity, address and state
    List,
    /// Print one property of this node
    Get {
        /// Property to print
        #[arg(value_enum)]
        property: Property,
    },
    /// Show node-local traffic, memory held by queues, and dropped packets
    Statistics,
    /// Set keys, when they are replaced, and whether plain frames are accepted meanwhile
    Set {
        /// { key KEY [algname gcm(aes)] [nodeid ID | master] | key file PATH | key rekeying { MINUTES | now | none } |
        /// plain { allowed | refused } }. A KEY has 20, 28 or 36 bytes, as characters or as hexadecimal digits after 0x;
        /// others can see it in the list of processes, unlike one in a file
        #[arg(required = true, value_name = "KEYWORDS")]
        words: Vec<String>,
    },
    /// Remove all keys, so that frames are no longer encrypted
    Flush {
        /// The word `key`
        #[arg(required = true, value_name = "KEYWORDS")]
        words: Vec<String>,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Property {
    /// 128-bit identity of the node
    Identity,
    /// 32-bit address of the node
    Address,
    /// Number of the cluster
    #[value(alias = "clusterid")]
    Netid,
    /// Which keys this node and the others use, not the keys themselves
    Keys,
}

impl Node {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        let words = match &self.what {
            Some(What::Set { words } | What::Flush { words }) => {
                words.iter().map(String::as_str).collect()
            }
            _ => Vec::new(),
        };
        match self.what {
            Some(What::Set { .. }) => return set(site, &words),
            Some(What::Flush { .. }) => {
                anyhow::ensure!(words == ["key"], "expected `node flush key`");
                return site.carry_out(&Order::FlushKeys);
            }
            Some(What::Get { property: Property::Keys }) => {
                let keys = ask!(site, Order::Keys, Keys);
                return site.show(&*keys, print_keys);
            }
            _ => {}
        }
        let node = ask!(site, Order::Node, Node);
        match self.what {
            None | Some(What::Statistics | What::Set { .. } | What::Flush { .. }) => {
                site.show(&*node, print_statistics)
            }
            Some(What::List) => {
                let peers = ask!(site, Order::Peers, Peers);
                site.show(&serde_json::json!({"node": node, "peers": peers}), |_| {
                    print_list(&node, &peers);
                })
            }
            Some(What::Get { property }) => {
                let (name, value) = match property {
                    Property::Identity => ("identity", node.identity),
                    Property::Address => ("address", node.address),
                    Property::Netid => ("netid", Some(node.netid.to_string())),
                    Property::Keys => ("keys", None),
                };
                let value = value.ok_or_else(|| {
                    anyhow::anyhow!("the node has no {name} yet: it gets one about a second after its first bearer is enabled (crossway tipc bearer enable)")
                })?;
                site.show(&serde_json::json!({ name: value }), |_| println!("{value}"))
            }
        }
    }
}

fn set(site: &Site<'_>, words: &[&str]) -> anyhow::Result<ExitCode> {
    let order = match words {
        ["key", "file", path] => {
            let orders = read_key_file(Path::new(path)).map_err(anyhow::Error::msg)?;
            let (last, first) = orders.split_last().expect("a key file has a key");
            for order in first {
                ask_done(site, order)?;
            }
            return site.carry_out(last);
        }
        ["key", words @ ..] => key_order(words).map_err(anyhow::Error::msg)?,
        ["plain", "allowed"] => Order::SetPlain { allowed: true },
        ["plain", "refused"] => Order::SetPlain { allowed: false },
        ["address" | "addr" | "netid" | "identity" | "clusterid", ..] => anyhow::bail!(
            "cannot set {}: address, cluster and identity of a tipcd are set when it starts; restart it with --address, --netid or --id",
            words.join(" ")
        ),
        [word, ..] => anyhow::bail!(
            "'{word}' is not recognised; expected `key {KEY_USAGE}`, or `plain allowed|refused`"
        ),
        [] => anyhow::bail!("nothing to set"),
    };
    site.carry_out(&order)
}

/// Sends an order that is only acknowledged.
fn ask_done(site: &Site<'_>, order: &Order) -> anyhow::Result<()> {
    match site.tipcd.order(order)? {
        crossway_tipc_client::admin::Outcome::Done => Ok(()),
        other => Err(site.tipcd.nonsense(format!("{other:?}")).into()),
    }
}

fn print_keys(view: &EncryptionView) {
    let plain =
        if view.plain_allowed { "accepted from nodes that do not encrypt yet" } else { "refused" };
    if view.encrypts {
        println!("Frames are encrypted; plain frames are {plain}.");
    } else {
        println!("Frames are not encrypted: this node has no keys.");
    }
    let others = if view.all_peers_encrypt { "all" } else { "not all" };
    let rekeying = view.rekeying_s.map_or_else(|| "none".to_owned(), |s| format!("{s} s"));
    println!(
        "Other nodes encrypt: {others}  Rekeying: {rekeying}  Changes of key: {}",
        view.switches
    );
    println!(
        "{:<32} {:>6} {:<8} {:<8} {:>5} {:>6}",
        "Node Identity", "Key", "State", "Mode", "Bits", "Users"
    );
    let line = |identity: &str, key: &KeyView| {
        let number = key.number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        println!(
            "{identity:<32} {number:>6} {:<8} {:<8} {:>5} {:>6}",
            key.state, key.mode, key.length_bits, key.users
        );
    };
    view.own.iter().for_each(|key| line("this node", key));
    for peer in &view.peers {
        peer.keys.iter().for_each(|key| line(&peer.identity, key));
    }
}

fn print_list(node: &NodeView, peers: &[PeerView]) {
    println!("{:<32} {:<8} State", "Node Identity", "Hash");
    let line = |identity: &str, address: &str, up: bool| {
        println!("{identity:<32} {address:>8} {}", if up { "up" } else { "down" });
    };
    let none = String::new();
    let address = node.address.as_ref().unwrap_or(&none);
    line(node.identity.as_ref().unwrap_or(&none), address, node.address.is_some());
    for peer in peers {
        line(&peer.identity, &peer.address, peer.up);
    }
}

fn print_statistics(node: &NodeView) {
    let unknown = "-".to_owned();
    println!("Node {}", node.identity.as_ref().unwrap_or(&unknown));
    let address = node.address.as_ref().unwrap_or(&unknown);
    println!("  Address:{address}  Netid:{}  Peers up:{}", node.netid, node.peers_up);
    println!("  Version:{}  Process:{}", node.version, node.pid);
    println!(
        "  Programs:{}  turned away:{}  Sockets:{}  Bindings:{}  Held:{} bytes",
        node.programs, node.turned_away, node.sockets, node.bindings, node.held_bytes
    );
    println!("  Node-local messages:{} bytes:{}", node.local.messages, node.local.bytes);
    println!(
        "  Undelivered messages:{}  Unsent frames:{}",
        node.undelivered_messages, node.unsent_frames
    );
    for (reason, count) in &node.drops {
        println!("  Dropped {reason}:{count}");
    }
}
