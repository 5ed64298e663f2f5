//! `crossway tipc peer`.

use std::process::ExitCode;

use anyhow::Context;
use crossway_tipc_client::admin::{Order, PeerView};

use super::words::Words;
use super::{Site, ask};

#[derive(clap::Args)]
pub(super) struct Peer {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Forget a node that is down; it may be discovered again
    Remove {
        /// Identity or address of the node, as `peer list` shows them; or, in iproute2's syntax: { address ADDRESS |
        /// identity IDENTITY }
        #[arg(required = true, value_name = "NODE | KEYWORDS")]
        words: Vec<String>,
    },
    /// List the other nodes
    List {
        /// Also show the capabilities that each node announced
        #[arg(long)]
        details: bool,
    },
}

impl Peer {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        if let Some(What::Remove { words }) = self.what {
            const USAGE: &str = "the node's identity or address";
            let mut words = Words::new(words);
            let name = match words.text("address")?.or(words.text("identity")?) {
                Some(name) => words.end(USAGE).map(|()| name)?,
                None => {
                    words.rest(USAGE)?.with_context(|| format!("no node is named; give {USAGE}"))?
                }
            };
            return site.carry_out(&Order::RemovePeer { name });
        }
        let peers = ask!(site, Order::Peers, Peers);
        let details = matches!(self.what, Some(What::List { details: true }));
        site.show(&peers, |peers| print(peers, details))
    }
}

fn print(peers: &[PeerView], details: bool) {
    println!("{:<32} {:<8} {:<5} {:<8} Links", "Node Identity", "Hash", "State", "Bindings");
    for p in peers {
        let state = if p.up { "up" } else { "down" };
        let links = p.links.join(" ");
        println!("{:<32} {:>8} {state:<5} {:<8} {links}", p.identity, p.address, p.bindings);
        if details {
            println!("  Capabilities: {}", p.capabilities.join(" "));
        }
    }
}
