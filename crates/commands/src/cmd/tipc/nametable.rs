//! `crossway tipc nametable`.

use std::process::ExitCode;

use crossway_tipc_client::admin::NameView;

use super::Site;

#[derive(clap::Args)]
pub(super) struct Nametable {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Clone, Copy, clap::Subcommand)]
enum What {
    /// Show all bindings known to the node
    Show {
        /// Show only bindings of this service type
        #[arg(long = "type", value_name = "TYPE")]
        service: Option<u32>,
    },
}

impl Nametable {
    pub(super) fn run(self, site: &Site<'_>) -> anyhow::Result<ExitCode> {
        let mut names = site.tipcd.names()?;
        if let Some(What::Show { service: Some(service) }) = self.what {
            names.retain(|name| name.service == service);
        }
        site.show(&names, |names| print(names))
    }
}

fn print(names: &[NameView]) {
    println!("{:<10} {:<10} {:<10} {:<8} {:<10} Node", "Type", "Lower", "Upper", "Scope", "Port");
    for n in names {
        println!(
            "{:<10} {:<10} {:<10} {:<8} {:<10} {}",
            n.service, n.lower, n.upper, n.scope, n.port, n.node
        );
    }
}
