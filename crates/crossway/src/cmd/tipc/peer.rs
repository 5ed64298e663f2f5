//! `crossway tipc peer`.

use std::process::ExitCode;

use crossway_tipc_client::admin::{Order, PeerView};

use super::{Site, ask};

#[derive(clap::Args)]
pub(super) struct Peer {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Forgets a node that is down; discovery may find it again
    Remove {
        /// Its identity or address, as `peer list` has them
        node: String,
    },
    /// The other nodes
    List {
        /// What each announced, too
        #[arg(long)]
        details: bool,
    },
}

impl Peer {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        if let Some(What::Remove { node }) = self.what {
            return site.carry_out(&Order::RemovePeer { name: node });
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
