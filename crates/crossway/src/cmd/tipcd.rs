//! `crossway tipcd`.

use std::process::ExitCode;

use crossway_tipc_node::{TipcdOptions, run_tipcd};

use super::Run;
use crate::ui::Ui;

/// Serves TIPC sockets to programs: a node in user space, a peer to Linux kernels and to its like
///
/// Without a bearer it is a lone node, for the programs of this host. UDP needs no privilege.
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
