//! The hidden subcommands that `measure` starts: a role of a trial, and the reaper that cleans up after a killed run.

use std::path::PathBuf;
use std::process::ExitCode;

use super::Run;
use crate::ui::Ui;

/// Run one role of a trial, controlled through standard input
#[derive(clap::Args)]
pub(crate) struct Role {}

impl Run for Role {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        Ok(crossway_lab::role::main())
    }
}

/// Wait until the parent process ends, then remove what its run left behind
#[derive(clap::Args)]
pub(crate) struct Reaper {
    /// Directory of the run's leases
    dir: PathBuf,
}

impl Run for Reaper {
    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        if crossway_sys::lease::reap_after_owner(&self.dir)
            && let Err(error) = crossway_netlab::remove_abandoned()
        {
            tracing::warn!("{error}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
