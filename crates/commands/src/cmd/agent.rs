//! `crossway agent`: runs the roles of a measurement that belong to this host.

use std::process::ExitCode;

use super::Run;
use crate::ui::Ui;

/// Run this host's processes of a measurement between hosts
///
/// `crossway measure --hosts` on another host starts this command and communicates with it through standard input and
/// output.
#[derive(clap::Args)]
pub(crate) struct Agent {}

impl Run for Agent {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        Ok(crossway_lab::agent::main())
    }
}
