//! `crossway agent`: a host's end of a measurement.

use std::process::ExitCode;

use super::Run;
use crate::ui::Ui;

/// Run roles on this host for a controller on another; started by `measure --hosts`, which talks to it over standard input and
/// output
#[derive(clap::Args)]
pub(crate) struct Agent {}

impl Run for Agent {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        Ok(crossway_lab::agent::main())
    }
}
