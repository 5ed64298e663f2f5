//! `crossway tipc node`.

use std::process::ExitCode;

use crossway_tipc_client::admin::{NodeView, Order, PeerView};

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
    /// Not supported while a tipcd runs: address and cluster are set at its start
    #[command(hide = true)]
    Set {
        /// { address ADDRESS | netid NETID | identity IDENTITY }
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
}

impl Node {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        if let Some(What::Set { words }) = self.what {
            anyhow::bail!(
                "cannot set {}: address, cluster and identity of a tipcd are set when it starts; restart it with --address, --netid or --id",
                words.join(" ")
            );
        }
        let node = ask!(site, Order::Node, Node);
        match self.what {
            None | Some(What::Statistics | What::Set { .. }) => site.show(&*node, print_statistics),
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
                };
                let value = value.ok_or_else(|| {
                    anyhow::anyhow!("the node has no {name} yet: it gets one about a second after its first bearer is enabled (crossway tipc bearer enable)")
                })?;
                site.show(&serde_json::json!({ name: value }), |_| println!("{value}"))
            }
        }
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
