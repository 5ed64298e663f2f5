//! `crossway tipc link monitor`.

use std::process::ExitCode;

use crossway_tipc_client::admin::{MonitorView, MonitoredView, Order};
use serde_json::{Value, json};

use super::words::Words;
use super::{Site, ask};

#[derive(clap::Args)]
pub(super) struct Monitor {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show the size of the cluster on each bearer, and whether every node monitors all others or only some of them
    Summary,
    /// Show for each bearer how each node is monitored, and which states it reports for the nodes that it monitors
    ///
    /// This node probes the nodes marked `direct`; other nodes probe those marked `indirect`. The nodes form a ring,
    /// ordered by address, and each monitors some of the nodes that follow it. The column applied_node_status shows
    /// what the node in the first column reports about the nodes that it monitors: a letter for each, in ring order, U
    /// for up or D for down. If its report contains nodes that do not match the ring as this node knows it, these are
    /// in the brackets, each with its address and letter.
    List {
        /// Show one bearer only: media { eth device DEVICE | udp name NAME }
        #[arg(value_name = "KEYWORDS")]
        words: Vec<String>,
    },
    /// Show a setting of monitoring
    Get {
        #[command(subcommand)]
        what: Get,
    },
    /// Change a setting of monitoring
    Set {
        #[command(subcommand)]
        what: Set,
    },
}

#[derive(clap::Subcommand)]
enum Get {
    /// Show the threshold: on a medium with at most this many nodes, this one included, each node monitors all others
    Threshold,
}

#[derive(clap::Subcommand)]
enum Set {
    /// Set the threshold: on a medium with at most this many nodes, this one included, each node monitors all others
    Threshold {
        /// Number of nodes, 0 to 4095; the kernel's default is 32
        #[arg(value_name = "NODES")]
        nodes: usize,
    },
}

impl Monitor {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        if let What::Set { what: Set::Threshold { nodes } } = self.what {
            return site.carry_out(&Order::SetMonitorThreshold { nodes });
        }
        let mut view = *ask!(site, Order::Monitor, Monitor);
        match self.what {
            What::Summary => site.show(&summary(&view), |_| print_summary(&view)),
            What::List { words } => {
                let mut words = Words::new(words);
                if let Some(name) = words.bearer()? {
                    view.bearers.retain(|on| on.bearer == name);
                    anyhow::ensure!(
                        !view.bearers.is_empty(),
                        "there is no bearer {name}; list the bearers with: crossway tipc bearer list"
                    );
                }
                words.end("`media eth device DEVICE`, or `media udp name NAME`")?;
                site.show(&list(&view), |_| print_list(&view))
            }
            What::Get { .. } | What::Set { .. } => site
                .show(&json!({ "threshold": view.threshold }), |_| println!("{}", view.threshold)),
        }
    }
}

const fn algorithm(active: bool) -> &'static str {
    if active { "overlapping-ring" } else { "full-mesh" }
}

const fn status(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

const fn monitored(direct: bool) -> &'static str {
    if direct { "direct" } else { "indirect" }
}

const fn letter(up: bool) -> &'static str {
    if up { "U" } else { "D" }
}

fn summary(view: &MonitorView) -> Vec<Value> {
    let one = |on: &crossway_tipc_client::admin::MonitoredBearerView| {
        json!({
            "bearer": on.bearer,
            "table_generation": on.table_generation,
            "cluster_size": on.cluster_size,
            "domain_size": on.domain_size,
            "algorithm": algorithm(on.active),
            "threshold": view.threshold,
        })
    };
    view.bearers.iter().map(one).collect()
}

fn print_summary(view: &MonitorView) {
    for on in &view.bearers {
        println!("bearer {}", on.bearer);
        println!("    table_generation {}", on.table_generation);
        println!("    cluster_size {}", on.cluster_size);
        println!("    domain_size {}", on.domain_size);
        println!("    algorithm {}", algorithm(on.active));
    }
}

fn unapplied(node: &MonitoredView) -> Vec<String> {
    node.unapplied.iter().map(|(addr, up)| format!("{addr}:{}", letter(*up))).collect()
}

fn list(view: &MonitorView) -> Vec<Value> {
    let one = |node: &MonitoredView| {
        json!({
            "node": node.node,
            "status": status(node.up),
            "monitored": monitored(node.direct),
            "generation": node.generation,
            "applied_node_status": node.applied.iter().map(|up| letter(*up)).collect::<Vec<_>>(),
            "[non_applied_node:status]": unapplied(node),
        })
    };
    let of = |on: &crossway_tipc_client::admin::MonitoredBearerView| json!({ "bearer": on.bearer, "nodes": on.nodes.iter().map(one).collect::<Vec<_>>() });
    view.bearers.iter().map(of).collect()
}

fn print_list(view: &MonitorView) {
    for on in &view.bearers {
        println!("bearer {}", on.bearer);
        println!(
            "node          status monitored generation applied_node_status [non_applied_node:status]"
        );
        for node in &on.nodes {
            let letters: Vec<_> = node.applied.iter().map(|up| letter(*up)).collect();
            // Five per group, as the kernel's tool prints them.
            let applied: Vec<_> = letters.chunks(5).map(<[_]>::concat).collect();
            println!(
                "{:<14}{:<7}{:<10}{:<11}{} [{}]",
                node.node,
                status(node.up),
                monitored(node.direct),
                node.generation,
                applied.join(","),
                unapplied(node).join(",")
            );
        }
    }
}
