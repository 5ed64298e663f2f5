//! `crossway tipcd`.

use std::process::ExitCode;

use crossway_tipc_node::{TipcdOptions, run_tipcd};

use super::Run;
use crate::ui::Ui;

/// Serve TIPC sockets to programs: a TIPC node in user space, compatible with Linux kernels
///
/// Without a bearer, the node serves only programs on this host. UDP bearers need no privileges.
#[derive(clap::Args)]
pub(crate) struct Tipcd {
    #[command(flatten)]
    options: TipcdOptions,
}

impl Run for Tipcd {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        run_tipcd(&self.options)?;
        Ok(ExitCode::SUCCESS)
    }
}
