//! `crossway agent`: runs the roles of a measurement that belong to this host.

use std::process::ExitCode;

use super::Run;
use crate::ui::Ui;

/// Run the processes of a measurement on this host, for a `crossway measure --hosts` on another host, which starts this
/// agent and communicates with it through standard input and output
#[derive(clap::Args)]
pub(crate) struct Agent {}

impl Run for Agent {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        Ok(crossway_lab::agent::main())
    }
}
